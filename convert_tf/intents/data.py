"""Labelled texts of intents: files, what is wrong with them, few-shot samples and folds."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from convert_tf.intents.labelled_files import LABEL, TEXT, labelled_rows, nlu_files
from convert_tf.storage.messages import listed, shortened

_MAX_TEXT = 70  # characters of a text in a message


class LabelledTexts(NamedTuple):
    """Texts and the intent of each text."""

    texts: list[str]
    labels: list[str]


def read_labelled(path: str | os.PathLike[str], *, needs_labels: bool = True) -> LabelledTexts:
    """Read labelled texts.

    Args:
      path: a file, which may be compressed, or a folder with `nlu*.yml`. The file is a CSV in UTF-8
        with the columns `text` and `label`, JSON or JSON lines with such keys
        (`convert_tf.intents.labelled_files`), or Rasa's training data (`nlu.yml`). Entity
        annotations of Rasa are replaced by the texts that they mark.
      needs_labels: whether a row without a label is an error.

    Returns:
      Rows in the order of the file.

    Raises:
      ValueError: the file has another format, is not UTF-8, has no rows, lacks a column or has a
        column twice; a row has no text, no label or too many fields; or Rasa would ignore a line.
      OSError: the file cannot be read.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        return read_files(nlu_files(path), needs_labels=needs_labels)
    rows = labelled_rows(path)
    if not rows:
        raise ValueError(f"{path!r} has no rows with a text and a label.")
    empty = [(place, TEXT) for place, text, _ in rows if not text]
    if needs_labels:
        empty += [(place, LABEL) for place, _, label in rows if not label]
    if empty:
        rows_without = listed([f"{place} without {name}" for place, name in empty])
        raise ValueError(
            f"Some rows of {path!r} are incomplete: {rows_without}. Complete them, or remove them."
        )
    return LabelledTexts([text for _, text, _ in rows], [label for _, _, label in rows])


def read_files(paths: Sequence[str], *, needs_labels: bool = True) -> LabelledTexts:
    """Read several files, one after another; arguments as in `read_labelled`.

    Raises:
      ValueError: one of them is unusable; see `read_labelled`.
    """
    found = [read_labelled(path, needs_labels=needs_labels) for path in paths]
    return LabelledTexts(
        [text for one in found for text in one.texts],
        [label for one in found for label in one.labels],
    )


def checked_texts(texts: Any) -> list[str]:
    """Return texts as a list.

    Args:
      texts: a list, an array or a table of one column, such as a pandas series.

    Raises:
      ValueError: it is a single text or has several columns, or a text is empty or no string.
    """
    found = column(texts)
    for index, text in enumerate(found):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                f"Text {index} is empty or not a string. Received: {text!r}. Remove or replace it."
            )
    return [str(text) for text in found]


def column(values: Any, what: str = "texts") -> list[Any]:
    """Return a list, an array or a table of one column as a list.

    Args:
      values: a list, an array or a table of one column, such as a pandas series.
      what: what the values are, for messages.

    Raises:
      ValueError: it is None or a single value, or has several columns.
    """
    if isinstance(values, str | bytes) or not (
        hasattr(values, "__iter__") or hasattr(values, "__array__")
    ):
        raise ValueError(
            f"{what} must be a list, an array or a table of one column. Received: {values!r}. Put "
            "a single value in a list."
        )
    if not hasattr(values, "__iter__"):
        values = np.asarray(values)
    shape: tuple[int, ...] = tuple(getattr(values, "shape", ()))
    if len(shape) < 2:
        return list(values)
    if len(shape) > 2 or shape[1] != 1:
        raise ValueError(
            f"{what} must be one column. Received: a table of shape {shape}. Select a column, "
            'such as table["text"].'
        )
    return np.asarray(values)[:, 0].tolist()


def checked_weights(weights: Any, number: int) -> np.ndarray:
    """Return how much each example counts: float64 `[number]`.

    Args:
      weights: a list, an array or a table of one column; None for weights of 1.
      number: the number of examples.

    Raises:
      ValueError: there is not one weight for each example, a weight is negative or not finite, or
        all weights are zero.
    """
    if weights is None:
        return np.ones(number)
    found = np.asarray(column(weights, "sample_weight"), np.float64)
    if found.shape != (number,):
        raise ValueError(
            f"sample_weight must have one number for each of the {number} texts. Received: shape "
            f"{found.shape}."
        )
    if number and not found.any():
        raise ValueError("sample_weight is zero for every text. Give some a positive weight.")
    wrong = np.flatnonzero(~((found >= 0) & np.isfinite(found)))
    if len(wrong):
        raise ValueError(
            f"sample_weight must be finite and non-negative. Received: {found[wrong[0]]} at index "
            f"{wrong[0]}. Replace it, or omit the text."
        )
    return found


def listed_labels(labels: Any) -> list[Any]:
    """Return the labels of a list, an array or a table of one column as a list.

    Raises:
      ValueError: labels are None or have several columns, or a text has several labels.
    """
    found = column(labels, "labels")
    for index, label in enumerate(found):
        if (
            isinstance(label, Collection)
            and not isinstance(label, str | bytes)
            and (getattr(label, "shape", None) != ())
        ):
            raise ValueError(
                f"Text {index} has several labels: {label!r}. Use MultiIntentClassifier for texts "
                "with several intents, or none."
            )
    return found


