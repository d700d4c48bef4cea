"""From a sequence to one vector: the two-headed √N reduction."""

from typing import Any

from keras import ops

from convert_tf.layers.attention import attention_weights, split_heads
from convert_tf.layers.configured import ConfiguredLayer
from convert_tf.numerics.initializers import GlorotUniform


class SqrtNReduction(ConfiguredLayer):
    """Weighted sums of the sequence, one per head, scaled by the square root of its length.

    Each head has self-attention weights A (no value projection, no 1/√d). Instead of reducing the
    attended sequence, the weights are reduced and applied to the sequence once (footnote 4):
    weight of token j = Σ_i A_ij / √N over the N real queries i. Several texts may share a row
    ("segments"); each gets its own sum.

    Masking: a query reads keys of its own segment only, and padded queries are left out of the sum.
    A segment of length 0 reduces to zeros.

    Args:
      num_heads: weighted sums per text; two in the paper.
      attention_dim: query/key width of one head.

    Call arguments:
      x: `[rows, tokens, dim]`.
      segment_ids: int32 `[rows, tokens]`, 0 for padding, s for the s-th text of the row.
      segment_lengths: int32 `[rows, segments]`, tokens of each text of the row.
      attention_mask: bool `[rows, tokens, tokens]`, true within a segment.

    Returns:
      `[rows, segments, num_heads * dim]` in the compute dtype.

    Example:
      r = SqrtNReduction(2, 64)(x, segment_ids, segment_lengths, mask)

    Reference: arXiv 1911.03688 §2.1 and its footnote 4.
    """

    def __init__(self, num_heads: int, attention_dim: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.attention_dim = attention_dim

    def build(
        self,
        x_shape: Any,
        segment_ids_shape: Any = None,
        segment_lengths_shape: Any = None,
        attention_mask_shape: Any = None,
    ) -> None:
        self.query_key_kernel = self.add_weight(
            shape=(x_shape[-1], 2 * self.num_heads * self.attention_dim),
            initializer=GlorotUniform(),
            name="query_key_kernel",
        )

    def call(self, x: Any, segment_ids: Any, segment_lengths: Any, attention_mask: Any) -> Any:
        rows, tokens, dim = ops.shape(x)
        segments = ops.shape(segment_lengths)[1]
        projected = ops.matmul(x, self.query_key_kernel)
        queries, keys = (
            split_heads(half, self.num_heads) for half in ops.split(projected, 2, axis=-1)
        )
        weights = attention_weights(
            ops.matmul(queries, ops.swapaxes(keys, -1, -2)), attention_mask[:, None]
        )  # [rows, heads, queries, keys]
        is_real = ops.cast(segment_ids > 0, "float32")
        token_weights = ops.sum(weights * is_real[:, None, :, None], axis=2)

        lengths = ops.maximum(ops.cast(segment_lengths, "float32"), 1.0)
        own_segment = ops.cast(
            segment_ids[:, None, :] == ops.arange(1, segments + 1, dtype="int32")[None, :, None],
            "float32",
        )  # [rows, segments, tokens]
        spread = own_segment / ops.sqrt(lengths)[:, :, None]
        pooling = spread[:, :, None, :] * token_weights[:, None, :, :]
        pooling = ops.reshape(pooling, (rows, segments * self.num_heads, tokens))
        pooled = ops.matmul(ops.cast(pooling, self.compute_dtype), x)
        return ops.reshape(pooled, (rows, segments, self.num_heads * dim))
