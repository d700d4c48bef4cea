"""Read labelled texts from CSV, JSON, JSON lines and Rasa's YAML; name files of other formats."""

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from convert_tf.corpora.pairs import SEPARATOR_LINE, column_names
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
from convert_tf.storage.lines import (
    COMPRESSED_SUFFIXES,
    InputFile,
    open_decompressed,
)
from convert_tf.storage.messages import listed, shortened

TEXT, LABEL = "text", "label"
# JSON keys and CSV columns, in the order of preference.
TEXT_KEYS = (
    TEXT, "utterance", "sentence", "query", "question", "message", "input", "phrase", "example",
    "request",
)  # fmt: skip
LABEL_KEYS = (
    LABEL, "intent", "label_text", "label_name", "intent_name", "category", "class", "target",
    "tag", "topic",
)  # fmt: skip
# Names of labels, which files often hold next to numbers of labels.
_LABEL_NAMES = ("label_text", "label_name", "intent_name", "intent")
_YAML = (".yml", ".yaml")
_DELIMITERS = (",", ";", "\t", "|")
_MAX_NAME = 70  # characters of a column or key in a message


class LabelledRow(NamedTuple):
    """A text and its label, both possibly empty, and their place in the file."""

    place: str
    text: str
    label: str


def labelled_rows(path: str) -> list[LabelledRow]:
    """Return the rows of a file, which may be compressed. The content determines the format.

    Raises:
      ValueError: the file has another format, or a row is unusable.
      OSError: the file cannot be read.
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
    return [*_csv_rows(content, path)]


def labelled_csv(rows: Iterable[tuple[str, str]]) -> str:
    """Return a CSV of texts and labels."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([TEXT, LABEL])
    writer.writerows(rows)
    return file.getvalue()


def nlu_files(folder: str) -> list[str]:
    """Return the files of a Rasa project that hold intents.

    Raises:
      ValueError: there is no such file.
    """
    found = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    inside = [path for path in found if "nlu" in (path.name[:3].lower(), path.parent.name.lower())]
    files = [str(path) for path in inside if _suffix(path.name) in _YAML]
    # Reading a file of an older format tells the user how to convert it.
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
    file = InputFile(path)
    with open_decompressed(file) as stream:
        content = stream.read()
    if file.is_cut_off:
        raise ContentError(f"{path} is {file.damage}. Copy it again.")
    try:
        return content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path!r} is not UTF-8: its byte {error.start:,} is {content[error.start]:#04x}. "
            "Convert it: iconv -f WINDOWS-1252 -t UTF-8."
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
    for place, value in _objects(values, path):
        yield LabelledRow(place, *_fields(value, place, path))


def _objects(values: Iterator[tuple[str, Any]], path: str) -> Iterator[tuple[str, Any]]:
    """Yield the objects of labelled texts: each JSON value itself, or the items of its list."""
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
            f"{path} is not valid JSON ({place or 'the file'}: {error}). Repair it, or write it "
            "again."
        ) from error


def _has_keys(value: Any) -> bool:
    return isinstance(value, dict) and any(key in value for key in TEXT_KEYS)


def _fields(value: Any, place: str, path: str) -> tuple[str, str]:
    """Return the text and the label of a row, empty where they are missing."""
    if not _has_keys(value):
        shown = f"a value that is no object ({shortened(repr(value), _MAX_NAME)})"
        if isinstance(value, dict):
            shown = f"the keys {listed([*map(_quoted, value)])}"
        raise ContentError(
            f"{path!r} has {shown} in {place}. Labelled texts are objects with the keys {TEXT!r} "
            f"and {LABEL!r}."
        )
    text, label = (
        next((value[key] for key in keys if not _is_missing(value.get(key))), "")
        for keys in (TEXT_KEYS, LABEL_KEYS)
    )
    if isinstance(label, int) or (isinstance(label, str) and label.strip().isdecimal()):
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


def _csv_rows(content: str, path: str) -> Iterator[LabelledRow]:
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
        place = f"line {line}"
        yield LabelledRow(place, *_fields(dict(zip_longest(names, row)), place, path))


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
        if not {*names}.isdisjoint(TEXT_KEYS) and not {*names}.isdisjoint(LABEL_KEYS):
            if twice := [name for name, number in Counter(names).items() if number > 1 and name]:
                raise ValueError(
                    f"{path!r} has {names.count(twice[0])} columns named {_quoted(twice[0])}. "
                    "Rename or remove some."
                )
            return names, rows[1:]
        if names := _names_without_header([row for _, row in rows]):
            return names, rows
        reasons.append(
            f"has no columns of texts and labels; its first line has "
            f"{listed([*map(_quoted, header)]) or 'none'}. Name them {TEXT!r} and {LABEL!r} there."
        )
    raise ValueError(f"{path!r} {reasons[0]}")


def _names_without_header(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the names of two columns without a header; none if that is unclear.

    Labels are repeated. So if the label of the first row occurs again, that row is not a header.
    """
    if not rows or any(len(row) != 2 for row in rows):
        return []
    for label, names in ((1, [TEXT, LABEL]), (0, [LABEL, TEXT])):
        labels, texts = (
            Counter(row[place].strip() for row in rows) for place in (label, 1 - label)
        )
        if labels[rows[0][label].strip()] > 1 and len(labels) < len(texts):
            return names
    return []


def _is_missing(value: Any) -> bool:
    return value is None or value != value  # NaN, as pandas writes it


def _quoted(name: str) -> str:
    """Return a name in quotes with its white space, cut if it is long."""
    return repr(name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…")
