"""Distillation from a teacher and training on single texts: losses, stored vectors and runs."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support.encoder_runs import MODEL, STANDING_STILL, differ, final_weights, run, stopped_copy
from support.letter_teachers import (
    DIM,
    SIDES,
    backwards,
    letters_teacher,
    opened_vectors,
    unit,
    write_vectors,
)
from support.record_files import read_texts
from support.texts import random_texts
from support.token_corpus import NUM_OOV_BUCKETS, write_utterances

from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.folder import CheckpointError, load_checkpoint, load_similarity_map
from convert_tf.config.model import model_preset
from convert_tf.data.batches import EvaluationBatches, TrainingBatches
from convert_tf.data.schema import PAIR, SelectedExamples
from convert_tf.data.teacher_vectors import TeacherVectors, are_same_vectors, vectors_file
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.data.utterances import UtteranceDraws
from convert_tf.models.distillation import fitted_map, initial_rows, vector_losses
from convert_tf.models.encoder import DualEncoder
from convert_tf.models.losses import distinct_responses, taught_ranking_losses
from convert_tf.training.encoder.data import EncoderData
from convert_tf.training.encoder.losses import distillation
from convert_tf.training.encoder.objective import EncoderObjective
from convert_tf.training.encoder.options import EncoderTraining
from convert_tf.training.state import saved_checkpoints
from convert_tf.training.teaching.teacher import join_teachers, joined_name, open_teachers
from convert_tf.training.teaching.vectors import StoredTexts

NUM_TRAIN = 210

# These runs take a few steps, for which tracing takes longer than computing.
pytestmark = pytest.mark.usefixtures("no_graphs")


FEW = {"steps": 2, "batch_size": 8, "checkpoint_every": 1, "shuffle_buffer": 16}


@pytest.fixture(scope="module")
def texts(corpus, tmp_path_factory):
    """Folders of single texts as token ids and of their teacher vectors."""
    root = tmp_path_factory.mktemp("texts")
    rows = [
        {"text": f"{text} {i}", "source": f"bot{i % 2}", "label": f"intent{i % 5}"}
        for i, text in enumerate(random_texts(60, seed=5))
    ]
    (root / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ids = write_utterances(root / "ids", [str(root / "a.jsonl")], corpus.vocabulary)
    write_vectors(ids, root / "vectors", letters_teacher)
    return ids, str(root / "vectors")


def test_vector_loss_is_one_minus_the_cosine():
    predicted, target = 3 * unit((5, 7)), unit((5, 7), seed=1)
    target[2] = 0
    expected = [1 - p @ t / np.linalg.norm(p) for p, t in zip(predicted, target, strict=True)]
    expected[2] = 0
    np.testing.assert_allclose(vector_losses(predicted, target), expected, atol=1e-6)
    predicted = tf.Variable(np.zeros((1, 4), "float32"))
    with tf.GradientTape() as tape:
        loss = ops.sum(vector_losses(predicted, unit((1, 4))))
    assert np.isfinite(tape.gradient(loss, predicted)).all()


def test_initial_rows_keep_the_angles_of_centred_vectors():
    vectors = unit((30, 6)) + 2
    centred = vectors - vectors.mean(axis=0)
    wide = initial_rows(vectors, 10)
    assert wide.shape == (30, 10)
    assert np.sqrt((wide**2).mean()) == pytest.approx(1 / np.sqrt(10), rel=1e-5)
    ratio = (wide @ wide.T) / (centred @ centred.T)
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-3)
    narrow = initial_rows(vectors, 3)
    kept = np.linalg.svd(centred, compute_uv=False)[:3]
    found = np.linalg.svd(narrow, compute_uv=False)
    np.testing.assert_allclose(found / found[0], kept / kept[0], rtol=1e-4)


def test_a_fitted_map_turns_encodings_into_the_vectors():
    reduced = unit((500, 8)) * np.linspace(0.5, 3, 500, dtype="float32")[:, None]
    vectors = reduced @ unit((8, 5), seed=1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    reduced[3], vectors[4] = 0, 0  # one text is empty, another has no teacher vector
    kernel = fitted_map(reduced, vectors)
    assert kernel.dtype == np.float32
    assert np.sqrt(np.mean(kernel**2)) == pytest.approx(np.sqrt(2 / 13), rel=1e-5)
    losses = np.array(vector_losses(reduced @ kernel, vectors))
    assert np.median(losses) < 0.01


def test_vectors_are_those_of_the_texts(corpus, teacher):
    vectors = opened_vectors(corpus.arrays, teacher)
    texts = read_texts(corpus.records, "train")
    picked = np.array([0, 209, 17])
    columns = vectors.columns(picked)
    for name in ("context", "response"):
        assert columns[f"teacher_{name}"].dtype == np.float16  # the type on disk
        expected = letters_teacher([texts[name][i].decode() for i in picked])
        np.testing.assert_allclose(columns[f"teacher_{name}"], expected, atol=1e-3)
    np.testing.assert_allclose(vectors.subwords[1], letters_teacher(["b"])[0], atol=1e-3)
    assert len(vectors.subwords) == ArrayFolder(corpus.arrays).vocab_size


def test_the_ranking_of_a_teacher_is_added_to_the_loss(corpus, teacher):
    """The added loss uses the scaled cosines of a batch's pairs, without equal responses."""
    examples = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    vectors = opened_vectors(corpus.arrays, teacher, flag="ranking_teacher")
    batches = TrainingBatches(
        examples, batch_size=8, row_tokens=64, shuffle_buffer=1, seed=0,
        marks_duplicates=True, additions=[vectors],
    )  # fmt: skip
    batch = {**next(iter(batches)), "response_groups": np.array([0, 1, 2, 3, 4, 0, 6, 7], "int32")}
    encoder = DualEncoder(
        model_preset("tiny", vocab_size=examples.padding_id - 5, num_oov_buckets=5)
    )
    options = {"l2": 0.0, "scale_start": 7.0, "scale_end": 7.0}
    outputs = encoder(batch)
    plain, taught = (
        float(model.compute_loss(batch, y_pred={**outputs, "scale": 7.0}))
        for model in (
            EncoderObjective(encoder, EncoderTraining(**options)),
            EncoderObjective(
                encoder,
                EncoderTraining(**options, ranking_teacher=teacher, ranking_distillation=2.0),
            ),
        )
    )
    contexts, responses = (
        batch[f"ranking_teacher_{name}"].astype("float32") for name in ("context", "response")
    )
    cosines = contexts @ responses.T
    scores = np.array(outputs["context_encoding"]) @ np.array(outputs["response_encoding"]).T
    groups = batch["response_groups"]
    losses = taught_ranking_losses(
        7 * scores, 7 * cosines, is_candidate=distinct_responses(groups, groups)
    )
    assert taught - plain == pytest.approx(2 * float(np.mean(losses)), rel=1e-4)


