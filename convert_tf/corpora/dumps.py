"""Readers of conversation dumps: one JSON object a line, compressed or not.

A line has a maximum length. What cannot be used is counted in `DumpStats`, by reason, and never
stops the run: a truncated or damaged archive gives the lines before the damage.
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
    """Hardly a line of a file is what such a file holds."""


class TooManyBadLinesError(ValueError):
    """More lines are unusable than the user allows."""


@dataclass
class BadLines:
    """The unusable lines of all files of a run: how many, and where the first ones are.

    Args:
        limit: how many there may be; None for any number.
    """

    limit: int | None = None
    count: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, path: str, line: int, reason: str) -> None:
        """Notes one line.

        Raises:
            TooManyBadLinesError: there are more than `limit`.
        """
        self.count += 1
        if len(self.first) < NUM_FIRST_BAD:
            self.first.append(f"{path}:{line} ({reason})")
        if self.limit is not None and self.count > self.limit:
            self.refuse(self.limit)

    def refuse(self, limit: int) -> NoReturn:
        """Raises the error of more than `limit` unusable lines."""
        raise TooManyBadLinesError(
            f"More than {limit:,} lines cannot be used; the first are "
            f"{', '.join(self.first)}. Repair the files, or raise --max_bad_lines."
        )


@dataclass
class DumpStats(StreamStats):
    """What was read from one dump file, and what was not, by reason.

    `num_bad` are the lines of which something is bad.
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
        """Counts the line being read as one that is not used.

        Args:
            reason: the counter's name.
            is_bad: whether the line is not what such a file holds, as opposed to being left out
                by a rule.

        Raises:
            TooManyBadLinesError: this bad line is one too many.
        """
        self.skipped[reason] += 1
        if is_bad:
            self.num_bad += self.lines != self._last_bad
            self._last_bad = self.lines
            self.first_bad = self.first_bad or self.lines
            self.bad_lines.add(self.path, self.lines, reason)

    def check_readable(self, num_used: int) -> None:
        """Called when the file is read, unless the user allows a number of bad lines.

        Args:
            num_used: turns that the file gave.

        Raises:
            UnreadableFileError: hardly a line of it could be used.
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
        """Records a message about the whole file."""
        self.warnings.append(f"{self.path}: {message}")

    def note(self, problem: str, reason: str = "") -> None:
        """Counts an archive's damage as a line that is not used, and warns of it."""
        super().note(problem)
        if not self.is_cut_off:
            self.warn("the file is empty")
            return
        self.skip(f"{problem}_archive" if self.kind != "plain" else "truncated_file")
        what = f"this is {self.damage}{reason and ', '}{reason}"
        self.warn(f"{what}; kept the {self.lines} lines before")


def find_files(patterns: Sequence[str]) -> list[str]:
    """Expands file names and glob patterns to a sorted list of distinct files.

    Raises:
        ValueError: a pattern matches no file.
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
    """Yields the non-empty lines of a dump file, without white space around them.

    A line longer than `max_line_bytes` is dropped and counted as `line_too_long`; the last,
    unfinished line of a truncated or damaged archive is dropped as `unfinished_line`.

    Args:
        path: a `.zst`, `.bz2`, `.gz`, `.xz` or plain file; the type is told by content, then by
            name.
        stats: what is filled in while reading.
        max_line_bytes: length limit of one line, in bytes.
        open_file: gives the binary stream of a path, for files that are not on this machine.
    """
    yield from split_lines(read_pieces(path, open_file, stats), stats, max_line_bytes)


def split_lines(
    pieces: Iterable[bytes], stats: DumpStats, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[bytes]:
    """The lines in the pieces of a file's decompressed bytes; as `read_lines` else."""
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
    """Yields the JSON objects of a dump file; other lines are counted by reason in `stats`."""
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
