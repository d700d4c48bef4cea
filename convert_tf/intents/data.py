"""Labelled texts: files in CSV, JSON, JSON lines and Rasa's YAML, few-shot samples and folds."""

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from convert_tf.corpora.pairs import SEPARATOR_LINE, column_names
from convert_tf.storage.content import (
    HEAD_BYTES,
    JSON,
    RASA_MARKDOWN,
    RASA_YAML,
    ContentError,
    check_format,
)
from convert_tf.storage.json_text import holds_one_value, json_of_texts
from convert_tf.storage.lines import COMPRESSED_SUFFIXES, InputFile, open_decompressed
from convert_tf.storage.messages import listed, shortened

# JSON keys and CSV columns, in the order of preference.
_TEXT_KEYS = (
    "text", "utterance", "sentence", "query", "question", "message", "input", "phrase", "example",
    "request",
)  # fmt: skip
_LABEL_KEYS = (
    "label", "intent", "label_text", "label_name", "intent_name", "category", "class", "target",
    "tag", "topic",
)  # fmt: skip
# Names of labels, which files often hold next to numbers of labels.
_LABEL_NAMES = ("label_text", "label_name", "intent_name", "intent")
_YAML = (".yml", ".yaml")
_DELIMITERS = (",", ";", "\t", "|")
_MAX_NAME = 70  # characters of a column or key in a message

_Row = tuple[str, str, str]  # the place in the file, the text and the label, both possibly empty


class LabelledTexts(NamedTuple):
    """Texts and the intent of each text."""

    texts: list[str]
    labels: list[str]


def read_labelled(path: str | os.PathLike[str], *, needs_labels: bool = True) -> LabelledTexts:
    """Read labelled texts.

    Args:
      path: a file, which may be compressed, or a folder with `nlu*.yml`. The file is a CSV in UTF-8
        with the columns `text` and `label`, JSON or JSON lines with such keys, or Rasa's training
        data (`nlu.yml`). Entity annotations of Rasa are replaced by the texts that they mark.
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
        return read_files(_nlu_files(path), needs_labels=needs_labels)
    rows = _rows(path)
    if not rows:
        raise ValueError(f"{path!r} has no rows with a text and a label.")
    empty = [f"{place} without text" for place, text, _ in rows if not text]
    if needs_labels:
        empty += [f"{place} without label" for place, _, label in rows if not label]
    if empty:
        raise ValueError(
            f"Some rows of {path!r} are incomplete: {listed(empty)}. Complete them, or remove them."
        )
    return LabelledTexts([text for _, text, _ in rows], [label for _, _, label in rows])


def read_files(paths: Sequence[str], *, needs_labels: bool = True) -> LabelledTexts:
    """Read several files, one after another; arguments as in `read_labelled`.

    Raises:
      ValueError: one of them is unusable; see `read_labelled`.
    """
    joined = LabelledTexts([], [])
    for path in paths:
        texts, labels = read_labelled(path, needs_labels=needs_labels)
        joined.texts.extend(texts)
        joined.labels.extend(labels)
    return joined


def labelled_csv(rows: Iterable[tuple[str, str]]) -> str:
    """Return a CSV of texts and labels."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([("text", "label"), *rows])
    return file.getvalue()


def _rows(path: str) -> list[_Row]:
    """Return the rows of a file. Its content determines the format."""
    file = InputFile(path)
    with open_decompressed(file) as stream:
        content = stream.read()
    if file.is_cut_off:
        raise ContentError(f"{path} is {file.damage}. Copy it again.")
    try:
        text = content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path!r} is not UTF-8: its byte {error.start:,} is {content[error.start]:#04x}. "
            "Convert it: iconv -f WINDOWS-1252 -t UTF-8."
        ) from error
    head = text[:HEAD_BYTES].encode()
    kind = check_format(path, head, read=(JSON, RASA_MARKDOWN, RASA_YAML))
    if _suffix(path) in _YAML or kind == RASA_YAML:
        from convert_tf.intents.rasa import read_nlu

        return [(f"line {line}", example, intent) for line, example, intent in read_nlu(text, path)]
    if kind == RASA_MARKDOWN:
        raise _of_rasa(path, kind, " of Rasa 2")
    if kind == JSON:
        return [*_json_rows(text, path)]
    return [*_csv_rows(text, path)]