def test_vectors_of_sides_are_those_of_a_ranking_alone(corpus, tmp_path):
    folder = str(tmp_path / "sides")
    write_vectors(corpus.arrays, folder, SIDES)
    with pytest.raises(
        ValueError, match=r"another as a response, .* Pass the folder as --ranking_teacher"
    ):
        run(corpus.arrays, tmp_path / "run", teacher=folder, distillation=1.0)
    options = {"ranking_teacher": folder, "ranking_distillation": 1.0, "steps": 2}
    output = run(corpus.arrays, tmp_path / "run", **options)
    assert training_facts(output)["ranking_teacher"] == "letters"


def test_examples_beyond_the_wanted_ones_have_zeros(corpus, tmp_path):
    output = str(tmp_path / "vectors")
    write_vectors(corpus.arrays, output, letters_teacher, max_examples=100)
    columns = opened_vectors(corpus.arrays, output).columns(np.array([99, 100]))
    assert np.linalg.norm(columns["teacher_context"], axis=1) == pytest.approx([1, 0], abs=1e-3)
    with pytest.raises(
        ValueError,
        match=r"110 of the 210 .* for 100 examples\. .* number 101\. Set --train_examples",
    ):
        run(corpus.arrays, tmp_path / "run", teacher=output, distillation=1.0)
    run(corpus.arrays, tmp_path / "run", teacher=output, start_from_teacher=True)


