"""Labelled texts of intents: files, what is wrong with them, few-shot samples and folds."""

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

TEXT, LABEL = "text", "label"
_YAML = (".yml", ".yaml")
_SHOWN = 5


class LabelledTexts(NamedTuple):
    """Texts and the intent of each."""

    texts: list[str]
    labels: list[str]


def read_labelled(path: str | os.PathLike[str]) -> LabelledTexts:
    """Reads labelled texts.

    Args:
      path: CSV in UTF-8 with columns `text` and `label`, in any order and among others; or Rasa's
        training data (`nlu.yml`), whose entity annotations are replaced by the texts they mark.

    Returns:
      Rows in the order of the file.

    Raises:
      ValueError: it is not UTF-8, lacks a column, holds no row, or a row has no text, no label or
        too many fields.
      OSError: it cannot be read.
    """
    path = os.fspath(path)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            content = file.read()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Labelled texts are read as UTF-8. Received: {path!r}, whose byte {error.start:,} is "
            f"{error.object[error.start]:#04x}. Convert it: iconv -f WINDOWS-1252 -t UTF-8."
        ) from error
    rows = _yaml_rows(content, path) if path.endswith(_YAML) else _csv_rows(content, path)
    if not rows:
        raise ValueError(f"There must be a labelled text. Received: none in {path!r}.")
    empty = [(number, TEXT) for number, text, _ in rows if not text]
    empty += [(number, LABEL) for number, _, label in rows if not label]
    if empty:
        unit = "example" if path.endswith(_YAML) else "line"
        listed = ", ".join(f"{unit} {number} without {name}" for number, name in empty[:_SHOWN])
        raise ValueError(
            f"Each row has a text and a label. Received: {path!r}, {listed}"
            f"{_more(len(empty))}. Fill them in, or remove these rows."
        )
    return LabelledTexts([text for _, text, _ in rows], [label for _, _, label in rows])


def read_files(paths: Sequence[str]) -> LabelledTexts:
    """The rows of several files, one after another.

    Raises:
      ValueError: one of them is unusable; see `read_labelled`.
    """
    found = [read_labelled(path) for path in paths]
    return LabelledTexts(
        [text for one in found for text in one.texts],
        [label for one in found for label in one.labels],
    )


def _csv_rows(content: str, path: str) -> list[tuple[int, str, str]]:
    reader = csv.DictReader(io.StringIO(content, newline=""), strict=True)
    try:
        header = reader.fieldnames or []
        if TEXT not in header or LABEL not in header:
            raise ValueError(
                f"A CSV of intents has the columns {TEXT!r} and {LABEL!r}. Received: {path!r}, "
                f"with {', '.join(map(repr, header[:_SHOWN])) or 'no line'}. Name them in its "
                "first line."
            )
        rows = []
        for row in reader:
            if None in row:  # what DictReader calls the fields that have no name
                raise ValueError(
                    f"A row has the {len(header)} fields that the first line names. Received: "
                    f"{path!r}, line {reader.line_num} with {len(header) + len(row[None])}. Put "
                    "texts with commas in quotes."
                )
            rows.append((reader.line_num, (row[TEXT] or "").strip(), (row[LABEL] or "").strip()))
        return rows
    except csv.Error as error:
        raise ValueError(
            f"A CSV must be well-formed. Received: {path!r}, after line {reader.line_num}: "
            f"{error}. Put texts with commas or quotes in quotes, and double the quotes inside."
        ) from error


def _yaml_rows(content: str, path: str) -> list[tuple[int, str, str]]:
    """Rasa's format: `nlu: [{intent: name, examples: "- text\\n- text\\n"}]`."""
    import re

    import yaml

    wrong = ValueError(
        "Rasa's training data has a list `nlu` of intents with `examples`. Received: "
        f"{path!r}, which has none. Name such a file, or a CSV."
    )
    try:
        document = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ValueError(
            f"Rasa's training data are YAML. Received: {path!r} ({error}). Repair that line."
        ) from error
    if not isinstance(document, dict) or not isinstance(document.get("nlu"), list):
        raise wrong
    rows: list[tuple[int, str, str]] = []
    for block in document["nlu"]:
        if not isinstance(block, dict):
            raise wrong
        if "intent" not in block:  # synonyms, regular expressions and lookup tables
            continue
        examples = block.get("examples", "")
        if isinstance(examples, str):
            lines = [line.strip() for line in examples.splitlines()]
            examples = [line[1:].strip() for line in lines if line.startswith("-")]
        if not isinstance(examples, list):
            raise wrong
        for example in examples:
            text = str(example.get("text") or "" if isinstance(example, dict) else example)
            # [word](entity) and [word]{"entity": …}
            text = re.sub(r"\[([^\]]+)\](\([^)]*\)|\{[^}]*\})", r"\1", text).strip()
            rows.append((len(rows) + 1, text, str(block["intent"])))
    return rows


