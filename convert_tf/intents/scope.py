"""Out of scope: how sure a classifier is, and thresholds below which it should not answer."""

from typing import Any, NamedTuple

import numpy as np

from convert_tf.numerics.vectors import unit_rows

KINDS = ("confidence", "distance")
LEVELS = "/"  # between the levels of a label
_ENOUGH = 20  # examples of an intent with a threshold of its own
_REJECTED_SHARE = 0.05  # of the in-scope examples, if no others were given
_SHARED = 20  # weight of all examples in the threshold of an intent, in examples


class ScopeScores(NamedTuple):
    """Scores of n validation examples; higher is more surely in scope.

    Attributes:
      scores: float `[n]`.
      predicted: int `[n]`, the best intents.
      is_right: bool `[n]`: whether the best intent is the right one.
      is_in: bool `[n]`: whether the examples are in scope.
    """

    scores: np.ndarray
    predicted: np.ndarray
    is_right: np.ndarray
    is_in: np.ndarray


def centroids_of(encodings: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the mean encoding of each intent, scaled to length 1: float32 `[labels, dim]`.

    Args:
      encodings: float32 `[n, dim]`.
      labels: int `[n]`, from 0 without gaps; or bool `[n, labels]`.
    """
    truth = labels if labels.ndim > 1 else labels[:, None] == np.arange(labels.max() + 1)
    return unit_rows(truth.T.astype(np.float32) @ encodings)


def nearest_cosines(encodings: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """Return the cosine of each encoding to the nearest centroid: float32 `[n]`."""
    return (encodings @ centroids.T).max(axis=1, initial=-1)


def fit_threshold(scores: ScopeScores) -> float:
    """Return the score below which an example is out of scope.

    Args:
      scores: of validation examples, some of them in scope.

    Returns:
      With out-of-scope examples, the threshold with the highest mean of in-scope accuracy (a
      rejection is an error) and out-of-scope recall, in the middle of its interval. Without, the
      score that one in twenty in-scope examples does not reach.
    """
    if scores.is_in.all():
        return float(np.quantile(scores.scores, _REJECTED_SHARE))
    between = _between(scores.scores)
    return float(between[np.argmax(_gain(scores, between))])


def fit_intent_thresholds(scores: ScopeScores, threshold: float, num_intents: int) -> np.ndarray:
    """Return a threshold for each predicted intent.

    Args:
      scores: of validation examples.
      threshold: that of all intents, which intents with few examples get.
      num_intents: how many there are.

    Returns:
      float64 `[num_intents]`: `fit_threshold` on the examples that are answered with that intent,
      and on all examples, which together weigh as much as 20.
    """
    found = np.full(num_intents, threshold, np.float64)
    shared = _SHARED / len(scores.scores)
    between = _between(scores.scores)
    for intent in range(num_intents):
        own = scores.predicted == intent
        if own.sum() < _ENOUGH:
            continue
        if scores.is_in.all():
            weights = own + shared
            order = np.argsort(scores.scores)
            reached = np.cumsum(weights[order]) >= _REJECTED_SHARE * weights.sum()
            found[intent] = scores.scores[order][np.argmax(reached)]
        else:
            gain = _gain(scores, between, own) + shared * _gain(scores, between)
            found[intent] = between[np.argmax(gain)]
    return found


def _between(scores: np.ndarray) -> np.ndarray:
    """Return thresholds below all scores, between each two, and above all."""
    values = np.unique(scores)
    return np.concatenate([values[:1], (values[1:] + values[:-1]) / 2, values[-1:] + 1e-6])


def _gain(scores: ScopeScores, thresholds: np.ndarray, own: Any = True) -> np.ndarray:
    """Return in-scope accuracy plus out-of-scope recall, by threshold.

    `own`, bool `[n]`, chooses examples; the shares are of all.
    """
    right = np.sort(scores.scores[scores.is_right & scores.is_in & own])
    rejected = np.sort(scores.scores[~scores.is_in & own])
    accuracy = (len(right) - np.searchsorted(right, thresholds)) / scores.is_in.sum()
    return accuracy + np.searchsorted(rejected, thresholds) / (~scores.is_in).sum()


def margins(probabilities: np.ndarray) -> np.ndarray:
    """Return how far the highest probability leads the second: float32 `[n]`."""
    two = np.partition(probabilities, -2, axis=1)[:, -2:]
    return two[:, 1] - two[:, 0]


def upper_level(label: Any) -> str:
    """Return the upper level of a label: `"faq/opening_hours"` → `"faq"`."""
    return str(label).partition(LEVELS)[0]


def with_upper_levels(
    answers: np.ndarray,
    probabilities: np.ndarray,
    labels: np.ndarray,
    outside: Any,
    threshold: float,
    min_margin: float,
) -> np.ndarray:
    """Answer rejected texts with an upper level, if the probability of all its intents is enough.

    Args:
      answers: `[n]`, intents or `outside`.
      probabilities: float `[n, intents]`.
      labels: the intents.
      outside: the answer to rejected texts.
      threshold: the least probability of an upper level.
      min_margin: how far that must lead the probability of the next upper level.

    Returns:
      `[n]`, strings or objects.
    """
    names, numbers = np.unique([upper_level(label) for label in labels], return_inverse=True)
    sums = probabilities @ np.eye(len(names), dtype=probabilities.dtype)[numbers]
    lead = margins(sums) if len(names) > 1 else np.ones(len(sums))
    # A label without levels was rejected itself.
    has_levels = ~np.isin(names, labels.astype(str))
    is_sure = (sums.max(axis=1) >= threshold) & (lead >= min_margin)
    is_sure &= has_levels[sums.argmax(axis=1)] & (answers == outside)
    found = answers.astype(object)
    found[is_sure] = names[sums[is_sure].argmax(axis=1)]
    return found.astype(str) if answers.dtype.kind == "U" else found
