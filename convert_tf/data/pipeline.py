"""From records or texts to packed batches of token ids, with tf.data."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from convert_tf.data.packing import SEGMENTS_PER_ROW, pack
from convert_tf.data.records import list_shards

READ_CYCLE = 8  # shards that are read in turn
ROW_MULTIPLE = 32  # rows of a batch, where the step is compiled for each shape
PAIR_FEATURES = {
    "context": tf.io.FixedLenFeature([], tf.string),
    "response": tf.io.FixedLenFeature([], tf.string),
}


def _packed(
    tokenizer: Any,
    contexts: tf.Tensor,
    responses: tf.Tensor,
    *,
    max_tokens: int,
    row_tokens: int,
    row_multiple: int = 1,
) -> dict[str, tf.Tensor]:
    texts = tf.concat([contexts, responses], axis=0)
    token_ids = tokenizer.token_ids(texts)[:, :max_tokens]

    def pack_numpy(flat_ids: np.ndarray, row_splits: np.ndarray) -> tuple[np.ndarray, ...]:
        return pack(
            flat_ids,
            row_splits,
            row_tokens=row_tokens,
            padding_id=tokenizer.padding_id,
            row_multiple=row_multiple,
        )

    packed_ids, segment_lengths, slots = tf.numpy_function(
        pack_numpy,
        [token_ids.flat_values, token_ids.row_splits],
        [tf.int32, tf.int32, tf.int32],
        stateful=False,
    )
    num_contexts = tf.shape(contexts)[0]
    return {
        "token_ids": tf.ensure_shape(packed_ids, [None, row_tokens]),
        "segment_lengths": tf.ensure_shape(segment_lengths, [None, SEGMENTS_PER_ROW]),
        "context_slots": tf.ensure_shape(slots[:num_contexts], [None]),
        "response_slots": tf.ensure_shape(slots[num_contexts:], [None]),
    }


def training_batches(
    data: str,
    tokenizer: Any,
    *,
    batch_size: int,
    max_tokens: int,
    row_tokens: int,
    shuffle_buffer: int,
    seed: int,
    split: str = "train",
    skip_batches: int = 0,
    row_multiple: int = 1,
) -> tf.data.Dataset:
    """Endless packed batches of pairs, in an order that the seed alone decides.

    Every epoch shuffles the shards and the examples anew. Batches run on over the ends of epochs,
    so each example is seen equally often.

    Args:
      data: folder of records.
      tokenizer: a tokenizer of `convert_tf.text`.
      batch_size: pairs of a batch.
      max_tokens: longer texts are cut to this many tokens.
      row_tokens: tokens of a packed row.
      shuffle_buffer: examples held in memory for shuffling.
      seed: seed of the order.
      split: which shards.
      skip_batches: batches that a run before this one has seen; the next one comes first.
      row_multiple: batches have a multiple of this many rows.

    Returns:
      Dataset of the dicts that `DualEncoder` takes.
    """
    shards = list_shards(data, split)

    records = (
        tf.data.Dataset.from_tensor_slices(shards)
        .shuffle(len(shards), seed=seed)
        .interleave(
            tf.data.TFRecordDataset,
            cycle_length=min(READ_CYCLE, len(shards)),
            block_length=16,
            num_parallel_calls=1,
            deterministic=True,
        )
        .shuffle(shuffle_buffer, seed=seed)
        .repeat()
    )

    def parse_and_pack(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        pairs = tf.io.parse_example(serialized, PAIR_FEATURES)
        return _packed(
            tokenizer,
            pairs["context"],
            pairs["response"],
            max_tokens=max_tokens,
            row_tokens=row_tokens,
            row_multiple=row_multiple,
        )

    return (
        records.skip(skip_batches * batch_size)
        .batch(batch_size, drop_remainder=True)
        .map(parse_and_pack, num_parallel_calls=1, deterministic=True)
        .prefetch(2)
    )


def read_pairs(
    data: str, split: str, *, max_examples: int | None = None
) -> tuple[list[bytes], list[bytes]]:
    """The contexts and responses of a split, in the order of the shards.

    Args:
      data: folder of records.
      split: which shards.
      max_examples: stop after this many.

    Returns:
      Two lists of UTF-8 bytes, of equal length.

    Raises:
      ValueError: there are no records, or they are damaged.
    """
    dataset = tf.data.TFRecordDataset(list_shards(data, split))
    if max_examples is not None:
        dataset = dataset.take(max_examples)
    contexts: list[bytes] = []
    responses: list[bytes] = []
    try:
        for serialized in dataset.batch(4096):
            pairs = tf.io.parse_example(serialized, PAIR_FEATURES)
            contexts.extend(pairs["context"].numpy())
            responses.extend(pairs["response"].numpy())
    except tf.errors.OpError as error:
        raise _damaged(data, split, error) from error
    return contexts, responses


def count_at_least(data: str, split: str, number: int) -> None:
    """Raises `ValueError` when a split has fewer than `number` examples."""
    records = tf.data.TFRecordDataset(list_shards(data, split)).take(number)
    try:
        found = sum(1 for _ in records)
    except tf.errors.OpError as error:
        raise _damaged(data, split, error) from error
    if found < number:
        raise ValueError(
            f"The {split} split needs at least {number} examples. Received: {found} in "
            f"{str(data)!r}. Prepare more data, or give prepare a larger --dev_fraction."
        )


def _damaged(data: str, split: str, error: tf.errors.OpError) -> ValueError:
    return ValueError(
        f"The {split} records must be whole. Received: {error.message} in {str(data)!r}. Run "
        "convert_tf.data.prepare again."
    )


class PairBatches:
    """Packed batches of given pairs, made anew at every iteration, in order.

    Args:
      contexts, responses: texts, equally many.
      tokenizer: a tokenizer of `convert_tf.text`.
      batch_size: pairs of a batch; the last one may be smaller.
      max_tokens: longer texts are cut to this many tokens.
      row_tokens: tokens of a packed row.
    """

    def __init__(
        self,
        contexts: Sequence[bytes | str],
        responses: Sequence[bytes | str],
        *,
        tokenizer: Any,
        batch_size: int = 128,
        max_tokens: int = 60,
        row_tokens: int = 64,
    ):
        if len(contexts) != len(responses):
            raise ValueError(
                "There must be one response to each context. "
                f"Received: {len(contexts)} contexts, {len(responses)} responses."
            )
        pairs = tf.data.Dataset.from_tensor_slices((list(contexts), list(responses)))
        self._dataset = pairs.batch(batch_size).map(
            lambda c, r: _packed(tokenizer, c, r, max_tokens=max_tokens, row_tokens=row_tokens)
        )

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        return self._dataset.as_numpy_iterator()


def padding_share(batches: Iterable[dict[str, Any]]) -> float:
    """Share of the token positions of packed batches that hold padding."""
    positions = real = 0
    for batch in batches:
        positions += int(np.prod(batch["token_ids"].shape))
        real += int(np.sum(batch["segment_lengths"]))
    return 1.0 - real / positions
