"""Baselines: TF-IDF and BM25 on words, and SIM and MAP on an encoder's vectors.

TF-IDF and BM25 compare words as in PolyAI's conversational-datasets. A word consists of two or more
letters, digits or underscores, and is lower-cased. Both methods are fitted to the contexts and
responses of a few thousand training examples, with each text as a document. They read one text per
context.

SIM ranks by the cosine of vectors from any encoder. MAP first applies a learned mapping to the
vectors of the responses.

Reference: arXiv 1904.06472 §4.1, §4.2; arXiv 1911.03688 §3.1.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from convert_tf import metrics
from convert_tf.data.candidates import joined_context, last_turn, read_examples
from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.numerics.vectors import unit_rows
from convert_tf.ranking.protocol import TextRanker, Turns, checked_lists, runs_of_lists
from convert_tf.ranking.ranker import EncoderRanker, open_vectors

_COLUMNS = 2**20  # number of columns that words are hashed to, as in PolyAI's code
_K1 = 2.0  # for BM25: the larger it is, the more repetitions of a word add to the score
_B = 0.75  # for BM25: penalty for long texts, from 0 to 1
LEARNING_RATES = (10.0, 3.0, 1.0, 0.3, 0.01)
REGULARIZERS = (0.0, 0.1, 0.01, 0.001)
_LABEL_SMOOTHING = 0.2
_BATCH_SIZE = 256
_DEV_SHARE = 0.2
_FIRST_ACCUMULATOR = 0.1  # initial value of Adagrad's accumulator
_MAX_EPOCHS = 100
_PATIENCE = 10  # number of epochs without improvement after which training stops
_SEED = 0


class TfIdfRanker(TextRanker):
    """A ranker that scores by the cosine of TF-IDF vectors.

    Words that do not occur in the fitted texts get the largest weight.

    Args:
      contexts, responses: texts to fit the weights to.
      read_context: function that turns the turns of a context into one text.

    Attributes:
      settings: facts for the ranker's row in a report.

    Raises:
      ValueError: if none of the texts contains a word.

    Example:
      TfIdfRanker(["where is it?"], ["it is here"]).scores([("it is late",)], ["late", "no"])
    """

    name = "TF-IDF"

    def __init__(
        self,
        contexts: Iterable[str],
        responses: Iterable[str],
        *,
        read_context: Callable[[Turns], str] = last_turn,
    ) -> None:
        # Importing scikit-learn takes a second, so only rankers that need it do so.
        from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

        self.read_context = read_context
        texts = [*contexts, *responses]
        self.settings: dict[str, Any] = {"fitted_on_texts": len(texts)}
        self._words = HashingVectorizer(
            token_pattern=r"\w\w+", n_features=_COLUMNS, alternate_sign=False, norm=None
        )
        self._counts = self._words.transform(texts)
        if not self._counts.nnz:
            raise ValueError(
                f"{self.name} needs training texts with words. Received: {len(texts)} texts "
                "without words. Pass other training examples."
            )
        # The weight of a word in n of N documents is count · (ln((1 + N) / (1 + n)) + 1). Rows are
        # scaled to length 1.
        self._weigh = TfidfTransformer().fit(self._counts).transform

    def vectors(self, texts: Sequence[str]) -> Any:
        """Return sparse vectors, `[texts, columns]`. Their dot products are the scores."""
        return self._weigh(self._words.transform(texts))

    def candidate_scores(
        self, contexts: Sequence[Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        """Score each context's own candidates: for context i, float `[len(candidate_lists[i])]`.

        Raises:
          ValueError: for the same reasons as in `scores`, or if there is not one list of candidates
            for each context.
        """
        all_turns, lists = checked_lists(contexts, candidate_lists)
        # scikit-learn refuses an empty list, so an empty text takes its place.
        rows = self.vectors([self.read_context(turns) for turns in all_turns] or [""])
        return [
            row[: len(lists[run.start])]
            for run in runs_of_lists(lists)
            for row in (rows[run] @ self.vectors(lists[run.start] or [""]).T).toarray()
        ]


class Bm25Ranker(TfIdfRanker):
    """A ranker that scores by the dot product of BM25 vectors of context and response.

    A vector has one component per word. For a word with weight w in a text of length l (the sum of
    the weights in the text), the component is ln((N − n + 0.5) / (n + 0.5)) · w · (k1 + 1) / (w +
    k1 · (1 − b + b · l / mean length)). N is the number of fitted documents, and n the number of
    documents that contain the word. As in PolyAI's code, the weights are TF-IDF weights instead of
    counts, and words in more than half of the documents lower the score. Words that do not occur in
    the fitted texts are ignored.

    Args:
      *args, **kwargs: arguments of `TfIdfRanker`.
    """

    name = "BM25"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings |= {"k1": _K1, "b": _B}
        documents = len(self._counts.indptr) - 1
        self._frequencies = np.bincount(self._counts.indices, minlength=_COLUMNS)
        self._idf = np.log((documents - self._frequencies + 0.5) / (self._frequencies + 0.5))
        self._mean_length = float(self._weigh(self._counts).sum(axis=1).mean())

    def vectors(self, texts: Sequence[str]) -> Any:
        counts = self._words.transform(texts)
        counts.data *= self._frequencies[counts.indices] > 0
        weights = self._weigh(counts)
        lengths = np.asarray(weights.sum(axis=1)).ravel() / self._mean_length
        damping = _K1 * (1 - _B + _B * np.repeat(lengths, np.diff(weights.indptr)))
        weights.data *= (_K1 + 1) / (weights.data + damping) * self._idf[weights.indices]
        return weights


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Return the rows scaled to length 1, float32 `[B, dim]`. Rows of zeros stay zeros."""
    return unit_rows(vectors).astype(np.float32)


