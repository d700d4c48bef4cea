"""Configuration of BERT-like trunks.

Reference: arXiv 1905.01969 §4.1.
"""

import dataclasses
from typing import Any, ClassVar

from convert_tf.config.base import (
    MODEL,
    TOKENIZERS,
    Config,
    check,
    check_weights,
    option,
    preset,
    size,
)

BERT_TOKENIZERS = (*TOKENIZERS, "wordpiece")
# The supported kinds of layers in a sentence-transformers folder. Others, such as Dense, would
# change the cosines of the pooled outputs.
SENTENCE_LAYERS = frozenset({"Transformer", "Pooling", "Normalize"})


@dataclasses.dataclass(frozen=True)
class BertConfig(Config):
    """Sizes and special tokens of a BERT-like trunk. The defaults are those of BERT-base uncased.

    Attributes:
      vocab_size: Number of entries in the vocabulary, without hash buckets.
      num_oov_buckets: Number of hash buckets for unknown tokens. WordPiece uses none.
      tokenizer: Kind of tokenizer: wordpiece, subword or sentencepiece.
      start_id: Id of the token before the first text, which is [S], or [CLS] in a published BERT.
      separator_id: Id of the token after each text, which is [S], or [SEP] in a published BERT.
      surrounds_each: Also put an [S] before the second text of a joint sequence: [S] c [S] [S] y
        [S] (arXiv 1905.01969 §4.1, §4.3). Published BERTs were trained without this [S], on [CLS] c
        [SEP] y [SEP].
      mask_id: Id of the token that replaces masked tokens in pre-training.
      dim: Width of the embeddings and the transformer blocks.
      num_layers: Number of transformer blocks.
      num_heads: Number of attention heads per block.
      feed_forward_dim: Hidden width of the feed-forward layers.
      max_positions: Number of rows in the position table, which is the maximum number of tokens in
        a sequence, including special tokens.
      num_segments: Number of rows in the segment table.
      layer_norm_epsilon: Constant that the layer norms add to the variance.
    """

    heading: ClassVar[str] = MODEL

    vocab_size: int = size(30_522)
    num_oov_buckets: int = option(0, at_least=0)
    tokenizer: str = option("wordpiece", choices=BERT_TOKENIZERS)
    start_id: int = 101
    separator_id: int = 102
    surrounds_each: bool = False
    mask_id: int = 103
    dim: int = size(768)
    num_layers: int = size(12)
    num_heads: int = size(12)
    feed_forward_dim: int = size(3_072)
    max_positions: int = size(512)
    num_segments: int = option(2, at_least=2)
    layer_norm_epsilon: float = option(1e-12, above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weights(
            {
                "vocab_size, num_oov_buckets, start_id, separator_id, mask_id and dim": (
                    self.num_rows * self.dim
                ),
                "dim and feed_forward_dim": self.dim * max(self.dim, self.feed_forward_dim),
                "max_positions and dim": self.max_positions * self.dim,
                "num_segments and dim": self.num_segments * self.dim,
            },
            layers=self.num_layers,
        )
        for name in ("start_id", "separator_id", "mask_id"):
            check(
                getattr(self, name) >= 0 and getattr(self, name) != self.padding_id,
                f"{name} must be non-negative and differ from the padding id, {self.padding_id}.",
                getattr(self, name),
            )
        check(self.dim % self.num_heads == 0, "dim must be a multiple of num_heads.",
               (self.dim, self.num_heads))  # fmt: skip
        check(self.max_positions >= self.num_special + 1, "max_positions must be at least "
               f"{self.num_special + 1}, for {self.num_special} special tokens and some text.",
               self.max_positions)  # fmt: skip

    @property
    def is_published(self) -> bool:
        """Whether the vocabulary includes the start token, as in published BERTs."""
        return self.start_id < self.num_ids

    @property
    def num_special(self) -> int:
        """Number of special tokens in a joint sequence."""
        return 4 if self.surrounds_each else 3

    @property
    def num_ids(self) -> int:
        """Number of token ids, including hash buckets."""
        return self.vocab_size + self.num_oov_buckets

    @property
    def padding_id(self) -> int:
        """Id used for padding, equal to `num_ids`. A published BERT's [PAD] is not used."""
        return self.num_ids

    @property
    def num_rows(self) -> int:
        """Number of rows in the token table.

        Special tokens outside the vocabulary have rows after the row for padding.
        """
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
    """Return the configuration of a preset with a vocabulary that has no special tokens.

    [S] and [MASK] get additional rows in the token table. Every text has an [S] before and after
    it, as in the paper.

    Args:
      name: name of the preset, one of `BERT_PRESETS`.
      vocab_size, num_oov_buckets, tokenizer: sizes and kind of the vocabulary, as in `BertConfig`.
      **overrides: values for other fields of `BertConfig`.

    Raises:
      ValueError: if `name` is not a preset, or an override is not a field.
    """
    vocabulary = {
        "vocab_size": vocab_size,
        "num_oov_buckets": num_oov_buckets,
        "tokenizer": tokenizer,
    }
    after_padding = vocab_size + num_oov_buckets + 1
    ids = {"start_id": after_padding, "separator_id": after_padding, "mask_id": after_padding + 1}
    fields = {
        **preset(BERT_PRESETS, name),
        **vocabulary,
        **ids,
        "surrounds_each": True,
        **overrides,
    }
    return BertConfig.from_dict(fields)
