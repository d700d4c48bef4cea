"""Examples on disk: sharded TFRecords in the schema of PolyAI's conversational-datasets.

A data folder contains the files `train-00000-of-00016.tfrecord`, `dev-…`, `test-…` and so on. A
record is a `tf.train.Example` with these bytes features: `context`, `response`, `context/0` …
`context/9` (0 is the turn just before `context`; missing turns have no feature), `subreddit`,
`thread_id`, `context_author` and `response_author`. There is also `source`, the name of the corpus,
which PolyAI's records lack. Other features are ignored.
"""

import contextlib
import errno
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from convert_tf.data import shards
from convert_tf.data.packing import TokenIds
from convert_tf.data.schema import (
    EXTRA_FEATURES,
    PAIR,
    PAIR_AND_EXTRA_CONTEXT,
    Example,
    TurnExample,
)
from convert_tf.text.tokenizer import load_tokenizer

_OF_TURNS = {"extra_contexts", "extra_context", "all_turns"}


def parse_texts(
    serialized: tf.Tensor, names: Sequence[str], *, turn_prefixes: bool = False
) -> list[tf.Tensor]:
    """Return texts from records. This function can be called inside `tf.function`.

    Args:
      serialized: string `[B]`, serialised records.
      names: names of features, or of texts that are made from the earlier turns. `extra_contexts`
        are the ten earlier turns, most recent first. `extra_context` has these turns joined with
        single spaces. `all_turns`, which rankers read, has the earlier turns and the context
        joined, oldest first.
      turn_prefixes: whether to prefix the turns in `extra_context` with `0: `, `1: `, …, where 0 is
        the most recent.

    Returns:
      A tensor for each name: string `[B]`, or `[B, 10]` for `extra_contexts`. Where a record lacks
      the text, the tensor has `""`.
    """
    reads_turns = not _OF_TURNS.isdisjoint(names)
    others = {*names, *(EXTRA_FEATURES if reads_turns else ())} - _OF_TURNS
    features = {name: tf.io.FixedLenFeature([], tf.string, default_value="") for name in others}
    features |= {name: tf.io.FixedLenFeature([], tf.string) for name in PAIR}
    texts = tf.io.parse_example(serialized, features)
    if reads_turns:
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
) -> None:
    """Write examples to shards.

    If a split has examples, all of its shards are written, even empty ones. A split without
    examples gets no files.

    Args:
      folder: an empty folder for the shards. After an error it may contain incomplete shards.
      examples: triples of split, number of the shard, and example, sorted by split and shard.
      num_shards: number of shards for each split.

    Raises:
      ValueError: if the examples are not sorted by shard.
      OSError: if a file cannot be written; with `errno.ENOSPC` if the disk is full.
    """
    try:
        for (split, shard), group in itertools.groupby(examples, key=lambda triple: triple[:2]):
            path = os.path.join(folder, shards.shard_name(split, shard, num_shards[split]))
            if os.path.exists(path):
                raise ValueError(
                    f"Examples must be sorted by shard. Received: an example for shard {shard} of "
                    f"{split} after examples for other shards."
                )
            with contextlib.closing(tf.io.TFRecordWriter(path)) as writer:
                for _, _, example in group:
                    writer.write(shards.serialize_example(example))
    except tf.errors.OpError as error:
        is_full = isinstance(error, tf.errors.ResourceExhaustedError)
        number = errno.ENOSPC if is_full else errno.EIO
        raise OSError(number, str(error), folder) from error
    shards.add_empty_shards(folder, num_shards)


@contextlib.contextmanager
def naming_records(data: str, split: str) -> Iterator[None]:
    """Raise a `ValueError` that names the split if TensorFlow cannot read or parse its records."""
    try:
        yield
    except tf.errors.OpError as error:
        # Keep only the op's message, without the locations in the program and in the graph.
        reason = error.message.split("\n\t [[")[0].splitlines()[-1].split("}} ")[-1]
        raise ValueError(
            f"Cannot read the {split} records in {str(data)!r}: {reason.split(' [Op:')[0]}. Run "
            "convert-tf prepare again."
        ) from error


