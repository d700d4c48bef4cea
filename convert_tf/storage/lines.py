"""Text files, compressed or not, as streams of decompressed bytes.

An archive is decompressed in small pieces, so little memory is needed. If an archive is truncated
or damaged, the data before the damage are read, and the damage is recorded.
"""

import bz2
import codecs
import contextlib
import hashlib
import io
import lzma
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from convert_tf.extras import needs
from convert_tf.storage.content import HEAD_BYTES, check_is_text, compression, wide_encoding

STANDARD_INPUT = "-"
MAX_LINE_BYTES = 32 * 2**20
_MAX_WINDOW_BYTES = 2**31  # zstd's longest window, which monthly Reddit dumps use
_PLAIN_PIECE = 2**20
# One 4-byte zstd block can stand for 128 KiB, so 1 KiB of input is at most 32 MiB of output.
_ARCHIVE_PIECE = 1024
_FORMAT_BYTES = 10  # `compression` and `wide_encoding` look at no more bytes than these
_ZSTD_LEVEL = 9
COMPRESSED_SUFFIXES = {".zst", ".zstd", ".bz2", ".gz", ".xz", ".lzma"}
_COMPARED_BYTES = 2**16
_LONGEST_FIRST_LINE = 2**16  # without a line feed in so many bytes, lines may end in `\r`


class FileChangedError(OSError):
    """Error: an input file changed while a command ran. The message names it."""


class FileState(NamedTuple):
    """The size, modification time and start of a file, which show whether the file has changed.

    Attributes:
      size: size of the file in bytes.
      modified: time of the last change, in nanoseconds.
      start: SHA-256 of the first 64 KiB; empty if the file is not a regular file.
    """

    size: int
    modified: int
    start: str


def file_state(path: str) -> FileState:
    """Return the current state of a file, without reading more than its first bytes.

    Raises:
      OSError: if the file cannot be read.
    """
    status = os.stat(path)
    start = ""
    if stat.S_ISREG(status.st_mode):  # the bytes of a pipe can be read only once
        with open(path, "rb") as file:
            start = hashlib.sha256(file.read(_COMPARED_BYTES)).hexdigest()
    return FileState(status.st_size, status.st_mtime_ns, start)


def distinct_files(paths: Iterable[str]) -> list[str]:
    """Return the first path of each file, in order. Links give a file several paths."""
    first_paths: dict[str, str] = {}
    for path in paths:
        first_paths.setdefault(os.path.realpath(path), path)
    return [*first_paths.values()]


@dataclass
class InputFile:
    """A file to read, and facts about it that are known after reading.

    Attributes:
      path: path of the file.
      name: name of the file for messages; the path by default.
      kind: `"zst"`, `"bz2"`, `"gz"`, `"xz"` or `"plain"`; empty before the first byte is read.
      compressed_bytes: number of bytes that have been read from disk so far.
      problem: `"empty"`; `"truncated"` for an incomplete archive, or for a file that became shorter
        while it was read; `"damaged"` for a damaged archive; empty if there is no problem.
      is_standard_input: whether to read standard input instead.
      state: the state that the file must have (`check_unchanged`); None for any.
    """

    path: str
    name: str = ""
    kind: str = ""
    compressed_bytes: int = 0
    problem: str = ""
    is_standard_input: bool = False
    state: FileState | None = None

    def __post_init__(self) -> None:
        self.name = self.name or self.path

    def open(self) -> BinaryIO:
        """Open the file as a binary stream.

        Raises:
          ValueError: if the path is a folder.
          OSError: if the file cannot be opened.
        """
        if self.is_standard_input:
            # A buffered stream would wait until its buffer is full, even after a typed line.
            return getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
        if os.path.isdir(self.path):
            raise ValueError(
                f"{self.name} is a folder. Pass the files in it: '{self.name.rstrip('/')}/*'."
            )
        return open(self.path, "rb")

    def check_unchanged(self) -> None:
        """Compare the file with `state`. Call it before and after reading.

        Raises:
          FileChangedError: if the file changed.
          OSError: if the file cannot be read.
        """
        if self.state is None:
            return
        state = file_state(self.path)
        if state != self.state:
            sizes = f"{self.state.size:,} bytes then, {state.size:,} now"
            raise FileChangedError(
                f"{self.name} was changed or replaced after this command started ({sizes}). Run "
                "the command again when no other program writes the file."
            )

    def note(self, problem: str, reason: str = "") -> None:
        """Record a `problem` with the file. `reason` gives details, which are not recorded here."""
        self.problem = problem

    @property
    def is_cut_off(self) -> bool:
        """Whether the file ended too early, so that its last line is incomplete."""
        return self.problem in ("truncated", "damaged")

    @property
    def damage(self) -> str:
        """Description of a file that ended too early, for messages."""
        if self.kind == "plain":
            return "a file that shrank while it was read"
        return f"a {self.problem} {self.kind} archive"


def _zstd_decompressor() -> Any:
    with needs("data", "Reading .zst files"):
        import zstandard

    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj()


# Functions that return an object with `decompress`, `eof` and `unused_data`.
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "zst": _zstd_decompressor,
    "bz2": bz2.BZ2Decompressor,
    "gz": lambda: zlib.decompressobj(wbits=31),
    "xz": lzma.LZMADecompressor,
}


