"""Lexical baselines compared with naive loops, and MAP with finite differences."""

import itertools
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest

from convert_tf.data.candidates import joined_context
from convert_tf.metrics import block_ranks, recall_at_k
from convert_tf.ranking import baselines
from convert_tf.ranking.baselines import (
    Bm25Ranker,
    MapRanker,
    SimRanker,
    TfIdfRanker,
    VectorMapping,
    fit_mapping,
    mapping_gradients,
    normalized,
)
from convert_tf.ranking.protocol import runs_of_lists
from convert_tf.ranking.ranker import EncoderRanker

CONTEXTS = ["Where is the cat?", "is it late", "the cat sat, the cat ran", "no! why?"]
RESPONSES = ["The cat is on the mat.", "it is late, very late", "a dog ran", "the end of it"]
QUERIES = [("hello", "is the dog late, late?"), ("unseen words only",), ("",), ()]
CANDIDATES = ["the dog is here", "very late", "", "unseen late the", "?!", "the the cat"]


def words_of(text):
    return [word for word in re.split(r"\W+", text.lower()) if len(word) > 1]


class Naive:
    """Both baselines word by word, after PolyAI's code and scikit-learn's documentation."""

    def __init__(self, documents):
        self.documents = [words_of(document) for document in documents]
        self.n = len(documents)
        lengths = [sum(self.tf_idf(document).values()) for document in self.documents]
        self.mean_length = sum(lengths) / self.n

    def found(self, word):
        return sum(word in document for document in self.documents)

    def tf_idf(self, words):
        weights = {}
        for word in words:
            idf = math.log((1 + self.n) / (1 + self.found(word))) + 1
            weights[word] = words.count(word) * idf
        length = math.sqrt(sum(w * w for w in weights.values()))
        return {word: weight / length for word, weight in weights.items()}

    def bm25(self, words, k1=2.0, b=0.75):
        weights = self.tf_idf([word for word in words if self.found(word)])
        length = sum(weights.values())
        vector = {}
        for word, weight in weights.items():
            idf = math.log((self.n - self.found(word) + 0.5) / (self.found(word) + 0.5))
            damping = k1 * (1 - b + b * length / self.mean_length)
            vector[word] = idf * weight * (k1 + 1) / (weight + damping)
        return vector


@pytest.fixture(scope="module")
def naive():
    return Naive(CONTEXTS + RESPONSES)


def naive_scores(vector_of):
    queries = [vector_of(words_of(turns[-1] if turns else "")) for turns in QUERIES]
    candidates = [vector_of(words_of(candidate)) for candidate in CANDIDATES]
    return [
        [sum(value * other.get(word, 0.0) for word, value in query.items()) for other in candidates]
        for query in queries
    ]


def test_tf_idf_equals_a_naive_one(naive):
    scores = TfIdfRanker(CONTEXTS, RESPONSES).scores(QUERIES, CANDIDATES)
    np.testing.assert_allclose(scores, naive_scores(naive.tf_idf), atol=1e-12)
    assert len(np.unique(scores.round(9))) > 5
    # A word that is not in the documents counts if both texts have it, as with PolyAI's hashing.
    assert scores[1, 3] > 0


def test_bm25_equals_a_naive_one(naive):
    scores = Bm25Ranker(CONTEXTS, RESPONSES).scores(QUERIES, CANDIDATES)
    np.testing.assert_allclose(scores, naive_scores(naive.bm25), atol=1e-12)
    assert not scores[1].any()  # all its words are unknown
    assert not scores[2:].any()


def rankers():
    rng = np.random.default_rng(0)
    table = {text: rng.standard_normal(6) for text in [*CANDIDATES, *(t[-1] for t in QUERIES[:3])]}

    encoder = SimpleNamespace(
        reads_history=False, encode=lambda texts, kind: np.array([table[text] for text in texts])
    )
    mapping = VectorMapping(rng.standard_normal((6, 6)).astype(np.float32), 0.5, 1.0, 0.0, 0.1, 1)
    return [
        TfIdfRanker(CONTEXTS, RESPONSES),
        Bm25Ranker(CONTEXTS, RESPONSES),
        EncoderRanker(encoder, "encodings"),
        SimRanker(encoder, "sim"),
        MapRanker(encoder, "map", mapping=mapping),
    ]


