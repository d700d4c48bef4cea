"""The tasks of `prepare` on the workers of a Spark cluster, without TensorFlow and PySpark.

Between the steps, rows are lines of text. Sorted, they have one order, whatever the number of tasks
and however often Spark repeats one. A step also yields notes: objects for the driver, such as
counts. Spark keeps the output of one attempt of each task, so each note arrives once.
"""

import itertools
import os
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from convert_tf.corpora.dumps import BadLines, CountedFile
from convert_tf.corpora.options import PrepareOptions
from convert_tf.corpora.rows import (
    EXAMPLES,
    PAIRS,
    TEXTS,
    TURNS,
    Output,
    Row,
    RowMaker,
    split_and_shard,
)
from convert_tf.data.schema import SPLITS
from convert_tf.data.shards import in_record_file, serialize_example

NUM_TEXT_FILES = 16  # one for each first digit of a text's hash
LIBRARIES = ("google_crc32c", "zstandard")  # which a worker needs

# A line of a row and None, or NOTE and an object. Spark partitions and sorts by the first of them.
Item = tuple[str, Any]
NOTE = ""


@dataclass
class FileRead:
    """A note: what was read from a file.

    `error` is why the run must end. Another attempt would read the same.
    """

    what: str
    file: CountedFile
    error: ValueError | None = None


@dataclass
class FileWritten:
    """A file that one attempt of a task wrote: records of a shard, or lines with single texts.

    `split` is `""` for single texts. `number` is the shard or the first digit of the hashes.
    """

    path: str
    split: str
    number: int
    output: Output


@dataclass(frozen=True)
class Tasks:
    """The steps, each from the items of a partition to new items.

    Args:
        options: rules, sizes and limits.
        folder: where files are written, on a disk that all workers share.
        working_folder: folder of input files with relative names.
    """

    options: PrepareOptions
    folder: str
    working_folder: str

    def read(self, files: Iterable[tuple[str, str]]) -> Iterator[Item]:
        """Read files, each with its kind, to rows."""
        for what, path in files:
            maker, bad_lines = RowMaker(self.options), BadLines(self.options.max_bad_lines)
            place = os.path.join(self.working_folder, path)
            file = CountedFile(place, name=path, bad_lines=bad_lines)
            note = FileRead(what, file)
            try:
                yield from map(_item, maker.rows_of_file(what, file))
            except ValueError as error:
                note.error = error
            yield NOTE, note
            yield NOTE, maker

    def replace(self, kind: str, items: Iterable[Item]) -> Iterator[Item]:
        """Turn sorted rows of turns into examples and texts, or drop duplicates from pairs.

        Args:
            kind: `TURNS` or `PAIRS`. Other rows are passed on.
            items: the sorted items of a partition.
        """
        maker = RowMaker(self.options)
        new_rows = maker.rows_of_threads if kind == TURNS else maker.unique_pairs
        for own, lines in itertools.groupby(_lines(items), key=_kind):
            if own == kind:
                yield from map(_item, new_rows(map(_key_and_payload, lines)))
            else:
                yield from ((line, None) for line in lines)
        yield NOTE, maker

    def write(self, items: Iterable[Item]) -> Iterator[FileWritten]:
        """Write sorted rows to files, under names of this attempt."""
        for (kind, split, number), lines in itertools.groupby(_lines(items), key=_target):
            path = os.path.join(self.folder, uuid.uuid4().hex)
            output = Output(num_train_shards=self.options.num_shards["train"])
            rows = map(_key_and_payload, lines)
            with open(path, "wb") as file:
                if kind == EXAMPLES:
                    for _, _, example in output.examples_of(rows):
                        file.write(in_record_file(serialize_example(example)))
                else:
                    file.writelines(output.lines_of(rows))
                file.flush()
                os.fsync(file.fileno())
            yield FileWritten(path, split, number, output)

    def num_files(self) -> int:
        """Return how many files `write` may write."""
        return sum(self.options.num_shards.values()) + NUM_TEXT_FILES

    def file_of(self, line: str) -> int:
        """Return the number of the file that a row belongs to."""
        kind, split, number = _target(line)
        if kind == TEXTS:
            return sum(self.options.num_shards.values()) + number
        before = itertools.takewhile(lambda one: one != split, SPLITS)
        return sum(self.options.num_shards[one] for one in before) + number


def thread_or_pair_of(line: str) -> int:
    """Return a number that the turns of a thread, and equal pairs, have in common."""
    if _kind(line) == PAIRS:
        return int(_key_and_payload(line)[0][:8], 16)
    return zlib.crc32(line.split("\t", 1)[0].encode())


@dataclass(frozen=True)
class Partitioner:
    """The partition of a key. Notes go to the last one.

    Args:
        number_of: returns the same number for lines that must be in the same partition.
        num_partitions: number of partitions for lines.
    """

    number_of: Callable[[str], int]
    num_partitions: int

    def __call__(self, line: str) -> int:
        return self.number_of(line) % self.num_partitions if line else self.num_partitions


def notes(items: Iterable[Item]) -> list[Any]:
    """Return the notes in the last partition."""
    return [note for _, note in items]


def _lines(items: Iterable[Item]) -> Iterator[str]:
    return (line for line, _ in items if line != NOTE)


def _item(row: Row) -> Item:
    return f"{row.kind} {row.key}\t{row.payload}", None


def _kind(line: str) -> str:
    return line.split(" ", 1)[0]


def _key_and_payload(line: str) -> tuple[str, str]:
    """Return key and payload of the row in a line."""
    key, payload = line.split("\t", 1)
    return key.split(" ", 1)[1], payload


def _target(line: str) -> tuple[str, str, int]:
    """Return a row's kind, its split (`""` for texts), and its shard or the text's first digit."""
    kind, key = line.split("\t", 1)[0].split(" ", 1)
    if kind == TEXTS:
        return kind, "", int(key[0], NUM_TEXT_FILES)
    return kind, *split_and_shard(key)
