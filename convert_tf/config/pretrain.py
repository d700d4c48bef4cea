"""Configuration of the pre-training of BERT-shaped trunks.

Reference: arXiv 1905.01969 §4.1.
"""

import dataclasses
from typing import Any

from convert_tf.config.base import PRECISIONS, Config, check


@dataclasses.dataclass(frozen=True)
class PretrainConfig(Config):
    """How a BERT-shaped trunk is pre-trained. The defaults are those of arXiv 1905.01969 §4.1.

    Args:
      data: folder of records, or of token ids.
      train_split: split that is trained on.
      eval_split: split that is evaluated on.
      all_turns: whether a context is all turns, the oldest first, as rankers read them; of token
        ids, which do not say where a turn ends, it is the last turn.
      max_tokens: longer texts are cut to this many tokens; a context of all turns keeps its last.
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
    all_turns: bool = True
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

    def changes_since(self, before: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        # Runs that do not say it began when a context was the last turn.
        return super().changes_since({"all_turns": False, **before})

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