def _more(number: int) -> str:
    return f" and {number - _SHOWN} more" if number > _SHOWN else ""


def checked_texts(texts: Any) -> list[str]:
    """Texts of any container as a list.

    Raises:
      ValueError: it is one text, or one of them is none or an empty one; the message says which.
    """
    if isinstance(texts, str | bytes):
        raise ValueError(f"Texts come in a list. Received: {texts!r}. Pass [text].")
    found = list(texts)
    for index, text in enumerate(found):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                f"Texts are strings that hold something. Received: {text!r} at position {index}. "
                "Remove or replace it."
            )
    return [str(text) for text in found]


def checked_labels(labels: Iterable[Any]) -> np.ndarray:
    """Labels of any container as an array.

    Raises:
      ValueError: one of them is missing: None, or NaN as tables have it.
    """
    found = list(labels)
    missing = [
        index
        for index, label in enumerate(found)
        if label is None or (isinstance(label, float | np.floating) and np.isnan(label))
    ]
    if missing:
        raise ValueError(
            f"Each text has a label. Received: {found[missing[0]]} at position {missing[0]}. Fill "
            "it in, or leave the text out."
        )
    return np.asarray(found)


def check_intents(texts: Sequence[str], labels: Sequence[Any]) -> list[str]:
    """What training should know of the in-scope examples.

    Args:
      texts: the examples.
      labels: of each its intent.

    Returns:
      Warnings: intents with one example, and texts with several labels.

    Raises:
      ValueError: there are fewer than two intents.
    """
    counts = Counter(labels)
    if len(counts) < 2:
        raise ValueError(
            "A classifier tells two or more intents apart. Received: "
            f"{f'only {next(iter(counts))!r}' if counts else 'no example'}. Add examples of "
            "others."
        )
    warnings = []
    single = [str(label) for label, number in counts.items() if number == 1]
    if single:
        warnings.append(
            f"Intents with one example: {', '.join(single[:_SHOWN])}{_more(len(single))}. They are "
            "trained on and never held out; give them more examples."
        )
    by_text: dict[str, dict[Any, None]] = {}
    for text, label in zip(texts, labels, strict=True):
        by_text.setdefault(" ".join(text.lower().split()), {})[label] = None
    several = [(text, found) for text, found in by_text.items() if len(found) > 1]
    if several:
        listed = "; ".join(
            f"{text!r}: {', '.join(map(str, found))}" for text, found in several[:_SHOWN]
        )
        warnings.append(
            f"Texts with different labels: {listed}{_more(len(several))}. No classifier can learn "
            "both; decide on one."
        )
    return warnings


def few_shot(data: LabelledTexts, shots: int, *, seed: int) -> LabelledTexts:
    """So many examples of each intent, drawn without replacement.

    Args:
      data: what is drawn from.
      shots: examples of each intent.
      seed: of the draw.

    Raises:
      ValueError: an intent has fewer.
    """
    rng = np.random.default_rng(seed)
    chosen: list[int] = []
    for label, places in _places(data.labels).items():
        if len(places) < shots:
            raise ValueError(
                f"Each intent must have {shots} examples to draw from. Received: {len(places)} of "
                f"{label!r}. Use fewer shots."
            )
        chosen += rng.choice(places, shots, replace=False).tolist()
    return LabelledTexts([data.texts[i] for i in chosen], [data.labels[i] for i in chosen])


def fold_numbers(labels: Sequence[Any], folds: int, *, seed: int) -> np.ndarray:
    """A fold for each example, its intent's examples spread evenly over them.

    Args:
      labels: of each example its intent.
      folds: how many.
      seed: of the order.

    Returns:
      int `[len(labels)]`; -1 for the only example of an intent, which no fold holds out.
    """
    rng = np.random.default_rng(seed)
    numbers = np.full(len(labels), -1)
    first = 0
    for places in _places(labels).values():
        if len(places) > 1:
            numbers[rng.permutation(places)] = (first + np.arange(len(places))) % folds
            first += len(places)  # or the first folds would get all small intents
    return numbers


def held_out(labels: Sequence[Any], fraction: float, *, seed: int) -> np.ndarray:
    """Which examples are validated on: of each intent with two or more a share, but one at least.

    Args:
      labels: of each example its intent.
      fraction: the share.
      seed: of the draw.

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
