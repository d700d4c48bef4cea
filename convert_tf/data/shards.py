"""Name, serialise and index files of records without TensorFlow.

A record is a `tf.train.Example` with bytes features (see `convert_tf.data.records`). For each
record, a TFRecord file contains the length in 8 bytes (little-endian), a checksum of the length in
4 bytes, the data, and a checksum of the data in 4 bytes.
"""

import glob
import mmap
import os
import re
import struct
from array import array
from collections.abc import Mapping, Sequence

import numpy as np

from convert_tf.data.schema import EXTRA_FEATURES, SPLITS, Example
from convert_tf.extras import needs
from convert_tf.storage.folders import put_aside

_SHARD_NAME = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord")
MARK_EVERY = 32  # the index stores the offset of every 32nd record
_BYTES_AROUND_DATA = 16
_read_length = struct.Struct("<Q").unpack_from


def shard_name(split: str, index: int, num_shards: int) -> str:
    """Return the file name of one shard."""
    return f"{split}-{index:05d}-of-{num_shards:05d}.tfrecord"


def record_files(folder: str) -> list[str]:
    """Return the paths of all record files of all splits in a folder, sorted."""
    paths = glob.glob(os.path.join(glob.escape(folder), "*-of-*.tfrecord"))
    return sorted(path for path in paths if _SHARD_NAME.fullmatch(os.path.basename(path)))


def add_empty_shards(folder: str, num_shards: Mapping[str, int]) -> None:
    """Create the missing shards of each split that has at least one.

    Args:
      folder: a folder of records.
      num_shards: number of shards for each split.
    """
    splits = {os.path.basename(path).split("-")[0] for path in record_files(folder)}
    for split in splits & num_shards.keys():
        for index in range(num_shards[split]):
            with open(os.path.join(folder, shard_name(split, index, num_shards[split])), "ab"):
                pass


def list_shards(folder: str, split: str) -> list[str]:
    """Return the paths of the shards of a split, in order.

    Raises:
      ValueError: if the split has no shards, a shard is missing, or the folder mixes shards of two
        runs.
    """
    paths = [p for p in record_files(folder) if os.path.basename(p).startswith(f"{split}-")]
    if not paths:
        raise ValueError(
            f"{folder!r} has no records of the split {split} ({split}-?????-of-?????.tfrecord). "
            + (
                put_aside(folder)
                or f"Splits are {', '.join(SPLITS)}. Write records with `convert-tf prepare`."
            )
        )
    num_shards = int(paths[-1].rsplit("-", 1)[1].removesuffix(".tfrecord"))
    expected = {shard_name(split, index, num_shards) for index in range(num_shards)}
    if wrong := sorted(expected.symmetric_difference(map(os.path.basename, paths))):
        raise ValueError(
            f"Shards in {folder!r} are missing or left over from another run: "
            f"{', '.join(wrong[:3])}. "
            f"{put_aside(folder) or 'Write the folder again with `convert-tf prepare`.'}"
        )
    return paths


_TEXTS = (
    *("context", "response", "subreddit", "thread_id"),
    *("context_author", "response_author", "source"),
)
# protobuf sorts names by their bytes, but sorts a name after longer names that start with it.
_SORTED = sorted((*_TEXTS, *EXTRA_FEATURES), key=lambda name: f"{name}\x7f")


def varint(number: int) -> bytes:
    """Return a number in protobuf's variable-length format: 7 bits per byte, lowest bits first."""
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])


_SHORT = [varint(number) for number in range(1 << 11)]
# Each field has a tag (the number 1 or 2, with protobuf's type for strings and messages), a length
# and bytes. An entry in the map of features begins with the feature's name.
_NAMES = [(name, b"\x0a" + varint(len(name)) + name.encode("ascii")) for name in _SORTED]


def serialize_example(example: Example) -> bytes:
    """Return an example's record, byte for byte as TensorFlow serialises it deterministically."""
    extras = dict(zip(EXTRA_FEATURES, example.extra_contexts, strict=False))
    entries = []
    for name, field in _NAMES:
        text = extras.get(name) if name in EXTRA_FEATURES else getattr(example, name)
        if text is None:
            continue
        value = text.encode("utf-8")
        value = b"\x0a" + _length(value) + value  # the value of a list of bytes
        value = b"\x0a" + _length(value) + value  # the list of a feature
        entry = field + b"\x12" + _length(value) + value  # the feature of an entry
        entries.append(b"\x0a" + _length(entry) + entry)  # an entry of the map
    content = b"".join(entries)
    return b"\x0a" + _length(content) + content  # the map of an example


def _length(value: bytes) -> bytes:
    number = len(value)
    return _SHORT[number] if number < len(_SHORT) else varint(number)


def in_record_file(record: bytes) -> bytes:
    """Return a record with its length and checksums, as it is stored in a TFRecord file."""
    length = struct.pack("<Q", len(record))
    return length + _masked_checksum(length) + record + _masked_checksum(record)


def _masked_checksum(content: bytes) -> bytes:
    with needs("spark", "Writing records without TensorFlow"):
        import google_crc32c
    checksum = google_crc32c.value(content)
    rotated = (checksum >> 15 | checksum << 17) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)


class RecordIndex:
    """Locates records by number. Numbers run consecutively across several files.

    The index stores the position of every 32nd record, which takes a quarter of a byte per record.
    It reads only the lengths of the records, so it does not verify checksums.

    Args:
      paths: uncompressed TFRecord files.

    Attributes:
      num_records: number of records in all files.

    Raises:
      ValueError: if a file ends within a record.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        scanned = [_scan(path) for path in paths]
        self._marks = [marks for marks, _ in scanned]
        self._firsts = np.cumsum([0] + [number for _, number in scanned], dtype=np.int64)
        self.num_records = int(self._firsts[-1])

    def locate(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """Split ranges of records into runs within one file each, and locate these runs.

        Args:
          starts, stops: int `[ranges]`, the first record of each range, and the record after its
            last one.

        Returns:
          int64 `[4, runs]`: for each run, the index of its file, the byte offset of a record at or
          before its start, the number of records to skip from that offset, and the number of
          records in the run. Runs are in the order of the ranges; each non-empty range has at least
          one.
        """
        runs: list[tuple[int, int, int, int]] = []
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            while start < stop:
                file = int(np.searchsorted(self._firsts, start, side="right")) - 1
                end = min(stop, int(self._firsts[file + 1]))
                mark, skip = divmod(start - int(self._firsts[file]), MARK_EVERY)
                runs.append((file, self._marks[file][mark], skip, end - start))
                start = end
        return np.array(runs, np.int64).reshape(-1, 4).T


def _scan(path: str) -> tuple["array[int]", int]:
    """Return the byte offsets of every 32nd record in a file, and the number of records."""
    marks = array("q")
    size = os.path.getsize(path)
    if not size:  # an empty file cannot be mapped
        return marks, 0
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        offset = since_mark = 0
        try:
            while True:
                marks.append(offset)
                for since_mark in range(MARK_EVERY):  # noqa: B007 (read after the loop)
                    offset += _read_length(content, offset)[0] + _BYTES_AROUND_DATA
        except (struct.error, OverflowError):  # the file is too short
            pass
    if offset != size:
        raise ValueError(
            f"{path!r} is incomplete: its {size} bytes end within a record. Run "
            "convert-tf prepare again."
        )
    return marks, (len(marks) - 1) * MARK_EVERY + since_mark
