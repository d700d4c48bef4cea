"""Positions of the records of TFRecord files, from their headers only.

A record is 8 bytes of length (little-endian), 4 bytes of its checksum, the data, and 4 bytes of the
data's checksum.
"""

import mmap
import os
import struct
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MARK_EVERY = 32  # records between two remembered offsets
_BYTES_AROUND_DATA = 16
_read_length = struct.Struct("<Q").unpack_from


class Extents(NamedTuple):
    """Runs of records, each within one file.

    Attributes:
      files: int64 `[runs]`, which file.
      offsets: int64 `[runs]`, bytes from the start of the file to some record.
      skips: int64 `[runs]`, records between that and the run.
      counts: int64 `[runs]`, records of the run.
    """

    files: np.ndarray
    offsets: np.ndarray
    skips: np.ndarray
    counts: np.ndarray


class RecordIndex:
    """The numbers of the records of some files, one file after the other, and their places.

    It remembers the place of one record in 32, a quarter of a byte for each record, and reads no
    data; the checksums are for who reads the records to check.

    Args:
      paths: uncompressed TFRecord files.

    Attributes:
      num_records: how many there are.

    Raises:
      ValueError: a file ends within a record.
    """

    def __init__(self, paths: Sequence[str]):
        scanned = [_scan(path) for path in paths]
        self._marks = [marks for marks, _ in scanned]
        self._firsts = np.cumsum([0] + [number for _, number in scanned], dtype=np.int64)
        self.num_records = int(self._firsts[-1])

    def locate(self, starts: np.ndarray, stops: np.ndarray) -> Extents:
        """The runs that hold the records from `starts[i]` to before `stops[i]`, for each i.

        Args:
          starts, stops: int `[ranges]`.

        Returns:
          At least one run for each range that is not empty, in the order of the ranges.
        """
        runs: list[tuple[int, int, int, int]] = []
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            while start < stop:
                file = int(np.searchsorted(self._firsts, start, side="right")) - 1
                end = min(stop, int(self._firsts[file + 1]))
                mark, skip = divmod(start - int(self._firsts[file]), MARK_EVERY)
                runs.append((file, self._marks[file][mark], skip, end - start))
                start = end
        return Extents(*np.array(runs, np.int64).reshape(-1, 4).T)


def _scan(path: str) -> tuple["array[int]", int]:
    """The offset of every 32nd record of a file, and the number of its records."""
    marks = array("q")
    size = os.path.getsize(path)
    if not size:  # which cannot be mapped
        return marks, 0
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        offset = since_mark = 0
        try:
            while True:
                marks.append(offset)
                for since_mark in range(MARK_EVERY):  # noqa: B007 (read behind the loop)
                    offset += _read_length(content, offset)[0] + _BYTES_AROUND_DATA
        except (struct.error, OverflowError):  # not so many bytes
            pass
    if offset != size:
        raise ValueError(
            f"{path!r} is incomplete: its {size} bytes end within a record. Run "
            "convert-tf prepare again."
        )
    return marks, (len(marks) - 1) * MARK_EVERY + since_mark
