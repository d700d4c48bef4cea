"""The lines of a text file, a text a line."""

import os
import sys
from collections.abc import Collection, Iterator
from typing import BinaryIO

from convert_tf.storage.content import HEAD_BYTES, check_format
from convert_tf.storage.streams import MAX_LINE_BYTES, StreamStats, open_decompressed, open_local

STANDARD_INPUT = "-"


class TextLines:
    """The lines of a UTF-8 file, empty ones included, without the ends of lines.

    Args:
      path: a `.gz`, `.zst`, `.bz2`, `.xz` or plain file; `"-"` for standard input, compressed or
        not.
      formats: of `convert_tf.storage.content`, which the caller reads; other known ones, as JSON
        where texts are read, are refused.

    Attributes:
      name: the path, or what messages call standard input.
      is_typed: whether someone types the lines.
      number: of the line that was read last, from 1 on.
      total_bytes: of the file as it is; 0 when that is not known.
      bytes_done: how many of them were read.

    Raises:
      OSError: it cannot be opened.
      ValueError: while it is read: it is no text, or of another format; a line is no UTF-8 text or
        too long, or an archive is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], *, formats: Collection[str] = ()):
        path = os.fspath(path)
        self.name = "standard input" if path == STANDARD_INPUT else path
        self.is_typed = path == STANDARD_INPUT and sys.stdin.isatty()
        self._stats = StreamStats(path, name=self.name)
        self._formats = formats
        self._plain_bytes = 0
        self.number = 0
        self._is_standard_input = path == STANDARD_INPUT
        self.total_bytes = 0 if self._is_standard_input else os.path.getsize(path)

    @property
    def bytes_done(self) -> int:
        is_plain = self._stats.kind in ("", "plain")
        return self._plain_bytes if is_plain else self._stats.compressed_bytes

    def __iter__(self) -> Iterator[str]:
        for line in self._lines():
            self.number += 1
            if self._stats.is_cut_off and not line.endswith(b"\n"):
                break
            self._plain_bytes += len(line)
            if len(line) > MAX_LINE_BYTES:
                raise self._unusable(f"longer than {MAX_LINE_BYTES:,} bytes")
            try:
                text = line.decode("utf-8-sig" if self.number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise self._unusable(str(error)) from error
            yield text.removesuffix("\n").removesuffix("\r")
        if self._stats.is_cut_off:
            raise ValueError(
                f"Line {self.number:,} of {self.name} is the end of {self._stats.damage}. Copy the "
                "file again."
            )

    def _lines(self) -> Iterator[bytes]:
        def open_file(path: str) -> BinaryIO:
            if not self._is_standard_input:
                return open_local(path)
            # Without its buffer, which waits until it is full, whatever was typed.
            return getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)

        with open_decompressed(self._stats.path, self._stats, open_file) as file:
            if not self.is_typed:
                check_format(self.name, file.peek()[:HEAD_BYTES], read=self._formats)
            while line := file.readline(MAX_LINE_BYTES + 1):
                yield line

    def _unusable(self, reason: str) -> ValueError:
        return ValueError(
            f"Cannot read line {self.number:,} of {self.name} as text: {reason}. Texts must be "
            "lines of a UTF-8 file, which may be compressed. Repair or convert the file."
        )


def filled_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """The lines that are not empty, without white space around them; as `TextLines` else."""
    return (text for line in TextLines(path) if (text := line.strip()))