def checked_labels(labels: Iterable[Any]) -> np.ndarray:
    """Return the labels of a list, an array or a table of one column as an array.

    Returns:
      `[labels]`, with dtype object if only some labels are strings.

    Raises:
      ValueError: a label is missing (None, NaN, NA or NaT), a text has several labels, or there are
        several columns.
    """
    found = listed_labels(labels)
    missing = [index for index, label in enumerate(found) if _is_missing(label)]
    if missing:
        raise ValueError(
            f"Text {missing[0]} has no label. Received: {found[missing[0]]}. Add one, or omit the "
            "text."
        )
    if len({isinstance(label, str) for label in found}) < 2:
        return np.asarray(found)
    mixed = np.empty(len(found), object)  # np.asarray would make strings of the numbers
    mixed[:] = found
    return mixed


def _is_missing(label: Any) -> bool:
    if label is None:
        return True
    try:
        return bool(label != label)  # NaN and NaT
    except TypeError:  # NA is neither equal nor not
        return True


def labels_of_one_kind(labels: np.ndarray) -> np.ndarray:
    """Return labels from `checked_labels` as an array that can be sorted.

    Raises:
      ValueError: only some labels are strings, or labels are fractions.
    """
    if labels.dtype.kind == "f" and np.any(labels % 1):
        raise ValueError(
            f"Labels must name intents. Received: continuous numbers such as {labels[0]}. Convert "
            "them to strings if each number is an intent."
        )
    if labels.dtype != object:
        return labels
    texts, others = ([own for own in labels if isinstance(own, str) is is_text]
                     for is_text in (True, False))  # fmt: skip
    if texts and others:
        raise ValueError(
            f"Labels mix strings and numbers ({texts[0]!r}, {others[0]!r}). Convert them to one "
            "type."
        )
    return np.asarray(texts or others)


def check_intents(texts: Sequence[str], labels: Sequence[Any]) -> list[str]:
    """Check the in-scope examples.

    Args:
      texts: the examples.
      labels: the intent of each example.

    Returns:
      Warnings: intents with one example, and texts with several labels.

    Raises:
      ValueError: there are fewer than two intents.
    """
    counts = Counter(labels)
    if len(counts) < 2:
        raise ValueError(
            "Training needs examples of at least two intents. Received: "
            f"{f'only {next(iter(counts))!r}' if counts else 'no example'}. Add examples of other "
            "intents."
        )
    warnings = []
    single = [str(label) for label, number in counts.items() if number == 1]
    if single:
        warnings.append(
            f"Intents with one example: {listed(single)}. They are trained on and never held out; "
            "give them more examples."
        )
    by_text: dict[str, dict[Any, None]] = {}
    for text, label in zip(texts, labels, strict=True):
        by_text.setdefault(" ".join(text.lower().split()), {})[label] = None
    several = [(text, found) for text, found in by_text.items() if len(found) > 1]
    if several:
        texts_labels = [
            f"{shortened(text, _MAX_TEXT)!r}: {', '.join(map(str, labels))}"
            for text, labels in several
        ]
        warnings.append(
            f"Texts with different labels: {listed(texts_labels, separator='; ')}. No classifier "
            "can learn both; decide on one."
        )
    return warnings


def few_shot(data: LabelledTexts, shots: int, *, seed: int) -> LabelledTexts:
    """Draw `shots` examples of each intent without replacement.

    Args:
      data: the examples to draw from.
      shots: the number of examples of each intent.
      seed: seed of the draw.

    Raises:
      ValueError: an intent has fewer examples.
    """
    rng = np.random.default_rng(seed)
    chosen: list[int] = []
    for label, places in _places(data.labels).items():
        if len(places) < shots:
            raise ValueError(
                f"{label!r} has only {len(places)} examples, fewer than {shots}. Use fewer shots."
            )
        chosen += rng.choice(places, shots, replace=False).tolist()
    return LabelledTexts([data.texts[i] for i in chosen], [data.labels[i] for i in chosen])


def fold_numbers(labels: Sequence[Any], folds: int, *, seed: int) -> np.ndarray:
    """Assign a fold to each example. The examples of an intent are spread evenly over the folds.

    Args:
      labels: the intent of each example.
      folds: the number of folds.
      seed: seed of the order.

    Returns:
      int `[len(labels)]`; -1 for the only example of an intent, which is never held out.
    """
    rng = np.random.default_rng(seed)
    numbers = np.full(len(labels), -1)
    first = 0
    for places in _places(labels).values():
        if len(places) > 1:
            numbers[rng.permutation(places)] = (first + np.arange(len(places))) % folds
            first += len(places)  # else the first folds would get all small intents
    return numbers


def held_out(labels: Sequence[Any], fraction: float, *, seed: int) -> np.ndarray:
    """Choose a share of the examples of each intent for validation, at least one example.

    The only example of an intent is not chosen.

    Args:
      labels: the intent of each example.
      fraction: the share.
      seed: seed of the draw.

    Returns:
      bool `[len(labels)]`.
    """
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(labels), bool)
    for places in _places(labels).values():
        if len(places) > 1:
            number = min(max(1, round(fraction * len(places))), len(places) - 1)
            chosen[rng.permutation(places)[:number]] = True
    return chosen


def _places(labels: Sequence[Any]) -> dict[Any, list[int]]:
    places: dict[Any, list[int]] = {}
    for index, label in enumerate(labels):
        places.setdefault(label, []).append(index)
    return places
