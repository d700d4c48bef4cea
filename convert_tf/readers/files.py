"""Read files line by line or row by row, with error messages for unusable rows."""

import codecs
import io
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from convert_tf.storage.json_text import json_of_texts
from convert_tf.storage.lines import COMPRESSED_SUFFIXES, MAX_LINE_BYTES, InputFile, read_pieces

AS_UTF8 = "Save the file as UTF-8, for example with iconv -f WINDOWS-1252 -t UTF-8."
_REPAIR = "Repair it, or remove it."
# Descriptions of problems with a row, with their remedies, by reason.
_SENTENCES = {
    "line_too_long": f"is longer than {{limit:,}} bytes. {_REPAIR}",
    "invalid_utf8": f"is not UTF-8{{detail}}. {AS_UTF8}",
    "not_json": f"is not valid JSON{{detail}}. {_REPAIR}",
    "malformed_quotes": "has a quote that does not close, or that closes within a field. Put "
    "fields with delimiters, quotes or line breaks in quotes, and double the quotes inside.",
    "nul_character": f"has a NUL character. {_REPAIR}",
    "too_many_columns": "has more fields than the first row{detail}. Put texts that contain the "
    "delimiter in quotes.",
}


class UnusableError(ValueError):
    """Error: a row, or a part of it, cannot be used.

    `reason` is the name under which such rows are counted. `is_bad` is true if something is missing
    or malformed, and false if a rule excludes the row. `detail` is added to the error message if
    the file does not count unusable rows.
    """

    def __init__(self, reason: str, *, is_bad: bool = True, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_bad = is_bad
        self.detail = detail


@dataclass
class TableFile(InputFile):
    """A file with rows. An unusable row raises an error.

    Attributes:
      max_line_bytes: maximum length of a line in bytes. Longer lines cannot be used.
      lines: number of the last line that was read, counted from 1.
      unit: the unit of `lines`: `"line"`, `"entry"` for a list, or `"row"` for a Parquet file.
    """

    max_line_bytes: int = MAX_LINE_BYTES
    lines: int = 0
    unit: str = "line"

    @property
    def place(self) -> str:
        """The file name and the number of the last line that was read, for messages."""
        return f"{self.name}, {self.unit} {self.lines:,},"

    @property
    def repairs(self) -> bool:
        """Whether to read a line with malformed quotes if possible, instead of raising an error."""
        return False

    def skip(self, reason: str, *, is_bad: bool = True, detail: str = "") -> None:
        """Raise an error for the current row if it is malformed.

        Args:
          reason: why the row cannot be used, a key of `_SENTENCES` or another name.
          is_bad: whether the row is malformed. For a row that a rule excludes, no error is raised.
          detail: details to add to the message.

        Raises:
          ValueError: if the row is malformed.
        """
        if is_bad:
            sentence = _SENTENCES.get(reason, f"cannot be used: {reason.replace('_', ' ')}.")
            detail = detail and f" ({' '.join(detail.split())})"
            sentence = sentence.format(limit=self.max_line_bytes, detail=detail)
            raise ValueError(f"{self.place} {sentence}")

    def skipping(self) -> "_Skipping":
        """Return a context manager that skips the row if its block raises `UnusableError`."""
        return _Skipping(self)

    def note(self, problem: str, reason: str = "") -> None:
        """Record a problem with the file.

        Raises:
          ValueError: if the file ends too early, or an archive such as a `.gz` file is empty.
        """
        super().note(problem, reason)
        if problem == "empty" and os.path.splitext(self.path)[1].lower() in COMPRESSED_SUFFIXES:
            raise ValueError(f"{self.name} is empty, so it is not an archive. Copy the file again.")
        if self.is_cut_off:
            self.lines += 1
            raise ValueError(f"{self.place} is the end of {self.damage}. Copy the file again.")


class _Skipping:
    # This context manager is entered once for every line of a dump. One made with contextlib would
    # take five times as long.
    def __init__(self, file: TableFile) -> None:
        self._file = file

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, UnusableError):
            return False
        self._file.skip(error.reason, is_bad=error.is_bad, detail=error.detail)
        return True


def read_lines(file: TableFile) -> Iterator[bytes]:
    """Yield the non-empty lines of a file, stripped of white space; see `lines_in`."""
    return filter(None, map(bytes.strip, lines_in(read_pieces(file), file)))


def lines_in(
    pieces: Iterable[bytes], file: TableFile, *, max_first_bytes: int = 0
) -> Iterator[bytes]:
    """Split the bytes of a file into lines, without line ends.

    A line that is too long is skipped as `line_too_long`. An incomplete last line in a truncated or
    damaged archive is skipped as `unfinished_line`.

    Args:
      pieces: the decompressed bytes of the file, in pieces of any size.
      file: the file that the lines come from. Its `lines` is updated, and its `max_line_bytes`
        limits the length of a line.
      max_first_bytes: maximum length of the first non-empty line, in bytes. It has no effect if it
        is below `max_line_bytes`.
    """
    rest: list[bytes] = []  # pieces of the current, incomplete line
    rest_bytes = 0
    is_first = True
    limit = max(file.max_line_bytes, max_first_bytes)
    for piece in pieces:
        if is_first:
            piece, is_first = piece.removeprefix(codecs.BOM_UTF8), False
        start, *more = piece.split(b"\n")
        if rest_bytes <= limit:
            rest.append(start)
        rest_bytes += len(start)
        for next_start in more:
            file.lines += 1
            if rest_bytes > limit:
                file.skip("line_too_long")
            else:
                yield b"".join(rest)
            if rest_bytes:
                limit = file.max_line_bytes
            rest, rest_bytes = [next_start], len(next_start)
    if rest_bytes:
        file.lines += 1
        if rest_bytes > limit:
            file.skip("line_too_long")
        elif file.is_cut_off:
            file.skip("unfinished_line")
        else:
            yield b"".join(rest)


def decoded(line: bytes) -> str:
    """Decode a line.

    Raises:
      UnusableError: if the line is not UTF-8. The reason is `invalid_utf8`.
    """
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        detail = f"byte {error.start + 1:,} of the line is 0x{line[error.start]:02X}"
        raise UnusableError("invalid_utf8", detail=detail) from error


def decoded_lines(stream: io.BufferedReader, file: TableFile) -> Iterator[str]:
    """Yield the lines of an open file as strings, without line ends."""
    for line in lines_in(iter(stream.read1, b""), file):
        with file.skipping():
            yield decoded(line).removesuffix("\r")


def json_in_line(line: bytes, *, is_dump: bool = False) -> Any:
    """Parse a line of JSON. `is_dump` is passed to `json_of_texts`.

    Raises:
      UnusableError: if the line is not valid JSON. The reason is `invalid_utf8` or `not_json`.
    """
    text = decoded(line).removeprefix("\ufeff")
    try:
        return json_of_texts(text, is_dump=is_dump)
    except json.JSONDecodeError as error:
        detail = f"{error.msg}: column {error.colno:,}"
        raise UnusableError("not_json", detail=detail) from error
    except ValueError as error:
        raise UnusableError("not_json", detail=str(error)) from error
