"""Reductions: layers that turn a trunk's outputs for a text into one vector."""

from typing import Any

import keras
from keras import ops

from convert_tf.layers.attention import attention_weights, split_heads
from convert_tf.numerics.initializers import glorot_uniform


@keras.saving.register_keras_serializable(package="convert_tf")
class SqrtNReduction(keras.layers.Layer):
    """Weighted sums of the outputs, one per head, divided by the square root of the text's length.

    Each head computes self-attention weights A, without a value projection and without the factor
    1/√d. The weight of token j is Σ_i A_ij / √N, where i runs over the N tokens of the text. This
    gives the same result as attention followed by a sum (footnote 4), but takes less time. A row
    may contain several texts ("segments"), and each text gets its own sum.

    Masking: a query reads only keys in its segment, and padded queries are omitted from the sum. A
    segment of length 0 reduces to zeros.

    Args:
      num_heads: number of weighted sums per text; two in the paper.
      attention_dim: query/key width of each head.

    Call arguments:
      x: outputs of the trunk, `[rows, tokens, dim]`.
      segment_ids: text of each token, int32 `[rows, tokens]`: s for the s-th text of the row, 0
        for padding.
      segment_lengths: number of tokens in each text of a row, int32 `[rows, segments]`.
      attention_mask: bool `[rows, tokens, tokens]`, true for two tokens of the same segment.

    Returns:
      The weighted sums of all heads, `[rows, segments, num_heads * dim]`, in the compute dtype.

    Example:
      r = SqrtNReduction(2, 64)(x, segment_ids, segment_lengths, mask)

    Reference: arXiv 1911.03688 §2.1 and its footnote 4.
    """

    def __init__(self, num_heads: int, attention_dim: int, **kwargs: Any) -> None:
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
            initializer=glorot_uniform(),
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
        is_in_segment = ops.cast(
            segment_ids[:, None, :] == ops.arange(1, segments + 1, dtype="int32")[None, :, None],
            "float32",
        )  # [rows, segments, tokens]
        factors = is_in_segment / ops.sqrt(lengths)[:, :, None]
        pooling = factors[:, :, None, :] * token_weights[:, None, :, :]
        pooling = ops.reshape(pooling, (rows, segments * self.num_heads, tokens))
        pooled = ops.matmul(ops.cast(pooling, self.compute_dtype), x)
        return ops.reshape(pooled, (rows, segments, self.num_heads * dim))


@keras.saving.register_keras_serializable(package="convert_tf")
class Reduction(keras.layers.Layer):
    """Turn a trunk's outputs for a text into one vector.

    The kinds are:
      `sqrt_n`: learned attention as in ConveRT (`SqrtNReduction`), with the heads concatenated;
      `first`: the first output, which is the output for [S] if the trunk adds [S];
      `mean`: the mean of all outputs;
      `mean_without_first`: the mean of all outputs except the first;
      `first_m_mean`: the mean of the first m outputs, or of all outputs if there are fewer than m.

    Masking: padding is never read. A text without tokens reduces to zeros.

    Args:
      kind: kind of the reduction, one of `convert_tf.config.ranker.REDUCTIONS`.
      num_tokens: number m of outputs that `first_m_mean` averages.
      shared: a `SqrtNReduction` that `sqrt_n` uses, or None to create one with two heads and an
        `attention_dim` of 64.

    Call arguments:
      sequence: outputs of the trunk for the texts, `[batch, tokens, dim]`.
      token_mask: bool `[batch, tokens]`, true for tokens and false for padding.

    Returns:
      One vector for each text, `[batch, dim]`, in the compute dtype. With `sqrt_n`, vectors are as
      wide as the result of the `SqrtNReduction`.

    Example:
      y = Reduction("mean", shared=None)(sequence, mask)

    Reference: arXiv 1905.01969 §4.2, and appendix B, which compares `first`, `first_m_mean` with 16
    and 64 tokens, and `mean_without_first`; arXiv 1911.03688 §2.1.
    """

    def __init__(
        self, kind: str, *, num_tokens: int = 64, shared: SqrtNReduction | None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.kind = kind
        self.num_tokens = num_tokens
        if kind == "sqrt_n":
            self.attention = shared or SqrtNReduction(
                2, 64, dtype=self.dtype_policy, name="attention"
            )

    def build(self, sequence_shape: Any, token_mask_shape: Any = None) -> None:
        if self.kind == "sqrt_n" and not self.attention.built:
            self.attention.build(sequence_shape)

    def width(self, dim: int) -> int:
        """Return the width of the vectors if the trunk's outputs have width `dim`."""
        return dim * self.attention.num_heads if self.kind == "sqrt_n" else dim

    def call(self, sequence: Any, token_mask: Any) -> Any:
        if self.kind == "sqrt_n":
            attention_mask = token_mask[:, :, None] == token_mask[:, None, :]
            segment_ids = ops.cast(token_mask, "int32")
            lengths = ops.sum(segment_ids, axis=1, keepdims=True)
            return self.attention(sequence, segment_ids, lengths, attention_mask)[:, 0]
        is_real = ops.cast(token_mask, self.compute_dtype)
        if self.kind == "first":
            return sequence[:, 0] * is_real[:, :1]
        if self.kind == "mean_without_first":
            sequence, is_real = sequence[:, 1:], is_real[:, 1:]
        elif self.kind == "first_m_mean":
            sequence, is_real = sequence[:, : self.num_tokens], is_real[:, : self.num_tokens]
        total = ops.squeeze(ops.matmul(is_real[:, None, :], sequence), axis=1)
        return total / ops.maximum(ops.sum(is_real, axis=1, keepdims=True), 1.0)