def test_a_run_draws_examples_that_have_vectors(corpus, tmp_path):
    shares = {"forum": 0.3, "chat": 0.0}
    write_vectors(
        corpus.arrays, tmp_path / "vectors", letters_teacher, source_shares=shares, max_examples=140
    )
    options = {
        "distillation": 1.0, "batch_size": 4, "steps": 1, "teacher": str(tmp_path / "vectors"),
        "train_examples": 140, "source_shares": ("forum=0.3", "chat=0"),
    }  # fmt: skip
    run(corpus.arrays, tmp_path / "run", **options)
    for other in ({"source_shares": ()}, {"first_train_example": 1}, {"train_examples": 0}):
        with pytest.raises(
            ValueError, match=r"have no teacher vectors .* the same --source_shares"
        ):
            run(corpus.arrays, tmp_path / "other", **{**options, **other})


@pytest.mark.slow
@pytest.mark.parametrize("option", ["distillation", "start_from_teacher", "intent_contrast"])
def test_every_option_changes_the_weights(corpus, teacher, texts, tmp_path, option):
    fields = {
        "distillation": {"teacher": teacher, "distillation": 1.0},
        "start_from_teacher": {"teacher": teacher, "start_from_teacher": True},
        "intent_contrast": {
            "utterances": texts[0], "utterances_per_pair": 4, "intent_contrast": 1.0,
        },
    }  # fmt: skip
    plain = run(corpus.arrays, tmp_path / "plain")
    taught = run(corpus.arrays, tmp_path / "taught", **fields[option])
    assert differ(final_weights(plain), final_weights(taught))


@pytest.mark.slow
def test_a_run_comes_nearer_to_the_ranking_of_its_teacher(corpus, tmp_path):
    """A run that learns only the ranking of a trained teacher approaches the teacher's scores."""
    fields = {"steps": 60, "eval_every": 60, "checkpoint_every": 60}
    guide = run(corpus.arrays, tmp_path / "guide", **fields)
    write_vectors(corpus.arrays, tmp_path / "vectors", open_teachers([str(guide)], has_sides=True))
    untaught = run(corpus.arrays, tmp_path / "untaught", **{**fields, "steps": 1})
    taught = run(
        corpus.arrays, tmp_path / "taught", ranking_teacher=str(tmp_path / "vectors"),
        ranking=0.0, ranking_distillation=1.0, **fields,
    )  # fmt: skip
    texts = read_texts(corpus.records, "train")
    columns = [[text.decode() for text in texts[name][:50]] for name in PAIR]

    def cosines(folder):
        encode = open_teachers([str(folder)], has_sides=True)
        return encode["context"](columns[0]) @ encode["response"](columns[1]).T

    errors = [np.abs(cosines(folder) - cosines(guide)).mean() for folder in (taught, untaught)]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.slow
def test_a_run_resumes_with_the_projection_that_it_had(corpus, teacher, tmp_path):
    """The projection is not part of the encoder, so the training state must contain it."""
    fields = {"teacher": teacher, "distillation": 2.0, "mask_duplicates": True}
    whole = run(corpus.arrays, tmp_path / "whole", **fields)
    state = np.load(saved_checkpoints(whole)[0] / "training_state.npz")
    assert state["objective_0"].shape == (MODEL.reduced_dim, DIM)
    resumed = run(corpus.arrays, stopped_copy(whole, tmp_path / "resumed"), **fields)
    assert not differ(final_weights(whole), final_weights(resumed))


def test_a_table_is_not_taken_from_a_teacher_and_a_checkpoint(corpus, teacher, tmp_path):
    first = run(corpus.arrays, tmp_path / "first", steps=1)
    with pytest.raises(ValueError, match="not from both"):
        run(corpus.arrays, tmp_path / "second", teacher=teacher, start_from_teacher=True,
            init_from=first)  # fmt: skip


