"""Training of intent heads by options: once, over a grid, and over folds for a threshold."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from convert_tf.intent_data import fold_numbers
from convert_tf.intent_head import Head, accuracy_of, train_logistic, train_network
from convert_tf.intent_scope import ScopeScores, centroids_of, scope_scores

# The options of each head.
OPTIONS: dict[str, tuple[str, ...]] = {
    "network": ("hidden_dim", "dropout", "learning_rate", "epochs", "batch_size", "patience"),
    "logistic": ("logistic_c",),
}
HEADS = tuple(OPTIONS)
_FOLDS = 5

Options = Mapping[str, Any]


def train_head(
    options: Options,
    encodings: np.ndarray,
    labels: np.ndarray,
    validation: tuple[np.ndarray, np.ndarray] | None = None,
) -> Head:
    """Trains a head.

    Args:
      options: `head`, `seed` and those of `OPTIONS`.
      encodings: float32 `[n, dim]`, of length 1.
      labels: int `[n]`.
      validation: encodings and labels for `patience`.
    """
    own = {name: options[name] for name in OPTIONS[options["head"]]}
    if options["head"] == "logistic":
        return train_logistic(encodings, labels, c=own["logistic_c"])
    return train_network(encodings, labels, seed=options["seed"], validation=validation, **own)


def best_options(
    options: Options,
    grid: Mapping[str, Sequence[Any]],
    encodings: np.ndarray,
    labels: np.ndarray,
    validation: tuple[np.ndarray, np.ndarray],
) -> dict[str, Any]:
    """The values of a grid that are best on validation data, the first among equals.

    Args:
      options: see `train_head`.
      grid: values by option; without any nothing is tried.
      encodings, labels: what is trained on.
      validation: encodings and labels.

    Reference: arXiv 1911.03688 §3.1.
    """
    tried = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if len(tried) == 1:
        return tried[0]
    accuracies = [
        accuracy_of(train_head({**options, **values}, encodings, labels, validation), *validation)
        for values in tried
    ]
    return tried[int(np.argmax(accuracies))]


def fold_scores(
    options: Options, encodings: np.ndarray, labels: np.ndarray, outside: np.ndarray, *, kind: str
) -> ScopeScores:
    """Scores of each example by a head that was not trained on it.

    Args:
      options: see `train_head`.
      encodings, labels: examples in scope.
      outside: encodings of examples out of scope.
      kind: see `scope_scores`.

    Returns:
      Of all but the only examples of intents, which are always trained on.
    """
    folds = fold_numbers(labels.tolist(), _FOLDS, seed=options["seed"])
    # An early end would need data beside the fold; the learning rate falls to 0 without it too.
    options = {**options, "patience": None}
    found = []
    for fold in range(_FOLDS):
        own = folds == fold
        if own.any():
            head = train_head(options, encodings[~own], labels[~own])
            centroids = centroids_of(encodings[~own], labels[~own])
            part = outside[fold::_FOLDS]
            found.append(scores_of(kind, head, centroids, encodings[own], labels[own], part))
    if not found:
        return ScopeScores(*(np.zeros(0) for _ in ScopeScores._fields))
    return ScopeScores(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def scores_of(
    kind: str,
    head: Head,
    centroids: np.ndarray,
    encodings: np.ndarray,
    labels: np.ndarray,
    outside: np.ndarray,
) -> ScopeScores:
    """Scores of validation examples by a head; arguments as in `fold_scores`."""
    return ScopeScores(
        scope_scores(kind, encodings, head=head, centroids=centroids),
        head.probabilities(encodings).argmax(axis=1) == labels,
        scope_scores(kind, outside, head=head, centroids=centroids),
    )
