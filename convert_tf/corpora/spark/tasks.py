"""What the workers of a Spark cluster run for `prepare`, without TensorFlow and PySpark.

Between the steps, rows are lines of text. Sorted, they have one order, whatever the number of tasks
and however often Spark repeats one. A step also yields notes: objects for the driver, such as
counts. Spark keeps the output of one attempt of each task, so each note arrives once.
"""

import itertools
import json
import os
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from convert_tf.corpora import dumps
from convert_tf.corpora.comments import Comment
from convert_tf.corpora.options import PrepareOptions
from convert_tf.corpora.registry import CORPORA
from convert_tf.corpora.rows import (
    EXAMPLES,
    PAIRS,
    TEXTS,
    Row,
    RowMaker,
    WrittenExamples,
    split_and_shard,
    unique_texts,
)
from convert_tf.data.schema import SPLITS, Example
from convert_tf.data.serialized import in_record_file, serialize_example
from convert_tf.storage.json_text import parsed_json

NUM_TEXT_FILES = 16  # one for each first digit of a text's hash
LIBRARIES = ("google_crc32c", "zstandard")  # which a worker needs

# A line and None, or NOTE and an object. Spark partitions and sorts by the former.
Item = tuple[str, Any]
NOTE = ""


@dataclass
class FileRead:
    """A note: what was read from a file.

    `error` is why the run must end: another attempt would read the same.
    """

    what: str
    file: dumps.CountedFile
    error: str = ""


@dataclass
class FileWritten:
    """A file that one attempt of a task wrote: records of a shard, or lines with single texts.

    `split` is `""` for single texts; `number` is the shard or the first digit of the hashes.
    """

    path: str
    split: str
    number: int
    examples: WrittenExamples
    single_texts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Tasks:
    """The steps, each from the items of a partition to new items.

    Args:
        options: rules, sizes and limits.
        folder: where files are written, on a disk that all workers share.
        working_folder: what the names of input files are relative to.
    """

    options: PrepareOptions
    folder: str
    working_folder: str

    def read(self, files: Iterable[tuple[str, str]]) -> Iterator[Item]:
        """Files, each with its kind, to lines of turns by thread, or of rows."""
        for what, path in files:
            maker = RowMaker(self.options)
            file = dumps.CountedFile(
                os.path.join(self.working_folder, path),
                name=path,
                max_line_bytes=self.options.max_line_bytes,
                bad_lines=dumps.BadLines(self.options.max_bad_lines),
            )
            note = FileRead(what, file)
            try:
                if what in CORPORA:
                    for conversation in maker.conversations(what, file):
                        yield from map(_item, maker.rows_of_conversation(what, conversation))
                else:
                    for turn in maker.turns_of_dump(what, file):
                        yield f"{turn.thread_id}\t{json.dumps(turn)}", None
            except ValueError as error:
                note.error = str(error)
            yield NOTE, note
            yield NOTE, maker

    def make_rows(self, items: Iterable[Item]) -> Iterator[Item]:
        """Sorted lines of turns to lines of rows."""
        maker = RowMaker(self.options)
        turns = (line.split("\t", 1) for line in _lines(items))
        for _, thread in itertools.groupby(turns, key=lambda turn: turn[0]):
            comments = [Comment(*parsed_json(payload)) for _, payload in thread]
            yield from map(_item, maker.rows_of_thread(comments))
        yield NOTE, maker

    def deduplicate(self, items: Iterable[Item]) -> Iterator[Item]:
        """Drop duplicate pairs from sorted lines of rows."""
        maker = RowMaker(self.options)
        kinds = itertools.groupby(_lines(items), key=lambda line: line.split(" ", 1)[0])
        for kind, lines in kinds:
            if kind == PAIRS:
                yield from map(_item, maker.unique_pairs(map(_key_and_payload, lines)))
            else:
                yield from ((line, None) for line in lines)
        yield NOTE, maker

    def write(self, items: Iterable[Item]) -> Iterator[FileWritten]:
        """Sorted lines of rows to files, under names of this attempt."""
        for (kind, split, number), lines in itertools.groupby(_lines(items), key=_target):
            examples = WrittenExamples(num_train_shards=self.options.num_shards["train"])
            path = os.path.join(self.folder, uuid.uuid4().hex)
            written = FileWritten(path, split, number, examples)
            rows = map(_key_and_payload, lines)
            with open(path, "wb") as file:
                if kind == EXAMPLES:
                    for _, payload in rows:
                        example = Example(*parsed_json(payload))
                        examples.add(split, number, example)
                        file.write(in_record_file(serialize_example(example)))
                else:
                    for source, payload in unique_texts(rows):
                        file.write(payload.encode() + b"\n")
                        written.single_texts[source] += 1
                file.flush()
                os.fsync(file.fileno())
            yield written

    def num_files(self) -> int:
        """How many files `write` may write."""
        return sum(self.options.num_shards.values()) + NUM_TEXT_FILES

    def file_of(self, line: str) -> int:
        """Which of them the row in a line belongs to."""
        kind, split, number = _target(line)
        if kind == TEXTS:
            return sum(self.options.num_shards.values()) + number
        before = itertools.takewhile(lambda one: one != split, SPLITS)
        return sum(self.options.num_shards[one] for one in before) + number


def thread_of(line: str) -> int:
    """A number that the turns of a thread share."""
    return zlib.crc32(line.split("\t", 1)[0].encode())


def pair_of(line: str) -> int:
    """A number that equal pairs share; rows of other kinds have any."""
    kind, key, _ = line.split(" ", 2)
    return int(key[:8], 16) if kind == PAIRS else zlib.crc32(line.encode())


@dataclass(frozen=True)
class Partitioner:
    """The partition of a key: the last one gets the notes.

    Args:
        number_of: gives lines that must meet the same number.
        num_partitions: how many partitions there are for lines.
    """

    number_of: Callable[[str], int]
    num_partitions: int

    def __call__(self, line: str) -> int:
        return self.number_of(line) % self.num_partitions if line else self.num_partitions


def notes(items: Iterable[Item]) -> list[Any]:
    """The notes in the last partition."""
    return [note for _, note in items]


def _lines(items: Iterable[Item]) -> Iterator[str]:
    return (line for line, _ in items if line != NOTE)


def _item(row: Row) -> Item:
    return f"{row.kind} {row.key}\t{row.payload}", None


def _key_and_payload(line: str) -> tuple[str, str]:
    """Of a line of a row."""
    key, payload = line.split("\t", 1)
    return key.split(" ", 1)[1], payload


def _target(line: str) -> tuple[str, str, int]:
    """Kind of a line's row, its split (`""` for texts), and its shard or the text's first digit."""
    kind, key = line.split("\t", 1)[0].split(" ", 1)
    if kind == TEXTS:
        return kind, "", int(key[0], NUM_TEXT_FILES)
    return kind, *split_and_shard(key)
