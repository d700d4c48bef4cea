"""The tasks of `prepare` on the workers of a Spark cluster, without TensorFlow and PySpark.

The order of the sorted rows does not depend on the number of tasks, or on how often Spark repeats a
task. A step also yields notes: objects for the driver, such as counts. Spark keeps the output from
one attempt of each task, so each note arrives once. If Spark loses an output, it repeats the task,
which reads its input file again. If the file has changed in the meantime, the task fails, because
rows with the earlier content are already in use.
"""

import functools
import itertools
import os
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from convert_tf.corpora.dumps import BadLines, CountedFile
from convert_tf.corpora.options import PrepareOptions
from convert_tf.corpora.rows import TEXTS, TURNS, Row, Steps, split_and_shard
from convert_tf.data.shards import in_record_file, serialize_example
from convert_tf.storage.files import DISK_IS_FULL, FileWriteError, writing
from convert_tf.storage.lines import FileState

NUM_TEXT_FILES = 16  # one file for each possible first hexadecimal digit of a text's hash
LIBRARIES = ("google_crc32c", "zstandard")  # required on workers

# A pair: a row and None, or NOTE and an object. Spark partitions and sorts by the first element.
Item = tuple[tuple[str, ...], Any]
NOTE = ()


@dataclass
class FileRead:
    """A note about a file that was read.

    `error` is set if the file cannot be used. Such an error ends the run, because another attempt
    would read the same content.
    """

    what: str
    file: CountedFile
    error: ValueError | None = None


@dataclass
class FileWritten:
    """A file written by one attempt of a task: the records of a shard, or lines of single texts.

    `split` is `""` for single texts. `number` is the number of the shard, or the first digit of the
    texts' hashes. `error` is set if the disk that all workers share is full. Such an error ends the
    run, because other attempts would also fail, after a long time.
    """

    path: str
    split: str
    number: int
    steps: Steps
    error: FileWriteError | None = None


@dataclass(frozen=True)
class Tasks:
    """The steps on the workers. Each step turns the items in a partition into new items.

    Args:
      options: rules, sizes and limits of the run.
      folder: folder for the written files, on a disk that all workers share.
      working_folder: folder that relative names of input files refer to.
      states: the state of each input file when the run started, by name.
    """

    options: PrepareOptions
    folder: str
    working_folder: str
    states: Mapping[str, FileState]

    def read(self, files: Iterable[tuple[str, str]]) -> Iterator[Item]:
        """Read the rows in files, which are given as (kind, path)."""
        for what, path in files:
            steps, bad_lines = Steps(self.options), BadLines(self.options.max_bad_lines)
            place = os.path.join(self.working_folder, path)
            file = CountedFile(place, name=path, state=self.states[path], bad_lines=bad_lines)
            note = FileRead(what, file)
            try:
                yield from _items(steps.rows_of_file(what, file))
            except ValueError as error:
                file.check_unchanged()
                note.error = error
            yield NOTE, note
            yield NOTE, steps

    def replace(self, kind: str, items: Iterable[Item]) -> Iterator[Item]:
        """Turn sorted turns into examples and single texts, or drop duplicates from sorted pairs.

        Args:
          kind: the kind of rows to replace, `TURNS` or `PAIRS`. Other rows are passed on.
          items: the sorted items in a partition.
        """
        steps = Steps(self.options)
        new_rows = steps.rows_of_threads if kind == TURNS else steps.unique_pairs
        for row_kind, rows in itertools.groupby(_rows(items), key=lambda row: row.kind):
            if row_kind == kind:
                rows = new_rows(row[1:] for row in rows)
            yield from _items(rows)
        yield NOTE, steps

    def write(self, items: Iterable[Item]) -> Iterator[FileWritten]:
        """Write sorted rows to files with names that are unique to this attempt."""
        for (split, number), rows in itertools.groupby(_rows(items), key=_target):
            path = os.path.join(self.folder, uuid.uuid4().hex)
            steps = Steps(self.options)
            pairs = (row[1:] for row in rows)
            pieces: Iterable[bytes]
            if split:
                examples = (example for _, _, example in steps.examples_of(pairs))
                pieces = (in_record_file(serialize_example(example)) for example in examples)
            else:
                pieces = steps.lines_of(pairs)
            try:
                self._write(path, pieces)
            except FileWriteError as error:
                if error.errno not in DISK_IS_FULL:
                    raise
                yield FileWritten(path, split, number, steps, error)
                return
            yield FileWritten(path, split, number, steps)

    def _write(self, path: str, pieces: Iterable[bytes]) -> None:
        """Write a file. Disk errors name the folder. Errors from `pieces` are raised unchanged."""
        with writing(self.folder):
            file = open(path, "wb")  # noqa: SIM115 (closed below)
        try:
            for piece in pieces:
                with writing(self.folder):
                    file.write(piece)
            with writing(self.folder):
                file.flush()
                os.fsync(file.fileno())
        finally:
            with writing(self.folder):  # closing writes the rest of the buffer
                file.close()

    @functools.cached_property
    def files(self) -> dict[tuple[str, int], int]:
        """Indices of the files that `write` may write, by `split` and `number` of `FileWritten`."""
        sizes = {**self.options.num_shards, "": NUM_TEXT_FILES}
        files = [(split, number) for split in sizes for number in range(sizes[split])]
        return {file: number for number, file in enumerate(files)}

    def file_of(self, row: Row) -> int:
        """Return the index of the file that a row belongs to."""
        return self.files[_target(row)]


def thread_or_pair_of(row: Row) -> int:
    """Return a number that is the same for all turns in a thread, or for all equal pairs."""
    return zlib.crc32(row.key.split(" ", 1)[0].encode())


def partition(number_of: Callable[[Row], int], num_partitions: int, key: tuple[str, ...]) -> int:
    """Return the partition for a key. Notes go to one further partition after the others.

    Args:
      number_of: function that returns the same number for rows of the same partition.
      num_partitions: number of partitions for rows.
      key: a row or NOTE.
    """
    return num_partitions if key == NOTE else number_of(Row(*key)) % num_partitions


def notes(items: Iterable[Item]) -> list[Any]:
    """Return the notes in the last partition."""
    return [note for _, note in items]


def _items(rows: Iterable[Row]) -> Iterator[Item]:
    # Plain tuples are faster to send to another process than named tuples.
    return ((tuple(row), None) for row in rows)


def _rows(items: Iterable[Item]) -> Iterator[Row]:
    return (Row(*key) for key, _ in items if key != NOTE)


def _target(row: Row) -> tuple[str, int]:
    """Return a row's split and shard; for single texts, `""` and the first digit of the hash."""
    if row.kind == TEXTS:
        return "", int(row.key[0], NUM_TEXT_FILES)
    return split_and_shard(row.key)
