"""A dump as many files, so that many tasks can read it."""

import itertools
import os
import sys
from collections.abc import Iterator

from convert_tf.corpora import dumps
from convert_tf.corpora.conversations import corpus_name
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.progress import Progress
from convert_tf.storage.streams import open_local, read_pieces, zst_written


def split_dump(path: str, output: str, *, part_bytes: int, overwrite: bool = False) -> list[str]:
    """Write the lines of a dump to several compressed files, in their order.

    The parts are complete or do not exist. Memory holds one line and the window of the archive,
    which is 2 GiB for monthly Reddit dumps. Parts have windows of a few MiB.

    Args:
      path: a dump, compressed or not.
      output: folder of the parts. It may hold other files, such as parts of other dumps.
      part_bytes: size of a part before compression; the last line of a part may exceed it.
      overwrite: whether to replace earlier parts of this dump.

    Returns:
      The names of the parts.

    Raises:
      ValueError: `part_bytes` is not positive, the dump has no line, or parts of it exist.
      OSError: a file cannot be read or written.
    """
    if part_bytes < 1:
        raise ValueError(f"Parts must have at least 1 byte. Received: {part_bytes}.")
    name = corpus_name(path)

    def parts(folder: str) -> list[str]:
        return sorted(
            entry.path
            for entry in os.scandir(folder)
            if entry.name.startswith(f"{name}-part-") and entry.name.endswith(".zst")
        )

    stats = dumps.DumpStats(path)
    target = OutputFolder(output, data_files=parts, overwrite=overwrite)
    with (
        target.open() as folder,
        Progress("lines", total_bytes=os.path.getsize(path)) as progress,
    ):
        lines = _whole_lines(stats, progress)
        for number in itertools.count():
            first = next(lines, None)
            if first is None:
                break
            num_bytes = 0
            with zst_written(str(folder / f"{name}-part-{number:05d}.zst")) as part:
                for line in itertools.chain([first], lines):
                    part.write(line)
                    num_bytes += len(line)
                    if num_bytes >= part_bytes:
                        break
        names = [os.path.basename(part) for part in parts(str(folder))]
        for warning in stats.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        if not names:
            raise ValueError(f"{path} has no lines.")
    return names


def _whole_lines(stats: dumps.DumpStats, progress: Progress) -> Iterator[bytes]:
    """The lines of a dump with their ends, without an unfinished one of a damaged archive."""
    rest: list[bytes] = []
    for piece in read_pieces(stats.path, open_local, stats):
        *whole, after = piece.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line, b"\n"))
            rest = []
            stats.lines += 1
            progress.add(bytes_done=stats.compressed_bytes)
        rest.append(after)
    last = b"".join(rest)
    if last and not stats.is_cut_off:
        yield last + b"\n"
