"""Pairs of contexts and responses: tables, such as a FAQ in CSV or TSV, or JSON.

```
question,answer
Is the pool open?,Until nine.
"Do you have a garage,
or a car park?","A garage, with 20 places."
```

The first row names the columns when it holds `context` and `response`, `question` and `answer` or
other names of `convert_tf.corpora.json_shapes`, in any order, beside any others, in upper or lower
case. Otherwise it is a pair like the others, and there are two columns. JSON, told by its first
bytes, is read by its keys (`convert_tf.corpora.dialogues`).
"""

import csv
import io
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from convert_tf.corpora import dialogues, dumps
from convert_tf.corpora.conversations import Conversation, Turn, base_name, corpus_name
from convert_tf.corpora.json_shapes import FURTHER_INPUT, names_of_pair
from convert_tf.storage.content import HEAD_BYTES, JSON, check_format, text_format
from convert_tf.storage.json_text import whole_characters
from convert_tf.storage.streams import open_decompressed

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


def read(
    path: str,
    stats: dumps.DumpStats,
    *,
    max_line_bytes: int = dumps.MAX_LINE_BYTES,
    open_file: dumps.OpenFile = dumps.open_local,
) -> Iterator[Conversation]:
    """Yields one conversation per row, of a context and its response; of JSON its dialogues.

    The id is a hash of the context without regard to case and white space. All answers to one
    question thus fall into the same split: a model is not tested on a question of its training
    data, and not given a right answer as a wrong one.

    Fields may be quoted and then hold delimiters and line breaks. Where a quote does not close, or
    closes within a field, its line is read alone, if it then has as many columns as the first row.

    Args:
        path: a `.csv`, `.tsv` or `.txt` file, or a `.gz`, `.zst`, `.bz2` or `.xz` archive of one.
            The delimiter is a tab in `.tsv` files; otherwise a comma, a semicolon or a tab,
            whichever makes the first rows a table.
        stats: counts the rows that are not used: `too_few_columns`, `too_many_columns`,
            `empty_context`, `empty_response`, `malformed_quotes`, `field_too_long` (more
            than 131,072 characters), `nul_character`, `line_too_long`,
            `unfinished_line`.
        max_line_bytes: longer lines are dropped; compared with the number of characters.
        open_file: gives the binary stream of a path.

    Raises:
        ValueError: the file is neither a table nor JSON; it is not UTF-8, nor UTF-16 with a byte
            order mark; it has not two columns and does not name them; or its JSON has no known
            shape.
    """
    with open_decompressed(path, stats, open_file) as stream:
        if _is_json(path, stream.peek()[:HEAD_BYTES]):
            pieces = iter(stream.read1, b"")
            lines = dumps.split_lines(pieces, stats, max_line_bytes)
            yield from dialogues.json_conversations(path, lines, stats, lists_are_pairs=True)
        else:
            yield from _read_table(path, stream, stats, max_line_bytes)


def _read_table(
    path: str, stream: io.BufferedReader, stats: dumps.DumpStats, max_line_bytes: int
) -> Iterator[Conversation]:
    source = whole_characters(corpus_name(path))
    # Of what is not UTF-8, bytes come as lone surrogates.
    with io.TextIOWrapper(
        stream, encoding="utf-8-sig", errors="surrogateescape", newline=""
    ) as text:
        lines = _Lines(text, path, stats, max_line_bytes)
        head = lines.head()
        delimiter = _delimiter(path, head)
        columns = None
        for row in _rows(lines, delimiter, stats):
            if columns is None:
                if SEPARATOR_LINE.fullmatch(row[0]):
                    continue
                columns = _columns(path, row, delimiter)
                if columns.is_header:
                    continue
                stats.warn(
                    "the first row names no columns that are known and is read as a pair; if it is "
                    "a header, name the columns 'context' and 'response'"
                )
            stats.objects += 1
            pair = _pair(row, columns, stats)
            if pair:
                context, response = pair
                yield Conversation(
                    dialogues.pair_id([context]), source, (Turn(context), Turn(response))
                )
        if columns is not None and not stats.objects:
            stats.warn("the table has no rows")


def _is_json(path: str, head: bytes) -> bool:
    """Whether a file holds JSON by its first bytes, or by its name where these do not tell.

    Raises:
        ContentError: it is neither JSON nor a table.
    """
    check_format(path, head, read=[JSON])
    suffix = os.path.splitext(base_name(path))[1].lower()
    return text_format(head) == JSON or suffix in _JSON_SUFFIXES


class _Columns(NamedTuple):
    """Where context and response are in a row, and how many columns rows have.

    `further` is where something is that follows the context, as the input of an instruction.
    """

    context: int
    response: int
    number: int
    is_header: bool
    further: int | None = None


class _Line(NamedTuple):
    """A line of a file, from 1; `reason` says why no row may be made of it."""

    text: str
    number: int
    reason: str = ""


