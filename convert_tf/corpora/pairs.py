"""Pairs of contexts and responses: tables, such as a FAQ in CSV or TSV, or JSON.

```
question,answer
Is the pool open?,Until nine.
"Do you have a garage,
or a car park?","A garage, with 20 places."
```

The first row is a header if it contains `context` and `response`, `question` and `answer` or other
names of `convert_tf.corpora.dialogues`. Their order and case do not matter, and there may be
other columns. Without a header there are two columns, and the first row is a pair. JSON is
recognised by its first bytes and read by its keys (`convert_tf.corpora.dialogues`). Files of the
papers' tasks are recognised too (`convert_tf.data.tasks`), except articles, which look like tables.
"""

import csv
import io
import itertools
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from convert_tf.corpora import dialogues
from convert_tf.corpora.dialogues import FURTHER_INPUT, names_of_pair
from convert_tf.corpora.dumps import (
    Conversation,
    CountedFile,
    UnusableError,
    base_name,
    corpus_name,
    lines_in,
)
from convert_tf.corpora.tasks import read_task
from convert_tf.data.schema import PAIR
from convert_tf.data.tasks.formats import HEAD_LINES, TaskFormat, task_format_of
from convert_tf.storage.content import HEAD_BYTES, JSON, check_format
from convert_tf.storage.lines import open_decompressed

_DELIMITERS = {".csv": (",", ";", "\t", "|"), ".tsv": ("\t",), ".tab": ("\t",)}
_OTHER_DELIMITERS = ("\t", ",", ";", "|")
_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
SEPARATOR_LINE = re.compile(r"sep=.?")  # a spreadsheet's note of the delimiter
# Two columns of these are labelled texts, or pairs of equal meaning.
_OTHER_NAMES = {
    "text", "label", "intent", "category", "class", "sentence", "utterance", "query", "question",
    "sentence1", "sentence2", "premise", "hypothesis", "summary",
}  # fmt: skip
_HEAD_LINES = 100
_HEAD_CHARACTERS = 2**16
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")


def read(file: CountedFile) -> Iterator[Conversation]:
    """Yield one conversation per row, with a context and its response, or the dialogues of JSON.

    The id is a hash of the context without regard to case and white space. So all answers to one
    question are in the same split: a model is not tested on a question of its training data, and
    gets no right answer as a wrong one.

    Quoted fields may contain delimiters and line breaks. If a quote does not close, or closes
    within a field, its line is read alone, if it then has as many columns as the first row.

    Args:
        file: a `.csv`, `.tsv` or `.txt` file, or a `.gz`, `.zst`, `.bz2` or `.xz` archive of one.
            The delimiter of `.tsv` files is a tab. In other files it is the comma, semicolon, tab
            or bar that makes the first rows a table. The file's `max_line_bytes` is compared with
            the number of characters. It counts rows that cannot be used as `too_few_columns`,
            `too_many_columns`, `empty_context`, `empty_response`, `malformed_quotes`,
            `field_too_long` (more than 131,072 characters), `nul_character`, `line_too_long`,
            `unfinished_line`.

    Raises:
        ValueError: if the file is neither a table nor JSON; is neither UTF-8, nor UTF-16 with a
            byte order mark; does not have two columns and does not name them; or is JSON of no
            known shape.
    """
    with open_decompressed(file) as stream:
        start = stream.peek()
        is_json = check_format(file.name, start[:HEAD_BYTES], read=[JSON]) == JSON
        if task := _task_format(start):
            yield from read_task(file, task, pieces=iter(stream.read1, b""))
        elif is_json or _suffix(file.path) in _JSON_SUFFIXES:
            lines = filter(None, map(bytes.strip, lines_in(iter(stream.read1, b""), file)))
            yield from dialogues.read(file, lines)
        else:
            yield from _read_table(file, stream)


def _task_format(start: bytes) -> TaskFormat | None:
    """Return the format of a task's file; None for tables of pairs, and if it is not certain."""
    lines = start.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
    head = [line for line in lines[: max(1, len(lines) - 1)] if line.strip()][:HEAD_LINES]
    task = task_format_of(head)
    return task if task and task.is_distinct else None