class VectorMapping(NamedTuple):
    """The mapping y → (W + αI) y of response vectors, with the result of the grid search.

    Attributes:
      weights: the matrix W, float32 `[dim, dim]`.
      alpha: the factor α.
      learning_rate, regularizer: values from the grid that were best on the dev part.
      dev_accuracy: R100@1 on the dev part.
      epochs: number of training epochs after which the R100@1 was highest.
      score: how a context and a mapped response are compared, `cosine` or `dot`.
    """

    weights: np.ndarray
    alpha: float
    learning_rate: float
    regularizer: float
    dev_accuracy: float
    epochs: int
    score: str = "cosine"

    def candidates(self, vectors: np.ndarray) -> np.ndarray:
        """Map response vectors. The score is the dot product with a context vector of length 1."""
        mapped = vectors @ self.weights.T + self.alpha * vectors
        return normalized(mapped) if self.score == "cosine" else mapped


def mapping_gradients(
    weights: np.ndarray,
    alpha: float,
    *,
    contexts: np.ndarray,
    responses: np.ndarray,
    regularizer: float,
) -> tuple[np.ndarray, float]:
    """Return the gradients of the loss of a batch with respect to W and α.

    The loss is a cross-entropy plus a penalty. The scores x · (W + αI) y for all pairs in a batch
    go through a softmax over responses. The targets are 0.8 for the correct response and 0.2 spread
    evenly over the others. The penalty is `regularizer` / 2 times the sum of the squared entries of
    W.

    Args:
      weights, alpha: the matrix W and the factor α.
      contexts, responses: vectors of length 1, `[B, dim]`. Rows with the same index form a pair.
      regularizer: factor for the penalty.

    Returns:
      A tuple: the gradient for W and the gradient for α.

    Reference: arXiv 1911.03688 §3.1 and its footnote 7; arXiv 1904.06472 §4.2.
    """
    size = len(contexts)
    similarities = contexts @ responses.T
    scores = contexts @ weights @ responses.T + alpha * similarities
    scores -= scores.max(axis=1, keepdims=True)
    log_probabilities = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    smoothing = _LABEL_SMOOTHING if size > 1 else 0.0  # one pair has no wrong response
    targets = np.full_like(scores, smoothing / max(size - 1, 1))
    np.fill_diagonal(targets, 1 - smoothing)
    slope = (np.exp(log_probabilities) - targets) / size
    gradient = contexts.T @ (slope @ responses)
    if regularizer:
        gradient += regularizer * weights
    return gradient, float((slope * similarities).sum())


