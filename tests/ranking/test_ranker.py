"""`Ranker` opens runs and modules of rankers, and any other model that can rank texts."""

from types import SimpleNamespace

import numpy as np
import pytest

from convert_tf import Ranker
from convert_tf.checkpoints.folder import save_checkpoint
from convert_tf.checkpoints.loading import initial_ranker
from convert_tf.config.ranker import HeadConfig
from convert_tf.export.hub.writing import export_module
from convert_tf.ranking.protocol import checked_contexts
from convert_tf.ranking.ranker import EncoderRanker, open_ranker

CANDIDATES = ["fine thanks", "the cat sat on the mat", "", "fine thanks", "yes no maybe"]
CONTEXTS = ["how are you", ("please help", "card lost"), ()]


@pytest.fixture(scope="module")
def folders(tiny_modules, tmp_path_factory):
    """`(run, module)` of a poly-encoder."""
    folder = tmp_path_factory.mktemp("ranker")
    model, vocabulary = initial_ranker(
        tiny_modules["single"][0], HeadConfig(head="poly", poly_codes=4)
    )
    save_checkpoint(folder / "run", model, vocabulary=vocabulary, training={})
    return folder / "run", export_module(folder / "run", folder / "module")


def test_a_run_and_its_module_rank_alike(folders):
    trained, exported = map(Ranker, folders)
    assert [trained.name, exported.name] == [str(folder) for folder in folders]
    assert trained.settings == {"checkpoint": str(folders[0])}
    assert exported.settings == {"module": str(folders[1])}
    scores = trained.scores(CONTEXTS, CANDIDATES)
    np.testing.assert_allclose(exported.scores(CONTEXTS, CANDIDATES), scores, atol=0.05)
    for ranker in (trained, exported):
        own = ranker.candidate_scores(CONTEXTS, [CANDIDATES[:2], CANDIDATES[1:], ["yes no maybe"]])
        np.testing.assert_allclose(own[1], scores[1, 1:], atol=0.05)
        assert ranker.scores(["how are you"], CANDIDATES) == pytest.approx(
            ranker.scores([("how are you",)], CANDIDATES)
        )


def test_rank(folders):
    ranker = Ranker(folders[0])
    scores = ranker.scores([("hello", "how are you")], CANDIDATES)[0]
    ranked = ranker.rank(["hello", "how are you"], CANDIDATES)
    order = sorted(range(5), key=lambda i: (-scores[i], i))
    assert [text for text, _ in ranked] == [CANDIDATES[i] for i in order]
    np.testing.assert_allclose([score for _, score in ranked], scores[order], atol=1e-5)
    assert ranker.rank("how are you", CANDIDATES, top_k=2) == [
        (text, pytest.approx(score, abs=1e-5))
        for text, score in ranker.rank(("how are you",), CANDIDATES)[:2]
    ]
    for candidates, top_k in (([], None), (CANDIDATES, 0), (CANDIDATES, 1.5), (CANDIDATES, True)):
        with pytest.raises(ValueError, match="a top_k of at least 1"):
            ranker.rank("how are you", candidates, top_k=top_k)
    for candidates in (None, "fine", ["fine", None], [["x", "y"], ["z"]], 5):
        with pytest.raises(ValueError, match="Candidates must be a list of strings"):
            ranker.rank("how are you", candidates)
    for context in (None, 5, ["how", None], b"how"):
        with pytest.raises(ValueError, match="A context must be a text, or a list"):
            ranker.rank(context, CANDIDATES)


@pytest.mark.parametrize("form", ["run", "module"])
def test_nothing_to_rank_and_candidates_of_each_context(folders, form):
    ranker = Ranker(folders[form == "module"])
    for contexts, candidates in (([], ["a"]), (["hello"], []), ([], [])):
        scores = ranker.scores(contexts, candidates)
        assert (scores.shape, scores.dtype) == ((len(contexts), len(candidates)), np.float32)
    shared: list[str] = []
    for lists in ([[], []], [shared, shared], [["fine"], []], [[], ["fine", "no"]]):
        own = ranker.candidate_scores(["how are you", "hello"], lists)
        assert [row.shape for row in own] == [(len(each),) for each in lists]
    assert own[1] == pytest.approx(ranker.scores(["hello"], ["fine", "no"])[0], abs=1e-5)
    assert ranker.candidate_scores([], []) == []
    with pytest.raises(ValueError, match="Received: 1 lists for 2 contexts"):
        ranker.candidate_scores(["a", "b"], [["x"]])
    with pytest.raises(ValueError, match=r"Received: 'x'\. Pass"):
        ranker.candidate_scores(["a"], "x")
    for contexts in (None, 5):
        with pytest.raises(ValueError, match="Contexts must be a list"):
            ranker.scores(contexts, ["x"])


