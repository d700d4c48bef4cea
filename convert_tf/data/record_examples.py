"""From records or texts to packed batches of token ids, with TensorFlow."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from convert_tf.data.packing import TokenIds
from convert_tf.data.record_index import RecordIndex
from convert_tf.data.records import parse_texts
from convert_tf.data.schema import PAIR, PAIR_AND_EXTRA_CONTEXT, TurnExample
from convert_tf.data.shards import list_shards
from convert_tf.text.loading import load_tokenizer

_READ_BYTES = 1 << 16  # at a time; a chunk of the order is some 400 KB


def _cut(
    tokenizer: Any, texts: Sequence[tf.Tensor], max_tokens: int, *, keeps_end: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Ids of all texts one behind the other; `keeps_end` of the first ones, whose end is newest."""
    if keeps_end:
        first, *others = texts
        cut = [tokenizer.token_ids(first)[:, -max_tokens:]]
        cut += [tokenizer.token_ids(own)[:, :max_tokens] for own in others]
        token_ids = tf.concat(cut, axis=0)
    else:
        token_ids = tokenizer.token_ids(tf.concat(texts, axis=0))[:, :max_tokens]
    return token_ids.flat_values, token_ids.row_splits


def _strings(function: Callable[[tf.Tensor], Any]) -> Any:
    return tf.function(function, input_signature=[tf.TensorSpec([None], tf.string)])


class RecordExamples:
    """A split of a folder of records, as `convert_tf.data.schema.Examples`.

    Texts are tokenized when they are asked for. Records are read at their places, with their
    checksums.

    Args:
      folder: folder of records.
      split: which shards.
      tokenizer: a tokenizer of `convert_tf.text`.
      max_tokens: longer texts are cut to this many tokens.
      with_extra_contexts: whether the earlier turns are there too, as one text.
      turn_prefixes: whether these turns are numbered, see `parse_texts`.
      joins_turns: whether a context is all turns, the oldest first, of which the last tokens are
        kept; then there are no others apart.

    Raises:
      ValueError: there are no such shards, or one ends within a record.
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
    ):
        self.folder = folder
        self.split = split
        names = PAIR_AND_EXTRA_CONTEXT if with_extra_contexts else PAIR
        self.names = names = ("all_turns", *names[1:]) if joins_turns else names
        self.padding_id = tokenizer.padding_id
        paths = list_shards(folder, split)
        self._paths = np.array(paths, dtype=object)
        self._index = RecordIndex(paths)
        self.num_examples = self._index.num_records
        self._token_ids = _strings(
            lambda records: _cut(
                tokenizer,
                parse_texts(records, names, turn_prefixes=turn_prefixes),
                max_tokens,
                keeps_end=joins_turns,
            )
        )

    def load(self, numbers: np.ndarray) -> np.ndarray:
        """Read records by their numbers: bytes `[examples]`.

        Raises:
          ValueError: if a record is damaged.
        """
        firsts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        lengths = np.diff(firsts, append=len(numbers))
        runs = self._index.locate(numbers[firsts], numbers[firsts] + lengths)
        try:
            records = _read_runs(self._paths[runs.files], runs.offsets, runs.skips, runs.counts)
        except tf.errors.OpError as error:
            raise damaged_records(self.folder, self.split, error) from error
        if len(records) < runs.counts.sum():
            raise ValueError(
                f"{self.folder!r} lost {self.split} records while it was read. Put the files back, "
                "and run the same command again."
            )
        return records.numpy()

    def token_ids(self, loaded: np.ndarray) -> TokenIds:
        """The texts of records: those of the first name, then those of the second, ….

        Raises:
          ValueError: what was read is no record of this schema.
        """
        try:
            flat, row_splits = self._token_ids(loaded)
        except tf.errors.OpError as error:
            raise damaged_records(self.folder, self.split, error) from error
        return TokenIds(flat.numpy(), row_splits.numpy())


@tf.function(
    input_signature=[tf.TensorSpec([None], tf.string)] + [tf.TensorSpec([None], tf.int64)] * 3
)
def _read_runs(
    paths: tf.Tensor, offsets: tf.Tensor, skips: tf.Tensor, counts: tf.Tensor
) -> tf.Tensor:
    """The records of `RecordIndex.locate`, string `[sum of counts]`."""

    def run(path: tf.Tensor, offset: tf.Tensor, skip: tf.Tensor, count: tf.Tensor) -> Any:
        # The op can begin within a file, which tf.data.TFRecordDataset has no argument for.
        records = tf.raw_ops.TFRecordDatasetV2(
            filenames=path, compression_type="", buffer_size=_READ_BYTES, byte_offsets=offset
        )
        spec = tf.TensorSpec([], tf.string)
        return tf.data.experimental.from_variant(records, spec).skip(skip).take(count)

    runs = tf.data.Dataset.from_tensor_slices((paths, offsets, skips, counts))
    return runs.flat_map(run).batch(tf.reduce_sum(counts)).get_single_element()


class RecordFolder:
    """A folder of records, to be read with a vocabulary.

    Args:
      folder: folder that `convert-tf prepare` wrote.
      vocabulary: vocabulary file.
      num_oov_buckets: ids that unknown tokens share.

    Attributes:
      tokenizer_name, vocab_size, num_oov_buckets, vocabulary: what a model must fit.
    """

    def __init__(self, folder: str, *, vocabulary: str, num_oov_buckets: int):
        self.folder = folder
        self._tokenizer = load_tokenizer(vocabulary, num_oov_buckets=num_oov_buckets)
        self.tokenizer_name = self._tokenizer.name
        self.vocab_size = self._tokenizer.vocab_size
        self.num_oov_buckets = self._tokenizer.num_oov_buckets  # WordPiece has none
        self.vocabulary = Path(vocabulary)

    def open(self, split: str, *, max_tokens: int, **options: bool) -> RecordExamples:
        """Return the examples of a split; see `RecordExamples`."""
        return RecordExamples(self.folder, split, self._tokenizer, max_tokens=max_tokens, **options)


def read_turns(data: str, split: str, *, max_examples: int | None = None) -> Iterator[TurnExample]:
    """The examples of a split, in the order of the shards; memory holds a few thousand.

    Args:
      data: folder of records.
      split: which shards.
      max_examples: stop after this many.

    Raises:
      ValueError: there are no records, or they are damaged.
    """
    dataset = tf.data.TFRecordDataset(list_shards(data, split))
    if max_examples is not None:
        dataset = dataset.take(max_examples)
    try:
        for serialized in dataset.batch(4096):
            columns = parse_texts(serialized, ("extra_contexts", "context", "response", "source"))
            for extra, context, response, source in zip(*(c.numpy() for c in columns), strict=True):
                turns = [*(turn for turn in extra[::-1] if turn), context]
                yield TurnExample(tuple(map(_text, turns)), _text(response), _text(source))
    except tf.errors.OpError as error:
        raise damaged_records(data, split, error) from error


def _text(utf8: bytes) -> str:
    return utf8.decode("utf-8", "replace")


def damaged_records(data: str, split: str, error: tf.errors.OpError) -> ValueError:
    """Return the error for records of a split that TensorFlow cannot read or parse."""
    # What the op says stands between where in the program and where in the graph that was.
    reason = error.message.split("\n\t [[")[0].splitlines()[-1].split("}} ")[-1].split(" [Op:")[0]
    return ValueError(
        f"Cannot read the {split} records in {str(data)!r}: {reason}. Run convert-tf prepare again."
    )
