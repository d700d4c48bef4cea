"""Configuration of heads and of what they are trained on.

Reference: arXiv 1905.01969 §4, §5.
"""

import dataclasses
from typing import Any

from convert_tf.config.base import Config, check
from convert_tf.config.train import overridden

HEADS = ("bi", "poly", "cross")
REDUCTIONS = ("sqrt_n", "first", "mean", "mean_without_first", "first_m_mean")
POLY_VARIANTS = ("learnt", "first_m", "last_m", "last_m_and_first")
NEGATIVES = ("in_batch", "given", "sampled", "mined")
FREEZE = ("nothing", "embeddings", "all_but_top_k")
AUTO = "auto"


@dataclasses.dataclass(frozen=True)
class HeadConfig(Config):
    """A head and how it is trained. The numbers are the paper's (arXiv 1905.01969 §4, §5.1,
    §5.3), but for `separate_trunks` and `output_std`, which are off by default.

    Args:
      head: `bi`, `poly` or `cross`.
      reduction: how a text becomes one vector: `sqrt_n` (ConveRT's), `first`, `mean`,
        `mean_without_first` (without [S], of trunks that have it) or `first_m_mean`; `poly` reduces
        candidates only, `cross` reads its score from the result. `auto` is `sqrt_n` on ConveRT's
        trunks and `first`, the paper's, on BERT-shaped ones.
      reduction_tokens: m of `first_m_mean`, in tokens.
      poly_codes: context vectors of `poly`, 1 to 360.
      poly_variant: which vectors: `learnt`, `first_m`, `last_m` or `last_m_and_first`.
      scale: factor of the dot products of `bi` and `poly`; 0 takes the one that the checkpoint was
        trained with.
      learn_scale: whether that factor is trained.
      output_std: standard deviation that the trunk's outputs are rescaled to before training; 0
        leaves them.
      separate_trunks: whether candidates have a trunk of their own, which starts as a copy.
      max_context_tokens: longer contexts lose tokens on the left, where the oldest turns are.
      max_candidate_tokens: longer candidates are cut.
      negatives: wrong candidates of each context, but for `in_batch`.
      negatives_from: `in_batch` (the other right candidates of the batch), `given` (by the data),
        `sampled` (from the right candidates of the data) or `mined` (the best wrong ones of
        `mined_with`).
      mined_with: dual encoder or ranker that mines.
      mined_top: how many of its best wrong candidates the negatives are drawn from.
      epochs: passes over the data.
      evaluations_per_epoch: evaluations on the dev data in each pass.
      plateau_decay: factor of the learning rate when the dev loss is not its lowest.
      freeze: `nothing`, `embeddings`, or `all_but_top_k`; `auto` is `embeddings` for the published
        weights of a BERT and `nothing` else, as in the paper (§5.1, §5.3),
        but for the position and segment tables and the norm behind them, which stay, too.
      trainable_blocks: k of `all_but_top_k`, counted from the top.
      max_examples: examples that are trained on, the first ones; 0 takes all.
    """

    head: str = "bi"
    reduction: str = AUTO
    reduction_tokens: int = 64
    poly_codes: int = 64
    poly_variant: str = "learnt"
    scale: float = 0.0
    learn_scale: bool = False
    output_std: float = 0.0
    separate_trunks: bool = False
    max_context_tokens: int = 120
    max_candidate_tokens: int = 60
    negatives: int = 15
    negatives_from: str = "in_batch"
    mined_with: str = ""
    mined_top: int = 100
    epochs: float = 1.0
    evaluations_per_epoch: int = 2
    plateau_decay: float = 0.4
    freeze: str = AUTO
    trainable_blocks: int = 1
    max_examples: int = 0

    def __post_init__(self) -> None:
        for name, choices in (
            ("head", HEADS),
            ("reduction", (AUTO, *REDUCTIONS)),
            ("poly_variant", POLY_VARIANTS),
            ("negatives_from", NEGATIVES),
            ("freeze", (AUTO, *FREEZE)),
        ):
            value = getattr(self, name)
            check(value in choices, f"{name} must be one of {choices}.", value)
        for name in ("reduction_tokens", "max_context_tokens", "max_candidate_tokens", "negatives",
                     "mined_top", "evaluations_per_epoch"):  # fmt: skip
            check(getattr(self, name) >= 1, f"{name} must be at least 1.", getattr(self, name))
        for name in ("scale", "output_std", "trainable_blocks", "max_examples"):
            check(getattr(self, name) >= 0, f"{name} must not be negative.", getattr(self, name))
        check(1 <= self.poly_codes <= 360, "poly_codes must be from 1 to 360.", self.poly_codes)
        check(self.epochs > 0, "epochs must be positive.", self.epochs)
        check(0 < self.plateau_decay <= 1, "plateau_decay must be in (0, 1].", self.plateau_decay)
        check(
            self.head != "cross" or self.negatives_from != "in_batch",
            "negatives_from must not be in_batch for a cross-encoder, which scores each pair anew.",
            self.negatives_from,
        )
        check(
            self.head != "cross" or not self.separate_trunks,
            "separate_trunks must be off for a cross-encoder, which reads both texts together.",
            self.separate_trunks,
        )
        check(
            (self.negatives_from == "mined") == bool(self.mined_with),
            "mined_with must name a checkpoint where negatives_from is mined, and only there.",
            (self.negatives_from, self.mined_with),
        )
        check(
            self.negatives_from != "mined" or self.mined_top >= self.negatives,
            "mined_top must be at least negatives.",
            self.mined_top,
        )


def unread_head_options(values: dict[str, Any]) -> list[str]:
    """Which of the given fields of a `HeadConfig` nothing reads, beside the others given."""
    config = HeadConfig.from_dict(values)
    is_read = {
        "poly_codes": config.head == "poly",
        "poly_variant": config.head == "poly",
        "reduction_tokens": config.reduction == "first_m_mean",
        "scale": config.head != "cross",
        "learn_scale": config.head != "cross",
        "negatives": config.negatives_from != "in_batch",
        "mined_top": config.negatives_from == "mined",
        "trainable_blocks": config.freeze == "all_but_top_k",
    }
    return sorted(name for name in values if not is_read.get(name, True))


def head_train_defaults(head: str, *, weights: str = "convert", **options: Any) -> dict[str, Any]:
    """What `TrainConfig` has for a head where nothing else is said (arXiv 1905.01969 §5.1, §5.3).

    The learning rate stays after the warm-up, and falls on plateaus only. The optimizer is Adamax,
    as for the paper's own pre-trained weights, and for BERT's published ones Adam with a decay of
    0.01. BERT-shaped trunks drop a tenth on all layers, as in their pre-training.

    Args:
      head: one of `HEADS`.
      weights: those that training starts from: `convert`, `bert` or `published_bert`.
      **options: what is said, fields of `TrainConfig`; see `overridden`.
    """
    defaults: dict[str, Any] = {
        "batch_size": 16 if head == "cross" else 256,
        "optimizer": "adamax",
        "learning_rate": 5e-5,
        "final_learning_rate": 5e-5,
        "warmup_steps": 1_000 if head == "cross" else 100,
        "label_smoothing": 0.0,
        "l2": 0.0,
        "embedding_clip": 0.0,
        "eval_examples": 1_000,
    }
    if weights != "convert":
        defaults |= {"embedding_dropout": 0.1, "attention_dropout": 0.1}
    if weights == "published_bert":
        defaults |= {"optimizer": "adamw", "weight_decay": 0.01}
    return overridden(defaults, options)
