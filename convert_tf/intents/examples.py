"""Examples as classifiers are trained and validated on them: encoded, with numbered labels."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from convert_tf.intents.data import (
    check_intents,
    checked_labels,
    checked_texts,
    checked_weights,
    labels_of_one_kind,
)
from convert_tf.intents.names import names_of
from convert_tf.storage.messages import listed

OUTSIDE = -1  # number of an example that has no intent
Encode = Callable[[list[str]], np.ndarray]


class IntentExamples(NamedTuple):
    """Examples that a classifier is trained or validated on.

    Attributes:
      texts: n examples.
      encodings: float32 `[n, dim]`, of length 1.
      labels: int `[n]`, from 0 without gaps, and `OUTSIDE` for examples without an intent; or bool
        `[n, intents]` for any number of intents.
      is_name: bool `[n]`, names of intents among the texts. They are trained on, never held out.
      weights: float `[n]`, positive; None for equal ones.
    """

    texts: list[str]
    encodings: np.ndarray
    labels: np.ndarray
    is_name: np.ndarray
    weights: np.ndarray | None = None

    @property
    def is_inside(self) -> np.ndarray:
        """Which examples are not out of scope: bool `[n]`."""
        if self.labels.ndim > 1:
            return np.ones(len(self.texts), bool)
        return self.labels != OUTSIDE

    def rows(self, chosen: np.ndarray) -> "IntentExamples":
        """Return the examples in `chosen`, bool `[n]`."""
        return IntentExamples(
            [self.texts[place] for place in np.flatnonzero(chosen)],
            self.encodings[chosen],
            self.labels[chosen],
            self.is_name[chosen],
            None if self.weights is None else self.weights[chosen],
        )

    def followed_by(self, other: "IntentExamples") -> "IntentExamples":
        """Return these examples and then others, with weights if both have some."""
        weights = None
        if self.weights is not None and other.weights is not None:
            weights = np.append(self.weights, other.weights)
        return IntentExamples(
            [*self.texts, *other.texts],
            np.concatenate([self.encodings, other.encodings]),
            np.concatenate([self.labels, other.labels]),
            np.concatenate([self.is_name, other.is_name]),
            weights,
        )

    def with_names(
        self, classes: Iterable[Any], encode: Encode, *, left_out: Any
    ) -> "IntentExamples":
        """Return these examples, followed by the names of intents with the mean weight.

        Args:
          classes: the intents, sorted.
          encode: the function that made `encodings`.
          left_out: an intent whose name is no example.
        """
        is_inside = self.is_inside
        inside = [self.texts[place] for place in np.flatnonzero(is_inside)]
        names = names_of(classes, left_out=left_out, known=inside)
        if not names:
            return self
        texts, weights = [*names.values()], None
        if self.weights is not None:
            weights = np.full(len(texts), self.weights[is_inside].mean())
        is_name = np.ones(len(texts), bool)
        return self.followed_by(
            IntentExamples(texts, encode(texts), np.array([*names]), is_name, weights)
        )


def examples_of(
    texts: Iterable[str], labels: Iterable[Any], weights: Any, encode: Encode, outside: Any
) -> tuple[IntentExamples, np.ndarray]:
    """Check and encode examples.

    Args:
      texts, labels, weights: of each example, in lists, arrays or tables of one column; weights may
        be None, and examples of weight 0 are left out.
      encode: texts → float32 `[texts, dim]`.
      outside: the label of those without an intent; None where all labels are intents.

    Returns:
      The examples and the intents, sorted.

    Raises:
      ValueError: something is missing, there are not equally many texts, labels and weights, or
        fewer than two intents.
    """
    found, names, is_in = _checked(texts, labels, outside)
    counts = checked_weights(weights, len(found))
    kept = np.flatnonzero(counts > 0)
    found = [found[place] for place in kept]
    names, is_in, counts = names[kept], is_in[kept], counts[kept]
    intents = labels_of_one_kind(names[is_in])
    inside = [found[place] for place in np.flatnonzero(is_in)]
    for message in check_intents(inside, intents.tolist()):
        warnings.warn(message, stacklevel=3)
    classes, numbers = np.unique(intents, return_inverse=True)
    is_weighted = np.ptp(counts[is_in]) > 0  # equal weights have no effect
    return _numbered(found, encode, is_in, numbers, counts if is_weighted else None), classes


def validated(
    texts: Iterable[str], labels: Iterable[Any], classes: np.ndarray, encode: Encode, outside: Any
) -> IntentExamples:
    """Check and encode validation examples.

    Args:
      texts, labels, encode, outside: see `examples_of`.
      classes: the intents that are trained, sorted.

    Raises:
      ValueError: an intent is not trained, no example has one, or something is missing.
    """
    found, names, is_in = _checked(texts, labels, outside)
    intents = labels_of_one_kind(names[is_in])
    unseen = sorted({*intents.tolist()} - {*classes.tolist()})
    if unseen:
        raise ValueError(
            "There are validation examples but no training examples of "
            f"{listed([*map(repr, unseen)])}. Train on examples of them, leave them out, or set "
            "out_of_scope and give them its label."
        )
    if not is_in.any():
        raise ValueError(
            f"All {len(found)} validation examples are out of scope. Add some with intents, or "
            "leave the validation data out."
        )
    return _numbered(found, encode, is_in, np.searchsorted(classes, intents))


def _checked(
    texts: Iterable[str], labels: Iterable[Any], outside: Any
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return the texts, their labels, and which are in scope, bool `[texts]`."""
    found, names = checked_texts(texts), checked_labels(labels)
    if names.shape != (len(found),):
        raise ValueError(
            f"There must be one label for each text. Received: {len(found)} texts and labels of "
            f"shape {names.shape}."
        )
    is_in = [outside is None or name != outside for name in names.tolist()]
    return found, names, np.array(is_in, bool)


def _numbered(
    texts: list[str],
    encode: Encode,
    is_in: np.ndarray,
    numbers: np.ndarray,
    weights: np.ndarray | None = None,
) -> IntentExamples:
    """Return examples whose labels in scope are `numbers`."""
    labels = np.full(len(texts), OUTSIDE)
    labels[is_in] = numbers
    return IntentExamples(texts, encode(texts), labels, np.zeros(len(texts), bool), weights)