def _nlu_files(folder: str) -> list[str]:
    """Return the files of a Rasa project that hold intents."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    files = [path for path in files if "nlu" in (path.name[:3].lower(), path.parent.name.lower())]
    # Reading a file of an older format tells the user how to convert it.
    for suffixes in (_YAML, (".md", ".json")):
        if found := [str(path) for path in files if _suffix(path.name) in suffixes]:
            return found
    raise ContentError(
        f"The folder {folder} holds no nlu*.yml. Pass a file: a CSV with the columns 'text' and "
        "'label', JSON lines, or Rasa's nlu.yml."
    )


def _suffix(path: str) -> str:
    stem, suffix = os.path.splitext(path)
    return (os.path.splitext(stem)[1] if suffix.lower() in COMPRESSED_SUFFIXES else suffix).lower()


def _of_rasa(path: str, name: str, version: str = "") -> ContentError:
    return ContentError(
        f"{path} is {name}. Convert it with the command{version}: rasa data convert nlu -f yaml "
        f"--data {path} --out nlu.yml, and pass nlu.yml."
    )


def _json_rows(content: str, path: str) -> Iterator[_Row]:
    """Yield the rows of JSON lines or of one JSON value: an object each, or the items of a list."""
    lines = [
        (f"line {number}", line)
        for number, line in enumerate(content.split("\n"), 1)
        if line.strip()
    ]
    if holds_one_value([line for _, line in lines[:2]]):
        lines = [("", content)]
    for place, line in lines:
        try:
            value = json_of_texts(line)
        except ValueError as error:
            raise ValueError(
                f"{path} is not valid JSON ({place or 'the file'}: {error}). Repair it, or write "
                "it again."
            ) from error
        if isinstance(value, dict) and "rasa_nlu_data" in value:
            raise _of_rasa(path, "Rasa's JSON")
        if isinstance(value, dict) and not _has_text(value):
            lists = [each for each in value.values() if isinstance(each, list) and each]
            lists = [each for each in lists if _has_text(each[0])]
            value = lists[0] if len(lists) == 1 else value
        if not isinstance(value, list):
            yield _row(value, place or "line 1", path)
            continue
        for number, each in enumerate(value, 1):
            yield _row(each, f"{place}{place and ', '}entry {number}", path)


def _has_text(value: Any) -> bool:
    return isinstance(value, dict) and any(key in value for key in _TEXT_KEYS)


def _row(value: Any, place: str, path: str) -> _Row:
    """Return the row of a JSON object or of a line of a CSV."""
    if not _has_text(value):
        shown = f"a value that is no object ({shortened(repr(value), _MAX_NAME)})"
        if isinstance(value, dict):
            shown = f"the keys {_quoted(value)}"
        raise ContentError(
            f"{path!r} has {shown} in {place}. Labelled texts are objects with the keys 'text' "
            "and 'label'."
        )
    # pandas writes NaN for a missing value.
    filled = {key: each for key, each in value.items() if each is not None and each == each}
    text, label = (
        next((filled[key] for key in keys if key in filled), "")
        for keys in (_TEXT_KEYS, _LABEL_KEYS)
    )
    if isinstance(label, int) or (isinstance(label, str) and label.strip().isdecimal()):
        names = (filled[key] for key in _LABEL_NAMES if isinstance(filled.get(key), str))
        label = next(names, label)
    if not isinstance(text, str):
        raise ValueError(f"{path}, {place}: the text is no string but {text!r}. Repair it.")
    if isinstance(label, bool) or not isinstance(label, str | int | float):
        raise ValueError(
            f"{path}, {place}: the label is no string but {shortened(repr(label), _MAX_NAME)}. "
            "Write a text's several labels as one string, and name what is between them with "
            "--label_separator."
        )
    return place, text.strip(), str(label).strip()


def _csv_rows(content: str, path: str) -> Iterator[_Row]:
    # Python has one limit for all readers, by default 131,072 characters.
    limit = csv.field_size_limit()
    csv.field_size_limit(max(limit, len(content)))
    try:
        names, rows = _csv_table(content, path)
    finally:
        csv.field_size_limit(limit)
    for line, row in rows:
        if len(row) > len(names):
            raise ValueError(
                f"{path!r}, line {line} has {len(row)} fields, and the first line names "
                f"{len(names)}. Put texts with commas in quotes."
            )
        yield _row(dict(zip_longest(names, row)), f"line {line}", path)


def _csv_table(content: str, path: str) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the names of the columns, and the further rows with their lines.

    The first delimiter counts that gives a header with known names, or two columns in all rows.

    Raises:
      ValueError: there is no such delimiter, or a name is there twice.
    """
    reasons: list[str] = []
    for delimiter in _DELIMITERS:
        rows: list[tuple[int, list[str]]] = []
        lines = io.StringIO(content, newline="")
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
        try:
            rows.extend((reader.line_num, row) for row in reader if row)
        except csv.Error as error:
            reasons.append(
                f"is not a valid CSV after line {rows[-1][0] if rows else 0}: {error}. Put texts "
                "with commas or quotes in quotes, and double the quotes inside."
            )
            continue
        if rows and SEPARATOR_LINE.fullmatch(rows[0][1][0]):
            del rows[0]
        header = rows[0][1] if rows else []
        names = column_names(header)
        if {*names} & {*_TEXT_KEYS} and {*names} & {*_LABEL_KEYS}:
            if twice := [name for name, number in Counter(names).items() if number > 1 and name]:
                raise ValueError(
                    f"{path!r} has {names.count(twice[0])} columns named {_quoted(twice[:1])}. "
                    "Rename or remove some."
                )
            return names, rows[1:]
        if names := _names_without_header([row for _, row in rows]):
            return names, rows
        reasons.append(
            f"has no columns of texts and labels; its first line has {_quoted(header) or 'none'}. "
            "Name them 'text' and 'label' there."
        )
    raise ValueError(f"{path!r} {reasons[0]}")


def _names_without_header(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the names of two columns without a header; none if that is unclear.

    Labels are repeated. So if the label of the first row occurs again, that row is not a header.
    """
    if not rows or any(len(row) != 2 for row in rows):
        return []
    columns = [[field.strip() for field in column] for column in zip(*rows, strict=True)]
    for names, (texts, labels) in (
        (["text", "label"], columns),
        (["label", "text"], columns[::-1]),
    ):
        if labels.count(labels[0]) > 1 and len({*labels}) < len({*texts}):
            return names
    return []


def _quoted(names: Iterable[str]) -> str:
    """List names in quotes with their white space, cut if they are long."""
    return listed(
        [repr(name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…") for name in names]
    )


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
