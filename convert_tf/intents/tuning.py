"""Training of intent heads by options: once, and over a grid."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from convert_tf.intents.head import (
    Head,
    accuracy_of,
    check_logistic,
    check_network,
    train_logistic,
    train_network,
)

# The options of each head.
OPTIONS: dict[str, tuple[str, ...]] = {
    "network": ("hidden_dim", "dropout", "learning_rate", "epochs", "batch_size", "patience"),
    "logistic": ("logistic_c",),
}
HEADS = tuple(OPTIONS)
# What `convert-tf intent train --tune` tries; the ConveRT paper names the three, not their values.
GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "network": {"hidden_dim": (256, 512), "dropout": (0.5, 0.75), "learning_rate": (0.2, 0.7)},
    "logistic": {"logistic_c": (1.0, 3.0, 10.0, 30.0, 100.0)},
}

# Epochs of a network that only judges, by those of the one that answers.
_SHARE_OF_EPOCHS = 0.3

Options = Mapping[str, Any]


def quick_options(options: Options) -> dict[str, Any]:
    """Options of a head that is trained at less cost, to compare what it stands on."""
    found = dict(options)
    if "epochs" in found:
        found["epochs"] = max(1, round(_SHARE_OF_EPOCHS * found["epochs"]))
    return found


def check_head(head: str, options: Options) -> None:
    """Refuses options of a head that are out of range.

    Args:
      head: one of `HEADS`.
      options: those of `OPTIONS[head]`.

    Raises:
      ValueError: one is.
    """
    if head == "logistic":
        check_logistic(**options)
    else:
        check_network(**options)


def train_head(
    options: Options,
    encodings: np.ndarray,
    labels: np.ndarray,
    validation: tuple[np.ndarray, np.ndarray] | None = None,
    weights: np.ndarray | None = None,
) -> Head:
    """Trains a head.

    Args:
      options: `head`, `seed` and those of `OPTIONS`.
      encodings: float32 `[n, dim]`, of length 1.
      labels: int `[n]`.
      validation: encodings and labels for `patience`.
      weights: float `[n]`, positive: how much an example counts; None for equally much.
    """
    own = {name: options[name] for name in OPTIONS[options["head"]]}
    if options["head"] == "logistic":
        return train_logistic(encodings, labels, c=own["logistic_c"], weights=weights)
    return train_network(
        encodings, labels, seed=options["seed"], validation=validation, weights=weights, **own
    )


def best_options(
    options: Options,
    grid: Mapping[str, Sequence[Any]],
    encodings: np.ndarray,
    labels: np.ndarray,
    validation: tuple[np.ndarray, np.ndarray],
    weights: np.ndarray | None = None,
) -> dict[str, Any]:
    """The values of a grid that are best on validation data, the first among equals.

    Args:
      options: see `train_head`.
      grid: values by option; without any nothing is tried.
      encodings, labels: what is trained on.
      validation: encodings and labels.
      weights: see `train_head`.

    Reference: arXiv 1911.03688 §3.1.
    """
    tried = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if len(tried) == 1:
        return tried[0]
    accuracies = [
        accuracy_of(
            train_head({**options, **values}, encodings, labels, validation, weights), *validation
        )
        for values in tried
    ]
    return tried[int(np.argmax(accuracies))]
