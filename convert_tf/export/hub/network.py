"""Compute the trunk and the reduction without padding, for exported modules.

The tokens of all texts are in one row. The embedding, the norms and the feed-forward layers, which
do nearly all of the work, therefore process no padding. These layers are the encoder's own, except
for layer norms in bfloat16. Only attention arranges the tokens as `[texts, tokens]`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from convert_tf.layers.attention import RelativeSelfAttention
from convert_tf.layers.block import fast_gelu, plain_fast_gelu
from convert_tf.layers.reduction import SqrtNReduction
from convert_tf.models.encoder import Trunk
from convert_tf.text.tokenizer import Tokenizer

# Not −∞: a padded query may have no key within reach, and its gradient would then be NaN.
_MASKED_SCORE = -1e9


# With fewer rows, Keras's ops are faster than the fused op, which takes 0.1 ms per call to set up.
_FEW_ROWS = 128


class _Layout(NamedTuple):
    """Positions of tokens in texts that are concatenated in one row.

    Attributes:
      dense_index: int32 `[texts, tokens]`, the index of each token in the row; 0 for padding.
      flat_index: int32 `[total]`, the index of each token of the row in a flattened array
        `[texts, tokens]`.
      is_real: float32 `[texts, tokens]`, 1 for tokens and 0 for padding.
      key_bias: float32 `[texts, 1, 1, tokens]`, the bias to add to scores: 0 for tokens, −10⁹ for
        padding.
      distance: int32 `[tokens, tokens]`, the distance j − i from token i to token j at [i, j].
      lengths: int32 `[texts]`, number of tokens in each text.
    """

    dense_index: Any
    flat_index: Any
    is_real: Any
    key_bias: Any
    distance: Any
    lengths: Any


def _layout(lengths: Any) -> _Layout:
    places = tf.range(tf.reduce_max(tf.concat([lengths, [0]], axis=0)))
    is_real = places[None, :] < lengths[:, None]
    starts = tf.cumsum(lengths, exclusive=True)
    as_float = tf.cast(is_real, tf.float32)
    return _Layout(
        dense_index=tf.where(is_real, starts[:, None] + places, 0),
        flat_index=tf.cast(tf.where(tf.reshape(is_real, [-1]))[:, 0], tf.int32),
        is_real=as_float,
        key_bias=((1.0 - as_float) * _MASKED_SCORE)[:, None, None, :],
        distance=places[None, :] - places[:, None],
        lengths=lengths,
    )


def use_plain_gelu(model: keras.Model) -> None:
    """Make a model's layers compute the fast GELU with `plain_fast_gelu`."""
    for layer in model._flatten_layers():
        if getattr(layer, "activation", None) is fast_gelu:
            layer.activation = plain_fast_gelu


def ids_of_beginnings(
    tokenizer: Tokenizer, strings: tf.Tensor, num_tokens: int, *, as_written: bool = False
) -> Any:
    """Return at least the first `num_tokens` token ids of each text, ragged int32.

    With `as_written`, texts are not folded.
    """
    if not as_written:
        strings = tokenizer.fold(strings)
    longest = tokenizer.bytes_of(num_tokens)
    if longest is not None:  # do not tokenize the rest of long texts, which would take more time
        strings = tf.strings.substr(strings, 0, longest)
    return tokenizer.ids_as_written(strings)


def encode_row(
    trunk: Trunk, reduction: SqrtNReduction, token_ids: Any, lengths: Any
) -> tuple[Any, Any]:
    """Return the results of `DualEncoder.encode_sequence` and `reduce` for texts in one row.

    Args:
      trunk, reduction: the layers of the encoder.
      token_ids: int32 `[total]`, the token ids of all texts, concatenated without padding.
      lengths: int32 `[texts]`, the number of tokens in each text. It may be 0.

    Returns:
      A tuple of the trunk's outputs, `[total, embedding_dim]`, and the reduced encodings,
      `[texts, reduced_dim]`, in the compute dtype of the trunk.

    Reference: arXiv 1911.03688 §2.1, Figure 2.
    """
    layout = _layout(lengths)
    positions = layout.flat_index % tf.maximum(tf.shape(layout.distance)[0], 1)
    x = trunk.embedding(token_ids[None], positions[None])[0]
    for block in trunk.blocks:
        x = _normalised(block.attention_norm, x + _attend(block.attention, x, layout))
        x = _normalised(block.feed_forward_norm, x + block.feed_forward(x))
    return x, _reduce(reduction, x, layout)


