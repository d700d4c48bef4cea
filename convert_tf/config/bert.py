"""Configuration of BERT-shaped trunks.

Reference: arXiv 1905.01969 §4.1.
"""

import dataclasses
from typing import Any, ClassVar

from convert_tf.config.base import MODEL, TOKENIZERS, Config, check, check_sizes, option

BERT_TOKENIZERS = (*TOKENIZERS, "wordpiece")


@dataclasses.dataclass(frozen=True)
class BertConfig(Config):
    """What a BERT-shaped trunk is. The defaults are those of BERT-base, uncased."""

    heading: ClassVar[str] = MODEL

    vocab_size: int = option(30_522, "Entries of the vocabulary, hash buckets not counted.")
    num_oov_buckets: int = option(
        0, "Hash buckets for tokens outside the vocabulary; 0 with WordPiece."
    )
    tokenizer: str = option("wordpiece", "wordpiece, subword or sentencepiece.")
    start_id: int = option(
        101, "Id of the token before the first text: [S], or [CLS] of a published model."
    )
    separator_id: int = option(102, "Id of the token after each text: [S], or [SEP].")
    surrounds_each: bool = option(
        False,
        "Whether the second text of a joint sequence has an [S] before it, as in [S] c [S] [S] y "
        "[S] (arXiv 1905.01969 §4.1, §4.3). Published BERTs were trained with [CLS] c [SEP] y "
        "[SEP].",
    )
    mask_id: int = option(103, "Id that the masked language model puts in a token's place.")
    dim: int = option(768, "Width of embeddings and blocks.")
    num_layers: int = option(12, "Blocks.")
    num_heads: int = option(12, "Attention heads of a block.")
    feed_forward_dim: int = option(3_072, "Hidden width of the feed-forward layer of a block.")
    max_positions: int = option(
        512, "Rows of the position table: longest sequence, in tokens, [S] included."
    )
    num_segments: int = option(2, "Rows of the segment table.")
    layer_norm_epsilon: float = option(1e-12, "What the layer norms add to the variance.")

    def __post_init__(self) -> None:
        super().__post_init__()
        names = ("vocab_size", "dim", "num_layers", "num_heads", "feed_forward_dim",
                 "max_positions")  # fmt: skip
        check_sizes(
            {name: getattr(self, name) for name in names},
            matrices={
                "vocab_size, num_oov_buckets, start_id, separator_id, mask_id and dim": (
                    self.num_rows * self.dim
                ),
                "dim and feed_forward_dim": self.dim * max(self.dim, self.feed_forward_dim),
                "max_positions and dim": self.max_positions * self.dim,
                "num_segments and dim": self.num_segments * self.dim,
            },
            layers=self.num_layers,
        )
        check(self.num_oov_buckets >= 0, "num_oov_buckets must not be negative.",
               self.num_oov_buckets)  # fmt: skip
        check(self.tokenizer in BERT_TOKENIZERS, f"tokenizer must be one of {BERT_TOKENIZERS}.",
               self.tokenizer)  # fmt: skip
        for name in ("start_id", "separator_id", "mask_id"):
            check(
                getattr(self, name) >= 0 and getattr(self, name) != self.padding_id,
                f"{name} must be an id, and not that of padding ({self.padding_id}).",
                getattr(self, name),
            )
        check(self.dim % self.num_heads == 0, "dim must be a multiple of num_heads.",
               (self.dim, self.num_heads))  # fmt: skip
        check(self.max_positions >= self.num_special + 1, "max_positions must be at least "
               f"{self.num_special + 1}: room for text between {self.num_special} special tokens.",
               self.max_positions)  # fmt: skip
        check(self.num_segments >= 2, "num_segments must be at least 2: context and candidate.",
               self.num_segments)  # fmt: skip
        check(self.layer_norm_epsilon > 0, "layer_norm_epsilon must be positive.",
               self.layer_norm_epsilon)  # fmt: skip

    @property
    def is_published(self) -> bool:
        """Whether it has the [CLS] of its vocabulary, as published BERTs do."""
        return self.start_id < self.num_ids

    @property
    def num_special(self) -> int:
        """Special tokens of a joint sequence."""
        return 4 if self.surrounds_each else 3

    @property
    def num_ids(self) -> int:
        """Ids that text is cut into; also the id of padding."""
        return self.vocab_size + self.num_oov_buckets

    @property
    def padding_id(self) -> int:
        """Id of padding, equal to `num_ids`. A published model's own [PAD] is never used."""
        return self.num_ids

    @property
    def num_rows(self) -> int:
        """Rows of the token table. Special tokens outside the vocabulary come behind padding."""
        return max(self.num_ids, 1 + max(self.start_id, self.separator_id, self.mask_id))


BERT_PRESETS: dict[str, dict[str, Any]] = {
    "bert_base": {},
    "bert_tiny": {
        "dim": 64,
        "num_layers": 2,
        "num_heads": 4,
        "feed_forward_dim": 128,
        "max_positions": 128,
    },
}


def bert_preset(
    name: str, *, vocab_size: int, num_oov_buckets: int, tokenizer: str, **overrides: Any
) -> BertConfig:
    """The preset `name` for a vocabulary without special tokens: [S] and [MASK] get own rows.

    A new trunk is the paper's, with [S] around each text.

    Args:
      name: one of `BERT_PRESETS`.
      vocab_size, num_oov_buckets, tokenizer: of the vocabulary.
      **overrides: other fields of `BertConfig`, the ids of special tokens that the vocabulary
        holds, say.

    Raises:
      ValueError: `name` is no preset, or an override names no field.
    """
    if name not in BERT_PRESETS:
        raise ValueError(
            f"A BERT must be one of the presets {sorted(BERT_PRESETS)}. Received: {name!r}."
        )
    behind_padding = vocab_size + num_oov_buckets + 1
    own = {
        "vocab_size": vocab_size,
        "num_oov_buckets": num_oov_buckets,
        "tokenizer": tokenizer,
        "start_id": behind_padding,
        "separator_id": behind_padding,
        "mask_id": behind_padding + 1,
        "surrounds_each": True,
    }
    return BertConfig.from_dict({**BERT_PRESETS[name], **own, **overrides})
