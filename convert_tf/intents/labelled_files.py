"""Files of labelled texts as rows: CSV, JSON lines, JSON, Rasa's YAML; others are named."""

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from convert_tf.storage.content import (
    HEAD_BYTES,
    JSON,
    RASA_MARKDOWN,
    RASA_YAML,
    ContentError,
    check_format,
    text_format,
)
from convert_tf.storage.json_text import holds_one_value, json_of_texts
from convert_tf.storage.messages import shortened
from convert_tf.storage.streams import (
    COMPRESSED_SUFFIXES,
    StreamStats,
    open_decompressed,
    open_local,
)

TEXT, LABEL = "text", "label"
# Keys of JSON, in the order in which they are looked for. A label that is a number is often there
# beside its name.
TEXT_KEYS = (TEXT, "utterance", "sentence", "query", "question", "message", "input", "phrase")
LABEL_KEYS = (LABEL, "intent", "label_text", "label_name", "intent_name", "category", "class")
_LABEL_NAMES = ("label_text", "label_name", "intent_name", "intent")
_YAML = (".yml", ".yaml")
_DELIMITERS = (",", ";", "\t")
_SHOWN = 5
_MAX_NAME = 70  # characters of a column or key in a message


class LabelledRow(NamedTuple):
    """A text and its label, either of which may be empty, and where in the file they are."""

    place: str
    text: str
    label: str


def labelled_rows(path: str) -> list[LabelledRow]:
    """The rows of a file of labelled texts, compressed or not, told by its content.

    Raises:
      ValueError: it is another file, or a row is unusable; the message says which.
      OSError: it cannot be read.
    """
    content = _content(path)
    kind = text_format(content[:HEAD_BYTES].encode())
    if _suffix(path) in _YAML or kind == RASA_YAML:
        from convert_tf.intents.rasa import read_nlu

        return [LabelledRow(f"line {line}", *row) for line, *row in read_nlu(content, path)]
    if kind == RASA_MARKDOWN:
        raise _of_rasa(path, kind, " of Rasa 2")
    if kind == JSON:
        return [*_json_rows(content, path)]
    if kind:
        check_format(path, content[:HEAD_BYTES].encode())
    return _csv_rows(content, path)


def nlu_files(folder: str) -> list[str]:
    """The files of a Rasa project's folder that hold intents.

    Raises:
      ValueError: there is none.
    """
    found = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    inside = [path for path in found if "nlu" in (path.name[:3].lower(), path.parent.name.lower())]
    files = [str(path) for path in inside if _suffix(path.name) in _YAML]
    # Files of older formats are refused by name, with the remedy.
    files = files or [str(path) for path in inside if _suffix(path.name) in (".md", ".json")]
    if not files:
        raise ContentError(
            f"The folder {folder} holds no nlu*.yml. Pass a file: a CSV with the columns {TEXT!r} "
            f"and {LABEL!r}, JSON lines, or Rasa's nlu.yml."
        )
    return files


def _suffix(path: str) -> str:
    stem, suffix = os.path.splitext(path)
    return (os.path.splitext(stem)[1] if suffix.lower() in COMPRESSED_SUFFIXES else suffix).lower()


def _content(path: str) -> str:
    stats = StreamStats(path)
    with open_decompressed(path, stats, open_local) as file:
        content = file.read()
    if stats.is_cut_off:
        raise ContentError(f"{path} is a {stats.problem} {stats.kind} archive. Copy it again.")
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"Labelled texts are read as UTF-8. Received: {path!r}, whose byte {error.start:,} is "
            f"{content[error.start]:#04x}. Convert it: iconv -f WINDOWS-1252 -t UTF-8."
        ) from error


def _of_rasa(path: str, name: str, version: str = "") -> ContentError:
    return ContentError(
        f"{path} is {name}. Convert it with the command{version}: rasa data convert nlu -f yaml "
        f"--data {path} --out nlu.yml, and pass nlu.yml."
    )


def _json_rows(content: str, path: str) -> Iterator[LabelledRow]:
    lines = [
        (f"line {number}", line)
        for number, line in enumerate(content.split("\n"), 1)
        if line.strip()
    ]
    if holds_one_value([line for _, line in lines[:2]]):
        lines = [("", content)]
    values = ((place, _parsed(text, place, path)) for place, text in lines)
    for index, (place, value) in enumerate(_objects(values, path)):
        if not index:
            _check_keys(value, place, path)
        yield LabelledRow(place, *_fields(value, place, path))


def _objects(values: Iterator[tuple[str, Any]], path: str) -> Iterator[tuple[str, Any]]:
    """Objects of labelled texts in JSON values: a value itself, or those of a list in it."""
    for place, value in values:
        inner = value
        if isinstance(value, dict) and "rasa_nlu_data" in value:
            raise _of_rasa(path, "Rasa's JSON")
        if isinstance(value, dict) and not _has_keys(value):
            lists = [each for each in value.values() if isinstance(each, list) and each]
            lists = [each for each in lists if _has_keys(each[0])]
            inner = lists[0] if len(lists) == 1 else value
        if isinstance(inner, list):
            for number, each in enumerate(inner, 1):
                yield f"{place}{place and ', '}entry {number}", each
        else:
            yield place or "line 1", inner