@pytest.mark.parametrize("ranker", rankers(), ids=lambda ranker: ranker.name)
def test_scores_depend_on_context_and_candidate_alone(ranker):
    """Other texts in the same call, and their order, have no effect."""
    expected = ranker.scores(QUERIES, CANDIDATES)
    assert expected.shape == (4, 6)
    single = [[ranker.scores([q], [c])[0, 0] for c in CANDIDATES] for q in QUERIES]
    np.testing.assert_allclose(single, expected, atol=1e-6)
    own = [CANDIDATES[4::-2], [CANDIDATES[1]], CANDIDATES[::-1], CANDIDATES[:2]]
    found = ranker.candidate_scores(QUERIES, own)
    for scores, candidates, row in zip(found, own, expected, strict=True):
        expected_own = [row[CANDIDATES.index(text)] for text in candidates]
        np.testing.assert_allclose(scores, expected_own, atol=1e-6)


@pytest.mark.parametrize("ranker", rankers(), ids=lambda ranker: ranker.name)
def test_a_context_may_be_a_text(ranker):
    texts = [query[-1] for query in QUERIES if query]
    expected = ranker.scores([(text,) for text in texts], CANDIDATES)
    for contexts in (texts, [np.array([text]) for text in texts]):
        np.testing.assert_array_equal(ranker.scores(contexts, CANDIDATES), expected)
    assert ranker.scores([], CANDIDATES).shape == (0, 6)
    with pytest.raises(ValueError, match="Candidates must be a list"):
        ranker.scores(texts, "fine")


@pytest.mark.parametrize("ranker", rankers(), ids=lambda ranker: ranker.name)
def test_each_context_needs_a_list_of_candidates(ranker):
    queries = QUERIES[:2]
    for lists in (CANDIDATES[:2], [CANDIDATES[0], CANDIDATES]):
        with pytest.raises(ValueError, match="Candidates must be a list of strings"):
            ranker.candidate_scores(queries, lists)
    with pytest.raises(ValueError, match="Received: 1 lists for 2 contexts"):
        ranker.candidate_scores(queries, [CANDIDATES])
    arrays = ranker.candidate_scores(queries, [np.array(CANDIDATES)] * 2)
    np.testing.assert_array_equal(arrays, ranker.scores(queries, CANDIDATES))
    without, scored = ranker.candidate_scores(queries, [[], CANDIDATES])
    assert without.shape == (0,)
    np.testing.assert_array_equal(scored, arrays[1])


@pytest.mark.parametrize("count", [3, 5, 7, 13, 33])
def test_equal_candidates_have_equal_scores(count):
    """In float32, BLAS may compute the last columns of a product in another order."""
    context, same = np.random.default_rng(0).standard_normal((2, 512))
    table = {"a": context, "same": same}
    encoder = SimpleNamespace(
        reads_history=False,
        encode=lambda texts, kind: np.array([table[text] for text in texts], np.float32),
    )
    scores = EncoderRanker(encoder).scores(["a"], ["same"] * count)
    assert scores.dtype == np.float32
    assert len({*scores[0].tolist()}) == 1


def test_runs_of_lists():
    a, b = ["x"], ["x"]
    assert list(runs_of_lists([a, a, b, a])) == [slice(0, 2), slice(2, 3), slice(3, 4)]
    assert list(runs_of_lists([])) == []


def test_baselines_may_read_all_turns():
    for kind in (TfIdfRanker, Bm25Ranker):
        last = kind(CONTEXTS, RESPONSES).scores([("cat", "late")], ["the cat", "late"])
        both = kind(CONTEXTS, RESPONSES, read_context=joined_context)
        joined = both.scores([("cat", "late")], ["the cat", "late"])
        assert last[0, 0] == 0 != joined[0, 0]
        np.testing.assert_array_equal(joined, both.scores([("cat late",)], ["the cat", "late"]))


def test_fits_need_words():
    with pytest.raises(ValueError, match=r"BM25 needs training texts .* Received: 2 texts"):
        Bm25Ranker(["?"], ["a"])