def _read_table(file: CountedFile, stream: io.BufferedReader) -> Iterator[Conversation]:
    source = corpus_name(file.path)
    # Bytes that are not UTF-8 become lone surrogates.
    with io.TextIOWrapper(
        stream, encoding="utf-8-sig", errors="surrogateescape", newline=""
    ) as text:
        lines = _Lines(text, file)
        head = lines.head()
        # The name of the file allows some delimiters. One of them makes its first lines a table.
        candidates = _DELIMITERS.get(_suffix(file.path), _OTHER_DELIMITERS)
        delimiter = max(candidates, key=lambda one: _score(head, one))
        columns, num_rows = None, 0
        for row in _rows(lines, delimiter, file):
            if columns is None:
                if SEPARATOR_LINE.fullmatch(row[0]):
                    continue
                columns = _header(row)
                if columns:
                    continue
                _check_is_pair(file.name, row, delimiter)
                columns = _Columns(PAIR, {"context": 0, "response": 1}, number=2)
                file.warn(
                    "the first row names no columns that are known and is read as a pair; if it is "
                    "a header, name the columns 'context' and 'response'"
                )
            num_rows += 1
            with file.skipping():
                fields = _fields(row, columns)
                yield from dialogues.pairs_of(fields, columns.pair, source, file)
        if columns is not None and not num_rows:
            file.warn("the table has no rows")


def _suffix(path: str) -> str:
    return os.path.splitext(base_name(path))[1].lower()


class _Columns(NamedTuple):
    """The columns of a table.

    `pair` has the names of the contexts and the responses. `indices` has their places by name, and
    that of a column whose text follows the context: the input of an instruction. `number` is the
    number of all columns.
    """

    pair: tuple[str, str]
    indices: dict[str, int]
    number: int


class _Line(NamedTuple):
    """A line of a file and its number, from 1. `reason` says why no row may contain it."""

    text: str
    number: int
    reason: str = ""


class _Lines:
    """The lines of a file for `csv.reader`. `row` has the lines of the current row.

    A quote that does not close takes in the lines after it. They are given back and read again.
    """

    def __init__(self, text: io.TextIOWrapper, file: CountedFile) -> None:
        self.row: list[_Line] = []
        self._file = file
        self._unread = self._read(text)
        self._again: deque[_Line] = deque()

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._unread)
        self._file.lines = line.number
        self.row.append(line)
        return line.text

    def head(self) -> list[str]:
        """Return the first lines. They will be read again."""
        length = 0
        for line in itertools.islice(self._unread, _HEAD_LINES):
            self._again.append(line)
            length += len(line.text)
            if length >= _HEAD_CHARACTERS:
                break
        return [line.text for line in self._again]

    def give_back(self) -> None:
        """Make the first line the whole row. The others will be read again."""
        first, *others = self.row
        self._again.extendleft(reversed(others))
        self.row = [first]
        self._file.lines = first.number

    def _read(self, file: io.TextIOWrapper) -> Iterator[_Line]:
        max_length = self._file.max_line_bytes
        for number in itertools.count(1):
            text = file.readline(max_length + 1)  # with its line break
            if not text:
                return
            is_whole = text.endswith(("\n", "\r"))
            if not is_whole and len(text) > max_length:
                while text and not text.endswith(("\n", "\r")):
                    text = file.readline(max_length + 1)
                yield _Line("\n", number, "line_too_long")
            elif not is_whole and self._file.is_cut_off:
                yield _Line("\n", number, "unfinished_line")
            elif not text.isascii() and (escaped := _ESCAPED_BYTE.search(text)):
                byte = ord(escaped.group()) - 0xDC00
                raise ValueError(
                    f"Line {number} of {self._file.name!r} is not UTF-8: it holds the byte "
                    f"0x{byte:02X}. Save the file as UTF-8, for example with `iconv -f "
                    "WINDOWS-1252 -t UTF-8`."
                )
            else:
                yield _Line(text, number, "nul_character" if "\0" in text else "")