def _parsed(text: str, place: str, path: str) -> Any:
    try:
        return json_of_texts(text)
    except ValueError as error:
        raise ValueError(
            f"{path} must hold whole JSON. Received: {place or 'the file'}, {error}. Repair it, or "
            "write it again."
        ) from error


def _has_keys(value: Any) -> bool:
    return isinstance(value, dict) and any(key in value for key in TEXT_KEYS)


def _check_keys(value: Any, place: str, path: str) -> None:
    if _has_keys(value):
        return
    if isinstance(value, dict):
        shown = f"the keys {_listed([*value])}"
    else:
        shown = f"a value that is no object ({shortened(repr(value), _MAX_NAME)})"
    raise ContentError(
        f"Labelled texts in JSON are objects with {TEXT!r} and {LABEL!r}. Received: {path!r}, "
        f"{place}, {shown}. Name two of the keys so."
    )


def _fields(value: Any, place: str, path: str) -> tuple[str, str]:
    if not isinstance(value, dict):
        _check_keys(value, place, path)
    text, label = (
        next((value[key] for key in keys if value.get(key) is not None), "")
        for keys in (TEXT_KEYS, LABEL_KEYS)
    )
    if isinstance(label, int):
        label = next((value[key] for key in _LABEL_NAMES if isinstance(value.get(key), str)), label)
    if not isinstance(text, str):
        raise ValueError(f"{path}, {place}: the text is no string but {text!r}. Repair it.")
    if isinstance(label, bool) or not isinstance(label, str | int | float):
        raise ValueError(
            f"{path}, {place}: the label is no string but {shortened(repr(label), _MAX_NAME)}. "
            "Write a text's several labels as one string, and name what is between them with "
            "--label_separator."
        )
    return text.strip(), str(label).strip()


def _csv_rows(content: str, path: str) -> list[LabelledRow]:
    # All of Python's readers have one limit, of 131,072 characters by default.
    limit = csv.field_size_limit()
    csv.field_size_limit(max(limit, len(content)))
    try:
        delimiter = _delimiter(content)
        reader = csv.reader(
            io.StringIO(content, newline=""),
            delimiter=delimiter,
            skipinitialspace=True,
            strict=True,
        )
        rows: list[LabelledRow] = []
        whole_lines = 0
        try:
            places = _columns(next(reader, []), content, path)
            whole_lines = reader.line_num
            for row in reader:
                whole_lines = reader.line_num
                if row:
                    rows.append(_row(row, places, whole_lines, path))
        except csv.Error as error:
            raise ValueError(
                f"A CSV must be well-formed. Received: {path!r}, after line {whole_lines}: "
                f"{error}. Put texts with commas or quotes in quotes, and double the quotes inside."
            ) from error
        return rows
    finally:
        csv.field_size_limit(limit)


def _names(header: Sequence[str]) -> list[str]:
    return [name.strip().lower() for name in header]


def _first_row(content: str, delimiter: str, **options: Any) -> list[str]:
    start = io.StringIO(content, newline="")
    try:
        return next(csv.reader(start, delimiter=delimiter, **options), [])
    except csv.Error:
        return []


def _delimiter(content: str) -> str:
    """The first of the delimiters with which the first line names a text and a label."""
    for delimiter in _DELIMITERS:
        names = _names(_first_row(content, delimiter, skipinitialspace=True))
        if TEXT in names and LABEL in names:
            return delimiter
    return _DELIMITERS[0]


def _columns(header: Sequence[str], content: str, path: str) -> Mapping[str, int]:
    names = _names(header)
    twice = [name for name, number in Counter(names).items() if number > 1 and name]
    if twice:
        raise ValueError(
            f"A column has a name of its own. Received: {path!r}, with {_quoted(twice[0])} "
            f"{names.count(twice[0])} times. Rename or remove columns."
        )
    if TEXT not in names or LABEL not in names:
        raise ValueError(
            f"A CSV of intents has the columns {TEXT!r} and {LABEL!r}. Received: {path!r}, with "
            f"{_listed(_first_row(content, ',')) or 'no line'}. Name them in its first line."
        )
    return {TEXT: names.index(TEXT), LABEL: names.index(LABEL), "": len(names)}


def _row(row: Sequence[str], places: Mapping[str, int], line: int, path: str) -> LabelledRow:
    if len(row) > places[""]:
        raise ValueError(
            f"A row has the {places['']} fields that the first line names. Received: {path!r}, "
            f"line {line} with {len(row)}. Put texts with commas in quotes."
        )
    text, label = (
        row[places[name]].strip() if places[name] < len(row) else "" for name in (TEXT, LABEL)
    )
    return LabelledRow(f"line {line}", text, label)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(_quoted, names[:_SHOWN])) + more


def _quoted(name: str) -> str:
    """A name as it stands, its white space included, cut where it is long."""
    return repr(name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…")
