"""A dump as many files, so that many tasks can read it."""

import itertools
import os
import sys

from convert_tf.corpora.conversations import corpus_name
from convert_tf.corpora.dumps import CountedFile, lines_in
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.progress import Progress
from convert_tf.storage.streams import read_pieces, zst_written


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

    file = CountedFile(path, max_line_bytes=sys.maxsize)
    target = OutputFolder(output, data_files=parts, overwrite=overwrite)
    with (
        target.open() as folder,
        Progress("lines", total_bytes=os.path.getsize(path)) as progress,
    ):
        lines = (line + b"\n" for line in lines_in(read_pieces(file), file))
        for number in itertools.count():
            first = next(lines, None)
            if first is None:
                break
            num_bytes = 0
            with zst_written(str(folder / f"{name}-part-{number:05d}.zst")) as part:
                for line in itertools.chain([first], lines):
                    part.write(line)
                    progress.add(bytes_done=file.compressed_bytes)
                    num_bytes += len(line)
                    if num_bytes >= part_bytes:
                        break
        names = [os.path.basename(part) for part in parts(str(folder))]
        file.print_warnings()
        if not names:
            raise ValueError(f"{path} has no lines.")
    return names
