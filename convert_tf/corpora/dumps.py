"""Readers of conversation dumps: one JSON object a line, compressed or not.

A line has a maximum length. What cannot be used is counted in `DumpStats`, by reason, and never
stops the run: a truncated or damaged archive gives the lines before the damage.
"""

import codecs
import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from convert_tf.storage.json_text import parsed_json
from convert_tf.storage.streams import (
    MAX_LINE_BYTES,
    OpenFile,
    StreamStats,
    open_local,
    read_pieces,
)

NUM_FIRST_BAD = 5  # bad lines that are named in messages and reports


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
            raise TooManyBadLinesError(
                f"At most {self.limit:,} lines may be unusable. Received: more; the first are "
                f"{', '.join(self.first)}. Repair the files, or raise --max_bad_lines."
            )


@dataclass
class DumpStats(StreamStats):
    """What was read from one dump file, and what was not, by reason."""

    lines: int = 0
    objects: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
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
            self.bad_lines.add(self.path, self.lines, reason)

    def warn(self, message: str) -> None:
        """Records a message about the whole file."""
        self.warnings.append(f"{self.path}: {message}")

    def note(self, problem: str, reason: str = "") -> None:
        """Counts an archive's damage as a line that is not used, and warns of it."""
        super().note(problem)
        if not self.is_cut_off:
            self.warn("the file is empty")
            return
        self.skip(f"{problem}_archive")
        what = f"the {self.kind} archive is {problem}{reason and ' '}{reason}"
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
                "Every dump pattern must match at least one file. "
                f"Received: {pattern!r}, which matches none in {os.getcwd()!r}. "
                "Quote the pattern and check the folder."
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
        path: a `.zst`, `.bz2`, `.gz` or plain file; the type is told by content, then by name.
        stats: what is filled in while reading.
        max_line_bytes: length limit of one line, in bytes.
        open_file: gives the binary stream of a path, for files that are not on this machine.
    """
    rest: list[bytes] = []  # pieces of the line that is not finished yet
    rest_bytes = 0
    is_first = True
    for piece in read_pieces(path, open_file, stats):
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
            value = parsed_json(line.decode("utf-8"))
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
