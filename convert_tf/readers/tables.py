"""Read the rows of tables: CSV, TSV, JSON lines, one JSON value, or Parquet.

```
text,label
where is my card?,card_arrival
```

The format of a file is recognised by its bytes: JSON by its first characters, Parquet by its magic
number. Anything else is CSV or TSV. Texts are UTF-8, or UTF-16 with a byte order mark. All files
except Parquet may be compressed (`convert_tf.storage.lines`). A row is a dict from column names to
values: strings in CSV and TSV, any value in JSON and Parquet, None for missing values. Column names
are normalised (`convert_tf.readers.columns`): they are in lower case, with underscores in place of
hyphens and white space.

To turn the rows into examples, loop over them:

```
for row in read_rows(file, COLUMNS):
    with file.skipping():
        yield example_of(row)
```

In messages, `file.place` names the file and line. A `TableFile` raises an error at the first
unusable row. A `convert_tf.corpora.dumps.CountedFile` counts unusable rows instead.
"""

import io
import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from convert_tf.readers.columns import Columns, with_column_names
from convert_tf.readers.delimited import delimited_rows, suffix
from convert_tf.readers.files import TableFile, UnusableError, json_in_line, lines_in
from convert_tf.readers.parquet import is_parquet_file, parquet_rows
from convert_tf.storage.content import HEAD_BYTES, JSON, check_format
from convert_tf.storage.json_text import holds_one_value, json_of_texts
from convert_tf.storage.lines import open_decompressed

JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_MAX_VALUE_BYTES = 2**30  # size limit for a file with one JSON value, which is read as a whole


def read_rows(file: TableFile, columns: Columns, *, is_json: bool = False) -> Iterator[Any]:
    """Yield the rows of a file in order. Memory use does not grow with the file.

    Only a file that consists of one JSON value is read as a whole. If this value is a list of
    objects, or an object that contains one such list, each object in the list is a row. If a line
    in a file of JSON lines is a list, each object in that list is a row too. `file.max_line_bytes`
    does not limit a file that consists of one line of JSON.

    Args:
      file: the file. While a row is processed, `file.lines` is the number of the row's last line.
      columns: the columns that the caller needs.
      is_json: whether to read the file as JSON even if neither its bytes nor its suffix show this.

    Yields:
      Dicts by column name. Rows from JSON may also be other values.

    Raises:
      ValueError: if the file is not a table, a needed column of a CSV is missing or occurs twice,
        or a row cannot be used and the file does not count such rows.
      MissingLibraryError: if the file is Parquet and DuckDB is not installed.
      OSError: if the file cannot be read.
    """
    if is_parquet_file(file):
        yield from map(with_column_names, parquet_rows(file))
        return
    with open_decompressed(file) as stream:
        kind = check_format(file.name, stream.peek()[:HEAD_BYTES], read=[JSON])
        yield from rows_in(stream, file, columns, is_json=is_json or kind == JSON)


def rows_in(
    stream: io.BufferedReader, file: TableFile, columns: Columns, is_json: bool
) -> Iterator[Any]:
    """Yield the rows of an open file that is not Parquet; see `read_rows`.

    Args:
      stream: the decompressed bytes of `file`.
      is_json: whether the file is known to be JSON. If false, its suffix may still show this.
    """
    if not (is_json or suffix(file.path) in JSON_SUFFIXES):
        yield from delimited_rows(file, stream, columns)
        return
    # A whole JSON value may be on one line.
    may_be_value = stream.peek().removeprefix(BOM_UTF8).lstrip()[:1] in (b"[", b"{")
    pieces = iter(stream.read1, b"")
    all_lines = lines_in(pieces, file, max_first_bytes=_MAX_VALUE_BYTES if may_be_value else 0)
    # Indents stay, so that errors of the JSON parser name the right column.
    lines = filter(None, map(bytes.rstrip, all_lines))
    yield from _json_rows(file, lines, columns)


def _json_rows(file: TableFile, lines: Iterator[bytes], columns: Columns) -> Iterator[Any]:
    """Yield the rows in JSON lines, or in a file that is a single JSON value.

    Args:
      file: the file. Its attribute `lines` counts lines, or entries if the file is a single value.
      lines: the non-empty lines of the file, without white space at their ends.
      columns: as in `read_rows`.
    """
    numbered = ((file.lines, line) for line in lines)
    first = [*islice(numbered, 2)]
    if holds_one_value([line.decode("utf-8", "replace") for _, line in first]):
        value = _whole_value(file, chain(first, numbered))
        file.unit = "entry"
        for number, entry in enumerate(_entries(value, columns), 1):
            file.lines = number
            yield entry
        return
    is_only_line = len(first) == 1 and file.lines == first[0][0]  # skipped lines are not in `first`
    for number, line in chain(first, numbered):
        file.lines, last = number, file.lines
        with file.skipping():
            if len(line) > file.max_line_bytes and not is_only_line:
                raise UnusableError("line_too_long")
            yield from _entries(json_in_line(line), columns)
        file.lines = last


def _whole_value(file: TableFile, numbered: Iterable[tuple[int, bytes]]) -> Any:
    """Parse a file that is a single JSON value, from its non-empty lines and their numbers."""
    content, last = bytearray(), 0
    for number, line in numbered:
        content += b"\n" * (number - last - 1) + line + b"\n"  # with the empty lines
        last = number
        if len(content) > _MAX_VALUE_BYTES:
            raise ValueError(
                f"{file.name} is one JSON value of more than {_MAX_VALUE_BYTES:,} bytes. Write "
                "one object per line instead, for example with jq -c '.[]'."
            )
    if file.is_cut_off:
        raise ValueError(f"{file.name} is {file.damage}. Copy it again.")
    try:
        return json_of_texts(bytes(content))
    except ValueError as error:
        reason = str(error)
        if isinstance(error, json.JSONDecodeError):  # without the number of characters before it
            reason = f"{error.msg}: line {error.lineno:,} column {error.colno:,}"
        raise ValueError(
            f"{file.name} is not valid JSON ({reason}). It must have one object per line, or be a "
            "single list. Repair it, or write it again."
        ) from error


def _entries(value: Any, columns: Columns) -> list[Any]:
    """Return the rows in a JSON value: a row, a list of rows, or an object with one such list."""
    if isinstance(value, dict) and not columns.holds_row(value):
        lists = [one for one in value.values() if _are_objects(one)]
        lists = [one for one in lists if columns.holds_row(one[0])] or lists
        value = lists[0] if len(lists) == 1 else value
    rows = value if _are_objects(value) and not columns.holds_row(value) else [value]
    return [with_column_names(row) if isinstance(row, dict) else row for row in rows]


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict | list)
