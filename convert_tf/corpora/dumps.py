"""Read conversation dumps: one JSON object per line, compressed or not.

A line has a maximum length. Unusable lines are counted by reason (`CountedFile`). A truncated or
damaged archive gives the lines before the damage.
"""

import codecs
import glob
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from convert_tf.corpora.fields import UnusableError
from convert_tf.storage.json_text import json_of_texts
from convert_tf.storage.streams import MAX_LINE_BYTES, InputFile, read_pieces

MAX_USED_OF_BAD = 0.1  # a mostly bad file needs this many usable turns per bad line
NUM_FIRST_BAD = 5  # bad lines that are named in messages and reports


class UnreadableFileError(ValueError):
    """Error: hardly any line of a file could be used."""


class TooManyBadLinesError(ValueError):
    """Error: there are more unusable lines than the user allows."""


@dataclass
class BadLines:
    """Number of the unusable lines of all files of a run, and the places of the first ones.

    Args:
        limit: the largest number that is allowed; None for any.
    """

    limit: int | None = None
    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, path: str, line: int, reason: str) -> None:
        """Count one line.

        Raises:
            TooManyBadLinesError: if there are more than `limit`.
        """
        self.count += 1
        if len(self.first) < NUM_FIRST_BAD:
            self.first.append(f"{path}:{line} ({reason})")
        self._check()

    def merge(self, later: "BadLines") -> None:
        """Add the lines of later files. Raises as `add`."""
        self.count += later.count
        self.first = (self.first + later.first)[:NUM_FIRST_BAD]
        self._check()

    def _check(self) -> None:
        if self.limit is not None and self.count > self.limit:
            raise TooManyBadLinesError(
                f"More than {self.limit:,} lines cannot be used; the first are "
                f"{', '.join(self.first)}. Repair the files, or raise --max_bad_lines."
            )


@dataclass
class CountedFile(InputFile):
    """A file whose lines are counted: those that were read, and those that were not, by reason.

    Attributes:
        max_line_bytes: longer lines are dropped.
        bad_lines: counts the malformed lines of all files of a run.
        lines: number of the last line that was read, from 1.
        objects: number of lines that hold an object or a row.
        skipped: number of unused lines and turns by reason.
        warnings: messages about the whole file.
        num_bad: number of malformed lines.
        first_bad: number of the first of these lines.
    """

    max_line_bytes: int = MAX_LINE_BYTES
    bad_lines: BadLines = field(default_factory=BadLines)
    lines: int = 0
    objects: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    num_bad: int = 0
    first_bad: int = 0
    _last_bad: int = -1

    def skip(self, reason: str, *, is_bad: bool = True) -> None:
        """Count the current line as unused.

        Args:
            reason: name of the counter.
            is_bad: whether the line is malformed, and not only excluded by a rule.

        Raises:
            TooManyBadLinesError: if there are too many malformed lines.
        """
        self.skipped[reason] += 1
        if is_bad:
            self.num_bad += self.lines != self._last_bad
            self._last_bad = self.lines
            self.first_bad = self.first_bad or self.lines
            self.bad_lines.add(self.name, self.lines, reason)

    def skipping(self) -> "_Skipping":
        """Return a block that counts the current line as unused if it finds it unusable."""
        return _Skipping(self)

    def check_readable(self, num_used: int) -> None:
        """Check a file after it was read, unless the user allows a number of bad lines.

        Args:
            num_used: number of turns from the file.

        Raises:
            UnreadableFileError: if hardly any of its lines could be used.
        """
        is_bad = self.num_bad > 0 and 2 * self.num_bad >= self.lines
        if is_bad and num_used <= MAX_USED_OF_BAD * self.num_bad:
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in self.skipped.most_common())
            remedy = "Check that it is a file of the kind that is read"
            if self.skipped.most_common(1)[0][0] == "invalid_utf8":
                remedy = "Convert it to UTF-8, for example with iconv -f WINDOWS-1252 -t UTF-8"
            raise UnreadableFileError(
                f"Hardly a line of {self.name} can be used: {reasons} in {self.lines:,} lines, "
                f"from line {self.first_bad:,} on. {remedy}. To leave such lines out, pass "
                "--max_bad_lines."
            )
        if not num_used and not self.warnings:
            self.warn("nothing in it could be used")

    def warn(self, message: str) -> None:
        """Record a message about the whole file."""
        self.warnings.append(f"{self.name}: {message}")

    def print_warnings(self) -> None:
        """Print the messages about the whole file on standard error."""
        for warning in self.warnings:
            print(f"warning: {warning}", file=sys.stderr)

    def note(self, problem: str, reason: str = "") -> None:
        """Count the damage of an archive as an unused line, and warn of it."""
        super().note(problem)
        if not self.is_cut_off:
            self.warn("the file is empty")
            return
        self.skip(f"{problem}_archive" if self.kind != "plain" else "truncated_file")
        what = f"this is {self.damage}{reason and ', '}{reason}"
        self.warn(f"{what}; kept the {self.lines} lines before")


