"""Read the lines of a text file with one text per line."""

import os
import sys
from collections.abc import Collection, Iterator
from typing import BinaryIO

from convert_tf.storage.content import HEAD_BYTES, check_format
from convert_tf.storage.streams import MAX_LINE_BYTES, InputFile, open_decompressed

STANDARD_INPUT = "-"


class _StandardInput(InputFile):
    def open(self) -> BinaryIO:
        # Without its buffer, which waits until it is full, whatever was typed.
        return getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)


class TextLines:
    """The lines of a UTF-8 file, without line ends. Empty lines are included.

    Args:
      path: a `.gz`, `.zst`, `.bz2`, `.xz` or plain file; `"-"` for standard input, compressed or
        not.
      formats: formats of `convert_tf.storage.content` that the caller reads. Other known formats,
        such as JSON, are refused.

    Attributes:
      name: the path, or the name of standard input for messages.
      is_typed: whether the lines are typed at a terminal.
      number: number of the line that was read last, from 1.
      total_bytes: size of the file; 0 if unknown.
      bytes_done: number of bytes that were read.

    Raises:
      OSError: if the file cannot be opened.
      ValueError: while reading, if the file is not text or has another format, a line is not UTF-8
        or too long, or an archive is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], *, formats: Collection[str] = ()):
        path = os.fspath(path)
        is_standard_input = path == STANDARD_INPUT
        self._file = (
            _StandardInput(path, "standard input") if is_standard_input else InputFile(path)
        )
        self.name = self._file.name
        self.is_typed = is_standard_input and sys.stdin.isatty()
        self._formats = formats
        self._plain_bytes = 0
        self.number = 0
        self.total_bytes = 0 if is_standard_input else os.path.getsize(path)

    @property
    def bytes_done(self) -> int:
        is_plain = self._file.kind in ("", "plain")
        return self._plain_bytes if is_plain else self._file.compressed_bytes

    def __iter__(self) -> Iterator[str]:
        for line in self._lines():
            self.number += 1
            if self._file.is_cut_off and not line.endswith(b"\n"):
                break
            self._plain_bytes += len(line)
            if len(line) > MAX_LINE_BYTES:
                raise self._unusable(f"longer than {MAX_LINE_BYTES:,} bytes")
            try:
                text = line.decode("utf-8-sig" if self.number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise self._unusable(str(error)) from error
            yield text.removesuffix("\n").removesuffix("\r")
        if self._file.is_cut_off:
            raise ValueError(
                f"Line {self.number:,} of {self.name} is the end of {self._file.damage}. Copy the "
                "file again."
            )

    def _lines(self) -> Iterator[bytes]:
        with open_decompressed(self._file) as stream:
            if not self.is_typed:
                check_format(self.name, stream.peek()[:HEAD_BYTES], read=self._formats)
            while line := stream.readline(MAX_LINE_BYTES + 1):
                yield line

    def _unusable(self, reason: str) -> ValueError:
        return ValueError(
            f"Cannot read line {self.number:,} of {self.name} as text: {reason}. Texts must be "
            "lines of a UTF-8 file, which may be compressed. Repair or convert the file."
        )


def filled_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the non-empty lines, stripped of white space. Otherwise as `TextLines`."""
    return (text for line in TextLines(path) if (text := line.strip()))