@pytest.mark.slow
def test_a_run_goes_on_with_the_map_of_the_run_it_starts_from(corpus, teacher, tmp_path):
    def projection_of(folder):
        return np.load(folder / "teacher_projection.npy")

    def gone_on_from(initial, name):
        return run(corpus.arrays, tmp_path / name, teacher=teacher, distillation=1.0, seed=1,
                   init_from=initial, **STANDING_STILL)  # fmt: skip

    first = run(corpus.arrays, tmp_path / "first", teacher=teacher, distillation=1.0)
    kept = gone_on_from(first, "kept")
    np.testing.assert_array_equal(projection_of(kept), projection_of(first))
    (kept / "sha256.json").unlink()
    facts = json.loads((kept / "training.json").read_text())

    def with_facts(name, **changes):
        (kept / "training.json").write_text(json.dumps({**facts, **changes}))
        return projection_of(gone_on_from(kept, name))

    sample = facts.pop("teacher_sample")  # runs of earlier versions have none
    np.testing.assert_array_equal(with_facts("earlier"), projection_of(first))
    for name, changes in (
        ("other", {"teacher": "another", "teacher_sample": sample}),
        ("trained_on", {"teacher_sample": sample[::-1]}),
    ):
        assert np.abs(with_facts(name, **changes) - projection_of(first)).max() > 0.01
    (first / "sha256.json").unlink()
    (first / "teacher_projection.npy").write_bytes(b"cut")
    with pytest.raises(CheckpointError, match=r"teacher_projection.npy is damaged"):
        gone_on_from(first, "damaged")


@pytest.mark.slow
def test_the_map_is_fitted_where_a_run_starts_from_a_model_without_one(corpus, teacher, tmp_path):
    untaught = run(corpus.arrays, tmp_path / "untaught")
    first = 30
    taught = run(
        corpus.arrays, tmp_path / "taught", init_from=untaught, teacher=teacher, distillation=1.0,
        first_train_example=first, **STANDING_STILL,
    )  # fmt: skip
    encoder, _ = load_checkpoint(untaught)
    examples = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    number = examples.num_examples - first
    own = SelectedExamples(examples, range(first, examples.num_examples))
    (batch,) = EvaluationBatches(own, 60, batch_size=number)
    encoded = encoder(batch)
    columns = opened_vectors(corpus.arrays, teacher).columns(
        np.arange(first, examples.num_examples)
    )
    expected = fitted_map(
        np.concatenate([encoded[f"reduced_{name}"] for name in PAIR]),
        np.concatenate([columns[f"teacher_{name}"] for name in PAIR]),
    )
    found = np.load(taught / "teacher_projection.npy")
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["teacher", "ranking_teacher"])
def test_records_have_no_teacher(corpus, teacher, tmp_path, kind):
    weight = {"teacher": "distillation", "ranking_teacher": "ranking_distillation"}[kind]
    with pytest.raises(ValueError, match="need token ids"):
        run(corpus.records, tmp_path / "run", vocabulary=corpus.vocabulary,
            **{kind: teacher, weight: 1.0})  # fmt: skip


def test_damaged_vectors_are_refused(corpus, teacher, tmp_path):
    copy = tmp_path / "vectors"
    shutil.copytree(teacher, copy)
    vectors = opened_vectors(corpus.arrays, copy)
    os.truncate(copy / vectors_file("response"), 1000)
    with pytest.raises(ValueError, match=r"train-response-vectors.* of \d+ bytes are left"):
        vectors.columns(np.arange(3))


@pytest.mark.slow
def test_single_texts_have_vectors_where_pairs_have_none(corpus, texts, tmp_path):
    """Runs can use vectors for single texts only, and then also store a similarity map."""
    ids, vectors = texts
    plain = run(corpus.arrays, tmp_path / "plain", **FEW)
    taught = run(corpus.arrays, tmp_path / "taught", init_from=plain, utterances=ids,
                 utterance_teacher=vectors, distillation=1.0, ranking=0.0, **FEW)  # fmt: skip
    assert differ(final_weights(taught), final_weights(plain))
    assert load_similarity_map(taught).shape == (MODEL.reduced_dim, 12)
    assert json.loads((taught / "training.json").read_text())["teacher"] == "letters"


def test_maps_are_fitted_to_texts_of_every_source(corpus, tmp_path, monkeypatch):
    """Initial maps use texts from all sources, even if files follow one another by source."""
    for name, texts in (("a", random_texts(60, seed=6)), ("b", random_texts(60, seed=7))):
        rows = (json.dumps({"text": f"{text} {i}", "source": name}) for i, text in enumerate(texts))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    ids = write_utterances(tmp_path / "ids", [str(tmp_path / "*.jsonl")], corpus.vocabulary)
    write_vectors(ids, tmp_path / "v", letters_teacher, max_examples=100)
    config = EncoderTraining(
        **FEW, distillation=1.0, data=corpus.arrays, utterances=ids, eval_examples=100,
        utterance_teacher=str(tmp_path / "v"), eval_every=2,
    )  # fmt: skip
    monkeypatch.setattr(distillation, "FITTED_EXAMPLES", 20)
    data = EncoderData(MODEL, config, vocabulary=None, init_from=None)
    loss = distillation.Distillation(config)
    assert loss.open(data) == [data.utterances]
    chosen = loss.targets[0].load(np.arange(20))
    sources = ArrayFolder(ids).open("train", max_tokens=60, holds="utterances").sources()
    for some in (chosen, chosen[:8]):
        assert {*sources[some]} == {0, 1}
    assert chosen.max() < 100


