"""Baselines on the vectors of any encoder: SIM, their cosine, and MAP, with a learned mapping.

Reference: arXiv 1904.06472 §4.2; arXiv 1911.03688 §3.1.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from convert_tf import metrics
from convert_tf.numerics.vectors import unit_rows
from convert_tf.ranking.encoders import EncoderRanker
from convert_tf.ranking.protocol import Turns

LEARNING_RATES = (10.0, 3.0, 1.0, 0.3, 0.01)
REGULARIZERS = (0.0, 0.1, 0.01, 0.001)
_LABEL_SMOOTHING = 0.2
_BATCH_SIZE = 256
_DEV_SHARE = 0.2
_FIRST_ACCUMULATOR = 0.1  # initial value in Adagrad
_MAX_EPOCHS = 100
_PATIENCE = 10  # epochs without improvement
_SEED = 0


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Scale rows to length 1: float32 `[B, dim]`. Rows of zeros do not change."""
    return unit_rows(vectors).astype(np.float32)


class VectorMapping(NamedTuple):
    """The mapping y → (W + αI) y of responses, and the grid search that found it.

    Attributes:
      weights: W, float32 `[dim, dim]`.
      alpha: α.
      learning_rate, regularizer: best values of the grid on the dev part.
      dev_accuracy: R100@1 on the dev part.
      epochs: number of epochs with the best result.
      score: `cosine` or `dot`, the comparison of a context and a mapped response.
    """

    weights: np.ndarray
    alpha: float
    learning_rate: float
    regularizer: float
    dev_accuracy: float
    epochs: int
    score: str = "cosine"

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Map vectors: `[B, dim]` → `[B, dim]`."""
        return vectors @ self.weights.T + self.alpha * vectors

    def candidates(self, vectors: np.ndarray) -> np.ndarray:
        """Map responses to vectors whose dot products with contexts of length 1 are the scores."""
        return normalized(self(vectors)) if self.score == "cosine" else self(vectors)


def mapping_gradients(
    weights: np.ndarray,
    alpha: float,
    *,
    contexts: np.ndarray,
    responses: np.ndarray,
    regularizer: float,
) -> tuple[np.ndarray, float]:
    """Compute the gradients of the loss of a batch.

    The scores x · (W + αI) y of all pairs of a batch go through a softmax over responses. The
    targets are 0.8 for the right response, plus 0.2 spread evenly over all responses. The penalty
    is `regularizer` / 2 times the sum of the squared entries of W.

    Args:
      weights, alpha: W and α.
      contexts, responses: `[B, dim]`, rows of length 1.
      regularizer: factor of the penalty.

    Returns:
      `(gradient of W, gradient of α)`.

    Reference: arXiv 1904.06472 §4.2; arXiv 1705.00652 §4.
    """
    size = len(contexts)
    similarities = contexts @ responses.T
    scores = contexts @ weights @ responses.T + alpha * similarities
    scores -= scores.max(axis=1, keepdims=True)
    log_probabilities = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    targets = np.full_like(scores, _LABEL_SMOOTHING / size)
    targets[np.arange(size), np.arange(size)] += 1 - _LABEL_SMOOTHING
    slope = (np.exp(log_probabilities) - targets) / size
    gradient = contexts.T @ (slope @ responses)
    if regularizer:
        gradient += regularizer * weights
    return gradient, float((slope * similarities).sum())


def fit_mapping(
    contexts: np.ndarray, responses: np.ndarray, *, score: str = "cosine"
) -> VectorMapping:
    """Learn W and α with Adagrad for each point of PolyAI's grid, and keep the best on a dev part.

    A fifth of the examples is the dev part, which is ranked in blocks of 100. W starts orthogonal,
    α at 1. Training stops if the dev part has not improved for some epochs, and the best epoch is
    used.

    Args:
      contexts, responses: `[examples, dim]`; row i of both is a pair.
      score: `cosine` (equation 2 of ConveRT's paper) or `dot` (PolyAI's published baseline). Both
        are trained with the loss of dot products.

    Raises:
      ValueError: if the dev part has fewer than 100 examples.

    Reference: arXiv 1911.03688 §3.1, equation 2; arXiv 1904.06472 §4.2.
    """
    num_dev = int(len(contexts) * _DEV_SHARE)
    if num_dev < metrics.BLOCK_SIZE:
        raise ValueError(
            f"MAP needs {metrics.BLOCK_SIZE / _DEV_SHARE:.0f} training examples, because it "
            f"chooses its hyper-parameters on a fifth of them. Received: {len(contexts)}."
        )
    rng = np.random.default_rng(_SEED)
    order = rng.permutation(len(contexts))
    dev, train = order[:num_dev], order[num_dev:]
    x, y = normalized(contexts), normalized(responses)
    first = np.linalg.qr(rng.standard_normal((x.shape[1],) * 2))[0].astype(np.float32)
    runs = (
        _run(
            VectorMapping(first, 1.0, rate, regularizer, -1.0, 0, score),
            _Pairs(x[train], y[train]),
            _Pairs(x[dev], y[dev]),
        )
        for rate, regularizer in itertools.product(LEARNING_RATES, REGULARIZERS)
    )
    return max(runs, key=lambda found: found.dev_accuracy)


class _Pairs(NamedTuple):
    contexts: np.ndarray
    responses: np.ndarray


def _run(best: VectorMapping, train: _Pairs, dev: _Pairs) -> VectorMapping:
    rng = np.random.default_rng(_SEED)
    weights, alpha = best.weights.copy(), best.alpha
    weights_seen = np.full_like(weights, _FIRST_ACCUMULATOR)
    alpha_seen = _FIRST_ACCUMULATOR
    for epoch in range(1, _MAX_EPOCHS + 1):
        order = rng.permutation(len(train.contexts))
        for start in range(0, len(order), _BATCH_SIZE):
            batch = order[start : start + _BATCH_SIZE]
            slope, alpha_slope = mapping_gradients(
                weights,
                alpha,
                contexts=train.contexts[batch],
                responses=train.responses[batch],
                regularizer=best.regularizer,
            )
            weights_seen += np.square(slope)
            alpha_seen += alpha_slope**2
            slope /= np.sqrt(weights_seen)
            slope *= best.learning_rate
            weights -= slope
            alpha -= best.learning_rate * alpha_slope / alpha_seen**0.5
        if not (np.isfinite(weights).all() and np.isfinite(alpha)):
            break
        found = best._replace(weights=weights, alpha=alpha, epochs=epoch)
        ranks = metrics.block_ranks(dev.contexts, found.candidates(dev.responses))
        accuracy = metrics.recall_at_k(ranks, 1)
        if accuracy > best.dev_accuracy:
            best = found._replace(weights=weights.copy(), dev_accuracy=accuracy)
        elif epoch - best.epochs >= _PATIENCE:
            break
    return best


class SimRanker(EncoderRanker):
    """Rank by the cosine of the vectors of context and candidate. See `EncoderRanker`."""

    def encode_contexts(self, contexts: Sequence[Turns]) -> np.ndarray:
        return normalized(super().encode_contexts(contexts))

    def encode_candidates(self, texts: Sequence[str]) -> np.ndarray:
        return normalized(super().encode_candidates(texts))


class MapRanker(SimRanker):
    """Rank by the cosine or dot product of the context and the mapped candidate.

    Args:
      *args: arguments of `EncoderRanker`.
      mapping: result of `fit_mapping`.
      **options: options of `EncoderRanker`.
    """

    def __init__(self, *args: Any, mapping: VectorMapping, **options: Any):
        super().__init__(*args, **options)
        self._mapping = mapping
        self.settings = {k: v for k, v in mapping._asdict().items() if k != "weights"}

    def encode_candidates(self, texts: Sequence[str]) -> np.ndarray:
        return self._mapping.candidates(super().encode_candidates(texts))
