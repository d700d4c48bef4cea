"""Layers of BERT-like trunks: summed embeddings and post-norm transformer blocks.

Reference: arXiv 1810.04805 §3; arXiv 1905.01969 §4.1.
"""

import math
from typing import Any

import keras
from keras import ops

from convert_tf.layers.attention import attention_weights, merge_heads, split_heads

INITIAL_STDDEV = 0.02


def _initializer() -> keras.initializers.Initializer:
    return keras.initializers.TruncatedNormal(stddev=INITIAL_STDDEV)


def dense(x: Any, kernel: Any, bias: Any) -> Any:
    """Return x·W + b. Rows are flattened, so that TensorFlow uses one fused call on a CPU.

    Args:
      x: input vectors, `[..., dim]`.
      kernel: the matrix W, `[dim, width]`.
      bias: the vector b, `[width]`.

    Returns:
      The output vectors, `[..., width]`.
    """
    shape = ops.shape(x)
    flat = ops.add(ops.matmul(ops.reshape(x, (-1, shape[-1])), kernel), bias)
    return ops.reshape(flat, (*shape[:-1], kernel.shape[-1]))


@keras.saving.register_keras_serializable(package="convert_tf")
class BertEmbedding(keras.layers.Layer):
    """Sum of token, position and segment embeddings, layer-normalised.

    Masking: none. Padding also gets a vector, so later layers must mask padding.

    Args:
      num_rows: number of rows in the token table.
      dim: width of the embeddings.
      max_positions: number of rows in the position table.
      num_segments: number of rows in the segment table.
      epsilon: constant that the layer norm adds to the variance.
      dropout: dropout rate for the result.

    Call arguments:
      rows: row in the token table for each token, int32 `[batch, tokens]`. There may be at most
        `max_positions` tokens.
      segment_ids: row in the segment table for each token, int32 `[batch, tokens]`.

    Returns:
      The embeddings, `[batch, tokens, dim]`, in the compute dtype.

    Example:
      x = BertEmbedding(30_522, 768)(rows, segment_ids)

    Reference: arXiv 1905.01969 §4.1 ("Input Representation").
    """

    def __init__(
        self,
        num_rows: int,
        dim: int,
        *,
        max_positions: int = 512,
        num_segments: int = 2,
        epsilon: float = 1e-12,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dim = dim
        self.num_segments = num_segments
        self._sizes = {
            "table": num_rows,
            "position_table": max_positions,
            "segment_table": num_segments,
        }
        self.norm = keras.layers.LayerNormalization(epsilon=epsilon, dtype="float32", name="norm")
        self.drop = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, rows_shape: Any, segment_ids_shape: Any = None) -> None:
        # Tables stay in float32, because casting the whole token table at every step costs more
        # than casting the rows that a batch reads.
        self.table, self.position_table, self.segment_table = (
            self.add_weight(
                shape=(size, self.dim), initializer=_initializer(), autocast=False, name=name
            )
            for name, size in self._sizes.items()
        )
        self.norm.build((*rows_shape, self.dim))

    def gather_rows(self, rows: Any) -> Any:
        """Return rows from the token table: int32 `[…]` → float32 `[…, dim]`."""
        return ops.take(self.table, rows, axis=0)

    def call(self, rows: Any, segment_ids: Any, training: bool = False) -> Any:
        # A slice and a product are used instead of `take`. In TensorFlow, the gradient of `take` is
        # an IndexedSlices object, which Keras cannot divide by a loss scale.
        positions = ops.convert_to_tensor(self.position_table)[: ops.shape(rows)[1]]
        segments = ops.matmul(
            ops.one_hot(segment_ids, self.num_segments, dtype="float32"), self.segment_table
        )
        vectors = self.gather_rows(rows) + positions + segments
        return self.drop(ops.cast(self.norm(vectors), self.compute_dtype), training=training)


