"""Out of scope: how sure a classifier is, and below what it should not answer."""

from typing import NamedTuple

import numpy as np

from convert_tf.intent_head import Head

KINDS = ("confidence", "distance")


class ScopeScores(NamedTuple):
    """Scores of validation examples; higher is more surely in scope.

    Attributes:
      in_scope: float `[n]`.
      is_right: bool `[n]`: whether the best intent is the right one.
      out_of_scope: float `[m]`; m may be 0.
    """

    in_scope: np.ndarray
    is_right: np.ndarray
    out_of_scope: np.ndarray


def centroids_of(encodings: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mean encoding of each intent, of length 1: float32 `[labels, dim]`."""
    means = np.stack([encodings[labels == k].mean(axis=0) for k in range(int(labels.max()) + 1)])
    return means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)


def scope_scores(
    kind: str, encodings: np.ndarray, *, head: Head, centroids: np.ndarray
) -> np.ndarray:
    """How surely texts are in scope.

    Args:
      kind: `"confidence"`: the highest probability; `"distance"`: the cosine to the nearest
        centroid, that is, 1 minus the distance.
      encodings: float32 `[n, dim]`.
      head: gives the probabilities.
      centroids: float32 `[labels, dim]`.

    Returns:
      float32 `[n]`, higher is surer.
    """
    if kind == "confidence":
        return head.probabilities(encodings).max(axis=1, initial=0)
    return (encodings @ centroids.T).max(axis=1, initial=-1)


def fit_threshold(scores: ScopeScores, *, rejected_share: float) -> float:
    """The score below which an example is out of scope.

    Args:
      scores: of validation examples.
      rejected_share: the share of in-scope examples that may be rejected, where there is no
        out-of-scope example.

    Returns:
      With out-of-scope examples, what makes the mean of in-scope accuracy (a rejection is an error)
      and out-of-scope recall highest, in the middle of its interval; else the quantile.

    Raises:
      ValueError: there is no in-scope example.
    """
    if not len(scores.in_scope):
        raise ValueError(
            "A threshold is fitted on examples in scope. Received: none. Give validation examples, "
            "or two or more of an intent."
        )
    if not len(scores.out_of_scope):
        return float(np.quantile(scores.in_scope, rejected_share))
    values = np.unique(np.concatenate([scores.in_scope, scores.out_of_scope]))
    between = np.concatenate([values[:1], (values[1:] + values[:-1]) / 2, values[-1:] + 1e-6])
    right = np.sort(scores.in_scope[scores.is_right])
    accuracy = (len(right) - np.searchsorted(right, between)) / len(scores.in_scope)
    outside = np.sort(scores.out_of_scope)
    recall = np.searchsorted(outside, between) / len(outside)
    return float(between[np.argmax(accuracy + recall)])
