"""Check and encode training examples for classifiers, number their labels, and add intent names.

The names of intents, written in plain words, can be used as additional examples.

Reference: arXiv 2404.12365 (FastFit), which also compares examples with the names of classes.
"""

import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from convert_tf.intents.data import distinct_examples
from convert_tf.storage.messages import listed, shortened
from convert_tf.text.characters import fold

NAMES = ("auto", "always")
_MAX_TEXT = 70  # maximum number of characters of a text in a message
OUTSIDE = -1  # the label number of an example that has no intent
Encode = Callable[[list[str]], np.ndarray]


class IntentExamples(NamedTuple):
    """Examples for training or validating a classifier.

    Attributes:
      texts: the n texts.
      encodings: float32 `[n, dim]`, the encodings of the texts, normalised to length 1.
      labels: int `[n]`, the number of each text's intent, counted from 0 without gaps; `OUTSIDE`
        for a text without an intent. If a text may have several intents, bool `[n, intents]`.
      is_name: bool `[n]`, whether each text is the name of an intent. Names are trained on but
        never held out.
      weights: float `[n]`, positive weights of the examples.
    """

    texts: list[str]
    encodings: np.ndarray
    labels: np.ndarray
    is_name: np.ndarray
    weights: np.ndarray

    @property
    def is_inside(self) -> np.ndarray:
        """Whether each example is in scope: bool `[n]`."""
        if self.labels.ndim > 1:
            return np.ones(len(self.texts), bool)
        return self.labels != OUTSIDE

    def rows(self, chosen: np.ndarray) -> "IntentExamples":
        """Return the examples that `chosen`, bool `[n]`, selects."""
        return IntentExamples(
            [*compress(self.texts, chosen)], *(values[chosen] for values in self[1:])
        )

    def followed_by(self, other: "IntentExamples") -> "IntentExamples":
        """Return these examples, followed by the examples in `other`."""
        arrays = map(np.concatenate, zip(self[1:], other[1:], strict=True))
        return IntentExamples([*self.texts, *other.texts], *arrays)

    def with_names(
        self, classes: Iterable[Any], encode: Encode, *, left_out: Any
    ) -> "IntentExamples":
        """Return these examples, followed by the names of intents.

        Each name has the mean weight of the in-scope examples.

        Args:
          classes: the intents, sorted.
          encode: the function that computed `encodings`.
          left_out: an intent whose name is not added.
        """
        is_inside = self.is_inside
        names = names_of(classes, left_out=left_out, known=[*compress(self.texts, is_inside)])
        if not names:
            return self
        texts, is_name = [*names.values()], np.ones(len(names), bool)
        weights = np.full(len(names), self.weights[is_inside].mean())
        return self.followed_by(
            IntentExamples(texts, encode(texts), np.array([*names]), is_name, weights)
        )


def examples_of(
    texts: Iterable[str], labels: Iterable[Any], weights: Any, encode: Encode, outside: Any
) -> tuple[IntentExamples, np.ndarray]:
    """Check and encode examples.

    Args:
      texts, labels, weights: a text, a label and a weight for each example, as lists, arrays or
        tables with one column. If `weights` is None, all examples have equal weights. Examples with
        weight 0 are left out.
      encode: function from texts to encodings, float32 `[texts, dim]`.
      outside: the label of examples without an intent; None if all labels are intents.

    Returns:
      A tuple of the examples and the sorted intents.

    Raises:
      ValueError: if a text or label is missing, the numbers of texts, labels and weights differ, or
        there are fewer than two intents.
    """
    texts, names, is_in = _checked(texts, labels, outside)
    counts = checked_weights(weights, len(texts))
    is_kept = counts > 0
    texts, counts = [*compress(texts, is_kept)], counts[is_kept]
    names, is_in = names[is_kept], is_in[is_kept]
    intents = labels_of_one_kind(names[is_in])
    for message in check_intents([*compress(texts, is_in)], intents.tolist()):
        warnings.warn(message, stacklevel=4)
    classes, numbers = np.unique(intents, return_inverse=True)
    if np.ptp(counts[is_in]) == 0:  # equal weights have no effect
        counts = np.ones(len(texts))
    return _numbered(texts, encode, is_in, numbers, counts), classes