def _score(head: Sequence[str], delimiter: str) -> tuple[bool, float, int]:
    """Rate a delimiter.

    Returns:
        Whether there is a header, the share of rows with two columns, and the number of columns of
        the first row.
    """
    reader = csv.reader(
        (line.replace("\0", "") for line in head), delimiter=delimiter, skipinitialspace=True
    )
    try:
        rows = [_without_empty_end(row) for row in reader if any(row)]
    except csv.Error:
        rows = []
    if not rows:
        return False, 0.0, 0
    part = sum(len(row) == 2 for row in rows) / len(rows)
    # If only a minority of the rows are pairs, some texts happen to contain the delimiter.
    return _header(rows[0]) is not None, part if part > 0.5 else 0.0, len(rows[0])


def _rows(lines: _Lines, delimiter: str, file: CountedFile) -> Iterator[list[str]]:
    """Yield the rows of a table, without blank ones. Rows that cannot be used are counted."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    num_columns = None
    while True:
        lines.row = []
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            lines.give_back()
            line = lines.row[0]
            if len(line.text) > csv.field_size_limit():
                file.skip("field_too_long")
                continue
            row = _line_as_row(line.text, delimiter, num_columns)
            if not row:
                file.skip(line.reason or "malformed_quotes")
                continue
        reason = next((line.reason for line in lines.row if line.reason), "")
        if reason:
            file.skip(reason)
        elif row:
            num_columns = num_columns or len(row)
            yield row


def _line_as_row(line: str, delimiter: str, num_columns: int | None) -> list[str]:
    """Return the row of a line with wrong quotes, or [] if it has more or fewer columns."""
    readings = [
        next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), []),
        line.rstrip("\r\n").split(delimiter),
    ]
    return next((row for row in readings if len(row) == (num_columns or 2)), [])


def _check_is_pair(path: str, first_row: Sequence[str], delimiter: str) -> None:
    """Raise an error if a first row that names no known columns is not a pair."""
    row = _without_empty_end(first_row)
    if len(row) == 2 and set(column_names(row)) <= _OTHER_NAMES:
        raise ValueError(
            f"{path} has the columns {row[0]!r} and {row[1]!r}: labelled texts and not pairs. Pass "
            "it to convert-tf intent train, or name the columns 'context' and 'response'."
        )
    if len(row) != 2:
        shown = ", ".join(repr(cell[:40]) for cell in row[:20])
        raise ValueError(
            f"Cannot tell which columns of {path!r} are contexts and responses. Its first row has "
            f"{len(row)} columns (delimiter {delimiter!r}): {shown}. Name two of the columns "
            "'context' and 'response' in the first row."
        )


def column_names(header: Sequence[str]) -> list[str]:
    """Return the names of a header as keys, such as `intent_name` for `Intent Name `."""
    return ["_".join(name.lower().replace("-", " ").split()) for name in header]


def _header(row: Sequence[str]) -> _Columns | None:
    """Find the columns that a first row names. Return None if it names none."""
    names = column_names(row)
    found = names_of_pair(names)
    if found is None:
        return None
    for name in found:
        if names.count(name) > 1:
            raise ValueError(
                f"There are {names.count(name)} columns {name!r}. Rename or remove columns."
            )
    read = (*found, FURTHER_INPUT.get(found[0]))
    indices = {name: names.index(name) for name in names if name in read}
    return _Columns(found, indices, len(row))


def _without_empty_end(row: Sequence[str]) -> list[str]:
    """Drop empty columns at the end, as spreadsheets write them. At least two columns stay."""
    size = len(row)
    while size > 2 and not row[size - 1].strip():
        size -= 1
    return list(row[:size])


def _fields(row: Sequence[str], columns: _Columns) -> dict[str, str]:
    """Return the texts of a row by the names of their columns.

    Raises:
        UnusableError: if there are too few or too many columns.
    """
    texts = {name: row[index] for name, index in columns.indices.items() if index < len(row)}
    if not texts.keys() >= {*columns.pair}:
        raise UnusableError("too_few_columns")
    if any(cell.strip() for cell in row[columns.number :]):
        raise UnusableError("too_many_columns")  # a delimiter in a text without quotes
    context = columns.pair[0]
    return texts | {context: texts[context].strip()}
