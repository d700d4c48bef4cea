"""Read texts from a file: one per line, or from a column of a table.

A file is a table if it begins like JSON or Parquet, if its name ends in `.csv`, `.tsv` or `.tab`,
or if its first line is a header. A table without a text column raises an error, so that its rows
are never mistaken for texts.
"""

import csv
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence

from convert_tf.readers import columns as names
from convert_tf.readers.columns import Cells, Columns, column_names
from convert_tf.readers.delimited import DELIMITERS, DELIMITERS_OF, suffix
from convert_tf.readers.files import TableFile, decoded_lines
from convert_tf.readers.tables import JSON_SUFFIXES, is_parquet_file, read_rows, rows_in
from convert_tf.storage.content import HEAD_BYTES, JSON, check_format
from convert_tf.storage.lines import STANDARD_INPUT, open_decompressed
from convert_tf.storage.messages import shortened

_LEAST_LINES_OF_TABLE = 5  # at least this many lines, all with the same number of tabs
_MAX_NAME = 40  # maximum length of a column name in a header, in characters
_MAX_SHOWN = 70
_WORD = re.compile(r"\w+")
_CLEAR_NAMES = {name for name in names.KNOWN if "_" in name} | {"id", "label", "intent"}

Find = Callable[[Sequence[str]], names.Names | None]


