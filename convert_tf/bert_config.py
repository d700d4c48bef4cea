"""Configuration of BERT-shaped trunks and of their pre-training.

Reference: arXiv 1905.01969 §4.1.
"""

import dataclasses
from typing import Any

from convert_tf.config_base import PRECISIONS, TOKENIZERS, Config, check

BERT_TOKENIZERS = (*TOKENIZERS, "wordpiece")


@dataclasses.dataclass(frozen=True)
class BertConfig(Config):
    """What a BERT-shaped trunk is. The defaults are those of BERT-base, uncased.

    Args:
      vocab_size: entries of the vocabulary, hash buckets not counted.
      num_oov_buckets: hash buckets for tokens outside the vocabulary; 0 with WordPiece.
      tokenizer: `"wordpiece"`, `"subword"` or `"sentencepiece"`.
      start_id: id of the token before the first text: [S], or [CLS] of a published model.
      separator_id: id of the token after each text: [S], or [SEP].
      mask_id: id that the masked language model puts in a token's place.
      dim: width of embeddings and blocks.
      num_layers: blocks.
      num_heads: attention heads of a block.
      feed_forward_dim: hidden width of the feed-forward layer of a block.
      max_positions: rows of the position table: longest sequence, in tokens, [S] included.
      num_segments: rows of the segment table.
      layer_norm_epsilon: what the layer norms add to the variance.
    """

    vocab_size: int = 30_522
    num_oov_buckets: int = 0
    tokenizer: str = "wordpiece"
    start_id: int = 101
    separator_id: int = 102
    mask_id: int = 103
    dim: int = 768
    num_layers: int = 12
    num_heads: int = 12
    feed_forward_dim: int = 3_072
    max_positions: int = 512
    num_segments: int = 2
    layer_norm_epsilon: float = 1e-12

    def __post_init__(self) -> None:
        for name in ("vocab_size", "dim", "num_layers", "num_heads", "feed_forward_dim"):
            check(getattr(self, name) >= 1, f"{name} must be at least 1.", getattr(self, name))
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
        check(self.max_positions >= 4, "max_positions must be at least 4: two tokens of text "
               "between two [S].", self.max_positions)  # fmt: skip
        check(self.num_segments >= 2, "num_segments must be at least 2: context and candidate.",
               self.num_segments)  # fmt: skip
        check(self.layer_norm_epsilon > 0, "layer_norm_epsilon must be positive.",
               self.layer_norm_epsilon)  # fmt: skip

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


@dataclasses.dataclass(frozen=True)
class PretrainConfig(Config):
    """How a BERT-shaped trunk is pre-trained. The defaults are those of arXiv 1905.01969 §4.1.

    Args:
      data: folder of records, or of token ids.
      train_split: split that is trained on.
      eval_split: split that is evaluated on.
      max_tokens: longer texts are cut to this many tokens.
      shuffle_buffer: examples in memory together, from which batches of similar length are made.
      steps: optimizer steps in all; masked language model and next utterance take turns.
      batch_tokens: tokens of a batch, special tokens and padding counted.
      mask_rate: share of the tokens that the language model predicts.
      learning_rate: peak learning rate of Adam.
      beta_1, beta_2: Adam's decays.
      warmup_steps: steps of linear warm-up, after which the rate falls with the inverse square root
        of the steps; the paper does not say how many, XLM has 4,000.
      dropout: drop rate on all layers.
      precision: one of `auto`, `float32`, `mixed_bfloat16`, `mixed_float16`.
      loss_scale: factor of the loss, for the gradients in float16.
      eval_every: steps between evaluations.
      eval_examples: at most this many examples are evaluated on.
      checkpoint_every: steps between checkpoints.
      keep_checkpoints: how many of the newest checkpoints are kept for resuming.
      seed: seed of the order, of masking, of random utterances, initial weights and dropout.
    """

    data: str = ""
    train_split: str = "train"
    eval_split: str = "dev"
    max_tokens: int = 128
    shuffle_buffer: int = 20_000
    steps: int = 100_000
    batch_tokens: int = 32_000
    mask_rate: float = 0.15
    learning_rate: float = 2e-4
    beta_1: float = 0.9
    beta_2: float = 0.98
    warmup_steps: int = 4_000
    dropout: float = 0.1
    precision: str = "auto"
    loss_scale: float = 128.0
    eval_every: int = 5_000
    eval_examples: int = 2_000
    checkpoint_every: int = 1_000
    keep_checkpoints: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("max_tokens", "steps", "batch_tokens", "warmup_steps", "eval_every",
                     "eval_examples", "checkpoint_every", "keep_checkpoints"):  # fmt: skip
            check(getattr(self, name) >= 1, f"{name} must be at least 1.", getattr(self, name))
        check(self.shuffle_buffer >= 4, "shuffle_buffer must be at least 4: two pairs for each "
               "objective.", self.shuffle_buffer)  # fmt: skip
        check(
            self.precision in PRECISIONS, f"precision must be one of {PRECISIONS}.", self.precision
        )
        for name in ("learning_rate", "loss_scale"):
            check(getattr(self, name) > 0, f"{name} must be positive.", getattr(self, name))
        for name in ("beta_1", "beta_2", "dropout"):
            check(0 <= getattr(self, name) < 1, f"{name} must be in [0, 1).", getattr(self, name))
        check(0 < self.mask_rate < 1, "mask_rate must be in (0, 1).", self.mask_rate)
        check(self.seed >= 0, "seed must not be negative.", self.seed)


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
    }
    return BertConfig.from_dict({**BERT_PRESETS[name], **own, **overrides})