def _normalised(norm: keras.layers.LayerNormalization, x: Any) -> Any:
    """Apply a layer norm to `[total, dim]`."""
    if norm.compute_dtype == "float32":  # float32 layers may be trained, so the norm is not fused
        return norm(x)
    return tf.cond(tf.shape(x)[0] < _FEW_ROWS, lambda: norm(x), lambda: _fused_norm(norm, x))


def _fused_norm(norm: keras.layers.LayerNormalization, x: Any) -> Any:
    """Apply a layer norm in bfloat16, with ops that TensorFlow fuses.

    The ops are a batch norm whose channels are the rows, followed by scale and offset. TensorFlow's
    optimizer Grappler replaces exactly these ops with oneDNN's layer norm. The batch norm must be
    in float32: with a batch norm in bfloat16, TensorFlow up to 2.12 raises an error on processors
    without bfloat16 when it prepares the graph, even if the graph never runs this op.
    """
    # TensorFlow only fuses ops with a static shape, which a saved graph does not have by itself.
    fine = tf.raw_ops.EnsureShape(input=tf.cast(x, tf.float32), shape=[None, norm.gamma.shape[0]])
    shape = tf.shape(fine)
    normal = tf.raw_ops.FusedBatchNormV3(
        x=tf.reshape(fine, [1, shape[0], shape[1], 1]),
        scale=tf.ones([shape[0]]),
        offset=tf.zeros([shape[0]]),
        mean=tf.constant([], tf.float32),
        variance=tf.constant([], tf.float32),
        epsilon=norm.epsilon,
        data_format="NCHW",
        is_training=True,
    ).y
    gamma, beta = (tf.cast(values, tf.float32) for values in (norm.gamma, norm.beta))
    return tf.cast(tf.reshape(normal, shape) * gamma + beta, x.dtype)