@contextlib.contextmanager
def zst_written(path: str) -> Iterator[BinaryIO]:
    """Yield a stream that writes compressed bytes to a new `.zst` file."""
    with needs("data", "Writing .zst files"):
        import zstandard
    with (
        open(path, "wb") as file,
        zstandard.ZstdCompressor(_ZSTD_LEVEL).stream_writer(file) as stream,
    ):
        yield stream


def read_pieces(file: InputFile) -> Iterator[bytes]:
    """Yield the decompressed bytes of a text file in UTF-8.

    UTF-16 and UTF-32 are converted if the file starts with a byte order mark. If lines end in a
    carriage return, as in old spreadsheets, the line ends are converted too. The bytes before the
    first line feed, or the first 64 KiB, decide this. Truncation and damage are recorded in `file`.

    Raises:
      ContentError: if the file is not text.
    """
    pieces = _decompressed(file)
    head = b""
    decode: Callable[..., str] | None = None
    first_line = b""  # the bytes read before it is clear how lines end
    ends_in_cr: bool | None = None
    for piece in pieces:
        is_start = not head
        if len(head) < HEAD_BYTES:
            # Pieces from a terminal are small, so the first pieces are joined.
            head += piece[: HEAD_BYTES - len(head)]
            check_is_text(file.name, head)
        if is_start and (encoding := wide_encoding(head)):
            decode = codecs.getincrementaldecoder(encoding)("replace").decode
        data = decode(piece).encode() if decode else piece
        if ends_in_cr is None:
            is_short = len(first_line) < _LONGEST_FIRST_LINE
            data = first_line = first_line + data
            if b"\n" not in data and is_short:
                continue
            start = data.partition(b"\n")[0].removesuffix(b"\r")
            ends_in_cr = b"\n" not in data[:HEAD_BYTES] and start.count(b"\r") > 1
        yield data.replace(b"\r", b"\n") if ends_in_cr else data
    rest = decode(b"", True).encode() if decode else b""
    if ends_in_cr is None:  # no line feed
        rest, ends_in_cr = first_line + rest, True
    if rest:
        yield rest.replace(b"\r", b"\n") if ends_in_cr else rest


def _decompressed(file: InputFile) -> Iterator[bytes]:
    with file.open() as stream:
        size = _size(stream)
        piece = _first_piece(stream)
        if not piece:
            file.note("empty")
            return
        file.kind = compression(piece) or "plain"
        if file.kind == "plain":
            while piece:
                file.compressed_bytes += len(piece)
                yield piece
                piece = _next_piece(stream, _PLAIN_PIECE)
            if file.compressed_bytes < size:
                file.note("truncated")
            return
        make = _DECOMPRESSORS[file.kind]
        decompressor = make()
        is_inside = False  # an archive may be several compressed streams, one after the other
        while piece:
            file.compressed_bytes += len(piece)
            while piece:
                if decompressor.eof:
                    decompressor, is_inside = make(), False
                if not is_inside:
                    piece = piece.lstrip(b"\0")  # a stream may be followed by zero padding
                    if not piece:
                        break
                is_inside = True
                try:
                    data = decompressor.decompress(piece)
                except MemoryError:
                    raise
                except Exception as error:  # each library has different errors
                    file.note("damaged", f"near compressed byte {file.compressed_bytes} ({error})")
                    return
                piece = decompressor.unused_data if decompressor.eof else b""
                if data:
                    yield data
            piece = _next_piece(stream, _ARCHIVE_PIECE)
        if (not decompressor.eof and is_inside) or file.compressed_bytes < size:
            file.note("truncated")


def _first_piece(stream: BinaryIO) -> bytes:
    """Return the start of a stream: enough to tell the format, or a line of text."""
    start = piece = _next_piece(stream, _ARCHIVE_PIECE)
    if stream.isatty():  # a person types no archive, and would have to end the input twice
        return start
    while piece and len(start) < _FORMAT_BYTES and b"\n" not in start:
        piece = _next_piece(stream, _ARCHIVE_PIECE)
        start += piece
    return start


def _next_piece(stream: BinaryIO, size: int) -> bytes:
    """Return at most `size` bytes; `b""` only at the end of the stream."""
    # A non-blocking stream returns None if no bytes are available yet.
    while (piece := stream.read(size)) is None:
        select.select([stream], [], [])
    return piece


def _size(stream: BinaryIO) -> int:
    """Return the remaining bytes of a local file; 0 for a pipe or a remote file."""
    try:
        return os.fstat(stream.fileno()).st_size - stream.tell()
    except (OSError, AttributeError):
        return 0


class _Pieces(io.RawIOBase):
    """The decompressed pieces of a file as a stream."""

    def __init__(self, file: InputFile) -> None:
        self._pieces = read_pieces(file)
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


def open_decompressed(file: InputFile) -> io.BufferedReader:
    """Open a file, compressed or not. Truncation and damage are recorded in `file`.

    Args:
      file: a `.zst`, `.bz2`, `.gz`, `.xz` or plain file, recognised by its first bytes.

    Raises:
      ContentError: while reading, if the file is not text.
    """
    return io.BufferedReader(_Pieces(file), buffer_size=2**16)