@keras.saving.register_keras_serializable(package="convert_tf")
class BertAttention(keras.layers.Layer):
    """Multi-head self-attention over all tokens, with biases and an output projection.

    Masking: masked keys have a score of −∞ before the softmax. Each row of the batch needs at least
    one token that is not padding.

    Args:
      num_heads: number of attention heads. It must divide the width of the input.
      dropout: dropout rate for the attention weights.

    Call arguments:
      x: vectors of the tokens, `[batch, tokens, dim]`.
      mask: bool `[batch, tokens]`, true for tokens and false for padding.

    Returns:
      The new vectors of the tokens, `[batch, tokens, dim]`.

    Example:
      y = BertAttention(12)(x, mask)

    Reference: arXiv 1706.03762 §3.2.
    """

    def __init__(self, num_heads: int, *, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.drop = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, x_shape: Any, mask_shape: Any = None) -> None:
        dim = x_shape[-1]
        # One matrix product computes queries, keys and values.
        self.kernel, self.bias, self.output_kernel, self.output_bias = (
            self.add_weight(shape=shape, initializer=initializer, name=name)
            for name, shape, initializer in (
                ("kernel", (dim, 3 * dim), _initializer()),
                ("bias", (3 * dim,), "zeros"),
                ("output_kernel", (dim, dim), _initializer()),
                ("output_bias", (dim,), "zeros"),
            )
        )

    def call(self, x: Any, mask: Any, training: bool = False) -> Any:
        dim = x.shape[-1]
        projected = dense(x, self.kernel, self.bias)
        queries, keys, values = (
            split_heads(projected[..., i * dim : (i + 1) * dim], self.num_heads) for i in range(3)
        )
        scale = 1.0 / math.sqrt(dim // self.num_heads)
        scores = ops.matmul(queries * scale, ops.swapaxes(keys, -1, -2))
        weights = attention_weights(scores, mask[:, None, None, :])
        weights = self.drop(ops.cast(weights, self.compute_dtype), training=training)
        attended = merge_heads(ops.matmul(weights, values))
        return dense(attended, self.output_kernel, self.output_bias)


@keras.saving.register_keras_serializable(package="convert_tf")
class BertBlock(keras.layers.Layer):
    """BERT block: self-attention and a GELU feed-forward layer, each with a skip and a layer norm.

    Masking: see `BertAttention`.

    Args:
      num_heads: number of attention heads.
      feed_forward_dim: hidden width of the feed-forward layer.
      epsilon: constant that the layer norms add to the variance.
      dropout: dropout rate for the attention weights and for the results of both sublayers.

    Call arguments:
      x: vectors of the tokens, `[batch, tokens, dim]`.
      mask: bool `[batch, tokens]`, true for tokens and false for padding.

    Returns:
      The new vectors of the tokens, `[batch, tokens, dim]`.

    Example:
      y = BertBlock(12, feed_forward_dim=3_072)(x, mask)

    Reference: arXiv 1810.04805 §3; arXiv 1606.08415 (exact GELU).
    """

    def __init__(
        self,
        num_heads: int,
        *,
        feed_forward_dim: int,
        epsilon: float = 1e-12,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.feed_forward_dim = feed_forward_dim
        policy = self.dtype_policy
        self.attention = BertAttention(num_heads, dropout=dropout, dtype=policy, name="attention")
        self.attention_norm, self.feed_forward_norm = (
            keras.layers.LayerNormalization(epsilon=epsilon, dtype=policy, name=name)
            for name in ("attention_norm", "feed_forward_norm")
        )
        self.attention_drop, self.feed_forward_drop = (
            keras.layers.Dropout(dropout, dtype=policy, name=name)
            for name in ("attention_dropout", "feed_forward_dropout")
        )

    def build(self, x_shape: Any, mask_shape: Any = None) -> None:
        dim = x_shape[-1]
        for layer in (self.attention, self.attention_norm, self.feed_forward_norm):
            layer.build(x_shape)
        hidden = self.feed_forward_dim
        self.hidden_kernel, self.output_kernel, self.hidden_bias, self.output_bias = (
            self.add_weight(shape=shape, initializer=initializer, name=name)
            for name, shape, initializer in (
                ("hidden_kernel", (dim, hidden), _initializer()),
                ("output_kernel", (hidden, dim), _initializer()),
                ("hidden_bias", (hidden,), "zeros"),
                ("output_bias", (dim,), "zeros"),
            )
        )

    def call(self, x: Any, mask: Any, training: bool = False) -> Any:
        attended = self.attention(x, mask, training=training)
        x = self.attention_norm(x + self.attention_drop(attended, training=training))
        hidden = ops.gelu(dense(x, self.hidden_kernel, self.hidden_bias), approximate=False)
        fed = dense(hidden, self.output_kernel, self.output_bias)
        return self.feed_forward_norm(x + self.feed_forward_drop(fed, training=training))
