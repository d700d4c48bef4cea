"""Self-attention with a maximum distance and a bias for each relative position."""

import math
from typing import Any

import keras
from keras import ops

from convert_tf.numerics.initializers import glorot_uniform

MASKED_SCORE = float("-inf")


def attention_weights(scores: Any, attention_mask: Any) -> Any:
    """Return the softmax over the keys, in float32. Masked keys get exactly 0.

    Args:
      scores: attention scores, `[..., queries, keys]`, any float dtype.
      attention_mask: bool, broadcastable to `scores`, true where the query may read the key. Every
        query must have at least one such key.

    Returns:
      The attention weights, float32 `[..., queries, keys]`. Each row sums to 1.
    """
    scores = ops.where(attention_mask, ops.cast(scores, "float32"), MASKED_SCORE)
    return ops.softmax(scores, axis=-1)


def split_heads(x: Any, num_heads: int) -> Any:
    """Reshape `[batch, tokens, heads * dim]` to `[batch, heads, tokens, dim]`."""
    batch, tokens, width = ops.shape(x)
    return ops.transpose(
        ops.reshape(x, (batch, tokens, num_heads, width // num_heads)), (0, 2, 1, 3)
    )


def merge_heads(x: Any) -> Any:
    """Reshape `[batch, heads, tokens, dim]` to `[batch, tokens, heads * dim]`."""
    batch, num_heads, tokens, dim = ops.shape(x)
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (batch, tokens, num_heads * dim))


@keras.saving.register_keras_serializable(package="convert_tf")
class RelativeSelfAttention(keras.layers.Layer):
    """Self-attention that looks at most `max_distance` tokens away.

    A learned bias for each relative position is added to the scores. Keys further away than
    `max_distance` are masked. There is no value projection, because the paper's number of
    parameters leaves no room for one: the attention weights are applied to the sequence itself.
    With several heads, each head reads one slice of the vectors.

    Masking: masked keys have a score of −∞ before the softmax. Every query needs at least one
    unmasked key within `max_distance`, for example itself. Padding may attend to padding, because
    nothing reads the result.

    Args:
      attention_dim: query/key width of each head.
      max_distance: largest distance |i − j| at which token i reads token j.
      num_heads: number of attention heads; one in the paper.
      use_relative_bias: whether to learn a bias for each relative position.

    Call arguments:
      x: vectors of the tokens, `[batch, tokens, dim]`.
      attention_mask: bool `[batch, tokens, tokens]`, true where query i may read key j. If None,
        every query may read all keys within `max_distance`.
      across_mask: bool `[batch, tokens, tokens]`, true where tokens i and j belong to different
        texts of a joint sequence. There is no maximum distance for these pairs, and `across_bias`
        replaces the bias of the relative position. None for single texts.
      across_bias: bias of each head for the pairs in `across_mask`, float32 `[num_heads]`. Required
        with `across_mask`.

    Returns:
      The new vectors of the tokens, `[batch, tokens, dim]`.

    Example:
      attention = RelativeSelfAttention(64, 48)
      y = attention(x, attention_mask=mask)

    Reference: arXiv 1911.03688 §2.1; arXiv 1803.02155 (maximum relative attention).
    """

    def __init__(
        self,
        attention_dim: int,
        max_distance: int,
        *,
        num_heads: int = 1,
        use_relative_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.attention_dim = attention_dim
        self.max_distance = max_distance
        self.num_heads = num_heads
        self.use_relative_bias = use_relative_bias

    def build(self, x_shape: Any) -> None:
        self.query_key_kernel = self.add_weight(
            shape=(x_shape[-1], 2 * self.num_heads * self.attention_dim),
            initializer=glorot_uniform(),
            name="query_key_kernel",
        )
        if self.use_relative_bias:
            self.relative_bias = self.add_weight(
                shape=(self.num_heads, 2 * self.max_distance + 1),
                initializer="zeros",
                autocast=False,
                name="relative_bias",
            )

    def call(
        self, x: Any, attention_mask: Any = None, across_mask: Any = None, across_bias: Any = None
    ) -> Any:
        projected = ops.matmul(x, self.query_key_kernel)
        queries, keys = ops.split(projected, 2, axis=-1)
        values = x
        if self.num_heads > 1:
            queries, keys, values = (
                split_heads(y, self.num_heads) for y in (queries, keys, values)
            )
        scores = ops.matmul(queries, ops.swapaxes(keys, -1, -2)) / math.sqrt(self.attention_dim)
        weights = self._weights(scores, attention_mask, across_mask, across_bias)
        attended = ops.matmul(ops.cast(weights, self.compute_dtype), values)
        return merge_heads(attended) if self.num_heads > 1 else attended

    def _weights(self, scores: Any, attention_mask: Any, across_mask: Any, across_bias: Any) -> Any:
        positions = ops.arange(ops.shape(scores)[-1], dtype="int32")
        distance = positions[None, :] - positions[:, None]  # j − i, at [i, j]
        reachable = ops.abs(distance) <= self.max_distance
        unbiased_scores = scores = ops.cast(scores, "float32")
        if self.use_relative_bias:
            index = ops.clip(distance + self.max_distance, 0, 2 * self.max_distance)
            bias = ops.take(self.relative_bias, index, axis=1)  # [heads, tokens, tokens]
            scores = scores + (bias if self.num_heads > 1 else bias[0])
        if across_mask is not None:
            reachable = ops.logical_or(reachable, across_mask)
            across_bias = ops.cast(across_bias, "float32")
            if self.num_heads > 1:
                across_mask, across_bias = across_mask[:, None], across_bias[:, None, None]
            scores = ops.where(across_mask, unbiased_scores + across_bias, scores)
        if attention_mask is not None:
            reachable = ops.logical_and(reachable, attention_mask)
        if self.num_heads > 1 and len(reachable.shape) == 3:
            reachable = reachable[:, None]
        return attention_weights(scores, reachable)
