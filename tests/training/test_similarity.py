"""The similarity map: fitted after training, or written by runs with a teacher."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from scipy.stats import spearmanr
from support.encoder_runs import CONFIG as RUN_CONFIG
from support.encoder_runs import MODEL, run
from support.letter_teachers import letters_teacher, write_vectors
from support.record_files import read_texts
from support.token_corpus import write_corpus, write_utterances

from convert_tf import SentenceEncoder
from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.folder import load_checkpoint, load_similarity_map, save_checkpoint
from convert_tf.checkpoints.vocabulary import fitting_tokenizer
from convert_tf.data import packing
from convert_tf.data.schema import PAIR
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.data.token_writer import tokenize_records
from convert_tf.export.model import export_model
from convert_tf.models.distillation import fitted_map, sentence_encodings, similarity_map
from convert_tf.numerics.vectors import unit_rows
from convert_tf.training.encoder.data import EncoderData
from convert_tf.training.encoder.task import EncoderTask, opened_losses
from convert_tf.training.processes import Processes
from convert_tf.training.teaching import similarity
from convert_tf.training.teaching.similarity import fit_similarity, similarity_report

NUM_TRAIN = 300

# These runs take a few steps, for which tracing takes longer than computing.
pytestmark = pytest.mark.usefixtures("no_graphs")

CONFIG = {"steps": 2, "eval_every": 2}
LAST = {**CONFIG, "eval_splits": ()}  # without evaluation, the last weights are the result


@pytest.fixture(scope="module")
def distilled(corpus, teacher, tmp_path_factory):
    """Folder of a run with a teacher."""
    output = tmp_path_factory.mktemp("runs") / "run"
    return run(corpus.arrays, output, **CONFIG, teacher=teacher, distillation=1.0)


@pytest.fixture(scope="module")
def plain(corpus, tmp_path_factory):
    """Folder of a run without a teacher."""
    return run(corpus.arrays, tmp_path_factory.mktemp("runs") / "plain", **CONFIG)


def test_a_turned_map_keeps_every_inner_product_and_most_with_few_numbers():
    rng = np.random.default_rng(0)
    reduced = rng.standard_normal((200, 9)).astype("float32")
    kernel = (rng.standard_normal((9, 6)) * [5, 0.1, 3, 0.2, 1, 0.3]).astype("float32")
    turned = similarity_map(reduced, kernel)
    assert turned.shape == (9, 6)

    def unit(vectors):
        return np.array([v / np.sqrt(sum(x * x for x in v)) for v in vectors])

    expected = unit(reduced @ kernel)
    found = unit(reduced @ turned)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-4)
    sizes = (found**2).sum(axis=0)
    assert (np.diff(sizes) <= 1e-5).all()
    # No plane preserves more of the vectors than that of a singular value decomposition; this one
    # is as good.
    best = np.linalg.svd(expected, compute_uv=False)[:2]
    assert (found[:, :2] ** 2).sum() == pytest.approx((best**2).sum(), rel=1e-4)
    cut = similarity_map(reduced, kernel, dim=2)
    np.testing.assert_allclose(unit_rows(cut.T), unit_rows(turned.T)[:2], atol=1e-5)


def test_one_and_a_half_times_r_is_added_to_it():
    rng = np.random.default_rng(1)
    reduced = (5 * rng.standard_normal((100, 9))).astype("float32")
    kernel = (rng.standard_normal((9, 6)) * [5, 0.1, 3, 0.2, 1, 0.3]).astype("float32")
    for factor in (0.01, 1, 100):  # the scale of the learnt map makes no difference
        turned = similarity_map(reduced, factor * kernel, dim=4)
        added = 2.5 * sentence_encodings(reduced, turned) - reduced
        of_added, of_r = (np.linalg.norm(each, axis=1).mean() for each in (added, reduced))
        assert of_added == pytest.approx(1.5 * of_r, rel=1e-4)


def test_sentence_encodings_are_nearer_to_the_teacher_than_r():
    """This holds if r is long in directions that the teacher ignores."""
    rng = np.random.default_rng(2)
    meaning, other = rng.standard_normal((300, 6)), 4 * rng.standard_normal((300, 3))
    reduced = np.concatenate([meaning, other], axis=1).astype("float32")
    kernel = np.concatenate([np.eye(6), np.zeros((3, 6))]).astype("float32")
    encodings = sentence_encodings(reduced, similarity_map(reduced, kernel))
    pairs = np.triu_indices(300, 1)
    teacher, of_r, of_sentences = (
        (unit_rows(each) @ unit_rows(each).T)[pairs] for each in (meaning, reduced, encodings)
    )
    assert spearmanr(of_sentences, teacher).statistic > spearmanr(of_r, teacher).statistic + 0.2
    # No information in r is lost: the encodings are a rotation and scaling of it.
    back, *_ = np.linalg.lstsq(encodings, reduced, rcond=None)
    np.testing.assert_allclose(encodings @ back, reduced, atol=1e-4)


def test_a_run_with_a_teacher_writes_the_map(distilled, corpus):
    texts = [text.decode() for text in read_texts(corpus.records, "train")["response"][:40]]
    encoder = SentenceEncoder(distilled, compute_dtype="float32")
    vectors = encoder.encode_similarity(texts)
    projection = np.load(distilled / "teacher_projection.npy")
    model, vocabulary = load_checkpoint(distilled)
    tokenizer = fitting_tokenizer(vocabulary, model.config)
    ids = tokenizer.token_ids(texts)[:, : model.config.max_tokens]
    reduced = model.reduce(ids.to_tensor(default_value=tokenizer.padding_id))
    mapped = np.asarray(reduced) @ projection
    mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors @ vectors.T, mapped @ mapped.T, atol=1e-4)
    sizes = (vectors**2).sum(axis=0)
    assert sizes[0] > sizes[-1]


def test_a_run_without_a_teacher_keeps_the_map_of_its_start(distilled, corpus, teacher, tmp_path):
    """The map is kept, also after resuming; its scores are dropped, because r has changed."""
    start = tmp_path / "start"
    fit_similarity(distilled, corpus.arrays, teacher, start)
    for steps in (2, 4):
        changes = {**LAST, "steps": steps}
        own = run(corpus.arrays, tmp_path / "run", model=None, init_from=start, **changes)
        np.testing.assert_array_equal(load_similarity_map(own), load_similarity_map(start))
    encodings = [SentenceEncoder(each).encode(["where is my card?"]) for each in (start, own)]
    assert not np.allclose(*encodings, atol=1e-3)
    assert "similarity" in training_facts(start)
    assert "similarity" not in training_facts(own)


def test_several_processes_learn_no_map_and_keep_that_of_their_start(
    distilled, corpus, teacher, tmp_path
):
    config = dataclasses.replace(
        RUN_CONFIG, **CONFIG, data=corpus.arrays, teacher=teacher, distillation=1.0
    )
    for number in (1, 2):
        folder = tmp_path / str(number)
        data = EncoderData(
            MODEL, config, vocabulary=None, init_from=str(distilled),
            processes=Processes(number, 0),
        )  # fmt: skip
        losses = opened_losses(data, config.losses())
        task = EncoderTask(data, losses, folder=folder, precision="float32")
        task.start(None)
        table = task.encoder.trunk.embedding.table
        table.assign(table + 0.1)
        written = task.saved_with_best()
        assert written.keys() == {"teacher_projection", "similarity_map"}
        is_kept = np.array_equal(written["similarity_map"], load_similarity_map(distilled))
        assert is_kept == (number == 2)


@pytest.mark.parametrize(
    ("shares", "compared"),
    [({}, 2_000), ({"forum": 0.5}, 2_000), ({}, 9)],
    ids=["all", "some", "few"],
)
def test_the_fitted_map_is_a_regression_on_all_but_one_in_twenty_texts(
    plain, corpus, tmp_path, monkeypatch, shares, compared
):
    """Figures are for the held-out texts with vectors, or a random sample of them."""
    monkeypatch.setattr(similarity, "_COMPARED_TEXTS", compared)
    vectors = str(tmp_path / "vectors")
    write_vectors(corpus.arrays, vectors, letters_teacher, source_shares=shares)
    examples = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    numbers = examples.thinned(shares, 0, 300)
    assert (len(numbers) == 300) == (not shares)
    found = fit_similarity(plain, corpus.arrays, vectors, tmp_path / "similar")
    texts = read_texts(corpus.records, "train")
    encoder = SentenceEncoder(plain, compute_dtype="float32")
    columns = [[texts[name][i].decode() for i in numbers] for name in ("context", "response")]
    reduced = [encoder.encode(column) for column in columns]
    taught = [letters_teacher(column).astype("float16") for column in columns]
    groups = [packing.text_groups(examples.texts(name, numbers)).tolist() for name in PAIR]
    places = {}  # of each different text
    for i in range(len(numbers)):
        for side in range(2):
            places.setdefault(groups[side][i], []).append((side, i))
    held = [places.pop(group)[0] for group in sorted(places)[::20]]
    fit = sorted(place for some in places.values() for place in some)
    both = [
        np.stack([each[side][i] for side, i in fit]).astype("float32") for each in (reduced, taught)
    ]
    kernel = fitted_map(*both)
    expected = similarity_map(both[0], kernel)
    map_ = load_similarity_map(tmp_path / "similar")
    products = [both[0] @ each for each in (map_, expected)]
    cosines = [p @ p.T / np.outer(*[np.linalg.norm(p, axis=1)] * 2) for p in products]
    np.testing.assert_allclose(*cosines, atol=2e-3)
    held_out, own = (np.stack([each[side][i] for side, i in held]) for each in (reduced, taught))
    mapped = held_out @ kernel
    cosine = np.mean([h @ t / np.linalg.norm(h) for h, t in zip(mapped, own, strict=True)])
    assert found["texts"] == len(fit)
    assert found["held_out"]["texts"] == len(held) == -(-len({*groups[0], *groups[1]}) // 20)
    assert found["held_out"]["cosine"] == pytest.approx(cosine, abs=1e-3)
    chosen = np.random.default_rng(0).permutation(len(held_out))[:compared]
    assert found["held_out"]["compared"] == len(chosen)
    above = np.triu_indices(len(chosen), 1)
    of_teacher, of_r, of_vectors = (
        (unit_rows(each) @ unit_rows(each).T)[above]
        for each in (own[chosen].astype("float32"), held_out[chosen], held_out[chosen] @ map_)
    )
    sentences = unit_rows(sentence_encodings(held_out[chosen], map_))
    for value, cosines_of in (
        (found["held_out"]["spearman_of_r"], of_r),
        (found["held_out"]["spearman_of_sentences"], (sentences @ sentences.T)[above]),
        (found["held_out"]["spearman"]["12"], of_vectors),
    ):
        assert value == pytest.approx(spearmanr(cosines_of, of_teacher).statistic, abs=0.02)
    report = similarity_report(found)
    assert f"{len(fit)} texts" in report
    assert f"{cosine:.3f}" in report
    facts = json.loads((tmp_path / "similar" / "training.json").read_text())
    assert facts["similarity"] == found
    assert facts["train"]["steps"] == 2  # earlier facts stay


def test_the_map_is_not_fitted_to_texts_that_are_held_out():
    """In pairs from dialogues, a turn is a response in one example and the context in the next."""

    class Turns:
        names = PAIR

        def texts(self, name, numbers):
            turns = numbers + numbers // 9 + (name == "response")  # dialogues of ten turns
            return packing.TokenIds(turns.astype(np.int32), np.arange(len(turns) + 1))

    numbers = np.random.default_rng(0).permutation(9_000)
    is_fitted, held_out = similarity._fitted_and_held_out(Turns(), numbers)
    turns = np.stack([Turns().texts(name, numbers).flat for name in PAIR], axis=1).ravel()
    assert len(held_out) == len({*turns[held_out]}) == 10_000 // 20
    assert {*turns[is_fitted]} == {*turns} - {*turns[held_out]}


@pytest.mark.slow
def test_a_module_gets_a_map_by_way_of_a_checkpoint(plain, corpus, tmp_path):
    module = export_model(plain, tmp_path / "module", network_bits=8)
    with pytest.raises(ValueError, match="Pass --output"):
        fit_similarity(module, corpus.arrays, "nowhere")
    (tmp_path / "a.jsonl").write_text(
        "\n".join(
            json.dumps({"text": text.decode()})
            for text in read_texts(corpus.records, "train")["context"]
        )
    )
    ids = write_utterances(tmp_path / "ids", [str(tmp_path / "a.jsonl")], corpus.vocabulary)
    vectors = str(tmp_path / "vectors")
    write_vectors(ids, vectors, letters_teacher)
    fit_similarity(module, ids, vectors, tmp_path / "similar")
    again = export_model(tmp_path / "similar", tmp_path / "again", network_bits=8)
    old, new = (SentenceEncoder(each, compute_dtype="float32") for each in (module, again))
    texts = ["where is my card", "a fish", ""]
    np.testing.assert_allclose(new.encode_contexts(texts), old.encode_contexts(texts), atol=1e-3)
    assert new.encode_similarity(texts).shape == (3, 12)
    weights = [
        [np.array(v) for v in load_checkpoint(each)[0].variables] for each in (module, again)
    ]
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3 * max(np.abs(one).max(), 1e-3))


def test_the_map_joins_a_run(plain, corpus, teacher, tmp_path):
    assert load_similarity_map(plain) is None
    folder = shutil.copytree(plain, tmp_path / "run")
    encoder, vocabulary = load_checkpoint(folder)
    facts = {**training_facts(folder), "opposites": {"triplets": 3}}  # facts about another map
    save_checkpoint(folder, encoder, vocabulary=vocabulary, training=facts)
    before = encoder.get_weights()
    fit_similarity(folder, corpus.arrays, teacher)
    assert {*training_facts(folder)} == {*facts, "similarity"} - {"opposites"}
    assert load_similarity_map(folder).shape == (MODEL.reduced_dim, 12)
    for one, other in zip(before, load_checkpoint(folder)[0].get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_cannot_be_fitted_is_refused(plain, corpus, teacher, tmp_path):
    few = tmp_path / "few"
    write_vectors(corpus.arrays, few, letters_teacher, max_examples=10)
    with pytest.raises(ValueError, match="too few to fit a map"):
        fit_similarity(plain, corpus.arrays, str(few), tmp_path / "a")
    other = write_corpus(tmp_path, num_train=30)
    with pytest.raises(ValueError, match="belong to different texts"):
        fit_similarity(plain, other.arrays, teacher, tmp_path / "a")
    ids = str(tmp_path / "buckets")
    tokenize_records(corpus.records, ids, vocabulary=corpus.vocabulary, num_oov_buckets=6)
    with pytest.raises(ValueError, match=r"have 6\. Write .* tokenize --num_oov_buckets=5`"):
        fit_similarity(plain, ids, teacher, tmp_path / "a")
