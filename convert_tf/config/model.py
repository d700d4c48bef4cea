"""Configuration of the dual encoder.

Reference: arXiv 1911.03688 §2.1.
"""

import dataclasses
import math
from typing import Any, ClassVar

from convert_tf.config.base import (
    MAX_SIZE,
    MODEL,
    TOKENIZERS,
    Config,
    check,
    check_weights,
    option,
    preset,
    size,
)

MAX_TOKENS = 512  # default maximum number of tokens per text in exported models


@dataclasses.dataclass(frozen=True)
class ModelConfig(Config):
    """Sizes of a dual encoder. The defaults are from the paper (arXiv 1911.03688 §2.1, §3.1).

    Attributes:
      vocab_size: Number of entries in the vocabulary, without hash buckets.
      num_oov_buckets: Number of hash buckets for unknown characters.
      tokenizer: Kind of tokenizer: subword (as in the paper) or sentencepiece.
      embedding_dim: Width of the subword embeddings and the transformer blocks.
      position_table_sizes: Number of rows in each of the two position tables. Position i reads row
        (i mod size) from both tables.
      max_relative_attention: Maximum distance between two tokens that attend to each other. Give
        one number for each transformer block.
      num_heads: Number of attention heads per block; 1 in the paper, 8 in its ablation A.
      attention_dim: Query/key width of each attention head.
      use_relative_bias: Add a learned bias for each relative position to the attention scores.
      feed_forward_dim: Hidden width of the feed-forward layers.
      reduction_heads: Number of attention heads in the √N reduction. The width of the reduced
        encoding r is reduction_heads × embedding_dim.
      reduction_dim: Query/key width of each reduction head.
      side_layers: Number of hidden layers in each side network.
      side_hidden_dim: Width of the hidden layers in the side networks.
      use_side_skip: Add skip connections to the side networks.
      encoding_dim: Width of the normalised encodings h.
      embedding_bits: Number of bits per weight in the subword table: 8 for quantization-aware
        training, 32 for no quantization.
      max_tokens: Maximum number of tokens per text in training. Longer texts are cut.
      multi_context: Also read earlier turns of the dialogue. Up to ten are joined into one text.
    """

    heading: ClassVar[str] = MODEL
    former: ClassVar[dict[str, Any]] = {"use_value_projection": False}

    vocab_size: int = size(31_476)
    num_oov_buckets: int = size(1_000)
    tokenizer: str = option("subword", choices=TOKENIZERS)
    embedding_dim: int = size(512)
    position_table_sizes: tuple[int, int] = (47, 11)
    max_relative_attention: tuple[int, ...] = (3, 5, 48, 48, 48, 48)
    num_heads: int = size(1)
    attention_dim: int = size(64)
    use_relative_bias: bool = True
    feed_forward_dim: int = size(2_048)
    reduction_heads: int = size(2)
    reduction_dim: int = size(64)
    side_layers: int = option(3, at_least=0)
    side_hidden_dim: int = size(1_024)
    use_side_skip: bool = True
    encoding_dim: int = size(512)
    embedding_bits: int = 8
    max_tokens: int = size(60)
    multi_context: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        dim, hidden = self.embedding_dim, self.side_hidden_dim
        attention = self.num_heads * self.attention_dim
        reduction = self.reduction_heads * self.reduction_dim
        check_weights(
            {
                "vocab_size, num_oov_buckets and embedding_dim": self.num_ids * dim,
                "position_table_sizes and embedding_dim": sum(self.position_table_sizes) * dim,
                "feed_forward_dim and embedding_dim": self.feed_forward_dim * dim,
                "num_heads, attention_dim and embedding_dim": attention * dim,
                "reduction_heads, reduction_dim and embedding_dim": reduction * dim,
                "side_hidden_dim": hidden * max(hidden, self.reduced_dim, self.encoding_dim),
            },
            layers=max(len(self.max_relative_attention), self.side_layers),
        )
        check(
            len(self.position_table_sizes) == 2
            and all(1 <= rows <= MAX_SIZE for rows in self.position_table_sizes)
            and math.gcd(*self.position_table_sizes) == 1,
            f"position_table_sizes must be two coprime numbers from 1 to {MAX_SIZE}.",
            self.position_table_sizes,
        )
        check(
            len(self.max_relative_attention) >= 1
            and all(1 <= distance <= MAX_SIZE for distance in self.max_relative_attention),
            f"max_relative_attention must give a distance from 1 to {MAX_SIZE} for each block.",
            self.max_relative_attention,
        )
        check(
            self.embedding_dim % self.num_heads == 0,
            "embedding_dim must be a multiple of num_heads.",
            (self.embedding_dim, self.num_heads),
        )
        check(self.embedding_bits in (8, 32), "embedding_bits must be 8 or 32.",
               self.embedding_bits)  # fmt: skip

    @property
    def num_ids(self) -> int:
        """Number of rows in the embedding table, including hash buckets. Also the padding id."""
        return self.vocab_size + self.num_oov_buckets

    @property
    def reduced_dim(self) -> int:
        """Width of the reduced encoding r, the input of the side networks."""
        return self.reduction_heads * self.embedding_dim


MODEL_PRESETS: dict[str, dict[str, Any]] = {
    "convert": {},
    "convert_multi_context": {"multi_context": True},
    "convert_small": {"max_relative_attention": (3, 5, 48)},
    "tiny": {
        "embedding_dim": 64,
        "max_relative_attention": (3, 48),
        "attention_dim": 16,
        "feed_forward_dim": 128,
        "reduction_dim": 16,
        "side_layers": 1,
        "side_hidden_dim": 128,
        "encoding_dim": 64,
    },
}


def model_preset(name: str, **overrides: Any) -> ModelConfig:
    """Return the configuration of a preset, updated with the fields in `overrides`.

    Raises:
      ValueError: if `name` is not a preset, or an override is not a field.
    """
    return ModelConfig.from_dict({**preset(MODEL_PRESETS, name), **overrides})