class _Skipping:
    # Each line of a dump enters such a block; one of contextlib takes five times as long.
    def __init__(self, file: CountedFile) -> None:
        self._file = file

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, UnusableError):
            return False
        self._file.skip(error.reason, is_bad=error.is_bad)
        return True


def find_files(patterns: Sequence[str]) -> list[str]:
    """Return the distinct files of names and glob patterns, sorted.

    Raises:
        ValueError: if a pattern matches no file.
    """
    found: set[str] = set()
    for pattern in patterns:
        if os.path.isfile(pattern):  # a name may hold brackets
            matches = [pattern]
        else:
            matches = [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]
        if not matches:
            raise ValueError(
                f"No file matches {pattern!r}. Check the folder (relative to {os.getcwd()!r}), and "
                "put patterns in quotes."
            )
        found.update(matches)
    return sorted(found)


def read_lines(file: CountedFile) -> Iterator[bytes]:
    """Yield the non-empty lines of a file, stripped of white space.

    A line that is too long is dropped and counted as `line_too_long`. The last, incomplete line of
    a truncated or damaged archive is dropped as `unfinished_line`.
    """
    return filled_lines_in(read_pieces(file), file)


def filled_lines_in(pieces: Iterable[bytes], file: CountedFile) -> Iterator[bytes]:
    """Yield the lines in pieces of a file's decompressed bytes. Otherwise as `read_lines`."""
    return filter(None, map(bytes.strip, lines_in(pieces, file)))


def lines_in(pieces: Iterable[bytes], file: CountedFile) -> Iterator[bytes]:
    """Yield all lines in pieces of a file's bytes, without their line ends.

    Args:
        pieces: the decompressed bytes.
        file: counts the lines and limits their length; see `read_lines`.
    """
    rest: list[bytes] = []  # pieces of the line that is not finished yet
    rest_bytes = 0
    is_first = True
    for piece in pieces:
        if is_first:
            piece, is_first = piece.removeprefix(codecs.BOM_UTF8), False
        start, *more = piece.split(b"\n")
        if rest_bytes <= file.max_line_bytes:
            rest.append(start)
        rest_bytes += len(start)
        for next_start in more:
            file.lines += 1
            if rest_bytes > file.max_line_bytes:
                file.skip("line_too_long")
            else:
                yield b"".join(rest)
            rest, rest_bytes = [next_start], len(next_start)
    if rest_bytes:
        file.lines += 1
        if rest_bytes > file.max_line_bytes:
            file.skip("line_too_long")
        elif file.is_cut_off:
            file.skip("unfinished_line")
        else:
            yield b"".join(rest)


def decoded(line: bytes) -> str:
    """Return a line as text.

    Raises:
        UnusableError: `invalid_utf8`.
    """
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnusableError("invalid_utf8") from error


def json_in_line(line: bytes, *, is_dump: bool = False) -> Any:
    """Return the value of a line of JSON. `is_dump` is that of `json_of_texts`.

    Raises:
        UnusableError: `invalid_utf8` or `not_json`.
    """
    try:
        return json_of_texts(line, is_dump=is_dump)
    except UnicodeDecodeError as error:
        raise UnusableError("invalid_utf8") from error
    except ValueError as error:
        raise UnusableError("not_json") from error


def read_objects(file: CountedFile) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a dump file. Other lines are counted by reason."""
    for line in read_lines(file):
        with file.skipping():
            value = json_in_line(line, is_dump=True)
            if not isinstance(value, dict):
                raise UnusableError("not_an_object")
            file.objects += 1
            yield value