def _dense_heads(x: Any, num_heads: int, layout: _Layout) -> Any:
    """Split heads and texts: `[total, heads * dim]` → `[texts, heads, tokens, dim]`.

    Padded positions get the values of the first token in the row.
    """
    dense = tf.gather(x, layout.dense_index)
    if num_heads == 1:
        return dense[:, None]
    texts, tokens = tf.unstack(tf.shape(layout.dense_index))
    dense = tf.reshape(dense, [texts, tokens, num_heads, x.shape[-1] // num_heads])
    return tf.transpose(dense, [0, 2, 1, 3])


def _attend(attention: RelativeSelfAttention, x: Any, layout: _Layout) -> Any:
    """Compute `RelativeSelfAttention`: `[total, dim]` → `[total, dim]`."""
    num_heads, dtype = attention.num_heads, attention.compute_dtype
    width = num_heads * attention.attention_dim
    projected = x @ tf.cast(attention.query_key_kernel, dtype)
    queries = projected[:, :width] / math.sqrt(attention.attention_dim)
    scores = tf.matmul(
        _dense_heads(queries, num_heads, layout),
        _dense_heads(projected[:, width:], num_heads, layout),
        transpose_b=True,
    )  # [texts, heads, tokens, tokens]
    scores = tf.cast(scores, tf.float32) + _distance_bias(attention, layout) + layout.key_bias
    weights = tf.cast(tf.nn.softmax(scores), dtype)
    attended = tf.matmul(weights, _dense_heads(x, num_heads, layout))
    if num_heads > 1:
        attended = tf.transpose(attended, [0, 2, 1, 3])
    return tf.gather(tf.reshape(attended, [-1, x.shape[-1]]), layout.flat_index)


def _distance_bias(attention: RelativeSelfAttention, layout: _Layout) -> Any:
    """Return the bias for query i and key j, float32 `[heads, tokens, tokens]`."""
    reach = attention.max_distance
    bias = tf.zeros([attention.num_heads, 2 * reach + 1])
    if attention.use_relative_bias:
        bias = tf.convert_to_tensor(attention.relative_bias)
    bias = tf.pad(bias, [[0, 0], [1, 1]], constant_values=_MASKED_SCORE)
    index = tf.clip_by_value(layout.distance, -reach - 1, reach + 1) + reach + 1
    return tf.gather(bias, index, axis=1)


def _reduce(reduction: SqrtNReduction, x: Any, layout: _Layout) -> Any:
    """Compute `SqrtNReduction`: `[total, dim]` → `[texts, heads * dim]`."""
    num_heads, dtype = reduction.num_heads, reduction.compute_dtype
    width = num_heads * reduction.attention_dim
    projected = x @ tf.cast(reduction.query_key_kernel, dtype)
    scores = tf.matmul(
        _dense_heads(projected[:, :width], num_heads, layout),
        _dense_heads(projected[:, width:], num_heads, layout),
        transpose_b=True,
    )
    weights = tf.nn.softmax(tf.cast(scores, tf.float32) + layout.key_bias)
    root = tf.sqrt(tf.maximum(tf.cast(layout.lengths, tf.float32), 1.0))
    is_query = (layout.is_real / root[:, None])[:, None, None, :]  # [texts, 1, 1, queries]
    # Padded keys get attention weights only in texts without tokens, and these have no queries.
    pooling = tf.matmul(is_query, weights)[:, :, 0]
    pooled = tf.matmul(tf.cast(pooling, dtype), tf.gather(x, layout.dense_index))
    pooled = tf.reshape(pooled, [-1, num_heads * x.shape[-1]])
    # A product over no tokens consists of zeros, except in LiteRT, where it is uninitialised.
    return tf.where(layout.lengths[:, None] > 0, pooled, tf.zeros([], dtype))


# Upper and lower limits on the number of tokens in a batch. The lower limit keeps a few short texts
# from being split into several batches.
BATCH_TOKENS = 2048
_FEWEST_TOKENS = 256
# Number of batches to compute at once: while one batch runs small ops, another multiplies matrices.
_PARALLEL = 2


def in_length_batches(
    lengths: tf.Tensor,
    compute: Callable[[tf.Tensor], tf.Tensor],
    *,
    result_shape: tuple[int | None, ...] = (),
    max_rows: int | tf.Tensor | None = None,
) -> tf.Tensor:
    """Compute rows in batches of about `BATCH_TOKENS` tokens, the longest rows first.

    Two batches are computed at the same time. If there are few rows, they are split into two
    batches.

    Args:
      lengths: int32 `[N]`, the number of tokens in each row.
      compute: function that takes the indices of some rows, int32 `[n]`, and returns the results
        for these rows, float32 `[n, …]`.
      result_shape: the static shape of each row's result.
      max_rows: maximum number of rows per batch; None for no limit.

    Returns:
      The results, float32 `[N, …]`, in the order of `lengths`. If there are no rows, `compute` is
      called once with an empty array.
    """
    order = tf.argsort(lengths, direction="DESCENDING", stable=True)
    number = tf.size(order)
    # A batch may have a little more than half of the tokens, because rows are padded to the longest
    # row in their batch.
    share = tf.reduce_sum(lengths) // (4 * _PARALLEL) * 5
    budget = tf.minimum(tf.maximum(share, _FEWEST_TOKENS), BATCH_TOKENS)

    def is_left(start: tf.Tensor, batch: tf.Tensor, *_: Any) -> tf.Tensor:
        return (start < number) | (batch == 0)

    def next_start(start: tf.Tensor) -> tf.Tensor:
        """Return the end of the batch that begins at `start`."""
        # If there are no texts, `longest` is the lowest integer.
        longest = tf.reduce_max(tf.gather(lengths, order[start : start + 1]))
        rows = budget // tf.maximum(longest, 1)
        rows = tf.maximum(rows if max_rows is None else tf.minimum(rows, max_rows), 1)
        return start + rows

    def compute_next(
        start: tf.Tensor, batch: tf.Tensor, results: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        end = next_start(start)
        return end, batch + 1, results.write(batch, compute(order[start:end]))

    # The number of batches is computed first, because TensorFlow before 2.13 cannot read graphs in
    # which a TensorArray grows.
    first = (tf.constant(0), tf.constant(0))
    batches = tf.while_loop(is_left, lambda start, batch: (next_start(start), batch + 1), first)[1]
    results = tf.TensorArray(
        tf.float32, batches, infer_shape=False, element_shape=[None, *result_shape]
    )
    results = tf.while_loop(
        is_left, compute_next, (*first, results), parallel_iterations=_PARALLEL
    )[2]
    return tf.gather(results.concat(), tf.argsort(order))
