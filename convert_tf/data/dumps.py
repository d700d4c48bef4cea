"""Streaming readers of conversation dumps: one JSON object a line, compressed or not.

Memory stays flat whatever the file holds: an archive is decompressed in small pieces and a line
has a maximum length. What cannot be used is counted in `DumpStats`, by reason, and never stops
the run: a truncated or damaged archive gives the lines before the damage.
"""

import bz2
import codecs
import glob
import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

import zstandard

MAX_LINE_BYTES = 32 * 2**20
_MAX_WINDOW_BYTES = 2**31  # monthly Reddit dumps are written with zstd's longest window
_PLAIN_PIECE = 2**20
NUM_FIRST_BAD = 5  # bad lines that are named in messages and reports
# One 4-byte zstd block can stand for 128 KiB, so 1 KiB of input is at most 32 MiB of output.
_ARCHIVE_PIECE = 1024
OpenFile = Callable[[str], BinaryIO]
_MAGIC = {b"\x28\xb5\x2f\xfd": "zst", b"BZh": "bz2", b"\x1f\x8b": "gz"}
_SUFFIXES = {".zst": "zst", ".zstd": "zst", ".bz2": "bz2", ".gz": "gz"}


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
class DumpStats:
    """What was read from one dump file, and what was not, by reason."""

    path: str
    kind: str = ""
    compressed_bytes: int = 0
    lines: int = 0
    objects: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    bad_lines: "BadLines" = field(default_factory=lambda: BadLines())

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


class _Decompressor(Protocol):
    """What `zlib`, `bz2` and `zstandard` decompression objects have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def _zstd_decompressor() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()


def _gzip_decompressor() -> Any:
    return zlib.decompressobj(wbits=31)


_DECOMPRESSORS: dict[str, Callable[[], _Decompressor]] = {
    "zst": _zstd_decompressor,
    "bz2": bz2.BZ2Decompressor,
    "gz": _gzip_decompressor,
}
_ARCHIVE_ERRORS = (zstandard.ZstdError, zlib.error, OSError, EOFError)


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


def file_kind(path: str, head: bytes) -> str:
    """The compression of a file by its first bytes, else by its name.

    Returns:
        `"zst"`, `"bz2"`, `"gz"` or `"plain"`.
    """
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    if head.lstrip(codecs.BOM_UTF8 + b" \t\r\n").startswith(b"{"):
        return "plain"
    return _SUFFIXES.get(os.path.splitext(path)[1].lower(), "plain")


def open_local(path: str) -> BinaryIO:
    """A file on this machine, as a binary stream."""
    return open(path, "rb")


def read_pieces(path: str, open_file: OpenFile, stats: DumpStats) -> Iterator[bytes]:
    """Yields the decompressed bytes of a file, noting truncation and damage in `stats`."""
    with open_file(path) as file:
        piece = file.read(_ARCHIVE_PIECE)
        if not piece:
            stats.warn("the file is empty")
            return
        stats.kind = file_kind(path, piece)
        if stats.kind == "plain":
            while piece:
                stats.compressed_bytes += len(piece)
                yield piece
                piece = file.read(_PLAIN_PIECE)
            return
        make = _DECOMPRESSORS[stats.kind]
        decompressor = make()
        is_inside = False  # an archive may be several compressed streams, one after the other
        while piece:
            stats.compressed_bytes += len(piece)
            while piece:
                if decompressor.eof:
                    decompressor, is_inside = make(), False
                if not is_inside and not piece.strip(b"\0"):
                    break  # zero padding after a stream is legal
                is_inside = True
                try:
                    data = decompressor.decompress(piece)
                except _ARCHIVE_ERRORS as error:
                    stats.skip("damaged_archive")
                    stats.warn(
                        f"the {stats.kind} archive is damaged near compressed byte "
                        f"{stats.compressed_bytes} ({error}); kept the {stats.lines} lines before"
                    )
                    return
                piece = decompressor.unused_data if decompressor.eof else b""
                if data:
                    yield data
            piece = file.read(_ARCHIVE_PIECE)
        if not decompressor.eof and is_inside:
            stats.skip("truncated_archive")
            stats.warn(f"the {stats.kind} archive is truncated; kept the {stats.lines} lines read")


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
        elif stats.skipped["truncated_archive"] or stats.skipped["damaged_archive"]:
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
            value = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            stats.skip("invalid_utf8")
        except (ValueError, RecursionError):
            stats.skip("not_json")
        else:
            if isinstance(value, dict):
                stats.objects += 1
                yield value
            else:
                stats.skip("not_an_object")