@pytest.mark.slow
def test_without_the_ranking_loss_side_networks_stay(corpus, teacher, tmp_path):
    taught = {"teacher": teacher, "distillation": 1.0, "ranking": 0.0}
    output = run(corpus.arrays, tmp_path / "vectors", **FEW, **taught)
    states = [load_checkpoint(folder)[0] for folder in saved_checkpoints(output)]
    assert len(states) == 2
    for side in ("context_side", "response_side"):
        first, last = ([np.array(v) for v in getattr(s, side).variables] for s in states)
        assert not differ(first, last)
    assert differ(*([np.array(v) for v in state.reduction.variables] for state in states))


def test_losses_are_those_of_every_text_however_the_batch_is_encoded(corpus, texts):
    """The vector loss equals a manual calculation, for a whole batch and for micro-batches."""
    examples = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    folder = ArrayFolder(texts[0])
    utterances, stored = (
        folder.open("train", max_tokens=60, holds="utterances"),
        StoredTexts(folder),
    )

    class Vectors:
        def columns(self, numbers):
            own = stored(utterances.token_ids(numbers))
            return {"teacher_text": letters_teacher(own).astype(np.float32)}

    class OfPairs:
        names = ()

        def of_batch(self, numbers, positions, epochs):
            zeros = np.zeros((len(numbers), 12), np.float32)
            return None, {"teacher_context": zeros, "teacher_response": zeros}

    draws = UtteranceDraws(utterances, per_pair=2, seed=0, teacher=Vectors())
    draws.draw_in_pairs()
    config = dict(MODEL.to_dict(), vocab_size=examples.padding_id - NUM_OOV_BUCKETS)
    encoder = DualEncoder(type(MODEL).from_dict(config))
    config = EncoderTraining(
        l2=0.0, ranking=0.0, distillation=3.0, utterances="x", utterance_teacher="x"
    )
    loss = distillation.Distillation(config)
    loss.dim = 12
    model = EncoderObjective(encoder, config, [loss])
    losses = []
    for parts in (1, 2):
        batches = TrainingBatches(
            examples, batch_size=8, row_tokens=64, shuffle_buffer=1, seed=0, micro_batches=parts,
            additions=[OfPairs(), draws],
        )  # fmt: skip
        batch = next(iter(batches))
        outputs = model(batch)
        losses.append(float(model.compute_loss(batch, y_pred=outputs)))
        assert outputs["reduced_utterance"].shape == (16, encoder.config.reduced_dim)
    kernel = np.array(model.teacher_projection.kernel)
    mapped = np.array(outputs["reduced_utterance"]) @ kernel
    cosines = [
        p @ t / np.linalg.norm(p) for p, t in zip(mapped, batch["teacher_text"], strict=True)
    ]
    assert losses[0] == pytest.approx(3.0 * np.sum(1 - np.array(cosines)) / 8, rel=1e-4)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_the_cosine_of_joined_teachers_is_the_weighted_mean_of_theirs():
    def other(texts):
        return letters_teacher([text[::2] for text in texts])

    texts = random_texts(5)
    uneven = join_teachers([letters_teacher, other], [1, 3])(texts).astype("float32")
    assert uneven.shape == (5, 24)
    cosines = [vectors @ vectors.T for vectors in (letters_teacher(texts), other(texts))]
    np.testing.assert_allclose(uneven @ uneven.T, (cosines[0] + 3 * cosines[1]) / 4, atol=2e-3)
    even = join_teachers([letters_teacher, other])(texts).astype("float32")
    np.testing.assert_allclose(even @ even.T, (cosines[0] + cosines[1]) / 2, atol=2e-3)
    assert joined_name(["a/small", "b/large"], [1, 3]) == "1 small + 3 large"
    assert joined_name(["a/small"]) == "a/small"
    for weights in ([1], [1, 0], [1, -1]):
        with pytest.raises(ValueError, match="weight above 0"):
            join_teachers([letters_teacher, other], weights)