class Texts:
    """The texts in a file, in order. Empty lines and cells are included.

    Args:
      path: a `.gz`, `.zst`, `.bz2`, `.xz` or plain file; `"-"` for standard input, compressed or
        not.
      find: function that takes all column names and returns the name of the text column:
        `name_of_text` or `name_of_candidate` from `convert_tf.readers.columns`.

    Attributes:
      name: the path, or "standard input", for messages.
      is_typed: whether the user types the lines at a terminal. Typed lines are never read as a
        table.
      total_bytes: size of the file in bytes; 0 if it is unknown.

    Raises:
      OSError: if the file cannot be opened.
      ValueError: if the path is a folder; while reading, if the file is not text or has an
        unsupported format, it is a table without a text column, a line is not UTF-8 or too long, or
        an archive is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], *, find: Find = names.name_of_text) -> None:
        path = os.fspath(path)
        is_standard_input = path == STANDARD_INPUT
        name = "standard input" if is_standard_input else path
        if not is_standard_input and os.path.isdir(path):
            raise ValueError(
                f"{path} is a folder. Pass a file. To read all text files of the folder, join them "
                f"first: cat {shlex.quote(path.rstrip('/'))}/* > all.txt"
            )
        self._file = TableFile(path, name, is_standard_input=is_standard_input)
        self._find = find
        self.name = name
        self.is_typed = is_standard_input and sys.stdin.isatty()
        self._column = ""
        self.total_bytes = 0 if is_standard_input else os.path.getsize(path)

    @property
    def bytes_done(self) -> int:
        """The number of bytes read from the file so far."""
        return self._file.compressed_bytes

    def __iter__(self) -> Iterator[str]:
        file = self._file
        columns = Columns("texts", ("text",), self._find, without_header=_one_column)
        if is_parquet_file(file):
            yield from map(self._text, read_rows(file, columns))
            return
        with open_decompressed(file) as stream:
            head = b"" if self.is_typed else stream.peek()[:HEAD_BYTES]
            is_json = check_format(file.name, head, read=[JSON]) == JSON
            if is_json or is_table(self._file.path, head, find=self._find):
                rows = rows_in(stream, file, columns, is_json=is_json)
                yield from map(self._text, rows)
                return
            yield from decoded_lines(stream, file)

    def _text(self, row: object) -> str:
        """Return the text in a row; `""` if the text is missing."""
        place = self._file.place
        columns = self._find([*row]) if isinstance(row, dict) else None
        if columns is None or not isinstance(row, dict):
            shown = f"the keys {', '.join(map(repr, row))}" if isinstance(row, dict) else repr(row)
            raise ValueError(
                f"{place} has no text, only {shortened(shown, _MAX_SHOWN)}. Rename the key of the "
                "text to 'text'."
            )
        if not self._column:
            print(f"{self.name} is a table; reading its column {columns[0]!r}", file=sys.stderr)
        self._column = columns[0]
        text = names.filled(row).get(self._column, "")
        if not isinstance(text, str):
            shown = shortened(repr(text), _MAX_SHOWN)
            raise ValueError(
                f"{place} has {shown} as {self._column!r}, which is not a string. Repair the file."
            )
        return text


def is_table(
    path: str, head: bytes, *, find: Find = names.name_of_text, delimiters: str = DELIMITERS
) -> bool:
    """Return whether a file is a table, according to its name or its first lines.

    Args:
      path: the path. Only its suffix is used.
      head: the first bytes of the file, decompressed.
      find: as in `Texts`.
      delimiters: the characters that separate the fields of tables.
    """
    kind = suffix(path)
    is_named = kind in JSON_SUFFIXES or not {*delimiters}.isdisjoint(DELIMITERS_OF.get(kind, ""))
    return is_named or _has_header(head, find, delimiters)


def filled_texts(texts: Texts) -> Iterator[str]:
    """Yield the non-empty texts, stripped of white space."""
    return (text for line in texts if (text := line.strip()))


def _one_column(
    file: TableFile, first: Cells, rest: Iterator[Cells]
) -> tuple[Sequence[str], Iterator[Cells]] | None:
    """Read a table with one column and no header as texts."""
    if len(first) != 1:
        return None

    def rows() -> Iterator[Cells]:
        yield first
        yield from rest

    return ["text"], rows()


def _has_header(head: bytes, find: Find, delimiters: str) -> bool:
    """Return whether lines look like a table.

    Either the first line is a header, or all lines have the same number of fields, and something
    else shows that they are not texts: tabs, quotes around every field, or no space after any
    delimiter.
    """
    lines = head.decode("utf-8", "ignore").removeprefix("\ufeff").split("\n")[:-1]
    for delimiter in delimiters:
        try:
            rows = [*filter(None, csv.reader(lines, delimiter=delimiter, skipinitialspace=True))]
        except csv.Error:
            continue
        size = len(rows[0]) if rows else 0
        if size < 2:
            continue
        header = column_names(rows[0])
        is_even = all(len(row) == size for row in rows)
        has_texts = find(header) is not None
        if max(map(len, header)) <= _MAX_NAME:
            is_known = len({*header} & names.KNOWN) >= 2
            if is_known and has_texts:
                return True
            # A table with one known name: all column names are single words, and each line has a
            # field for every column.
            are_words = all(_WORD.fullmatch(cell.strip()) for cell in rows[0])
            if len(rows) > 1 and is_even and has_texts and are_words:
                return True
            if is_known and is_even and _is_clear(rows, lines, delimiter):
                return True
        if delimiter == "\t" and is_even and len(rows) >= _LEAST_LINES_OF_TABLE:
            return True
        if is_even and (_is_quoted(lines, delimiter) or _is_compact(rows, lines, delimiter)):
            return True
    return False


def _is_clear(rows: Sequence[Cells], lines: Sequence[str], delimiter: str) -> bool:
    """Return whether the first line is probably a header, although it has no text column.

    Texts such as `Title, class` also consist of known names, so a header must have no space after a
    delimiter. It must also have a name that is hardly ever a text, unless there are at least five
    lines.
    """
    first = next(line for line in lines if line.strip())
    has_clear_name = not _CLEAR_NAMES.isdisjoint(column_names(rows[0]))
    least = 2 if has_clear_name else _LEAST_LINES_OF_TABLE
    return len(rows) >= least and f"{delimiter} " not in first


def _is_quoted(lines: Sequence[str], delimiter: str) -> bool:
    """Return whether there are at least two lines, and all their fields are in quotes."""
    filled = [line.removesuffix("\r") for line in lines if line.strip()]
    quoted = '"(?:[^"]|"")*"'
    row = re.compile(f"{quoted}(?:{re.escape(delimiter)}{quoted})+")
    return len(filled) > 1 and all(map(row.fullmatch, filled))


def _is_compact(rows: Sequence[Cells], lines: Sequence[str], delimiter: str) -> bool:
    """Return whether lines are probably a table, although no column has a known name.

    The first line consists of different words, and no delimiter is followed by a space, unlike in
    texts. Two words with a comma or `|` may be a text without spaces, so these delimiters need
    three fields. A single letter may be part of an emoticon, as in `hi;D`.
    """
    names = [cell.strip() for cell in rows[0]]
    are_words = all(_WORD.fullmatch(name) and len(name) > 1 for name in names)
    are_words = are_words and not any(map(str.isdigit, names))
    try:
        fields = [cell for row in csv.reader(lines, delimiter=delimiter) for cell in row[1:]]
    except csv.Error:
        return False
    return (
        len(rows) >= _LEAST_LINES_OF_TABLE
        and len(names) > (delimiter in ",|") + 1
        and are_words
        and len({*names}) == len(names)
        and not any(field.startswith(" ") for field in fields)
    )
