"""Transformer block of ConveRT."""

from typing import Any

import keras

from convert_tf.layers.attention import RelativeSelfAttention
from convert_tf.layers.dropout import Dropout
from convert_tf.layers.feed_forward import FeedForward
from convert_tf.layers.layer_norm import LayerNorm


class TransformerBlock(keras.layers.Layer):
    """Transformer block: self-attention and feed-forward, each with a skip and layer norm.

    The layer norm comes after the sum, as in the original Transformer, and is computed in float32.

    Masking: see `RelativeSelfAttention`.

    Args:
      attention_dim: query/key width of one head.
      max_distance: how many tokens away attention looks at most.
      feed_forward_dim: hidden width of the feed-forward layer.
      num_heads, use_relative_bias: see `RelativeSelfAttention`.
      dropout: drop rate after self-attention.

    Call arguments:
      x: `[batch, tokens, dim]`.
      attention_mask: bool `[batch, tokens, tokens]` or None.
      across_mask, across_bias: see `RelativeSelfAttention`; only for joint sequences.

    Returns:
      `[batch, tokens, dim]`.

    Example:
      y = TransformerBlock(64, 48, feed_forward_dim=2048)(x, attention_mask=mask)

    Reference: arXiv 1911.03688 §2.1; arXiv 1706.03762 §3.1.
    """

    def __init__(
        self,
        attention_dim: int,
        max_distance: int,
        *,
        feed_forward_dim: int,
        num_heads: int = 1,
        use_relative_bias: bool = True,
        dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.attention = RelativeSelfAttention(
            attention_dim,
            max_distance,
            num_heads=num_heads,
            use_relative_bias=use_relative_bias,
            dtype=policy,
            name="attention",
        )
        self.drop = Dropout(dropout, dtype=policy, name="dropout")
        self.attention_norm = LayerNorm(epsilon=1e-6, dtype=policy, name="attention_norm")
        self.feed_forward = FeedForward(feed_forward_dim, dtype=policy, name="feed_forward")
        self.feed_forward_norm = LayerNorm(epsilon=1e-6, dtype=policy, name="feed_forward_norm")

    def build(self, x_shape: Any) -> None:
        for layer in (
            self.attention, self.attention_norm, self.feed_forward, self.feed_forward_norm
        ):  # fmt: skip
            layer.build(x_shape)

    def call(
        self,
        x: Any,
        attention_mask: Any = None,
        across_mask: Any = None,
        across_bias: Any = None,
        training: bool = False,
    ) -> Any:
        attended = self.attention(
            x, attention_mask=attention_mask, across_mask=across_mask, across_bias=across_bias
        )
        x = self.attention_norm(x + self.drop(attended, training=training), training=training)
        transformed = self.feed_forward(x, training=training)
        return self.feed_forward_norm(x + transformed, training=training)