def fit_mapping(
    contexts: np.ndarray, responses: np.ndarray, *, score: str = "cosine"
) -> VectorMapping:
    """Learn W and α with Adagrad for each combination in PolyAI's grid, and keep the best mapping.

    A fifth of the examples forms the dev part, which is ranked in blocks of 100. Initially, W is
    orthogonal and α is 1. Training stops when R100@1 on the dev part has not improved for ten
    epochs. The weights of the best epoch are used.

    Args:
      contexts, responses: vectors, `[examples, dim]`. Rows with the same index form a pair.
      score: how contexts and mapped responses are compared: `cosine` (equation 2 of ConveRT's
        paper) or `dot` (PolyAI's published baseline). In both cases, the loss in training uses dot
        products.

    Raises:
      ValueError: if the dev part has fewer than 100 examples.

    Reference: arXiv 1911.03688 §3.1, equation 2; arXiv 1904.06472 §4.2.
    """
    num_dev = int(len(contexts) * _DEV_SHARE)
    if num_dev < metrics.BLOCK_SIZE:
        raise ValueError(
            f"MAP needs at least {metrics.BLOCK_SIZE / _DEV_SHARE:.0f} training examples, because "
            f"hyper-parameters are chosen on a fifth of them. Received: {len(contexts)}."
        )
    rng = np.random.default_rng(_SEED)
    order = rng.permutation(len(contexts))
    dev, train = order[:num_dev], order[num_dev:]
    x, y = normalized(contexts), normalized(responses)
    first = np.linalg.qr(rng.standard_normal((x.shape[1],) * 2))[0].astype(np.float32)
    runs = (
        _run(VectorMapping(first, 1.0, rate, regularizer, -1.0, 0, score), x, y, train, dev)
        for rate, regularizer in itertools.product(LEARNING_RATES, REGULARIZERS)
    )
    return max(runs, key=lambda mapping: mapping.dev_accuracy)


def _run(
    best: VectorMapping, x: np.ndarray, y: np.ndarray, train: np.ndarray, dev: np.ndarray
) -> VectorMapping:
    """Train W and α with one combination of learning rate and regularizer from the grid.

    Args:
      best: the mapping to start from, with the learning rate, the regularizer and the initial W
        and α.
      x, y: vectors of contexts and responses, `[examples, dim]`.
      train, dev: indices of the rows for training and for the dev part.
    """
    rng = np.random.default_rng(_SEED)
    weights, alpha = best.weights.copy(), best.alpha
    weights_seen = np.full_like(weights, _FIRST_ACCUMULATOR)
    alpha_seen = _FIRST_ACCUMULATOR
    for epoch in range(1, _MAX_EPOCHS + 1):
        order = rng.permutation(train)
        for start in range(0, len(order), _BATCH_SIZE):
            batch = order[start : start + _BATCH_SIZE]
            slope, alpha_slope = mapping_gradients(
                weights, alpha, contexts=x[batch], responses=y[batch], regularizer=best.regularizer
            )
            weights_seen += np.square(slope)
            alpha_seen += alpha_slope**2
            slope /= np.sqrt(weights_seen)
            slope *= best.learning_rate
            weights -= slope
            alpha -= best.learning_rate * alpha_slope / alpha_seen**0.5
        if not (np.isfinite(weights).all() and np.isfinite(alpha)):
            break
        current = best._replace(weights=weights, alpha=alpha, epochs=epoch)
        ranks = metrics.block_ranks(x[dev], current.candidates(y[dev]))
        accuracy = metrics.recall_at_k(ranks, 1)
        if accuracy > best.dev_accuracy:
            best = current._replace(weights=weights.copy(), dev_accuracy=accuracy)
        elif epoch - best.epochs >= _PATIENCE:
            break
    return best


class SimRanker(EncoderRanker):
    """A ranker that scores by the cosine of the context's and the candidate's vectors."""

    def encode_contexts(self, contexts: Sequence[Turns]) -> np.ndarray:
        return normalized(super().encode_contexts(contexts))

    def encode_candidates(self, texts: Sequence[str]) -> np.ndarray:
        return normalized(super().encode_candidates(texts))


class MapRanker(SimRanker):
    """A ranker that scores by the cosine or dot product of the context and the mapped candidate.

    Args:
      *args: positional arguments of `EncoderRanker`.
      mapping: mapping for candidates, from `fit_mapping`.
      **options: keyword arguments of `EncoderRanker`.
    """

    def __init__(self, *args: Any, mapping: VectorMapping, **options: Any) -> None:
        super().__init__(*args, **options)
        self._mapping = mapping
        self.settings = {k: v for k, v in mapping._asdict().items() if k != "weights"}

    def encode_candidates(self, texts: Sequence[str]) -> np.ndarray:
        return self._mapping.candidates(super().encode_candidates(texts))


LEXICAL = {"tfidf": TfIdfRanker, "bm25": Bm25Ranker}
# Each variant of MAP with its score and the name of its row in a report.
MAPS = {"map": ("cosine", "MAP"), "map_dot": ("dot", "MAP by dot product,")}
VECTOR = ("sim", *MAPS)
BASELINES = (*LEXICAL, *VECTOR)
HISTORY = ("own", "joined", "none")

Pairs = tuple[list[Turns], list[str]]


def visible_turns(turns: Turns, history: str) -> Turns:
    """Return the turns that rankers may read: only the last turn if `history` is `none`."""
    return turns[-1:] if history == "none" else turns