def test_texts_of_another_vocabulary_or_teacher_are_refused(corpus, teacher, texts, tmp_path):
    (tmp_path / "vocab.txt").write_bytes(
        Path(corpus.vocabulary).read_bytes().replace(b"\nz\n", b"\nzz\n")
    )
    (tmp_path / "a.jsonl").write_text('{"text": "some text"}\n{"text": "another one"}\n')
    other = write_utterances(
        tmp_path / "ids", [str(tmp_path / "a.jsonl")], str(tmp_path / "vocab.txt")
    )
    data = {"utterances": other, "utterances_per_pair": 2, "intent_contrast": 1.0}
    with pytest.raises(ValueError, match="differs from"):
        run(corpus.arrays, tmp_path / "run", **FEW, **data)
    write_vectors(texts[0], tmp_path / "v", letters_teacher, name="others")
    with pytest.raises(ValueError, match=r"'letters' \(12\) and 'others'"):
        run(corpus.arrays, tmp_path / "run", teacher=teacher, utterances=texts[0],
            utterance_teacher=str(tmp_path / "v"), distillation=1.0, **FEW)  # fmt: skip


def test_versions_of_a_teacher_with_the_same_name_are_refused(corpus, teacher, texts, tmp_path):
    write_vectors(texts[0], tmp_path / "v", backwards)
    with pytest.raises(ValueError, match=r"different versions .*'letters' \(12\) and 'letters'"):
        run(corpus.arrays, tmp_path / "run", teacher=teacher, utterances=texts[0],
            utterance_teacher=str(tmp_path / "v"), distillation=1.0, **FEW)  # fmt: skip


@pytest.mark.parametrize("vocab_size", [30, 32, 31])
def test_a_sample_shows_a_change_of_most_columns(vocab_size):
    """The first and the last columns stay the same."""
    subwords = unit((vocab_size, 1152))
    vectors = SimpleNamespace(_subwords=SimpleNamespace(checked=lambda: subwords))
    before = TeacherVectors.sample.fget(vectors)
    subwords[:, 1:1100] *= -1
    assert not are_same_vectors(before, TeacherVectors.sample.fget(vectors))


def test_a_map_is_recognised_by_a_sample_of_its_teachers_vectors(
    corpus, teacher, tmp_path, monkeypatch
):
    """Rounding does not matter, and runs of earlier versions are recognised by the name alone."""
    vectors = opened_vectors(corpus.arrays, teacher)
    write_vectors(corpus.arrays, tmp_path / "other", backwards)
    other = opened_vectors(corpus.arrays, tmp_path / "other")
    assert not vectors.is_same_teacher(other)
    config = EncoderTraining(teacher=teacher, distillation=1.0)
    loss = distillation.Distillation(config)
    encoder = DualEncoder(model_preset("tiny", vocab_size=50, num_oov_buckets=5))
    loss.dim, loss.targets = vectors.dim, (None, vectors)
    model = EncoderObjective(encoder, config, [loss])
    kernel = model.teacher_projection.kernel
    trained = np.ones(kernel.shape, "float32")
    np.save(tmp_path / "teacher_projection.npy", trained)
    monkeypatch.setattr(
        loss, "_taught_texts", lambda _: (unit((9, kernel.shape[0])), unit((9, 12)))
    )
    sample = loss.facts()["teacher_sample"]
    for facts, is_kept in (
        (loss.facts(), True),
        ({"teacher": "letters", "teacher_sample": [x + 0.001 for x in sample]}, True),
        ({"teacher": "letters"}, True),
        ({"teacher": "letters", "teacher_sample": other.sample}, False),
        ({"teacher": "others", "teacher_sample": sample}, False),
    ):
        (tmp_path / "training.json").write_text(json.dumps(facts))
        kernel.assign(np.zeros(kernel.shape))
        loss._start_map(str(tmp_path))
        assert np.array_equal(np.array(kernel), trained) == is_kept
