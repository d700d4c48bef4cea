"""Files as streams of their decompressed bytes.

Memory stays flat whatever a file holds: an archive is decompressed in small pieces. A truncated or
damaged one gives what is before the damage, which is noted.
"""

import bz2
import codecs
import contextlib
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from convert_tf.extras import needs
from convert_tf.storage.content import (
    HEAD_BYTES,
    check_is_text,
    compression,
    is_utf8,
    text_format,
    wide_encoding,
)

MAX_LINE_BYTES = 32 * 2**20
_MAX_WINDOW_BYTES = 2**31  # monthly Reddit dumps are written with zstd's longest window
_PLAIN_PIECE = 2**20
# One 4-byte zstd block can stand for 128 KiB, so 1 KiB of input is at most 32 MiB of output.
_ARCHIVE_PIECE = 1024
_ZSTD_LEVEL = 9
OpenFile = Callable[[str], BinaryIO]
COMPRESSED_SUFFIXES = {
    ".zst": "zst", ".zstd": "zst", ".bz2": "bz2", ".gz": "gz", ".xz": "xz", ".lzma": "xz"
}  # fmt: skip


@dataclass
class StreamStats:
    """What was read of one file so far.

    Attributes:
        path: the file.
        kind: `"zst"`, `"bz2"`, `"gz"`, `"xz"` or `"plain"`; empty before its first byte was read.
        compressed_bytes: of the file as it is.
        problem: `"empty"`; `"truncated"` of an archive, or of a file that got shorter while it was
            read; `"damaged"` of an archive; else empty.
        name: what messages call the file, where that is not its path.
    """

    path: str
    kind: str = ""
    compressed_bytes: int = 0
    problem: str = ""
    name: str = ""

    def note(self, problem: str, reason: str = "") -> None:
        """Called when a problem is met; `reason` says more."""
        self.problem = problem

    @property
    def is_cut_off(self) -> bool:
        """Whether the file ended too early; its last line is then unfinished."""
        return self.problem in ("truncated", "damaged")

    @property
    def damage(self) -> str:
        """What the file is where it ended too early, for messages."""
        if self.kind == "plain":
            return "a file that got shorter while it was read"
        return f"a {self.problem} {self.kind} archive"


class _Decompressor(Protocol):
    """What `zlib`, `bz2` and `zstandard` decompression objects have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def _zstd_decompressor() -> Any:
    with needs("data", "Reading .zst files"):
        import zstandard

    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()


def _gzip_decompressor() -> Any:
    return zlib.decompressobj(wbits=31)


_DECOMPRESSORS: dict[str, Callable[[], _Decompressor]] = {
    "zst": _zstd_decompressor,
    "bz2": bz2.BZ2Decompressor,
    "gz": _gzip_decompressor,
    "xz": lzma.LZMADecompressor,
}


def _archive_errors(kind: str) -> tuple[type[Exception], ...]:
    """What damage in an archive raises."""
    if kind == "zst":
        import zstandard

        return (zstandard.ZstdError,)
    return (zlib.error, lzma.LZMAError, OSError, EOFError)


def file_kind(path: str, head: bytes) -> str:
    """The compression of a file by its first bytes, else by its name.

    Returns:
        `"zst"`, `"bz2"`, `"gz"`, `"xz"` or `"plain"`.
    """
    if kind := compression(head):
        return kind
    if is_utf8(head) or text_format(head):
        return "plain"
    return COMPRESSED_SUFFIXES.get(os.path.splitext(path)[1].lower(), "plain")


@contextlib.contextmanager
def zst_written(path: str) -> Iterator[BinaryIO]:
    """A stream whose bytes go to a new `.zst` file, compressed."""
    with needs("data", "Writing .zst files"):
        import zstandard
    with (
        open(path, "wb") as file,
        zstandard.ZstdCompressor(_ZSTD_LEVEL).stream_writer(file) as stream,
    ):
        yield stream


def open_local(path: str) -> BinaryIO:
    """A file on this machine, as a binary stream.

    Raises:
        ValueError: it is a folder.
        OSError: it cannot be opened.
    """
    if os.path.isdir(path):
        raise ValueError(f"{path} is a folder. Pass the files in it, as '{path.rstrip('/')}/*'.")
    return open(path, "rb")


def read_pieces(path: str, open_file: OpenFile, stats: StreamStats) -> Iterator[bytes]:
    """Yields the bytes of a text file in UTF-8, decompressed.

    UTF-16 and UTF-32 are read where their mark is at the start, and lines that end in a carriage
    return alone, as of old spreadsheets, where the first ones do. Truncation and damage are noted
    in `stats`.

    Raises:
        ContentError: the file is no text.
    """
    pieces = _decompressed(path, open_file, stats)
    head = b""
    decode: Callable[..., str] | None = None
    ends_in_cr = False
    for piece in pieces:
        is_start = not head
        if len(head) < HEAD_BYTES:
            # What comes from a terminal comes in small pieces, and is told by all of them.
            head += piece[: HEAD_BYTES - len(head)]
            check_is_text(stats.name or path, head)
        if is_start and (encoding := wide_encoding(head)):
            decode = codecs.getincrementaldecoder(encoding.name)("replace").decode
        data = decode(piece).encode() if decode else piece
        if is_start:
            ends_in_cr = b"\r" in data[:HEAD_BYTES] and b"\n" not in data[:HEAD_BYTES]
        yield data.replace(b"\r", b"\n") if ends_in_cr else data
    if decode and (rest := decode(b"", True)):
        yield rest.encode()


def _decompressed(path: str, open_file: OpenFile, stats: StreamStats) -> Iterator[bytes]:
    with open_file(path) as file:
        size = _size(file)
        piece = file.read(_ARCHIVE_PIECE)
        if not piece:
            stats.note("empty")
            return
        stats.kind = file_kind(path, piece)
        if stats.kind == "plain":
            while piece:
                stats.compressed_bytes += len(piece)
                yield piece
                piece = file.read(_PLAIN_PIECE)
            if stats.compressed_bytes < size:
                stats.note("truncated")
            return
        if not compression(piece):  # the name says so; the content may say otherwise
            check_is_text(stats.name or path, piece)
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
                except _archive_errors(stats.kind) as error:
                    stats.note(
                        "damaged", f"near compressed byte {stats.compressed_bytes} ({error})"
                    )
                    return
                piece = decompressor.unused_data if decompressor.eof else b""
                if data:
                    yield data
            piece = file.read(_ARCHIVE_PIECE)
        if (not decompressor.eof and is_inside) or stats.compressed_bytes < size:
            stats.note("truncated")


def _size(file: BinaryIO) -> int:
    """Bytes that are left of a file on this machine; 0 of a pipe or of one elsewhere."""
    try:
        return os.fstat(file.fileno()).st_size - file.tell()
    except (OSError, AttributeError):
        return 0


class _Pieces(io.RawIOBase):
    """The decompressed pieces of a file as a stream."""

    def __init__(self, path: str, stats: StreamStats, open_file: OpenFile) -> None:
        self._pieces = read_pieces(path, open_file, stats)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def open_decompressed(path: str, stats: StreamStats, open_file: OpenFile) -> io.BufferedReader:
    """The content of a file, compressed or not; truncation and damage are noted in `stats`.

    Args:
        path: a `.zst`, `.bz2`, `.gz`, `.xz` or plain file; the type is told by content, then by
            name.
        stats: what is filled in while reading.
        open_file: gives the binary stream of a path.

    Raises:
        ContentError: while it is read: the file is no text.
    """
    return io.BufferedReader(_Pieces(path, stats, open_file), buffer_size=2**16)
