"""Training on single texts beside pairs: their vectors, their intents, and several teachers."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.encoder_runs import MODEL, differ, final_weights, run
from support.letter_teachers import letters_teacher
from support.texts import random_texts
from support.token_corpus import NUM_OOV_BUCKETS, write_utterances

from convert_tf.checkpoints.folder import load_checkpoint, load_similarity_map
from convert_tf.config.train import EncoderTraining
from convert_tf.data.batches import TrainingBatches
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.data.utterances import UtteranceDraws, Utterances
from convert_tf.models.encoder import DualEncoder
from convert_tf.models.losses import intent_losses
from convert_tf.training.encoder import distillation
from convert_tf.training.encoder.distillation import DistillationData
from convert_tf.training.encoder.objective import ResponseRanking
from convert_tf.training.state import saved_checkpoints
from convert_tf.training.teaching.teacher import JoinedTeachers, joined_name
from convert_tf.training.teaching.texts import StoredTexts
from convert_tf.training.teaching.vectors import write_teacher_vectors

NUM_TRAIN = 60

# Runs of a few steps, for which tracing takes longer than computing.
pytestmark = pytest.mark.usefixtures("no_graphs")

CONFIG = {"steps": 2, "batch_size": 8, "checkpoint_every": 1, "shuffle_buffer": 16}


@pytest.fixture(scope="module")
def folders(corpus, tmp_path_factory):
    """Token ids of single texts, and vectors of the pairs and of them."""
    root = tmp_path_factory.mktemp("utterances")
    rows = [
        {"text": f"{text} {i}", "source": f"bot{i % 2}", "label": f"intent{i % 5}"}
        for i, text in enumerate(random_texts(60, seed=5))
    ]
    (root / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ids = write_utterances(root / "ids", [str(root / "a.jsonl")], corpus.vocabulary)
    for name, own in {"pairs": corpus.arrays, "texts": ids}.items():
        write_teacher_vectors(own, str(root / name), teacher=letters_teacher, name="letters")
    return {"utterances": ids, "teacher": str(root / "pairs"), "vectors": str(root / "texts")}


def _with_texts(folders, **data):
    own = {"teacher": folders["teacher"], "utterance_teacher": folders["vectors"]}
    return {**CONFIG, "utterances": folders["utterances"], **own, **data}


@pytest.mark.slow
def test_single_texts_have_vectors_where_pairs_have_none(corpus, folders, tmp_path):
    """The map to the vectors starts as fitted to texts of all sources, and has a similarity map."""
    options = _with_texts(folders, distillation=1.0, ranking=0.0)
    del options["teacher"]
    plain = run(corpus.arrays, tmp_path / "plain", **CONFIG)
    taught = run(corpus.arrays, tmp_path / "taught", init_from=plain, **options)
    assert differ(final_weights(taught), final_weights(plain))
    assert load_similarity_map(taught).shape == (MODEL.reduced_dim, 12)
    assert json.loads((taught / "training.json").read_text())["teacher"] == "letters"


def test_maps_are_fitted_to_texts_of_every_source(corpus, folders, tmp_path, monkeypatch):
    """A source lies behind the other, and some of the last have no vector."""
    for name, texts in (("a", random_texts(60, seed=6)), ("b", random_texts(60, seed=7))):
        rows = (json.dumps({"text": f"{text} {i}", "source": name}) for i, text in enumerate(texts))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    ids = write_utterances(tmp_path / "ids", [str(tmp_path / "*.jsonl")], corpus.vocabulary)
    write_teacher_vectors(
        ids, str(tmp_path / "v"), teacher=letters_teacher, name="letters", max_examples=100
    )
    folder = ArrayFolder(corpus.arrays)
    pairs = folder.open("train", max_tokens=60)
    config = EncoderTraining(
        **CONFIG, distillation=1.0, data=corpus.arrays, utterances=ids, eval_examples=100,
        utterance_teacher=str(tmp_path / "v"), eval_every=2,
    )  # fmt: skip
    monkeypatch.setattr(distillation, "_FITTED_EXAMPLES", 20)
    distilled = DistillationData(folder, pairs, pairs, model=MODEL, config=config)
    assert distilled.pairs is None
    chosen = distilled.targets.examples.load(np.arange(20))
    sources = ArrayFolder(ids).open_utterances("train", max_tokens=60).sources()
    for some in (chosen, chosen[:8]):
        assert {*sources[some]} == {0, 1}
    assert chosen.max() < 100
    encoder = DualEncoder(type(MODEL).from_dict({**MODEL.to_dict(), "vocab_size": 52}))
    projection = distilled.targets.projection(encoder)
    assert projection.shape == (MODEL.reduced_dim, 12)
    assert np.isfinite(projection).all()
    turned = distilled.targets.similarity_map(encoder, projection)
    assert turned.shape == (MODEL.reduced_dim, 12)


@pytest.mark.slow
def test_the_contrast_of_intents_is_learnt(corpus, folders, tmp_path):
    data = {"utterances": folders["utterances"], "utterances_per_pair": 4, "intent_contrast": 1.0}
    plain = run(corpus.arrays, tmp_path / "plain", **CONFIG)
    taught = run(corpus.arrays, tmp_path / "taught", **CONFIG, **data)
    assert differ(final_weights(plain), final_weights(taught))


@pytest.mark.slow
def test_without_the_ranking_loss_side_networks_stay(corpus, folders, tmp_path):
    taught = {"teacher": folders["teacher"], "distillation": 1.0, "ranking": 0.0}
    output = run(corpus.arrays, tmp_path / "vectors", **CONFIG, **taught)
    states = [load_checkpoint(folder)[0] for folder in saved_checkpoints(output)]
    assert len(states) == 2
    for side in ("context_side", "response_side"):
        first, last = ([np.array(v) for v in getattr(s, side).variables] for s in states)
        assert not differ(first, last)
    assert differ(*([np.array(v) for v in state.reduction.variables] for state in states))


def test_a_run_that_learns_nothing_is_refused():
    with pytest.raises(ValueError, match=r"ranking must be greater than 0 unless .* Received: 0"):
        EncoderTraining(ranking=0.0)


def test_losses_are_those_of_every_text_however_the_batch_is_encoded(corpus, folders):
    """One batch, and the same in micro-batches: the vector loss by hand, and equal ones."""
    examples = ArrayFolder(corpus.arrays).open("train", max_tokens=60)
    utterances = Utterances(ArrayFolder(folders["utterances"]), "train", max_tokens=60)
    texts = StoredTexts(ArrayFolder(folders["utterances"]))

    class Vectors:
        def columns(self, numbers):
            own = texts(utterances.examples.token_ids(numbers))
            return {"teacher_text": letters_teacher(own).astype(np.float32)}

    class OfPairs:
        def columns(self, numbers):
            zeros = np.zeros((len(numbers), 12), np.float32)
            return {"teacher_context": zeros, "teacher_response": zeros}

    draws = UtteranceDraws(utterances, per_pair=2, seed=0, in_pairs=True, teacher=Vectors())
    config = dict(MODEL.to_dict(), vocab_size=examples.padding_id - NUM_OOV_BUCKETS)
    encoder = DualEncoder(type(MODEL).from_dict(config))
    model = ResponseRanking(
        encoder,
        EncoderTraining(
            l2=0.0, ranking=0.0, distillation=3.0, utterances="x", utterance_teacher="x"
        ),
        teacher_dim=12,
    )
    losses = []
    for parts in (1, 2):
        batches = TrainingBatches(
            examples, batch_size=8, row_tokens=64, shuffle_buffer=1, seed=0, micro_batches=parts,
            teachers=[OfPairs()], utterances=draws,
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


def test_intent_losses_equal_a_loop():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((7, 5)).astype("float32")
    #          two of a, one of a's name elsewhere, two of b, one alone, one without a label
    groups = np.array([0, 0, 10, 3, 3, 4, -1], "int32")
    names = np.array([0, 0, 0, 3, 3, 4, -1], "int32")
    losses, has_loss = intent_losses(vectors, groups, names, scale=7.0)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for i in range(7):
        positives = [j for j in range(7) if j != i and groups[j] == groups[i] and groups[i] >= 0]
        negatives = [
            j for j in range(7) if names[j] != names[i] and groups[i] >= 0 and groups[j] >= 0
        ]
        assert bool(has_loss[i]) == bool(positives)
        expected = 0.0
        for j in positives:
            total = sum(np.exp(7 * unit[i] @ unit[k]) for k in (*positives, *negatives))
            expected -= np.log(np.exp(7 * unit[i] @ unit[j]) / total) / len(positives)
        assert float(losses[i]) == pytest.approx(expected, abs=1e-4)


def test_the_cosine_of_joined_teachers_is_the_weighted_mean_of_theirs():
    def other(texts):
        return letters_teacher([text[::2] for text in texts])

    texts = random_texts(5)
    joined = JoinedTeachers([letters_teacher, other], [1, 3])(texts).astype("float32")
    assert joined.shape == (5, 24)
    cosines = [vectors @ vectors.T for vectors in (letters_teacher(texts), other(texts))]
    np.testing.assert_allclose(joined @ joined.T, (cosines[0] + 3 * cosines[1]) / 4, atol=2e-3)
    even = JoinedTeachers([letters_teacher, other])(texts).astype("float32")
    np.testing.assert_allclose(even @ even.T, (cosines[0] + cosines[1]) / 2, atol=2e-3)
    assert joined_name(["a/small", "b/large"], [1, 3]) == "1 small + 3 large"
    assert joined_name(["a/small"]) == "a/small"
    for weights in ([1], [1, 0], [1, -1]):
        with pytest.raises(ValueError, match="weight above 0"):
            JoinedTeachers([letters_teacher, other], weights)


@pytest.mark.parametrize(
    "fields",
    [
        {"utterances": "ids"},
        {"utterances": "ids", "teacher": "vectors", "distillation": 1.0},
        {"utterance_teacher": "vectors", "distillation": 1.0},
        {"intent_contrast": 1.0},
    ],
)
def test_texts_that_nothing_is_learnt_of_are_refused(fields):
    with pytest.raises(ValueError, match="utterances must be given with"):
        EncoderTraining(**fields)


def test_texts_of_another_vocabulary_or_teacher_are_refused(corpus, folders, tmp_path):
    (tmp_path / "vocab.txt").write_bytes(
        Path(corpus.vocabulary).read_bytes().replace(b"\nz\n", b"\nzz\n")
    )
    (tmp_path / "a.jsonl").write_text('{"text": "some text"}\n{"text": "another one"}\n')
    other = write_utterances(
        tmp_path / "ids", [str(tmp_path / "a.jsonl")], str(tmp_path / "vocab.txt")
    )
    data = {"utterances": other, "utterances_per_pair": 2, "intent_contrast": 1.0}
    with pytest.raises(ValueError, match="differs from"):
        run(corpus.arrays, tmp_path / "run", **CONFIG, **data)
    write_teacher_vectors(
        folders["utterances"], str(tmp_path / "v"), teacher=letters_teacher, name="others"
    )
    options = _with_texts(folders, utterance_teacher=str(tmp_path / "v"), distillation=1.0)
    with pytest.raises(ValueError, match=r"'letters' \(12\) and 'others'"):
        run(corpus.arrays, tmp_path / "run", **options)