class _Lines:
    """The lines of a file as `csv.reader` takes them, with those of the present row at hand.

    A quote that does not close swallows the lines after it: they are given back and read again.
    """

    def __init__(
        self, text: io.TextIOWrapper, path: str, stats: dumps.DumpStats, max_length: int
    ) -> None:
        self.row: list[_Line] = []
        self._text = text
        self._path = path
        self._stats = stats
        self._max_length = max_length
        self._number = 0
        self._again: deque[_Line] = deque()

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else self._read()
        self._stats.lines = line.number
        self.row.append(line)
        return line.text

    def head(self) -> list[str]:
        """The first lines, which are still to be read."""
        length = 0
        while len(self._again) < _HEAD_LINES and length < _HEAD_CHARACTERS:
            try:
                line = self._read()
            except StopIteration:
                break
            self._again.append(line)
            length += len(line.text)
        return [line.text for line in self._again]

    def give_back(self) -> None:
        """Makes the first line the whole row; the others are to be read again."""
        first, *others = self.row
        self._again.extendleft(reversed(others))
        self.row = [first]
        self._stats.lines = first.number

    def _read(self) -> _Line:
        text = self._text.readline(self._max_length + 1)  # with its line break
        if not text:
            raise StopIteration
        self._number += 1
        is_whole = text.endswith(("\n", "\r"))
        if not is_whole and len(text) > self._max_length:
            while text and not text.endswith(("\n", "\r")):
                text = self._text.readline(self._max_length + 1)
            return _Line("\n", self._number, "line_too_long")
        if not is_whole and self._stats.is_cut_off:
            return _Line("\n", self._number, "unfinished_line")
        if not text.isascii() and (escaped := _ESCAPED_BYTE.search(text)):
            byte = ord(escaped.group()) - 0xDC00
            raise ValueError(
                f"Line {self._number} of {self._path!r} is not UTF-8: it holds the byte "
                f"0x{byte:02X}. Save the file as UTF-8, for example with `iconv -f WINDOWS-1252 -t "
                "UTF-8`."
            )
        if "\0" in text:
            return _Line(text, self._number, "nul_character")
        return _Line(text, self._number)


def _delimiter(path: str, head: Sequence[str]) -> str:
    """What separates the columns: by the file's name, else by what makes a table of its head."""
    suffix = os.path.splitext(base_name(path))[1].lower()
    candidates = _DELIMITERS.get(suffix, _OTHER_DELIMITERS)
    scores = [_score(head, one) for one in candidates]
    return candidates[scores.index(max(scores))]


def _score(head: Sequence[str], delimiter: str) -> tuple[bool, float, int]:
    """Whether there is a header, the part of the rows with two columns, columns of the first."""
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
    # A minority of pairs is a delimiter that happens to be in some texts.
    return _header(rows[0]) is not None, part if part > 0.5 else 0.0, len(rows[0])


def _rows(lines: _Lines, delimiter: str, stats: dumps.DumpStats) -> Iterator[list[str]]:
    """The rows of a table, without blank ones; those that cannot be used are counted."""
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
                stats.skip("field_too_long")
                continue
            row = _line_as_row(line.text, delimiter, num_columns)
            if not row:
                stats.skip(line.reason or "malformed_quotes")
                continue
        reason = next((line.reason for line in lines.row if line.reason), "")
        if reason:
            stats.skip(reason)
        elif row:
            num_columns = num_columns or len(row)
            yield row


def _line_as_row(line: str, delimiter: str, num_columns: int | None) -> list[str]:
    """A row whose quotes are not as they should be; empty if it has not the columns of others."""
    readings = [
        next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), []),
        line.rstrip("\r\n").split(delimiter),
    ]
    return next((row for row in readings if len(row) == (num_columns or 2)), [])


def _columns(path: str, first_row: Sequence[str], delimiter: str) -> _Columns:
    """The columns that a table's first row tells of."""
    row = _without_empty_end(first_row)
    header = _header(row)
    if header:
        names = column_names(row)
        for place in (header.context, header.response):
            if names.count(names[place]) > 1:
                raise ValueError(
                    f"{path} has {names.count(names[place])} columns {names[place]!r}. Rename or "
                    "remove columns."
                )
        return header._replace(number=len(first_row))
    if len(row) == 2 and set(column_names(row)) <= _OTHER_NAMES:
        raise ValueError(
            f"{path} has the columns {row[0]!r} and {row[1]!r}: labelled texts and not pairs. Pass "
            "it to convert-tf intent train, or name the columns 'context' and 'response'."
        )
    if len(row) == 2:
        return _Columns(0, 1, 2, is_header=False)
    shown = ", ".join(repr(cell[:40]) for cell in row[:20])
    raise ValueError(
        f"Cannot tell which columns of {path!r} are contexts and responses. Its first row has "
        f"{len(row)} columns (delimiter {delimiter!r}): {shown}. Name two of the columns 'context' "
        "and 'response' in the first row."
    )


def column_names(header: Sequence[str]) -> list[str]:
    """The names in a header as keys: `intent_name` of `Intent Name `."""
    return ["_".join(name.lower().replace("-", " ").split()) for name in header]


def _header(row: Sequence[str]) -> _Columns | None:
    """The columns that a first row names; None where it names none."""
    names = column_names(row)
    found = names_of_pair(names)
    if found is None:
        return None
    further = FURTHER_INPUT.get(found[0])
    return _Columns(
        context=names.index(found[0]),
        response=names.index(found[1]),
        number=len(row),
        is_header=True,
        further=names.index(further) if further in names else None,
    )


def _without_empty_end(row: Sequence[str]) -> list[str]:
    """A row without the empty columns that spreadsheets write after the last; at least two."""
    size = len(row)
    while size > 2 and not row[size - 1].strip():
        size -= 1
    return list(row[:size])


def _pair(row: Sequence[str], columns: _Columns, stats: dumps.DumpStats) -> tuple[str, str] | None:
    """Context and response of a row; none if there is no such pair in it."""
    if len(row) <= max(columns.context, columns.response):
        stats.skip("too_few_columns")
        return None
    if any(cell.strip() for cell in row[columns.number :]):
        stats.skip("too_many_columns")  # a delimiter in a text without quotes
        return None
    context, response = row[columns.context].strip(), row[columns.response].strip()
    if context and columns.further is not None and columns.further < len(row):
        context = f"{context}\n{row[columns.further]}".strip()
    if not context:
        stats.skip("empty_context", is_bad=False)
    elif not response:
        stats.skip("empty_response", is_bad=False)
    else:
        return context, response
    return None