def test_sim_is_the_cosine():
    _, _, plain, sim, _ = rankers()
    x, y = plain.encode_contexts(QUERIES), plain.encode_candidates(CANDIDATES)
    lengths = np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1))
    np.testing.assert_allclose(sim.scores(QUERIES, CANDIDATES), x @ y.T / lengths, atol=1e-6)
    np.testing.assert_array_equal(normalized(np.zeros((1, 3))), np.zeros((1, 3)))


def naive_mapping_loss(w, alpha, x, y, regularizer):
    size = len(x)
    total = 0.0
    for i in range(size):
        scores = [x[i] @ (w @ y[j] + alpha * y[j]) for j in range(size)]
        normalizer = math.log(sum(math.exp(score) for score in scores))
        for j in range(size):
            target = 1.0 if size == 1 else 0.8 if i == j else 0.2 / (size - 1)
            total -= target * (scores[j] - normalizer) / size
    return total + regularizer / 2 * sum(float(v) ** 2 for v in w.ravel())


@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_gradients_of_the_loss_of_map(size):
    """Targets: 0.8 for the correct response, 0.2 over the rest (arXiv 1911.03688, footnote 7)."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, size, 3))
    w, alpha, regularizer = rng.standard_normal((3, 3)), 0.7, 0.3
    gradients = mapping_gradients(w, alpha, contexts=x, responses=y, regularizer=regularizer)
    step = 1e-5

    def slope(w_step, alpha_step):
        up, down = (
            naive_mapping_loss(w + sign * w_step, alpha + sign * alpha_step, x, y, regularizer)
            for sign in (step, -step)
        )
        return pytest.approx((up - down) / (2 * step), abs=1e-7)

    for place in np.ndindex(3, 3):
        direction = np.zeros((3, 3))
        direction[place] = 1
        assert gradients[0][place] == slope(direction, 0)
    assert gradients[1] == slope(0, 1)


def rotated_pairs(number, dim=16, *, noise=0.2):
    rng = np.random.default_rng(2)
    rotation = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    x = rng.standard_normal((number, dim))
    return x, 3 * (x + noise * rng.standard_normal(x.shape)) @ rotation


def accuracy(x, y):
    return recall_at_k(block_ranks(normalized(x), y), 1)


@pytest.fixture
def fit(monkeypatch):
    """Return a function that calls `fit_mapping` with another grid and other epoch limits."""

    def call(x, y, *, rates=(1.0,), regularizers=(0.0,), epochs=100, patience=10, score="cosine"):
        monkeypatch.setattr(baselines, "LEARNING_RATES", rates)
        monkeypatch.setattr(baselines, "REGULARIZERS", regularizers)
        monkeypatch.setattr(baselines, "_MAX_EPOCHS", epochs)
        monkeypatch.setattr(baselines, "_PATIENCE", patience)
        return fit_mapping(x, y, score=score)

    return call


def test_map_learns_what_sim_cannot_see(fit):
    x, y = rotated_pairs(700, dim=8, noise=0.1)
    mapping = fit(x[:500], y[:500], epochs=15)
    assert accuracy(x[500:], normalized(y[500:])) < 0.05
    found = accuracy(x[500:], mapping.candidates(normalized(y[500:])))
    assert found > 0.9
    assert mapping.dev_accuracy == pytest.approx(found, abs=0.1)


def test_map_scores_by_the_cosine_or_by_the_dot_product():
    """The cosine follows equation 2 of arXiv 1911.03688: cos(x, (W + αI) y)."""
    rng = np.random.default_rng(0)
    weights, alpha = rng.standard_normal((4, 4)).astype(np.float32), 0.3
    x, y = rng.standard_normal((3, 4)), rng.standard_normal((5, 4))
    for score in ("cosine", "dot"):
        mapping = VectorMapping(weights, alpha, 1.0, 0.0, 0.1, 1, score)
        of = {"context": x, "response": y}
        encoder = SimpleNamespace(reads_history=False, encode=lambda _, kind, of=of: of[kind])
        ranker = MapRanker(encoder, "map", mapping=mapping)
        scores = ranker.encode_contexts([("a",)] * 3) @ ranker.encode_candidates(["b"] * 5).T
        for i, j in itertools.product(range(3), range(5)):
            one, other = x[i] / np.linalg.norm(x[i]), y[j] / np.linalg.norm(y[j])
            mapped = (weights + alpha * np.eye(4)) @ other
            lengths = np.linalg.norm(mapped) if score == "cosine" else 1.0
            assert scores[i, j] == pytest.approx(one @ mapped / lengths, abs=1e-5)
        assert ranker.settings["score"] == score


@pytest.mark.parametrize("score", ["cosine", "dot"])
def test_the_grid_of_map_is_searched_on_the_dev_part(fit, score):
    """The search compares the accuracy of the score that is used for ranking."""
    x, y = rotated_pairs(500, dim=4, noise=0.5)
    dev = np.random.default_rng(0).permutation(500)[:100]
    cells = {
        cell: fit(x, y, rates=cell[:1], regularizers=cell[1:], epochs=2, score=score)
        for cell in itertools.product((1e-4, 1.0), (10.0, 0.0))
    }
    best = fit(x, y, rates=(1e-4, 1.0), regularizers=(10.0, 0.0), epochs=2, score=score)
    accuracies = [mapping.dev_accuracy for mapping in cells.values()]
    assert best.dev_accuracy == max(accuracies) > min(accuracies)
    np.testing.assert_array_equal(best.weights, cells[best.learning_rate, best.regularizer].weights)
    found = accuracy(x[dev], best.candidates(normalized(y[dev])))
    assert best.dev_accuracy == pytest.approx(found)


def test_runs_of_map_end_without_improvement(fit, monkeypatch):
    """If dev accuracy never changes, training ends after 1 + `patience` epochs."""
    x, y = rotated_pairs(500, dim=4)
    epochs = []
    ranks = np.arange(1, 101)
    monkeypatch.setattr(baselines.metrics, "block_ranks", lambda *_: epochs.append(1) or ranks)
    for options, expected in (({"patience": 2}, 3), ({"patience": 5}, 6), ({"epochs": 4}, 4)):
        epochs.clear()
        assert fit(x, y, rates=(1e-4,), **options).epochs == 1
        assert len(epochs) == expected


def test_the_best_epoch_of_map_is_kept(fit):
    """The reported accuracy belongs to the returned weights, not to the last ones."""
    x, y = rotated_pairs(500, dim=8, noise=0.5)
    dev = np.random.default_rng(0).permutation(500)[:100]
    epochs = []
    for rate in (0.1, 1.0, 10.0):
        best = fit(x, y, rates=(rate,), patience=3)
        assert accuracy(x[dev], best.candidates(normalized(y[dev]))) == best.dev_accuracy
        last = fit(x, y, rates=(rate,), epochs=best.epochs + 3)
        np.testing.assert_array_equal(last.weights, best.weights)
        epochs.append(best.epochs)
    assert max(epochs) > 1


def test_one_epoch_of_adagrad(fit):
    """Each step is w − rate · g / √(0.1 + the sum of g²)."""
    x, y = rotated_pairs(500, dim=4)
    rng = np.random.default_rng(0)
    train = rng.permutation(500)[100:]
    w = np.linalg.qr(rng.standard_normal((4, 4)))[0].astype(np.float32)
    x_n, y_n = normalized(x)[train], normalized(y)[train]
    batches = np.random.default_rng(0).permutation(400)
    alpha, seen, alpha_seen = 1.0, 0.1, 0.1
    for batch in (batches[:256], batches[256:]):
        pairs = {"contexts": x_n[batch], "responses": y_n[batch]}
        g, a = mapping_gradients(w, alpha, **pairs, regularizer=0.1)
        seen, alpha_seen = seen + g**2, alpha_seen + a**2
        w, alpha = w - 0.5 * g / seen**0.5, alpha - 0.5 * a / alpha_seen**0.5
    mapping = fit(x, y, rates=(0.5,), regularizers=(0.1,), epochs=1)
    np.testing.assert_allclose(mapping.weights, w, atol=1e-6)
    assert mapping.alpha == pytest.approx(alpha, abs=1e-6)


def test_map_needs_enough_examples():
    x = np.ones((499, 3))
    with pytest.raises(ValueError, match=r"needs at least 500 training examples.*Received: 499"):
        fit_mapping(x, x)
