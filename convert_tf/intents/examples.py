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
    """Examples that a classifier is trained on.

    Attributes:
      texts: n examples of intents.
      encodings: float32 `[n, dim]`, of length 1.
      labels: int `[n]`, from 0 without gaps.
      weights: float `[n]`, positive; None for equal ones.
      outside_texts: m examples without an intent.
      outside: their encodings, float32 `[m, dim]`.
      is_name: bool `[n]`, names of intents among the texts. They are trained on, never held out.
    """

    texts: list[str]
    encodings: np.ndarray
    labels: np.ndarray
    weights: np.ndarray | None
    outside_texts: list[str]
    outside: np.ndarray
    is_name: np.ndarray

    def encoded(self, encode: Encode) -> "IntentExamples":
        """Return these examples with other encodings."""
        encodings = encode([*self.texts, *self.outside_texts])
        inside, outside = np.split(encodings, [len(self.texts)])
        return self._replace(encodings=inside, outside=outside)

    def kept(self, chosen: np.ndarray) -> "IntentExamples":
        """Return the examples in `chosen`, bool `[n]`, without those out of scope."""
        return IntentExamples(
            [text for text, is_own in zip(self.texts, chosen, strict=True) if is_own],
            self.encodings[chosen],
            self.labels[chosen],
            None if self.weights is None else self.weights[chosen],
            [],
            self.outside[:0],
            self.is_name[chosen],
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
        names = names_of(classes, left_out=left_out, known=self.texts)
        if not names:
            return self
        texts, weights = [*names.values()], self.weights
        if weights is not None:
            weights = np.append(weights, np.full(len(texts), weights.mean()))
        return self._replace(
            texts=[*self.texts, *texts],
            encodings=np.concatenate([self.encodings, encode(texts)]),
            labels=np.append(self.labels, [*names]),
            weights=weights,
            is_name=np.append(self.is_name, np.ones(len(texts), bool)),
        )

    def spread(self, chosen: np.ndarray) -> np.ndarray:
        """Return a choice among the examples that are no names as bool `[n]`."""
        found = np.zeros(len(self.texts), bool)
        found[~self.is_name] = chosen
        return found


class Validated(NamedTuple):
    """Examples that a classifier is validated on.

    Attributes:
      texts: n examples.
      encodings: float32 `[n, dim]`.
      labels: int `[n]`, `OUTSIDE` for those without an intent.
    """

    texts: list[str]
    encodings: np.ndarray
    labels: np.ndarray

    def inside(self) -> tuple[np.ndarray, np.ndarray]:
        """Return encodings and labels of the examples with an intent."""
        is_in = self.labels != OUTSIDE
        return self.encodings[is_in], self.labels[is_in]

    def with_outside(self, examples: IntentExamples) -> "Validated":
        """Return these and the examples out of scope, which no head was trained on."""
        return Validated(
            [*self.texts, *examples.outside_texts],
            np.concatenate([self.encodings, examples.outside]),
            np.concatenate([self.labels, np.full(len(examples.outside), OUTSIDE)]),
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
    found, names = checked_texts(texts), checked_labels(labels)
    counts = checked_weights(weights, len(found))
    is_in = _in_scope(names, len(found), outside)
    inside, others = np.flatnonzero(is_in & (counts > 0)), np.flatnonzero(~is_in & (counts > 0))
    in_texts, out_texts = ([found[place] for place in own] for own in (inside, others))
    intents = labels_of_one_kind(names[inside])
    for message in check_intents(in_texts, intents.tolist()):
        warnings.warn(message, stacklevel=3)
    classes, numbers = np.unique(intents, return_inverse=True)
    own = counts[inside]
    is_weighted = np.ptp(own) > 0  # equal weights have no effect
    encodings = encode([*in_texts, *out_texts])
    outer = encodings[len(inside) :]
    weighted = own if is_weighted else None
    is_name = np.zeros(len(inside), bool)
    inner = encodings[: len(inside)]
    examples = IntentExamples(in_texts, inner, numbers, weighted, out_texts, outer, is_name)
    return examples, classes


def validated(
    texts: Iterable[str], labels: Iterable[Any], classes: np.ndarray, encode: Encode, outside: Any
) -> Validated:
    """Check and encode validation examples.

    Args:
      texts, labels, encode, outside: see `examples_of`.
      classes: the intents that are trained, sorted.

    Raises:
      ValueError: an intent is not trained, no example has one, or something is missing.
    """
    found, names = checked_texts(texts), checked_labels(labels)
    is_in = _in_scope(names, len(found), outside)
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
    numbers = np.full(len(found), OUTSIDE)
    numbers[is_in] = np.searchsorted(classes, intents)
    return Validated(found, encode(found), numbers)


def _in_scope(names: np.ndarray, number: int, outside: Any) -> np.ndarray:
    if names.shape != (number,):
        raise ValueError(
            f"There must be one label for each text. Received: {number} texts and labels of shape "
            f"{names.shape}."
        )
    if outside is None:
        return np.ones(number, bool)
    return np.array([name != outside for name in names.tolist()], bool)
