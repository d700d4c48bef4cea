"""Batches of similar length inside a graph: many rows in bounded memory, little padding."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Most tokens that go through a network at once, and fewest for which a batch is divided.
BATCH_TOKENS = 2048
_FEWEST_TOKENS = 256
# Batches that are computed side by side: while one waits in its small ops the other multiplies.
_PARALLEL = 2


def in_length_batches(
    lengths: tf.Tensor,
    compute: Callable[[tf.Tensor], tf.Tensor],
    *,
    result_shape: tuple[int | None, ...] = (),
    max_rows: int | tf.Tensor | None = None,
) -> tf.Tensor:
    """Computes rows, the longest first, as many at a time as make `BATCH_TOKENS` tokens.

    Two such batches are computed at the same time; few rows are divided into two batches for that.

    Args:
      lengths: int32 `[N]`, tokens of each row.
      compute: int32 `[n]`, places of some rows, to float32 `[n, …]`, their results.
      result_shape: of one result, as far as it is known.
      max_rows: of a batch; None for no other limit than tokens.

    Returns:
      float32 `[N, …]`, in the order of `lengths`. Without rows `compute` is called once, for none.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    number = tf.size(order)
    # Half of the tokens and some more, as each row of a batch counts as its longest.
    share = tf.reduce_sum(lengths) // (4 * _PARALLEL) * 5
    budget = tf.minimum(tf.maximum(share, _FEWEST_TOKENS), BATCH_TOKENS)

    def is_left(start: tf.Tensor, batch: tf.Tensor, *_: Any) -> tf.Tensor:
        return (start < number) | (batch == 0)

    def behind(start: tf.Tensor) -> tf.Tensor:
        """Where the batch that begins at `start` ends."""
        longest = tf.reduce_max(tf.gather(lengths, order[start : start + 1]))  # the lowest of none
        rows = budget // tf.maximum(longest, 1)
        rows = tf.maximum(rows if max_rows is None else tf.minimum(rows, max_rows), 1)
        return start + rows

    def compute_next(
        start: tf.Tensor, batch: tf.Tensor, results: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        end = behind(start)
        return end, batch + 1, results.write(batch, compute(order[start:end]))

    # Batches are counted first: arrays that grow are written in a way that TensorFlow before 2.13
    # does not read.
    first = (tf.constant(0), tf.constant(0))
    batches = tf.while_loop(is_left, lambda start, batch: (behind(start), batch + 1), first)[1]
    results = tf.TensorArray(
        tf.float32, batches, infer_shape=False, element_shape=[None, *result_shape]
    )
    results = tf.while_loop(
        is_left, compute_next, (*first, results), parallel_iterations=_PARALLEL
    )[2]
    return tf.gather(results.concat(), tf.argsort(order))
