"""Examples on disk: sharded TFRecords in the schema of PolyAI's conversational-datasets.

A data folder holds `train-00000-of-00016.tfrecord`, `dev-…`, `test-…`. A record is a
`tf.train.Example` of bytes features: `context`, `response`, `context/0` … `context/9` (0 is the
turn just before `context`; absent when there is none), `subreddit`, `thread_id`,
`context_author`, `response_author`; and `source`, the corpus, which PolyAI's records lack. Features
other than these are not read.
"""

import contextlib
import errno
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from convert_tf.data.schema import EXTRA_FEATURES, PAIR, Example
from convert_tf.data.serialized import serialize_example
from convert_tf.data.shards import add_empty_shards, shard_name

_OF_TURNS = {"extra_contexts", "extra_context", "all_turns"}


def parse_texts(
    serialized: tf.Tensor, names: Sequence[str], *, turn_prefixes: bool = False
) -> list[tf.Tensor]:
    """Return texts of records; works inside `tf.function`.

    Args:
      serialized: string `[B]`, records.
      names: names of features, or of what is made of the earlier turns: `extra_contexts`, all ten
        of them, most recent first; `extra_context`, the same joined with single spaces; and
        `all_turns`, these and the context joined, the oldest first, as rankers read them.
      turn_prefixes: whether `0: `, `1: `, … stand before the turns of `extra_context`, 0 for the
        most recent.

    Returns:
      For each name string `[B]`, or `[B, 10]` for `extra_contexts`; `""` where a record lacks it.
    """
    others = [*({*names} - _OF_TURNS - {*PAIR}), *(EXTRA_FEATURES if _OF_TURNS & {*names} else ())]
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in PAIR}
    features |= {name: tf.io.FixedLenFeature([], tf.string, default_value="") for name in others}
    texts = tf.io.parse_example(serialized, features)
    if _OF_TURNS & {*names}:
        turns = tf.stack([texts[name] for name in EXTRA_FEATURES], axis=1)
        texts["extra_contexts"] = texts["extra_context"] = turns
        texts["all_turns"] = tf.concat([turns[:, ::-1], texts["context"][:, None]], axis=1)
        if turn_prefixes:
            numbers = [f"{index}: " for index in range(len(EXTRA_FEATURES))]
            numbered = tf.strings.join([tf.broadcast_to([numbers], tf.shape(turns)), turns])
            texts["extra_context"] = tf.where(turns == "", "", numbered)
    for name in {"extra_context", "all_turns"} & {*names}:
        present = tf.ragged.boolean_mask(texts[name], texts[name] != "")
        texts[name] = tf.strings.reduce_join(present, axis=1, separator=" ")
    return [texts[name] for name in names]


def write_shards(
    folder: str, examples: Iterable[tuple[str, int, Example]], *, num_shards: Mapping[str, int]
) -> dict[str, int]:
    """Write (split, shard, example) triples that come sorted by split and shard.

    A split with examples has all its shards, empty ones too. A split without examples has no file.

    Args:
      folder: an empty folder for the shards. After an error it may hold incomplete ones.
      examples: the triples.
      num_shards: number of files of each split.

    Returns:
      The number of examples of each split in `num_shards`.

    Raises:
      ValueError: if the examples are not sorted by shard.
      OSError: if a file cannot be written; with `errno.ENOSPC` if the disk is full.
    """
    written = dict.fromkeys(num_shards, 0)
    try:
        for (split, shard), group in itertools.groupby(examples, key=lambda triple: triple[:2]):
            path = Path(folder, shard_name(split, shard, num_shards[split]))
            if path.exists():
                raise ValueError(
                    f"Examples must be sorted by shard. Received: more of shard {shard} of {split} "
                    "after other shards."
                )
            with contextlib.closing(tf.io.TFRecordWriter(str(path))) as writer:
                for _, _, example in group:
                    writer.write(serialize_example(example))
                    written[split] += 1
    except tf.errors.OpError as error:
        is_full = isinstance(error, tf.errors.ResourceExhaustedError)
        number = errno.ENOSPC if is_full else errno.EIO
        raise OSError(number, str(error), folder) from error
    add_empty_shards(folder, num_shards)
    return written