@pytest.mark.parametrize("form", ["run", "module"])
def test_texts_of_tables_and_half_an_emoji(folders, form):
    """An unpaired surrogate is read as U+FFFD, as in encoders."""
    ranker = Ranker(folders[form == "module"])
    scores = ranker.scores(["hello"], CANDIDATES)
    np.testing.assert_array_equal(ranker.scores(np.array(["hello"]), np.array(CANDIDATES)), scores)
    half = ranker.scores(["hello \ud83d"], ["nice one \ud83d", "nice one \ufffd"])
    assert half[0, 0] == pytest.approx(half[0, 1], abs=1e-4)
    (own,) = ranker.candidate_scores(["hello"], [["nice one \ud83d", "fine"]])
    assert np.isfinite(own).all()


class Table:
    """The used part of a table. As a list, it gives its header."""

    def __init__(self, rows):
        self.rows = rows

    def __array__(self, dtype=None, copy=None):
        return np.array(self.rows, object)

    def __iter__(self):
        return iter(["context", "earlier"])


def test_contexts_are_in_an_order():
    turns = [("how are you", "fine"), ("hello", "hi")]
    assert checked_contexts(np.array(turns)) == turns
    assert checked_contexts(Table(["hello", "hi"])) == [("hello",), ("hi",)]  # a single column
    for contexts in ({"context": ["hello"]}, {"hello", "hi"}):
        with pytest.raises(ValueError, match="Contexts must be a list"):
            checked_contexts(contexts)
    with pytest.raises(ValueError, match=r"Contexts must be one column\. .* shape \(2, 2\)"):
        checked_contexts(Table(turns))


def test_what_is_no_ranker(tiny_modules, tmp_path):
    for folder in (*tiny_modules["single"], tmp_path):
        with pytest.raises(ValueError, match=r"ranker.* folder"):
            Ranker(folder)


def test_what_an_encoder_reads_of_a_context():
    encoder = SimpleNamespace(
        reads_history=True,
        numbers_turns=False,
        encode_contexts=lambda texts, earlier: (texts, earlier),
        encode=lambda texts, kind: (texts, kind),
    )
    turns = [("a", "b", "c"), ("c",), ()]
    for joins_turns in (False, True):  # history has its own input
        ranker = EncoderRanker(encoder, joins_turns=joins_turns)
        assert ranker.encode_contexts(turns) == (["c", "c", ""], ["b a", "", ""])
    encoder.numbers_turns = True
    assert EncoderRanker(encoder).encode_contexts(turns)[1] == ["0: b 1: a", "", ""]
    single = EncoderRanker(encoder, kinds=("default", "default"))
    assert single.encode_contexts(turns) == (["c", "c", ""], "default")
    encoder.reads_history = False
    assert EncoderRanker(encoder).encode_contexts(turns) == (["c", "c", ""], "context")
    joined = EncoderRanker(encoder, joins_turns=True)
    assert joined.encode_contexts(turns) == (["a b c", "c", ""], "context")


def test_any_model_ranks(tiny_modules, folders):
    checkpoint, module = tiny_modules["single"]
    for folder in folders:
        assert isinstance(open_ranker(folder), Ranker)
    expected = open_ranker(checkpoint).scores([("yes",)], CANDIDATES)
    np.testing.assert_allclose(
        open_ranker(module).scores([("yes",)], CANDIDATES), expected, atol=0.01
    )
    assert open_ranker(checkpoint).settings == {"checkpoint": str(checkpoint)}
    assert open_ranker(module).settings == {"module": str(module)}