class RecordExamples:
    """One split of a folder of records; implements `convert_tf.data.schema.Examples`.

    Texts are tokenized on request. Records are read directly from their positions in the files, and
    their checksums are verified.

    Args:
      folder: folder of records.
      split: name of the split.
      tokenizer: a tokenizer from `convert_tf.text`.
      max_tokens: longer texts are cut to this many tokens.
      with_extra_contexts: whether to read the earlier turns too, joined into one text.
      turn_prefixes: whether to prefix the earlier turns with numbers; see `parse_texts`.
      joins_turns: whether to join all turns into one context, oldest first. Long contexts then keep
        their last tokens.

    Raises:
      ValueError: if the split has no shards, or a shard ends within a record.
    """

    def __init__(
        self,
        folder: str,
        split: str,
        tokenizer: Any,
        *,
        max_tokens: int,
        with_extra_contexts: bool = False,
        turn_prefixes: bool = False,
        joins_turns: bool = False,
    ) -> None:
        self.folder = folder
        self.split = split
        names = PAIR_AND_EXTRA_CONTEXT if with_extra_contexts else PAIR
        self.names = names = ("all_turns", *names[1:]) if joins_turns else names
        self.padding_id = tokenizer.padding_id
        paths = shards.list_shards(folder, split)
        self._paths = np.array(paths, dtype=object)
        self._index = shards.RecordIndex(paths)
        self.num_examples = self._index.num_records

        @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.string)])
        def token_ids(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            texts = parse_texts(records, names, turn_prefixes=turn_prefixes)
            if joins_turns:  # contexts keep their end, the newest turns
                first, *others = map(tokenizer.token_ids, texts)
                cut = [first[:, -max_tokens:], *(ids[:, :max_tokens] for ids in others)]
                ids = tf.concat(cut, axis=0)
            else:
                ids = tokenizer.token_ids(tf.concat(texts, axis=0))[:, :max_tokens]
            return ids.flat_values, ids.row_splits

        self._token_ids = token_ids

    def load(self, numbers: np.ndarray) -> np.ndarray:
        """Read records by their numbers: bytes `[examples]`.

        Raises:
          ValueError: if a record is damaged.
        """
        firsts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        lengths = np.diff(firsts, append=len(numbers))
        starts = numbers[firsts]
        files, offsets, skips, counts = self._index.locate(starts, starts + lengths)
        with naming_records(self.folder, self.split):
            records = _read_runs(self._paths[files], offsets, skips, counts)
        if len(records) < counts.sum():
            raise ValueError(
                f"{self.split} records disappeared from {self.folder!r} while they were read. "
                "Restore the files, and run the same command again."
            )
        return records.numpy()

    def token_ids(self, loaded: np.ndarray) -> TokenIds:
        """Return the token ids of records: all texts with the first name, then the second, ….

        Raises:
          ValueError: if the records do not have the schema of this module.
        """
        with naming_records(self.folder, self.split):
            flat, row_splits = self._token_ids(loaded)
        return TokenIds(flat.numpy(), row_splits.numpy())


@tf.function(
    autograph=False,
    input_signature=[tf.TensorSpec([None], tf.string)] + [tf.TensorSpec([None], tf.int64)] * 3,
)
def _read_runs(
    paths: tf.Tensor, offsets: tf.Tensor, skips: tf.Tensor, counts: tf.Tensor
) -> tf.Tensor:
    """Read the runs of records that `RecordIndex.locate` returned: string `[sum of counts]`."""

    def run(path: tf.Tensor, offset: tf.Tensor, skip: tf.Tensor, count: tf.Tensor) -> Any:
        # Unlike tf.data.TFRecordDataset, this op can start in the middle of a file.
        records = tf.raw_ops.TFRecordDatasetV2(
            filenames=path, compression_type="", buffer_size=1 << 16, byte_offsets=offset
        )
        spec = tf.TensorSpec([], tf.string)
        return tf.data.experimental.from_variant(records, spec).skip(skip).take(count)

    runs = tf.data.Dataset.from_tensor_slices((paths, offsets, skips, counts))
    return runs.flat_map(run).batch(tf.reduce_sum(counts)).get_single_element()


class RecordFolder:
    """A folder of records together with a vocabulary to tokenize its texts.

    Args:
      folder: folder written by `convert-tf prepare`.
      vocabulary: vocabulary file.
      num_oov_buckets: number of ids that unknown tokens share.

    Attributes:
      tokenizer_name, vocab_size, num_oov_buckets, vocabulary: properties that a model must match.
    """

    def __init__(self, folder: str, *, vocabulary: str, num_oov_buckets: int) -> None:
        self.folder = folder
        self._tokenizer = load_tokenizer(vocabulary, num_oov_buckets=num_oov_buckets)
        self.tokenizer_name = self._tokenizer.name
        self.vocab_size = self._tokenizer.vocab_size
        self.num_oov_buckets = self._tokenizer.num_oov_buckets  # 0 for WordPiece
        self.vocabulary = Path(vocabulary)

    def open(self, split: str, *, max_tokens: int, **options: bool) -> RecordExamples:
        """Return the examples of a split; see `RecordExamples`."""
        return RecordExamples(self.folder, split, self._tokenizer, max_tokens=max_tokens, **options)


def read_turns(data: str, split: str, *, max_examples: int | None = None) -> Iterator[TurnExample]:
    """Yield the examples of a split in shard order, with a few thousand in memory at a time.

    Args:
      data: folder of records.
      split: name of the split.
      max_examples: maximum number of examples; None for all.

    Raises:
      ValueError: if there are no records, or a record is damaged.
    """
    dataset = tf.data.TFRecordDataset(shards.list_shards(data, split))
    if max_examples is not None:
        dataset = dataset.take(max_examples)
    with naming_records(data, split):
        for serialized in dataset.batch(4096):
            columns = parse_texts(serialized, ("extra_contexts", "context", "response", "source"))
            for extra, context, response, source in zip(*(c.numpy() for c in columns), strict=True):
                turns = [*(turn for turn in extra[::-1] if turn), context]
                yield TurnExample(tuple(map(_text, turns)), _text(response), _text(source))


def _text(utf8: bytes) -> str:
    return utf8.decode("utf-8", "replace")
