"""Read CSV and TSV tables row by row: find the delimiter and the header, and handle quotes."""

import contextlib
import csv
import io
import itertools
import os
import re
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from convert_tf.readers.columns import Cells, Columns, column_names
from convert_tf.readers.files import AS_UTF8, TableFile
from convert_tf.storage.lines import COMPRESSED_SUFFIXES
from convert_tf.storage.messages import listed, shortened

# The delimiters that are possible in tables, by the suffix of the file and for other suffixes.
DELIMITERS_OF = {".csv": ",;\t|", ".tsv": "\t", ".tab": "\t"}
DELIMITERS = "\t,;|"
TABLE_SUFFIXES = tuple(DELIMITERS_OF)
# First line in which a spreadsheet names the delimiter, which is never a letter or a digit. Other
# programs save this line in quotes and with as many delimiters as the other lines have.
_SEPARATOR_LINE = re.compile(r'\s*"?sep=(?:(?P<delimiter>[^\w\s"\0]|\t)|.)?"?[,;|\s]*')
_HEAD_LINES = 100
_HEAD_CHARACTERS = 2**16
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_MAX_NAME = 70  # maximum length of a column name or key in a message
# All threads share Python's field size limit, so only one thread at a time may raise it.
_LIMIT = threading.Lock()


def suffix(path: str) -> str:
    """Return the suffix of a file name in lower case, ignoring a compression suffix."""
    stem, last = os.path.splitext(path)
    return (os.path.splitext(stem)[1] if last.lower() in COMPRESSED_SUFFIXES else last).lower()


