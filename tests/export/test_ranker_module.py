"""Rankers as modules: the scores of every form, compared with the checkpoint's."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from support.documents import blocks, run_block
from support.huggingface_folder import write_folder
from support.model_cases import fill_weights
from support.processes import answer_of_probe
from support.tiny_checkpoint import WORDS, random_texts, write_checkpoint

from convert_tf import Ranker
from convert_tf.checkpoints.folder import CheckpointError, save_checkpoint
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.loading import initial_ranker, load_ranker
from convert_tf.checkpoints.vocabulary import fitting_tokenizer
from convert_tf.config.ranker import HeadConfig
from convert_tf.export.hub import network as graph_batches
from convert_tf.export.hub.network import in_length_batches
from convert_tf.export.hub.ranker_module import PADDING_SCORE, make_ranker_module
from convert_tf.export.hub.weights import StoredTable
from convert_tf.export.hub.writing import export_module

pytestmark = pytest.mark.slow

LIMITS = {"max_context_tokens": 10, "max_candidate_tokens": 8, "scale": 4.0}
HEADS = {
    "poly": ("convert", HeadConfig(head="poly", poly_codes=5, learn_scale=True, **LIMITS)),
    "last": (
        "convert",
        HeadConfig(head="poly", poly_codes=3, poly_variant="last_m_and_first", **LIMITS),
    ),
    "cross": ("convert", HeadConfig(head="cross", **LIMITS)),
    "bert_bi": ("bert", HeadConfig(reduction="first", separate_trunks=True, **LIMITS)),
    "bert_cross": ("bert", HeadConfig(head="cross", reduction="first", **LIMITS)),
}
CONTEXTS = [*random_texts(3), "", " ".join(random_texts(4, seed=9)), "Zebra 你 42!"]
CANDIDATES = [*random_texts(4, seed=3), "yes", "yes", " ".join(random_texts(4, seed=8)), "é 😀"]
EXPORTED = ("poly", "bert_cross")


def own_candidates():
    """Return a row of candidates per context, string `[contexts, candidates]`, padded with `""`."""
    matrix = np.array([np.roll(CANDIDATES, i) for i in range(len(CONTEXTS))], object)
    matrix[1, 3:] = matrix[2] = ""
    return matrix


MATRIX = own_candidates()


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rankers")
    trunks = {
        "convert": write_checkpoint(folder / "convert", multi_context=True),
        "bert": write_folder(folder / "bert"),
    }
    made = {}
    for name, (trunk, head) in HEADS.items():
        ranker, vocabulary = initial_ranker(trunks[trunk], head)
        if trunk == "bert":  # random weights of size 1 are too large to test rounding
            fill_weights([v for v in ranker.trainable_variables if v.path != "head/log_scale"])
        elif ranker.is_joint:
            fill_weights([ranker.head.linear.kernel])
        else:
            ranker.head.log_scale.assign(0.2)
        ranker.output_factor.assign(0.8)
        save_checkpoint(folder / name, ranker, vocabulary=vocabulary, training=FACTS)
        made[name] = folder / name
    return made


FACTS = {
    "data": "/home/someone/mutual.jsonl",
    "init_from": "/home/someone/runs/convert",
    "train": {"steps": 50, "batch_size": 12, "optimizer": "adamax"},
    "evaluation": {"step": 50, "dev": {"R@1": 0.3533, "examples": 150}},
}


@pytest.fixture(scope="module")
def modules(checkpoints):
    """A function from names and bits to unsaved modules."""
    return functools.cache(
        lambda name, bits=16: unsaved_module(checkpoints[name], network_bits=bits)
    )


def unsaved_module(checkpoint, **options):
    ranker, vocabulary = load_ranker(checkpoint)
    tokenizer = fitting_tokenizer(vocabulary, ranker.config.model)
    return make_ranker_module(ranker, tokenizer, **options)


@pytest.fixture(scope="module")
def expected(checkpoints):
    """The scores of the checkpoints, float32 `[contexts, candidates]`, by name."""
    return {n: Ranker(folder).scores(CONTEXTS, CANDIDATES) for n, folder in checkpoints.items()}


@pytest.fixture(scope="module")
def folders(checkpoints):
    return {
        name: export_module(checkpoints[name], checkpoints[name].parent / "modules" / name)
        for name in EXPORTED
    }


@pytest.fixture(scope="module")
def answer(folders, tmp_path_factory):
    """The facts and arrays that `contract_probe.py` wrote."""
    modules = {name: str(folder) for name, folder in folders.items()}
    request = {"modules": modules, "texts": [CONTEXTS, CANDIDATES, MATRIX.tolist()]}
    return answer_of_probe(request, tmp_path_factory.mktemp("probe"))


def in_matrix(scores):
    """Arrange the scores of all candidates as in `MATRIX`."""
    rows = np.stack([np.roll(row, i) for i, row in enumerate(scores)])
    return np.where(MATRIX == "", np.float32(PADDING_SCORE), rows)


def score(module, contexts, candidates):
    """Call `module.score` of an unsaved module, which accepts tensors only."""
    if not isinstance(candidates, tf.RaggedTensor):
        candidates = tf.constant(candidates, tf.string)
    return module.score(tf.constant(contexts, tf.string), candidates)


def check_close(got, want, *, tolerance=1e-3):
    """Check that scores differ by at most `tolerance` times the largest score."""
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, atol=tolerance * max(1.0, np.abs(want).max()))


@pytest.mark.parametrize("name", HEADS)
def test_scores_are_the_checkpoints(modules, expected, name):
    assert expected[name].std() > 0.05
    check_close(score(modules(name), CONTEXTS, CANDIDATES).numpy(), expected[name])


@pytest.mark.parametrize("name", ["poly", "bert_bi"])
def test_scores_in_8_bits_are_close(modules, expected, name):
    got = score(modules(name, 8), CONTEXTS, CANDIDATES).numpy()
    check_close(got, expected[name], tolerance=0.03)
    assert np.abs(got - score(modules(name), CONTEXTS, CANDIDATES).numpy()).max() > 1e-6


@pytest.mark.parametrize("name", EXPORTED)
def test_every_form_gives_the_same_scores_without_convert_tf(answer, expected, name):
    arrays = {key.split("/")[1]: v for key, v in answer[1].items() if key.startswith(f"{name}/")}
    shared = arrays["shared"]
    check_close(shared, expected[name])
    np.testing.assert_array_equal(arrays["all"], shared)
    for form in ("encoded", "vectors"):
        if name == "poly":
            np.testing.assert_allclose(arrays[form], shared, atol=1e-5)
    own = in_matrix(shared)
    for form in ("matrix", "own"):
        np.testing.assert_allclose(arrays[form], own, rtol=1e-6, atol=2e-5)
    for form in ("ragged", "flat"):
        np.testing.assert_allclose(arrays[form], own[MATRIX != ""], atol=2e-5)


def test_signatures(answer):
    facts = answer[0]
    texts, numbers = ["string", [None]], ["float32", [None, None]]
    inputs = {
        "serving_default": {"context": texts, "candidates": ["string", [None, None]]},
        "score": {"context": texts, "candidates": ["string", [None, None]]},
        "score_all": {"context": texts, "candidates": texts},
        "score_ragged": {"context": texts, "candidates": texts, "row_lengths": ["int64", [None]]},
    }
    outputs = {name: {"default": numbers} for name in inputs}
    outputs["score_ragged"] = {"default": ["float32", [None]]}
    assert facts["bert_cross"]["inputs"] == inputs
    assert facts["bert_cross"]["outputs"] == outputs
    encoded, vectors = ["float32", [None, 64]], ["float32", [None, 5, 64]]
    mask = ["bool", [None, 5]]
    inputs |= {
        "encode_context": {"context": texts},
        "encode_candidates": {"candidates": texts},
        "score_encoded": {"context": texts, "candidates": encoded},
        "score_vectors": {"vectors": vectors, "mask": mask, "candidates": encoded},
    }
    outputs |= {
        "encode_context": {"vectors": vectors, "mask": mask},
        "encode_candidates": {"default": encoded},
        "score_encoded": {"default": numbers},
        "score_vectors": {"default": numbers},
    }
    assert facts["poly"]["inputs"] == inputs
    assert facts["poly"]["outputs"] == outputs
    for own in (facts["poly"], facts["bert_cross"]):
        assert 0 < len(own["trainable"]) < len(own["variables"])
        assert own["regularization_losses"] == 0


@pytest.mark.parametrize("name", ["poly", "last", "cross", "bert_bi"])
def test_batch_mates_order_and_padding_change_nothing(modules, name):
    module = modules(name)
    together = score(module, CONTEXTS, CANDIDATES).numpy()
    for i in (0, 3, 4):
        np.testing.assert_allclose(
            score(module, CONTEXTS[i : i + 1], CANDIDATES)[0], together[i], atol=2e-5
        )
    alone = score(module, CONTEXTS, CANDIDATES[2:3]).numpy()
    np.testing.assert_allclose(alone[:, 0], together[:, 2], atol=2e-5)
    order = np.random.default_rng(0).permutation(len(CANDIDATES))
    shuffled = score(module, CONTEXTS, [CANDIDATES[i] for i in order]).numpy()
    np.testing.assert_allclose(shuffled, together[:, order], atol=2e-5)
    np.testing.assert_allclose(together[:, 4], together[:, 5], atol=1e-6)  # these texts are equal
    padded = np.concatenate([MATRIX, np.full((len(CONTEXTS), 2), "", object)], axis=1).tolist()
    own = score(module, CONTEXTS, padded).numpy()
    np.testing.assert_allclose(own[:, :-2], in_matrix(together), rtol=1e-6, atol=2e-5)
    assert (own[:, -2:] == np.float32(PADDING_SCORE)).all()


def test_the_newest_tokens_of_a_context_and_the_first_of_a_candidate_are_read(modules):
    module = modules("poly")
    words = WORDS[:13]
    newest, first = " ".join(words[-10:]), " ".join(words[:8])
    long = score(module, [" ".join(words)], [" ".join(words)])
    np.testing.assert_allclose(long, score(module, [newest], [first]), atol=1e-5)
    others = score(module, [" ".join(words[:10])], [" ".join(words[-8:])])
    assert np.abs(long - others).max() > 1e-3


@pytest.mark.parametrize("name", ["poly", "cross"])
def test_nothing_to_score(modules, name):
    none = tf.zeros([0], tf.string)
    module = modules(name)
    assert score(module, none, CANDIDATES).shape == (0, len(CANDIDATES))
    assert score(module, CONTEXTS, none).shape == (len(CONTEXTS), 0)
    assert score(module, CONTEXTS, tf.zeros([len(CONTEXTS), 0], tf.string)).shape == (6, 0)
    assert (score(module, ["how"], [["", ""]]).numpy() == np.float32(PADDING_SCORE)).all()
    assert score(module, ["how"], tf.ragged.constant([[]], tf.string)).shape[0] == 1


def test_other_bytes_give_numbers(modules):
    texts = [b"\xff\xfe", b"\x00", "\u0301" * 50, " ", "a" * 3000]
    for name in ("poly", "cross"):
        assert np.isfinite(score(modules(name), texts, texts).numpy()).all()


def test_wrong_shapes_are_refused(modules):
    module = modules("poly")
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have a row of candidates"):
        score(module, CONTEXTS, [["yes"]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="add up to the number of candidates"):
        module.score_ragged(
            tf.constant(["how"]), tf.constant(CANDIDATES), tf.constant([3], tf.int64)
        )


def test_few_tokens_at_once_give_the_same_scores(checkpoints, modules, monkeypatch):
    monkeypatch.setattr(graph_batches, "BATCH_TOKENS", 24)
    for name in ("last", "cross"):
        np.testing.assert_allclose(
            score(unsaved_module(checkpoints[name]), CONTEXTS, CANDIDATES),
            score(modules(name), CONTEXTS, CANDIDATES),
            atol=2e-5,
        )


def test_a_module_may_read_fewer_tokens_than_its_ranker(checkpoints):
    assert unsaved_module(checkpoints["poly"], max_tokens=9).context_tokens == 9


@pytest.mark.parametrize("max_rows", [None, 2])
def test_batches_are_of_similar_length_and_bounded(monkeypatch, max_rows):
    monkeypatch.setattr(graph_batches, "BATCH_TOKENS", 12)
    lengths = np.array([3, 0, 30, 4, 12, 1, 1, 0, 5], np.int32)
    batches = []

    def compute(places):
        batches.append(places.numpy())
        return tf.cast(tf.gather(lengths, places), tf.float32)[:, None] * [1.0, 2.0]

    results = in_length_batches(tf.constant(lengths), compute, result_shape=(2,), max_rows=max_rows)
    np.testing.assert_array_equal(results, lengths[:, None] * np.array([1.0, 2.0]))
    assert sorted(np.concatenate(batches)) == list(range(9))
    for batch in batches:
        assert len(batch) * lengths[batch].max() <= 12 or len(batch) == 1
        assert max_rows is None or len(batch) <= max_rows
    longest = [lengths[batch].max() for batch in batches]
    assert longest == sorted(longest, reverse=True)
    batches.clear()
    assert in_length_batches(tf.constant([], tf.int32), compute, result_shape=(2,)).shape == (0, 2)
    assert [len(batch) for batch in batches] == [0]


def test_a_table_that_was_not_trained_in_8_bits(checkpoints):
    embedding = load_ranker(checkpoints["bert_bi"])[0].trunk.embedding
    table = np.asarray(embedding.table)
    rows = tf.range(len(table))[None]
    exact = StoredTable(embedding).gather_rows(rows)[0]
    np.testing.assert_allclose(exact, table, rtol=2**-11, atol=1e-7)
    rounded = StoredTable(embedding, bits=8).gather_rows(rows)[0].numpy()
    half_steps = np.abs(table).max(axis=1, keepdims=True) / 127 / 2
    assert (np.abs(rounded - table) <= half_steps * (1 + 1e-4)).all()
    assert np.abs(rounded - table).max() > 0


def test_files_and_card(folders, checkpoints):
    for name, folder in folders.items():
        names = sorted(p.name for p in (folder / "variables").iterdir())
        assert names == [
            "variables.data-00000-of-00002",
            "variables.data-00001-of-00002",
            "variables.index",
        ]
        card = (folder / "MODEL_CARD.md").read_text()
        for fact in (
            "the last 10 tokens are read",
            "the first 8 tokens are read",
            "| data | `mutual.jsonl` |",
            "| started from | `convert` |",
            "| optimizer | adamax |",
            "| dev R@1 | 0.3533 |",
        ):
            assert fact in card, (name, fact)
        assert "someone" not in card
    with pytest.raises(CheckpointError, match="Pass the run of a dual encoder"):
        export_module(folders["poly"], folders["poly"].parent / "other")


def test_a_row_of_an_evaluation(folders, checkpoints, tiny_modules):
    contexts = [("how are you", text) for text in CONTEXTS[:3]]
    lists = [CANDIDATES[:3], CANDIDATES[2:], ["yes"]]
    for name, folder in folders.items():
        assert kind_of(folder) is Kind.RANKER_MODULE
        module, own = Ranker(folder), Ranker(checkpoints[name])
        check_close(
            module.scores(contexts, CANDIDATES), own.scores(contexts, CANDIDATES), tolerance=2e-3
        )
        for given in (lists, [CANDIDATES] * 3):
            want = own.candidate_scores(contexts, given)
            for got, row in zip(module.candidate_scores(contexts, given), want, strict=True):
                check_close(got, row, tolerance=2e-3)  # there are few scores, and none is large
    assert kind_of(tiny_modules["single"][1]) is Kind.ENCODER_MODULE
    with pytest.raises(ValueError, match="is not the module of a ranker"):
        Ranker(tiny_modules["single"][1])


def test_the_page_of_rankers(folders):
    (block,) = blocks("docs/rankers.md", language="python", section="Rankers as modules")
    names = run_block(block, {"runs/poly/module/1": str(folders["poly"])})
    module, contexts = names["module"], names["contexts"]
    scores = module.score(contexts, ["fine", "a fish", "noon"]).numpy()
    kept = module.score_encoded(contexts, names["candidates"])["default"]
    np.testing.assert_allclose(kept, scores, atol=1e-5)
    own = module.score(contexts, [["fine", "a fish"], ["noon", ""]]).numpy()
    expected = [scores[0, :2], [scores[1, 2], PADDING_SCORE]]
    np.testing.assert_allclose(own, expected, rtol=1e-6, atol=1e-5)
