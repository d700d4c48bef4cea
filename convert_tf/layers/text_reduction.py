"""From the outputs for a text to one vector, in each of the ways that the heads know."""

from typing import Any

from keras import ops

from convert_tf.layers.configured import ConfiguredLayer
from convert_tf.layers.reduction import SqrtNReduction

REDUCTIONS = ("sqrt_n", "first", "mean", "mean_without_first")


class Reduction(ConfiguredLayer):
    """From the outputs for a text to one vector.

    `sqrt_n` is ConveRT's two-headed attention, whose weights are learned and whose result is
    `num_heads` times as wide; `first` is the first output, that of [S] where the trunk has one;
    `mean` is the mean of all outputs, and `mean_without_first` that of all but the first.

    Masking: padded outputs are never read. A text without tokens reduces to zeros.

    Args:
      kind: one of `REDUCTIONS`.
      num_heads, attention_dim: of `sqrt_n`; see `SqrtNReduction`.
      shared: a `SqrtNReduction` to use in place of an own one.

    Call arguments:
      sequence: `[batch, tokens, dim]`.
      token_mask: bool `[batch, tokens]`, true where there is a token.

    Returns:
      `[batch, dim]` in the compute dtype; `[batch, num_heads * dim]` for `sqrt_n`.

    Raises:
      ValueError: no such kind.

    Example:
      y = Reduction("mean")(sequence, mask)

    Reference: arXiv 1905.01969 §4.2 and appendix B, whose mean leaves out the first output, that
    of [S]; arXiv 1911.03688 §2.1.
    """

    def __init__(
        self,
        kind: str,
        *,
        num_heads: int = 2,
        attention_dim: int = 64,
        shared: SqrtNReduction | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if kind not in REDUCTIONS:
            raise ValueError(
                f"A reduction must be one of {', '.join(REDUCTIONS)}. Received: {kind!r}. "
                "Choose one of them."
            )
        self.kind = kind
        self.num_heads = num_heads
        self.attention_dim = attention_dim
        self.shared = shared
        if kind == "sqrt_n":
            self.attention = shared or SqrtNReduction(
                num_heads, attention_dim, dtype=self.dtype_policy, name="attention"
            )

    def build(self, sequence_shape: Any, token_mask_shape: Any = None) -> None:
        if self.kind == "sqrt_n" and not self.attention.built:
            self.attention.build(sequence_shape)

    def width(self, dim: int) -> int:
        """Width of the result for outputs of width `dim`."""
        return dim * self.attention.num_heads if self.kind == "sqrt_n" else dim

    def call(self, sequence: Any, token_mask: Any) -> Any:
        if self.kind == "sqrt_n":
            same_text = token_mask[:, :, None] == token_mask[:, None, :]
            segment_ids = ops.cast(token_mask, "int32")
            lengths = ops.sum(segment_ids, axis=1, keepdims=True)
            return self.attention(sequence, segment_ids, lengths, same_text)[:, 0]
        real = ops.cast(token_mask, self.compute_dtype)
        if self.kind == "first":
            return sequence[:, 0] * real[:, :1]
        if self.kind == "mean_without_first":
            sequence, real = sequence[:, 1:], real[:, 1:]
        total = ops.squeeze(ops.matmul(real[:, None, :], sequence), axis=1)
        return total / ops.maximum(ops.sum(real, axis=1, keepdims=True), 1.0)