def validated(
    texts: Iterable[str], labels: Iterable[Any], classes: np.ndarray, encode: Encode, outside: Any
) -> IntentExamples:
    """Check and encode validation examples.

    Args:
      texts, labels, encode, outside: see `examples_of`.
      classes: the trained intents, sorted.

    Raises:
      ValueError: if an intent has no training examples, no example has an intent, or a text or
        label is missing.
    """
    texts, names, is_in = _checked(texts, labels, outside)
    intents = labels_of_one_kind(names[is_in])
    if unseen := sorted({*intents.tolist()} - {*classes.tolist()}):
        raise ValueError(
            "There are validation examples but no training examples of "
            f"{listed([*map(repr, unseen)])}. Add training examples of these intents, omit the "
            "validation examples, or set out_of_scope and label them as out of scope."
        )
    if not is_in.any():
        raise ValueError(
            f"All {len(texts)} validation examples are out of scope. Add some with intents, or "
            "omit the validation data."
        )
    numbers = np.searchsorted(classes, intents)
    return _numbered(texts, encode, is_in, numbers, np.ones(len(texts)))


def _checked(
    texts: Iterable[str], labels: Iterable[Any], outside: Any
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Check texts and labels.

    Returns:
      A tuple of the texts, their labels, and whether each text is in scope, bool `[texts]`.
    """
    texts, names = checked_texts(texts), checked_labels(labels)
    check_equally_many(texts, names)
    is_in = [outside is None or name != outside for name in names.tolist()]
    return texts, names, np.array(is_in, bool)


def _numbered(
    texts: list[str], encode: Encode, is_in: np.ndarray, numbers: np.ndarray, weights: np.ndarray
) -> IntentExamples:
    """Encode texts, and return them as examples. The in-scope texts get the labels `numbers`."""
    labels = np.full(len(texts), OUTSIDE)
    labels[is_in] = numbers
    return IntentExamples(texts, encode(texts), labels, np.zeros(len(texts), bool), weights)


def checked_texts(texts: Any) -> list[str]:
    """Return texts as a list.

    Args:
      texts: a list, an array or a table with one column, such as a pandas series.

    Raises:
      ValueError: if `texts` is a single text or has several columns, or a text is not a string, or
        has only white space and invisible characters.
    """
    values = column(texts)
    for index, text in enumerate(values):
        if not isinstance(text, str) or not fold(text):
            raise ValueError(
                f"Text {index} is empty or not a string. Received: {text!r}. Remove or replace it."
            )
    return [*map(plain, values)]


def checked_string(text: Any, index: int) -> str:
    """Return the text at a position, or raise `ValueError` if it is not a string."""
    if not isinstance(text, str):
        raise ValueError(f"Text {index} is not a string. Received: {text!r}. Remove or replace it.")
    return text


def plain(value: Any) -> Any:
    """Return a member of a string enumeration as its string. Other values do not change."""
    return str.__str__(value) if isinstance(value, str) else value


def check_equally_many(texts: Sized, labels: Sized, *, are_sets: bool = False) -> None:
    """Raise `ValueError` unless each text has a label, or a set of labels."""
    if len(texts) != len(labels):
        kind = "sets of labels" if are_sets else "labels"
        remedy = "a set for each text, an empty one for no intent" if are_sets else "one per text"
        raise ValueError(f"There are {len(texts)} texts and {len(labels)} {kind}. Pass {remedy}.")


def column(values: Any, what: str = "texts") -> list[Any]:
    """Return the values in a list, an array or a table with one column, as a list.

    Args:
      values: a list, an array or a table with one column, such as a pandas series.
      what: a name for the values, used in messages.

    Raises:
      ValueError: if `values` is None, a single value, a set or a mapping, or has several columns.
    """
    if isinstance(values, set | frozenset):
        raise ValueError(
            f"{what} must be a list, because a set has no order. Received: a "
            f"{type(values).__name__} of {len(values)} values. Pass a list."
        )
    is_array = hasattr(values, "__array__")
    if isinstance(values, str | bytes | Mapping) or not (is_array or hasattr(values, "__iter__")):
        raise ValueError(
            f"{what} must be a list, an array or a table with one column. Received: {values!r}. "
            "Put a single value in a list."
        )
    shape = tuple(getattr(values, "shape", ()))
    if len(shape) < 2:
        return list(values if hasattr(values, "__iter__") else np.asarray(values))
    if len(shape) > 2 or shape[1] != 1:
        raise ValueError(
            f"{what} must be one column. Received: a table of shape {shape}. Select a column, "
            'such as table["text"].'
        )
    return np.asarray(values)[:, 0].tolist()


def checked_weights(weights: Any, number: int) -> np.ndarray:
    """Return the weight of each example: float64 `[number]`.

    Args:
      weights: a list, an array or a table with one column; None for weights of 1.
      number: the number of examples.

    Raises:
      ValueError: if the number of weights is wrong, a weight is negative or not finite, or all
        weights are zero.
    """
    if weights is None:
        return np.ones(number)
    counts = np.asarray(column(weights, "sample_weight"), np.float64)
    if counts.shape != (number,):
        raise ValueError(
            f"sample_weight must have one number for each of the {number} texts. Received: shape "
            f"{counts.shape}."
        )
    if number and not counts.any():
        raise ValueError("sample_weight is zero for every text. Give some texts a positive weight.")
    wrong = np.flatnonzero(~((counts >= 0) & np.isfinite(counts)))
    if len(wrong):
        raise ValueError(
            f"sample_weight must be finite and non-negative. Received: {counts[wrong[0]]} at index "
            f"{wrong[0]}. Replace it, or omit the text."
        )
    return counts


def listed_labels(labels: Any) -> list[Any]:
    """Return the labels in a list, an array or a table with one column, as a list.

    Raises:
      ValueError: if labels are None or have several columns, or a text has several labels.
    """
    names = column(labels, "labels")
    for index, name in enumerate(names):
        # A NumPy array without dimensions holds a single label.
        is_one = isinstance(name, str | bytes) or getattr(name, "shape", None) == ()
        if isinstance(name, Collection) and not is_one:
            raise ValueError(
                f"Text {index} has several labels: {name!r}. Use MultiIntentClassifier for texts "
                "with several intents, or none."
            )
    return names


def checked_labels(labels: Iterable[Any]) -> np.ndarray:
    """Return the labels in a list, an array or a table with one column, as an array.

    Returns:
      The labels, `[labels]`. The array has the dtype object if only some labels are strings.

    Raises:
      ValueError: if a label is missing (None, NaN, NA or NaT), contains only white space and
        invisible characters, is not a string, integer, float or boolean, or is an integer that does
        not fit into 64 bits; if labels mix booleans and numbers; if a text has several labels; or
        if there are several columns.
    """
    names = listed_labels(labels)
    for index, name in enumerate(names):
        if _is_missing(name):
            raise ValueError(
                f"Text {index} has no label. Received: {name!r}. Add one, or omit the text."
            )
        if not _is_label(name):
            raise ValueError(
                f"Labels must be strings, or integers from -2**63 to 2**63 - 1. Received: {name!r} "
                f"for text {index}. Convert the labels to strings."
            )
    _check_booleans(names)
    is_mixed = len({isinstance(name, str) for name in names}) > 1
    # Without the dtype object, numbers among strings would become strings. NumPy would write the
    # name of an enumeration's member, such as "Intent.GREET", instead of its string.
    names = [int(name) if isinstance(name, np.integer) else plain(name) for name in names]
    return np.array(names, object if is_mixed else None)


def _is_label(label: Any) -> bool:
    if isinstance(label, np.timedelta64):  # a subclass of `np.integer`
        return False
    if isinstance(label, int | np.integer):
        return -(2**63) <= int(label) < 2**63  # NumPy would round larger integers to floats
    is_scalar = getattr(label, "shape", None) == ()  # a scalar of NumPy
    return isinstance(label, str | float) or (is_scalar and np.asarray(label).dtype.kind in "biufU")


def _check_booleans(labels: Sequence[Any]) -> None:
    """Raise `ValueError` if labels mix booleans and numbers. NumPy would turn True into 1."""
    others = [label for label in labels if not isinstance(label, str)]
    booleans = [label for label in others if np.asarray(label).dtype.kind == "b"]
    if 0 < len(booleans) < len(others):
        number = next(label for label in others if np.asarray(label).dtype.kind != "b")
        raise ValueError(
            f"Labels mix booleans and numbers ({booleans[0]!r}, {number!r}). Convert them to one "
            "type."
        )


def _is_missing(label: Any) -> bool:
    if label is None:
        return True
    if isinstance(label, str):
        return not fold(label)
    try:
        return bool(label != label)  # NaN and NaT
    except TypeError:  # a comparison with NA has no truth value
        return True


def labels_of_one_kind(labels: np.ndarray) -> np.ndarray:
    """Return labels from `checked_labels` as an array that can be sorted.

    Raises:
      ValueError: if only some labels are strings, or a label is a fraction.
    """
    if labels.dtype.kind == "f" and np.any(labels % 1):
        raise ValueError(
            f"Labels must name intents. Received: continuous values such as {labels[0]}. Convert "
            "them to strings if each number is an intent."
        )
    if labels.dtype != object:
        return labels
    strings = [label for label in labels if isinstance(label, str)]
    others = [label for label in labels if not isinstance(label, str)]
    if strings and others:
        raise ValueError(
            f"Labels mix strings and numbers ({strings[0]!r}, {others[0]!r}). Convert them to one "
            "type."
        )
    return np.asarray(strings or others)


def check_intents(texts: Sequence[str], labels: Sequence[Any]) -> list[str]:
    """Check the in-scope examples.

    Args:
      texts: the texts of the examples.
      labels: the intent of each example.

    Returns:
      Warnings about intents with one distinct example, intents that look alike, and texts with
      different labels.

    Raises:
      ValueError: if there are fewer than two intents.
    """
    first, _ = distinct_examples(texts, labels)
    counts = Counter(labels[place] for place in first)
    check_at_least_two(counts)
    notes = []
    if single := [str(label) for label, number in counts.items() if number == 1]:
        notes.append(
            f"Intents with one example: {listed(single)}. These examples are trained on but never "
            "held out. Add more examples of these intents."
        )
    notes += alike_intents(counts)
    by_text: dict[str, dict[Any, None]] = {}
    for text, label in zip(texts, labels, strict=True):
        by_text.setdefault(" ".join(text.lower().split()), {})[label] = None
    ambiguous = [
        f"{shortened(text, _MAX_TEXT)!r}: {', '.join(map(str, names))}"
        for text, names in by_text.items()
        if len(names) > 1
    ]
    if ambiguous:
        notes.append(
            f"Texts with different labels: {listed(ambiguous, separator='; ')}. No classifier "
            "can learn both labels of a text. Choose one of them."
        )
    return notes


def alike_intents(labels: Iterable[Any]) -> list[str]:
    """Return a warning about labels that look alike; `[]` if there are none.

    Args:
      labels: the different labels.
    """
    spellings: dict[str, list[str]] = {}
    for label in labels:
        if isinstance(label, str):
            spellings.setdefault(fold(fold(label).casefold()), []).append(label)
    similar = [", ".join(map(repr, names)) for names in spellings.values() if len(names) > 1]
    if not similar:
        return []
    return [
        f"Intents that look alike: {listed(similar, separator='; ')}. They differ only in case, "
        "white space, invisible characters or the encoding of characters, and are trained as "
        "different intents. If they are meant to be the same intent, give them one spelling."
    ]


def check_at_least_two(intents: Collection[Any]) -> None:
    """Raise `ValueError` if there are fewer than two intents."""
    if len(intents) < 2:
        received = f"only {next(iter(intents))!r}" if intents else "no example"
        raise ValueError(
            f"There must be examples of at least two intents. Received: {received}. Add examples "
            "of other intents."
        )


def name_in_words(label: Any) -> str:
    """Return a label in words: `"card_arrival"` and `"CardArrival"` become `"card arrival"`.

    For a label without letters, return `""`.
    """
    if not isinstance(label, str):
        return ""
    text = unicodedata.normalize("NFC", plain(label))
    characters = []
    for before, character, behind in zip(f" {text}", text, f"{text[1:]} ", strict=False):
        is_hump = before.islower() or before.isdigit() or (before.isupper() and behind.islower())
        if character.isupper() and is_hump:
            characters.append(" ")
        is_mark = unicodedata.category(character).startswith("M")  # such as vowel signs in Hindi
        is_of_word = character.isalnum() or is_mark or character in "'\u2019"
        characters.append(character if is_of_word else " ")
    words = " ".join("".join(characters).lower().split())
    return words if any(map(str.isalpha, words)) else ""


def names_of(
    classes: Iterable[Any], *, left_out: Any = None, known: Iterable[str] = ()
) -> dict[int, str]:
    """Return the names of intents in words, by the number of the intent.

    Empty names are left out, and so are names that several intents share.

    Args:
      classes: the intents, in the order of their numbers.
      left_out: an intent whose name is not used, such as the label for out-of-scope texts.
      known: the texts of the examples. A name that is also an example is left out, even if the two
        differ in case, white space or invisible characters. Otherwise the same text would be
        trained on as a name while it is held out as an example.
    """
    words = ["" if label == left_out else name_in_words(label) for label in classes]
    unused = {"", *(name for name, number in Counter(words).items() if number > 1)}
    examples = {fold(text).casefold() for text in known}
    return {
        label: name
        for label, name in enumerate(words)
        if name not in unused and fold(name).casefold() not in examples
    }
