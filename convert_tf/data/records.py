"""Examples on disk: sharded TFRecords in the schema of PolyAI's conversational-datasets.

A data folder holds `train-00000-of-00016.tfrecord`, `dev-…`, `test-…`. A record is a
`tf.train.Example` of bytes features: `context`, `response`, `context/0` … `context/9` (0 is the
turn just before `context`; absent when there is none), `subreddit`, `thread_id`,
`context_author`, `response_author`; and `source`, the corpus, which PolyAI's records lack. Features
other than these are not read.
"""

import errno
import os
from collections.abc import Iterable, Mapping

import tensorflow as tf

from convert_tf.data.schema import EXTRA_FEATURES, Example
from convert_tf.data.serialized import serialize_example
from convert_tf.data.shards import shard_name

_TEXT_FEATURES = (
    "context",
    "response",
    "subreddit",
    "thread_id",
    "context_author",
    "response_author",
    "source",
)


def parse_examples(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
    """Parses a batch of records, string [B]; works inside `tf.function`.

    Returns:
        `context`, `response`, `subreddit`, `thread_id`, `context_author`, `response_author`,
        `source`: string [B], `""` where a record lacks one; `extra_contexts`: string [B, 10], `""`
        where there is none.
    """
    spec = {name: tf.io.FixedLenFeature([], tf.string) for name in ("context", "response")}
    for name in _TEXT_FEATURES + EXTRA_FEATURES:
        spec.setdefault(name, tf.io.FixedLenFeature([], tf.string, default_value=""))
    parsed = tf.io.parse_example(serialized, spec)
    batch = {name: parsed[name] for name in _TEXT_FEATURES}
    batch["extra_contexts"] = tf.stack([parsed[name] for name in EXTRA_FEATURES], axis=1)
    return batch


class ExampleWriter:
    """Writes the shards of one split; they get their final names together, on success.

    ```
    with ExampleWriter("data", "train", num_shards=16) as writer:
        writer.write(0, example)
    ```

    Args:
        folder: where the shards go; it must exist.
        split: `"train"`, `"dev"` or `"test"`.
        num_shards: how many files. All are written, also those that get no example, unless no
            example is written at all: then there is no file.

    Raises:
        OSError: with `errno.ENOSPC` when the disk is full.
    """

    def __init__(self, folder: str, split: str, *, num_shards: int) -> None:
        self.folder = folder
        self.split = split
        self.num_shards = num_shards
        self.num_examples = 0
        self._writer: tf.io.TFRecordWriter | None = None
        self._next_shard = 0

    def __enter__(self) -> "ExampleWriter":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def write(self, shard: int, example: Example) -> None:
        """Appends an example to a shard; shards must come in ascending order."""
        if not self._next_shard - 1 <= shard < self.num_shards:
            raise ValueError(
                f"Shards must be written in order, from 0 to {self.num_shards - 1}. Received: "
                f"shard {shard} after shard {self._next_shard - 1}. Sort the examples by shard."
            )
        try:
            while self._next_shard <= shard:
                self._open_next()
            assert self._writer is not None
            self._writer.write(serialize_example(example))
        except tf.errors.OpError as error:
            raise _as_os_error(error, self.folder) from error
        self.num_examples += 1

    def close(self) -> None:
        """Finishes all shards and gives them their final names."""
        try:
            if self.num_examples:
                while self._next_shard < self.num_shards:
                    self._open_next()
            self._close_current()
        except tf.errors.OpError as error:
            self.abort()
            raise _as_os_error(error, self.folder) from error
        except BaseException:
            self.abort()
            raise
        for index in range(self._next_shard):
            os.replace(self._temporary(index), self._final(index))

    def abort(self) -> None:
        """Deletes what was written."""
        try:
            self._close_current()
        except (tf.errors.OpError, OSError):
            self._writer = None  # its file goes away with the others
        for index in range(self._next_shard):
            if os.path.exists(self._temporary(index)):
                os.remove(self._temporary(index))

    def _open_next(self) -> None:
        self._close_current()
        self._next_shard += 1
        self._writer = tf.io.TFRecordWriter(self._temporary(self._next_shard - 1))

    def _close_current(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()

    def _final(self, index: int) -> str:
        return os.path.join(self.folder, shard_name(self.split, index, self.num_shards))

    def _temporary(self, index: int) -> str:
        return f"{self._final(index)}.tmp"


def _as_os_error(error: tf.errors.OpError, folder: str) -> OSError:
    """TensorFlow's file errors as Python's, so that callers handle one kind."""
    is_full = isinstance(error, tf.errors.ResourceExhaustedError)
    return OSError(errno.ENOSPC if is_full else errno.EIO, str(error), folder)


def write_shards(
    folder: str, examples: Iterable[tuple[str, int, Example]], *, num_shards: Mapping[str, int]
) -> dict[str, int]:
    """Writes (split, shard, example) triples that come sorted by split and shard.

    Returns:
        The number of examples of each split in `num_shards`.
    """
    written = dict.fromkeys(num_shards, 0)
    writer: ExampleWriter | None = None
    try:
        for split, shard, example in examples:
            if writer is None or writer.split != split:
                if writer is not None:
                    writer.close()
                writer = ExampleWriter(folder, split, num_shards=num_shards[split])
            writer.write(shard, example)
            written[split] += 1
        if writer is not None:
            writer.close()
    except BaseException:
        if writer is not None:
            writer.abort()
        raise
    return written