def read_training_pairs(data: str, max_examples: int, *, history: str = "own") -> Pairs:
    """Read the contexts and correct responses that baselines are fitted to.

    Args:
      data: folder of records, whose train split is read, or file of candidates.
      max_examples: maximum number of examples to read.
      history: which earlier turns to keep, one of `HISTORY`.

    Raises:
      ValueError: if there are no examples.
    """
    examples = read_examples(data, "train", max_examples=max_examples)
    pairs = [(turns, candidates[labels[0]]) for turns, candidates, labels in examples]
    turns, responses = zip(*pairs, strict=True)
    return [visible_turns(context, history) for context in turns], list(responses)


def vector_rankers(
    names: Sequence[str],
    vectors: str,
    encoder: SentenceEncoder,
    pairs: Pairs | None,
    *,
    settings: dict[str, Any],
    **options: Any,
) -> list[EncoderRanker]:
    """Return the named baselines among SIM and MAP, which use the vectors of one encoder.

    Args:
      names: names of baselines. Names of other baselines are ignored.
      vectors: name of the encoder, for the rows in a report.
      encoder: encoder that computes the vectors.
      pairs: training pairs for MAP, or None without MAP.
      settings: facts about the encoder, for the rows in a report.
      **options: keyword arguments of `EncoderRanker`.
    """
    rankers: list[EncoderRanker] = []
    if "sim" in names:
        rankers.append(SimRanker(encoder, f"SIM {vectors}", **options))
    if maps := [MAPS[name] for name in MAPS if name in names]:
        assert pairs is not None
        contexts, responses = pairs
        plain = EncoderRanker(encoder, **options)
        encoded = plain.encode_contexts(contexts), plain.encode_candidates(responses)
        for score, called in maps:
            mapping = fit_mapping(*encoded, score=score)
            rankers.append(MapRanker(encoder, f"{called} {vectors}", mapping=mapping, **options))
    for ranker in rankers:
        ranker.settings |= settings
    return rankers


def check_baselines(
    names: Sequence[str], vectors: Sequence[str], *, train_data: str | None
) -> None:
    """Check that the named baselines exist and have what they need.

    The arguments are the same as for `baseline_rankers`.

    Raises:
      ValueError: if a name is unknown, a baseline lacks data or vectors, or no baseline uses
        `vectors`.
    """
    if unknown := [name for name in names if name not in BASELINES]:
        choices = ", ".join(BASELINES)
        raise ValueError(f"Unknown baselines: {', '.join(unknown)}. Choose from {choices}.")
    if any(name in VECTOR for name in names) != bool(vectors):
        raise ValueError(
            "--vectors must be set if, and only if, a baseline uses them (sim, map or map_dot). "
            f"Received: baselines {', '.join(names) or 'none'}, vectors "
            f"{', '.join(vectors) or 'none'}."
        )
    if {*names} - {"sim"} and train_data is None:
        raise ValueError("tfidf, bm25 and map need training examples. Pass --train_data.")


def baseline_rankers(
    names: Sequence[str],
    vectors: Sequence[str],
    *,
    train_data: str | None,
    train_examples: int,
    signature: str | None,
    history: str,
) -> list[TextRanker]:
    """Return fitted baselines. `check_baselines` must have checked the arguments.

    Args:
      names: names of baselines, from `BASELINES`.
      vectors: encoders for `sim` and `map`, as in `open_vectors`.
      train_data: data to fit the baselines to (`read_training_pairs`), or None if no baseline needs
        fitting.
      train_examples: maximum number of examples to read from `train_data`.
      signature: signature of the encoders for both contexts and responses, as in `open_vectors`.
      history: which earlier turns rankers may read, one of `HISTORY`.
    """
    joins_turns = history == "joined"
    read = joined_context if joins_turns else last_turn
    pairs, settings = None, {}
    if train_data is not None and {*names} - {"sim"}:
        pairs = read_training_pairs(train_data, train_examples, history=history)
        settings = {"train_data": train_data, "train_examples": len(pairs[0])}
    rankers: list[TextRanker] = []
    for kind in [LEXICAL[name] for name in names if name in LEXICAL]:
        assert pairs is not None
        lexical = kind(map(read, pairs[0]), pairs[1], read_context=read)
        lexical.settings |= settings
        rankers.append(lexical)
    for folder in vectors:
        encoder, kinds = open_vectors(folder, signature, keeps_newest=joins_turns)
        rankers += vector_rankers(
            names,
            folder,
            encoder,
            pairs,
            settings={"vectors": folder, "signature": signature, **settings},
            kinds=kinds,
            joins_turns=joins_turns,
        )
    return rankers
