"""Configuration of training and of the data.

Reference: arXiv 1911.03688 §3.1.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from convert_tf.config.base import PRECISIONS, Config, check

OPTIMIZERS = ("adadelta", "adam", "adamw", "adamax")
LOSS_REDUCTIONS = ("mean", "sum")


@dataclasses.dataclass(frozen=True)
class TrainConfig(Config):
    """How the network is trained. The defaults are the paper's pre-training (§3.1), but
    for `loss_reduction` and what the paper does not say.

    Args:
      steps: optimizer steps in all.
      batch_size: pairs per step; each context's negatives are the other responses of the batch.
      micro_batch: pairs that are encoded at a time, which sets the memory of a step; it divides
        batch_size, and changes neither loss nor gradient. 0 encodes the whole batch at once.
      optimizer: one of `adadelta`, `adam`, `adamw`, `adamax`.
      learning_rate: peak learning rate.
      final_learning_rate: learning rate at the last step, reached by cosine decay; at most the
        peak. Flags without it keep the recipe's share of the peak.
      warmup_steps: steps of linear warm-up from 0.
      learning_rate_cycles: how often the rate falls, and begins at its peak again.
      adadelta_rho: ADADELTA's decay of squared averages.
      weight_decay: decoupled weight decay, read by `adamw` only.
      scale_start, scale_end: factor of the cosine at step 0 and after annealing; `scale_end` 0
        means √encoding_dim.
      scale_anneal_steps: steps over which the scale rises linearly.
      label_smoothing: probability taken from the positive and spread evenly over the negatives.
      loss_reduction: `mean` or `sum` over the batch. Equation 1 of the paper is a sum; beside it,
        l2 and embedding_clip have another strength than beside the mean.
      l2: factor of the sum of squared matrix weights added to the loss.
      embedding_clip: largest L2 norm of the subword table's gradient; 0 turns clipping off.
      embedding_dropout, attention_dropout: drop rates after the embedding and after self-attention.
      history_only: whether only the networks of the earlier turns and of both are trained, and all
        else stays as it starts; for multi-context models.
      mask_duplicates: whether a response that is equal to a context's own is none of its negatives.
      ranking: weight of the ranking loss; 0 learns from a teacher, or of intents, alone.
      ranking_distillation: weight of the cross-entropy with a teacher's choice among the responses
        of the batch, by cosine times the scale; of the context, where there are earlier turns.
      distillation: weight of 1 − cosine between the teacher's vector of each text and a linear map
        of its reduced encoding; 0 leaves the teacher's vectors away.
      intent_contrast: weight of a loss by which utterances of one labelled intent are closer than
        those of others; 0 for none.
      start_from_teacher: whether the subword table starts from the teacher's vectors.
      quantizer_update_steps: steps between updates of the embedding range.
      precision: `mixed_float16`, `mixed_bfloat16`, `float32`, or `auto` (what this device does
        fast).
      loss_scale: static factor of the loss under `mixed_float16`.
      eval_every: steps between evaluations on the dev split.
      eval_examples: at most this many dev examples are scored each time.
      checkpoint_every: steps between checkpoints.
      keep_checkpoints: how many of the newest checkpoints are kept for resuming.
      seed: seed of the data order, of the initial weights and of dropout.
    """

    steps: int = 966_000
    batch_size: int = 512
    micro_batch: int = 0
    optimizer: str = "adadelta"
    learning_rate: float = 1.0
    final_learning_rate: float = 0.001
    warmup_steps: int = 0
    learning_rate_cycles: int = 1
    adadelta_rho: float = 0.9
    weight_decay: float = 0.0
    scale_start: float = 1.0
    scale_end: float = 0.0
    scale_anneal_steps: int = 10_000
    label_smoothing: float = 0.2
    loss_reduction: str = "mean"
    l2: float = 1e-5
    embedding_clip: float = 1.0
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    history_only: bool = False
    mask_duplicates: bool = False
    ranking: float = 1.0
    ranking_distillation: float = 0.0
    distillation: float = 0.0
    intent_contrast: float = 0.0
    start_from_teacher: bool = False
    quantizer_update_steps: int = 100
    precision: str = "auto"
    loss_scale: float = 128.0
    eval_every: int = 5_000
    eval_examples: int = 10_000
    checkpoint_every: int = 1_000
    keep_checkpoints: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "learning_rate_cycles", "eval_every", "checkpoint_every",
                     "keep_checkpoints", "quantizer_update_steps"):  # fmt: skip
            check(getattr(self, name) >= 1, f"{name} must be at least 1.", getattr(self, name))
        check(self.batch_size >= 2, "batch_size must be at least 2, for negatives.",
               self.batch_size)  # fmt: skip
        check(
            self.micro_batch == 0
            or (self.micro_batch > 0 and self.batch_size % self.micro_batch == 0),
            "batch_size must be a multiple of micro_batch, or micro_batch 0 for the whole batch.",
            (self.batch_size, self.micro_batch),
        )
        check(
            self.eval_examples >= 100,
            "eval_examples must be at least 100: R100@1 ranks each response among 100.",
            self.eval_examples,
        )
        check(
            self.optimizer in OPTIMIZERS, f"optimizer must be one of {OPTIMIZERS}.", self.optimizer
        )
        check(
            self.loss_reduction in LOSS_REDUCTIONS,
            f"loss_reduction must be one of {LOSS_REDUCTIONS}.",
            self.loss_reduction,
        )
        check(
            self.precision in PRECISIONS, f"precision must be one of {PRECISIONS}.", self.precision
        )
        for name in ("learning_rate", "scale_start", "loss_scale"):
            check(getattr(self, name) > 0, f"{name} must be positive.", getattr(self, name))
        for name in ("final_learning_rate", "warmup_steps", "weight_decay", "scale_end",
                     "scale_anneal_steps", "l2", "embedding_clip", "ranking",
                     "ranking_distillation", "distillation", "intent_contrast"):  # fmt: skip
            check(getattr(self, name) >= 0, f"{name} must not be negative.", getattr(self, name))
        check(
            self.ranking + self.ranking_distillation + self.distillation + self.intent_contrast > 0,
            "ranking may be 0 where something else is learnt, by distillation or intent_contrast.",
            self.ranking,
        )
        check(
            self.final_learning_rate <= self.learning_rate,
            "final_learning_rate must not exceed learning_rate, from which the rate falls.",
            (self.final_learning_rate, self.learning_rate),
        )
        check(
            not self.history_only
            or self.ranking_distillation + self.distillation + self.intent_contrast == 0,
            "history_only trains by ranking alone: by distillation of either kind and "
            "intent_contrast the trunk learns, which stays as it is.",
            (self.ranking_distillation, self.distillation, self.intent_contrast),
        )
        for name in ("label_smoothing", "embedding_dropout", "attention_dropout"):
            check(0 <= getattr(self, name) < 1, f"{name} must be in [0, 1).", getattr(self, name))

    @property
    def num_micro_batches(self) -> int:
        """Parts of a batch that are encoded one after the other."""
        return self.batch_size // self.micro_batch if self.micro_batch else 1


def shares_of_sources(items: Sequence[str]) -> dict[str, float]:
    """`["forum=0.5"]` as `{"forum": 0.5}`: of which sources only some examples are wanted.

    Raises:
      ValueError: an item is none, or a source is named twice.
    """
    shares: dict[str, float] = {}
    for item in items:
        name, _, share = item.rpartition("=")
        is_share = re.fullmatch(r"0|1|[01]?\.\d+", share) and 0 <= float(share) <= 1
        check(
            bool(name and is_share),
            "source_shares must be names of sources with numbers from 0 to 1, as forum=0.5.",
            item,
        )
        check(name not in shares, "source_shares must name a source once.", list(items))
        shares[name] = float(share)
    return shares


@dataclasses.dataclass(frozen=True)
class DataConfig(Config):
    """What is trained on.

    Args:
      data: folder that `convert-tf prepare` wrote, or token ids that
        `convert-tf tokenize` wrote; `convert-tf train` also takes a file of one's own pairs
        (CSV, TSV) or dialogues (JSON lines).
      train_split: split that is trained on.
      train_examples: contexts are those of so many of its examples, from first_train_example on;
        0 for all. Mined negatives may be any of the split.
      first_train_example: the first of them, from 0; training in parts begins a later one there.
      source_shares: sources of which only some of these examples are trained on, and what share,
        as `forum=0.5,chat=0.1`; for token ids.
      eval_splits: splits scored at every evaluation; the first chooses the best weights. Empty
        where there are too few examples to rank: the last weights are kept.
      shuffle_buffer: examples held in memory for shuffling.
      row_tokens: tokens in one packed row; several short texts share a row.
      teacher: folder of teacher vectors that `convert-tf teach` wrote for the token
        ids.
      ranking_teacher: folder of a teacher's vectors whose cosines of contexts and responses are
        learnt; `convert-tf teach --sides` writes those of a dual encoder, or of one and others
        joined to it.
      utterances: folder of token ids of single texts, which are trained on beside the pairs; empty
        for none.
      utterance_teacher: folder of teacher vectors of these, of the same teacher as the pairs', if
        the pairs have one.
      utterances_per_pair: how many of them are in a batch for each of its pairs.
      hard_negatives: folder of negatives that `convert-tf mine` wrote for the token
        ids; empty for none but the other responses of the batch.
      negatives_per_pair: how many of a pair's mined negatives are drawn at each step; their
        responses are encoded with the batch, as negatives of all its contexts.
      turn_prefixes: whether `0: `, `1: `, … stand before the earlier turns that a multi-context
        model reads, 0 for the most recent one; for fine-tuning, from records only.
    """

    data: str = ""
    train_split: str = "train"
    train_examples: int = 0
    first_train_example: int = 0
    source_shares: tuple[str, ...] = ()
    eval_splits: tuple[str, ...] = ("dev",)
    shuffle_buffer: int = 100_000
    row_tokens: int = 64
    teacher: str = ""
    ranking_teacher: str = ""
    utterances: str = ""
    utterance_teacher: str = ""
    utterances_per_pair: int = 1
    hard_negatives: str = ""
    negatives_per_pair: int = 1
    turn_prefixes: bool = False

    def __post_init__(self) -> None:
        for name in ("train_examples", "first_train_example"):
            check(getattr(self, name) >= 0, f"{name} must not be negative.", getattr(self, name))
        shares_of_sources(self.source_shares)
        check(self.utterances_per_pair >= 1, "utterances_per_pair must be at least 1.",
              self.utterances_per_pair)  # fmt: skip
        check(self.shuffle_buffer >= 1, "shuffle_buffer must be at least 1.", self.shuffle_buffer)
        check(self.row_tokens >= 1, "row_tokens must be at least 1.", self.row_tokens)
        check(
            self.negatives_per_pair >= 1,
            "negatives_per_pair must be at least 1.",
            self.negatives_per_pair,
        )
        check(
            bool(self.hard_negatives) or self.negatives_per_pair == 1,
            "negatives_per_pair must be left away where hard_negatives names no folder.",
            self.negatives_per_pair,
        )


_RATES = ("learning_rate", "final_learning_rate")

# What is trained by default, and what learns from a million pairs or fewer (docs/lab/recipes.md).
TRAIN_RECIPES: dict[str, dict[str, Any]] = {
    "paper": {},
    # For a task, from a trained model (§3.2): its scale is the one that pre-training ended with.
    "paper_finetune": {
        "learning_rate": 0.1,
        "final_learning_rate": 1e-4,
        "steps": 60_000,
        "batch_size": 256,
        "embedding_dropout": 0.2,
        "attention_dropout": 0.2,
        "scale_anneal_steps": 0,
    },
    "small": {
        "optimizer": "adam",
        "learning_rate": 3e-4,
        "final_learning_rate": 1e-6,
        "warmup_steps": 300,
        "scale_start": 20.0,
        "scale_end": 20.0,
        "label_smoothing": 0.1,
        "l2": 0.0,
        "embedding_dropout": 0.2,
        "attention_dropout": 0.1,
        "batch_size": 128,
        "steps": 4_000,
        "eval_every": 250,
        "checkpoint_every": 250,
    },
}


def train_recipe(name: str, **overrides: Any) -> TrainConfig:
    """The recipe `name` as a `TrainConfig`, with `overrides` of single fields; see `overridden`.

    Raises:
      ValueError: `name` is no recipe, or an override names no field.
    """
    if name not in TRAIN_RECIPES:
        raise ValueError(f"A recipe must be one of {sorted(TRAIN_RECIPES)}. Received: {name!r}.")
    return TrainConfig.from_dict(overridden(TRAIN_RECIPES[name], overrides))


def overridden(recipe: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Fields of a `TrainConfig` with others in their place.

    Another learning rate falls to the same share of its peak, where nothing is said of its end.
    """
    fields = {**recipe, **overrides}
    if "learning_rate" in overrides and "final_learning_rate" not in overrides:
        rates = [recipe.get(name, getattr(TrainConfig, name)) for name in _RATES]
        fields["final_learning_rate"] = overrides["learning_rate"] * (rates[1] / rates[0])
    return fields