def quoted(names: Any) -> str:
    """List names in quotes, so that white space is visible. Long names are cut."""
    return listed(
        [repr(name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…") for name in names],
        shown=10,
    )


def delimited_rows(
    file: TableFile, stream: io.BufferedReader, columns: Columns
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table as dicts by column name. Missing fields are None.

    If a quote is not closed, closes within a field, or closes in a later row, the row cannot be
    used. If the file counts unusable rows, the row's first line is then read alone. This line is
    used if it has as many columns as the first row of the file.

    Args:
      file: the file. Its suffix limits the possible delimiters, and its first lines decide which of
        them is used. The delimiter in a first line such as `sep=;` takes precedence, unless the
        suffix leaves no choice or the next line is a header only with another delimiter.
      stream: the decompressed bytes of the file.
      columns: the needed columns.

    Raises:
      ValueError: if the table is not UTF-8, or a needed column is missing or occurs twice.
    """
    # Bytes that are not UTF-8 become lone surrogates.
    with io.TextIOWrapper(
        stream, encoding="utf-8-sig", errors="surrogateescape", newline=""
    ) as text:
        lines = _Lines(text, file)
        named, head = lines.head()
        delimiter = _delimiter(head, named, file, columns)
        rows = _rows(lines, delimiter, file)
        first = next(rows, None)
        if first is None:
            return
        names: Sequence[str] = column_names(first)
        others: Iterator[Cells] = rows
        if chosen := columns.find(names):
            _check_unique(file, names, chosen)
        else:
            whole = columns.without_header(file, _without_empty_end(first), rows)
            if whole is None:
                raise _unknown_header(file, first, delimiter, columns)
            names, others = whole
        for row in others:
            if any(cell.strip() for cell in row[len(names) :]):
                detail = f"{len(row)} instead of {len(names)}"
                file.skip("too_many_columns", detail=detail)  # a delimiter in a text
            else:
                yield dict(itertools.zip_longest(names, row[: len(names)]))


def _delimiter(head: Sequence[str], named: str | None, file: TableFile, columns: Columns) -> str:
    """Return the delimiter of a table.

    Args:
      head: the first lines of the file.
      named: the delimiter that a line such as `sep=;` names, or None.
      file: the file.
      columns: the needed columns.
    """
    candidates = DELIMITERS_OF.get(suffix(file.path), DELIMITERS)
    scores = {one: _score(head, one, columns) for one in candidates}
    best = max(candidates, key=scores.__getitem__)
    if named is None or len(candidates) == 1:
        return best
    # Programs that save a file with another delimiter may keep the line that names the old one.
    of_named = _score(head, named, columns)
    return best if not of_named[0] and scores[best][:2] > of_named[:2] else named


def _check_unique(file: TableFile, names: Sequence[str], chosen: Sequence[str]) -> None:
    for name in chosen:
        if (number := names.count(name)) > 1:
            raise ValueError(
                f"{file.name} has {number} columns named {name!r}. Rename or remove columns."
            )


def _unknown_header(file: TableFile, first: Cells, delimiter: str, columns: Columns) -> ValueError:
    number = "one column" if len(first) == 1 else f"{len(first)} columns"
    by = "" if len(first) == 1 else f", separated by {delimiter!r}"
    return ValueError(
        f"{file.name} has no columns for {columns.what}. Its first row has {number}{by}: "
        f"{quoted(first)}. As column names in the first row, use "
        f"{' and '.join(map(repr, columns.names))}."
    )


class _Line(NamedTuple):
    """A line and its number, counted from 1.

    If `reason` is set, a row that contains the line cannot be used.
    """

    text: str
    number: int
    reason: str = ""


class _Lines:
    """The lines of a file for `csv.reader`. `row` has the lines of the current row.

    If a quote is not closed, `csv.reader` treats the following lines as part of the row. These
    lines can be given back and read again.
    """

    def __init__(self, text: io.TextIOWrapper, file: TableFile) -> None:
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

    def head(self) -> tuple[str | None, list[str]]:
        """Return the first lines of the file without consuming them.

        If the first non-empty line is a line such as `sep=;`, it is dropped.

        Returns:
          The delimiter that the dropped line names, or None; and the first lines.
        """
        length = 0
        for line in itertools.islice(self._unread, _HEAD_LINES):
            self._again.append(line)
            length += len(line.text)
            if length >= _HEAD_CHARACTERS:
                break
        delimiter = None
        start = next((n for n, line in enumerate(self._again) if line.text.strip()), 0)
        if self._again and (named := _SEPARATOR_LINE.fullmatch(self._again[start].text)):
            delimiter = named["delimiter"]
            del self._again[start]
        return delimiter, [line.text for line in self._again]

    def give_back(self, *, keeps: int) -> None:
        """Keep only the first `keeps` lines of the row. The other lines will be read again."""
        self._again.extendleft(reversed(self.row[keeps:]))
        self._file.lines = self.row[0].number
        self.row = self.row[:keeps]

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
                # The other lines probably have the same encoding, so the whole file is rejected.
                byte = ord(escaped.group()) - 0xDC00
                raise ValueError(
                    f"{self._file.name}, line {number:,}, is not UTF-8: it contains the byte "
                    f"0x{byte:02X}. {AS_UTF8}"
                )
            else:
                yield _Line(text, number, "nul_character" if "\0" in text else "")


def _score(head: Sequence[str], delimiter: str, columns: Columns) -> tuple[bool, float, int]:
    """Rate a delimiter by the first lines of a file.

    Returns:
      A tuple to compare: whether the first row is a header, the share of rows with two columns (0
      if it is at most half), and the number of columns in the first row.
    """
    reader = csv.reader(
        (line.replace("\0", "") for line in head), delimiter=delimiter, skipinitialspace=True
    )
    rows = []
    with contextlib.suppress(csv.Error):  # rows before an overlong field are still rated
        for row in reader:
            if any(row):
                rows.append(_without_empty_end(row))
    if not rows:
        return False, 0.0, 0
    part = sum(len(row) == 2 for row in rows) / len(rows)
    # If only a minority of rows have two columns, the delimiter occurs in texts by chance.
    is_header = columns.find(column_names(rows[0])) is not None
    return is_header, part if part > 0.5 else 0.0, len(rows[0])


def _rows(lines: _Lines, delimiter: str, file: TableFile) -> Iterator[list[str]]:
    """Yield the rows of a table. Unusable rows are skipped.

    Blank lines are skipped too, except between the rows of a table with a single column, where they
    are empty cells.
    """
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    num_columns = None
    num_blank = 0  # number of blank lines since the last row
    while True:
        lines.row = []
        is_malformed = False
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            row = _long_row(reader, lines)
            is_malformed = not row
        if is_malformed or _joins_rows(lines.row, delimiter, num_columns):
            lines.give_back(keeps=1)
            line = lines.row[0]
            row = _line_as_row(line.text, delimiter, num_columns) if file.repairs else []
            if not row:
                file.skip(line.reason or "malformed_quotes")
                continue
        reason = next((line.reason for line in lines.row if line.reason), "")
        if reason:
            file.skip(reason)
        elif row:
            if num_columns == 1:
                yield from ([""] for _ in range(num_blank))
            num_columns, num_blank = num_columns or len(row), 0
            yield row
        else:
            num_blank += 1


def _joins_rows(row: Sequence[_Line], delimiter: str, num_columns: int | None) -> bool:
    """Return whether a row of several lines is probably several rows, joined by unpaired quotes.

    In tables without quoting, a field may start with a quotation mark by chance. `csv.reader` then
    reads to the next quotation mark at the end of a field, possibly many rows later.

    A row is taken for several rows if its first line, its last line and most lines between them
    have `num_columns` fields by themselves (`_num_fields`). The first and the last line matter
    because they also contain the delimiters outside the quotes: if each line of a quoted list
    contains one delimiter, its first or last line has a field too many.

    Texts hardly ever contain tabs, but they often contain commas. For other delimiters than tabs,
    the row must therefore have at least five lines, all with `num_columns` fields. A row of fewer
    lines is read as it is: quoted texts of a few lines, with a comma in each line but one, are much
    more common than unpaired quotes in a table with commas. Longer texts of this kind are very
    rare, and to refuse one is a smaller error than to lose rows without a message.

    Args:
      row: the lines of the row.
      delimiter: delimiter of the table.
      num_columns: number of columns of the table. None for the table's first row; the number of
        fields in the first line is then used.
    """
    if len(row) < (2 if delimiter == "\t" else 5):
        return False
    counts = [_num_fields(line.text, delimiter) for line in row if line.text.strip("\r\n")]
    expected = num_columns or counts[0]
    if expected < 2 or not counts[0] == counts[-1] == expected:
        return False
    num_complete = counts.count(expected)
    return num_complete > len(counts) / 2 if delimiter == "\t" else num_complete == len(counts)


def _num_fields(line: str, delimiter: str) -> int:
    """Count the fields of a line, ignoring quotes. Return 0 if it is probably a line of a text.

    The lines of a text may be indented with tabs. A delimiter before a space does not count if it
    is not a tab, because commas in a text are followed by a space.
    """
    if delimiter == "\t":
        return 0 if line.startswith(delimiter) else line.count(delimiter) + 1
    return line.count(delimiter) - line.count(f"{delimiter} ") + 1


def _long_row(reader: Any, lines: _Lines) -> list[str]:
    """Read a row again if one of its lines exceeds the field limit of `csv`; else return [].

    The limit is 131,072 characters. It is raised only for such rows. For other rows, the limit
    keeps a row with an unclosed quote from extending to the end of the file.
    """
    longest = max(len(line.text) for line in lines.row)
    with _LIMIT:
        limit = csv.field_size_limit()
        if longest <= limit:
            return []
        lines.give_back(keeps=0)
        csv.field_size_limit(longest + limit)
        try:
            return next(reader, [])  # type: ignore[no-any-return]
        except csv.Error:
            return []
        finally:
            csv.field_size_limit(limit)


def _line_as_row(line: str, delimiter: str, num_columns: int | None) -> list[str]:
    """Read a line with malformed quotes as a row; [] if it does not have `num_columns` columns."""
    readings = [line.rstrip("\r\n").split(delimiter)]
    with contextlib.suppress(csv.Error):  # a field is too long for `csv`
        quoted = csv.reader([line], delimiter=delimiter, skipinitialspace=True)
        readings.insert(0, next(quoted, []))
    return next((row for row in readings if len(row) == (num_columns or 2)), [])


def _without_empty_end(row: Cells) -> list[str]:
    """Drop empty cells at the end, which spreadsheets write, but keep at least two cells."""
    size = len(row)
    while size > 2 and not row[size - 1].strip():
        size -= 1
    return list(row[:size])


def shown_value(value: Any) -> str:
    """Return the `repr` of a value for a message, cut if it is long."""
    return shortened(repr(value), _MAX_NAME)
