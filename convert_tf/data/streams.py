"""Files of a corpus as byte streams, for formats that are more than one object a line."""

import io

from convert_tf.data import dumps


class _Pieces(io.RawIOBase):
    """The decompressed pieces of a file as a stream."""

    def __init__(self, path: str, stats: dumps.DumpStats, open_file: dumps.OpenFile) -> None:
        self._pieces = dumps.read_pieces(path, open_file, stats)
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


def open_decompressed(
    path: str, stats: dumps.DumpStats, open_file: dumps.OpenFile
) -> io.BufferedReader:
    """The content of a file, compressed or not; truncation and damage are noted in `stats`.

    Args:
        path: a `.zst`, `.bz2`, `.gz` or plain file; the type is told by content, then by name.
        stats: what is filled in while reading.
        open_file: gives the binary stream of a path.
    """
    return io.BufferedReader(_Pieces(path, stats, open_file), buffer_size=2**16)


def is_cut_off(stats: dumps.DumpStats) -> bool:
    """Whether the archive that was read ended too early; its last line is then unfinished."""
    return bool(stats.skipped["truncated_archive"] or stats.skipped["damaged_archive"])
