"""Read conversation dumps: one JSON object per line, compressed or not.

A line has a maximum length. Unusable lines are counted in `DumpStats` by reason. A truncated or
damaged archive gives the lines before the damage.
"""

import codecs
import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from convert_tf.storage.json_text import json_of_texts
from convert_tf.storage.streams import (
    MAX_LINE_BYTES,
    OpenFile,
    StreamStats,
    open_local,
    read_pieces,
)

MAX_USED_OF_BAD = 0.1  # turns for each bad line, where most lines are bad: nothing is readable
NUM_FIRST_BAD = 5  # bad lines that are named in messages and reports


class UnreadableFileError(ValueError):
    """Error: hardly any line of a file could be used."""


class TooManyBadLinesError(ValueError):
    """Error: there are more unusable lines than the user allows."""


@dataclass
class BadLines:
    """The unusable lines of all files of a run: their number, and where the first ones are.

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
        if self.limit is not None and self.count > self.limit:
            self.refuse(self.limit)

    def refuse(self, limit: int) -> NoReturn:
        """Raise the error of more than `limit` unusable lines."""
        raise TooManyBadLinesError(
            f"More than {limit:,} lines cannot be used; the first are "
            f"{', '.join(self.first)}. Repair the files, or raise --max_bad_lines."
        )


@dataclass
class DumpStats(StreamStats):
    """Counts of the lines of a dump file: those that were read, and those that were not, by reason.

    `num_bad` is the number of malformed lines.
    """

    lines: int = 0
    objects: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    num_bad: int = 0
    first_bad: int = 0
    _last_bad: int = -1
    bad_lines: BadLines = field(default_factory=BadLines)

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
            self.bad_lines.add(self.path, self.lines, reason)

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
                f"Hardly a line of {self.path} can be used: {reasons} in {self.lines:,} lines, "
                f"from line {self.first_bad:,} on. {remedy}. To leave such lines out, pass "
                "--max_bad_lines."
            )
        if not num_used and not self.warnings:
            self.warn("nothing in it could be used")

    def warn(self, message: str) -> None:
        """Record a message about the whole file."""
        self.warnings.append(f"{self.path}: {message}")

    def note(self, problem: str, reason: str = "") -> None:
        """Count the damage of an archive as an unused line, and warn of it."""
        super().note(problem)
        if not self.is_cut_off:
            self.warn("the file is empty")
            return
        self.skip(f"{problem}_archive" if self.kind != "plain" else "truncated_file")
        what = f"this is {self.damage}{reason and ', '}{reason}"
        self.warn(f"{what}; kept the {self.lines} lines before")


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


def read_lines(
    path: str,
    stats: DumpStats,
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
    open_file: OpenFile = open_local,
) -> Iterator[bytes]:
    """Yield the non-empty lines of a dump file, stripped of white space.

    A line longer than `max_line_bytes` is dropped and counted as `line_too_long`. The last,
    incomplete line of a truncated or damaged archive is dropped as `unfinished_line`.

    Args:
        path: a `.zst`, `.bz2`, `.gz`, `.xz` or plain file. The content decides the type, then the
            name.
        stats: filled while reading.
        max_line_bytes: maximum length of a line, in bytes.
        open_file: opens a path as a binary stream.
    """
    yield from split_lines(read_pieces(path, open_file, stats), stats, max_line_bytes)


def split_lines(
    pieces: Iterable[bytes], stats: DumpStats, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[bytes]:
    """Yield the lines in pieces of a file's decompressed bytes. Otherwise as `read_lines`."""
    rest: list[bytes] = []  # pieces of the line that is not finished yet
    rest_bytes = 0
    is_first = True
    for piece in pieces:
        if is_first:
            piece, is_first = piece.removeprefix(codecs.BOM_UTF8), False
        start, *more = piece.split(b"\n")
        if rest_bytes <= max_line_bytes:
            rest.append(start)
        rest_bytes += len(start)
        for next_start in more:
            stats.lines += 1
            if rest_bytes > max_line_bytes:
                stats.skip("line_too_long")
            elif line := b"".join(rest).strip():
                yield line
            rest, rest_bytes = [next_start], len(next_start)
    if rest_bytes:
        stats.lines += 1
        line = b"".join(rest).strip()
        if rest_bytes > max_line_bytes:
            stats.skip("line_too_long")
        elif stats.is_cut_off:
            stats.skip("unfinished_line")
        elif line:
            yield line


def read_objects(
    path: str,
    stats: DumpStats,
    *,
    max_line_bytes: int = MAX_LINE_BYTES,
    open_file: OpenFile = open_local,
) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a dump file. Other lines are counted by reason in `stats`."""
    lines = read_lines(path, stats, max_line_bytes=max_line_bytes, open_file=open_file)
    for line in lines:
        try:
            value = json_of_texts(line, is_dump=True)
        except UnicodeDecodeError:
            stats.skip("invalid_utf8")
        except ValueError:
            stats.skip("not_json")
        else:
            if isinstance(value, dict):
                stats.objects += 1
                yield value
            else:
                stats.skip("not_an_object")
