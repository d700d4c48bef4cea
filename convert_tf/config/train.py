"""Options of training: those of every kind of run, and those of dual encoders.

Reference: arXiv 1911.03688 §3.1.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from convert_tf.config.base import (
    DATA,
    OPTIMISATION,
    OUTPUT,
    PRECISIONS,
    Config,
    changed,
    check,
    option,
)


@dataclasses.dataclass(frozen=True)
class Training(Config):
    """What every kind of training run reads; the subclasses have the defaults of their papers."""

    heading: ClassVar[str] = OPTIMISATION

    data: str = option(
        "",
        "Folder that convert-tf prepare or tokenize wrote, or a file of your own pairs or "
        "dialogues.",
        group=DATA,
        is_common=True,
    )
    steps: int = option(100_000, "Optimizer steps.", is_common=True, at_least=1)
    learning_rate: float = option(1.0, "Peak learning rate.", is_common=True, above=0)
    warmup_steps: int = option(
        0, "Steps in which the learning rate rises to its peak.", is_common=True, at_least=0
    )
    precision: str = option(
        "auto",
        "Number format; auto takes what is fast on this device.",
        is_common=True,
        choices=PRECISIONS,
    )
    seed: int = option(
        0, "Seed of the data order, weights and dropout.", is_common=True, at_least=0
    )
    eval_every: int = option(
        5_000, "Steps between evaluations.", group=OUTPUT, is_common=True, at_least=1
    )
    eval_examples: int = option(
        10_000, "Most dev examples that an evaluation reads.", group=OUTPUT, at_least=1
    )
    checkpoint_every: int = option(
        1_000, "Steps between checkpoints.", group=OUTPUT, is_common=True, at_least=1
    )
    keep_checkpoints: int = option(
        2, "How many of the newest checkpoints are kept for resuming.", group=OUTPUT, at_least=1
    )


@dataclasses.dataclass(frozen=True)
class RankingTraining(Training):
    """What runs of dual encoders and of rankers read."""

    batch_size: int = option(
        512, "Pairs per step, which are negatives of one another.", is_common=True, at_least=2
    )
    optimizer: str = option("adadelta", "Optimizer.")
    final_learning_rate: float = option(
        0.001,
        "Learning rate at the last step, reached by cosine decay. If you set only --learning_rate, "
        "it keeps its share of the peak.",
        at_least=0,
    )
    label_smoothing: float = option(
        0.2,
        "Probability taken from the right response and spread evenly over the negatives.",
        at_least=0,
        below=1,
    )
    l2: float = option(
        1e-5, "Factor of the sum of squared matrix weights that is added to the loss.", at_least=0
    )
    embedding_dropout: float = option(0.0, "Drop rate after the embedding.", at_least=0, below=1)
    attention_dropout: float = option(0.0, "Drop rate after self-attention.", at_least=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            self.final_learning_rate <= self.learning_rate,
            "final_learning_rate must not exceed learning_rate, from which the rate falls.",
            (self.final_learning_rate, self.learning_rate),
        )


@dataclasses.dataclass(frozen=True)
class EncoderTraining(RankingTraining):
    """How a dual encoder is trained, and on what.

    The defaults are those of the paper's pre-training (§3.1), where it has a value. The loss is the
    mean over the batch, not the sum of equation 1.
    """

    former: ClassVar[dict[str, Any]] = {
        "learning_rate_cycles": 1,
        "adadelta_rho": 0.9,
        "weight_decay": 0.0,
        "loss_reduction": "mean",
        "embedding_clip": 1.0,
        "quantizer_update_steps": 100,
        "loss_scale": 128.0,
        "train_split": "train",
    }

    steps: int = changed(Training, "steps", 966_000)
    eval_examples: int = changed(Training, "eval_examples", 10_000, at_least=100)
    optimizer: str = changed(RankingTraining, "optimizer", "adadelta", choices=("adadelta", "adam"))
    train_examples: int = option(
        0, "Train on this many examples of the train split; 0 for all.", group=DATA, at_least=0
    )
    first_train_example: int = option(
        0, "Number of the first of them, from 0, to train in parts.", group=DATA, at_least=0
    )
    source_shares: tuple[str, ...] = option(
        (),
        "Sources of which only a share of the examples is used, as forum=0.5,chat=0.1. Needs token "
        "ids.",
        group=DATA,
    )
    eval_splits: tuple[str, ...] = option(
        ("dev",),
        "Splits that are evaluated. The best weights are chosen by the first; without any, the "
        "last weights are kept.",
        group=DATA,
    )
    shuffle_buffer: int = option(
        100_000, "Examples in memory for shuffling.", group=DATA, at_least=1
    )
    row_tokens: int = option(
        64, "Tokens of a packed row, in which several short texts lie.", group=DATA, at_least=1
    )
    turn_prefixes: bool = option(
        False,
        "Put 0:, 1:, … before the earlier turns that a multi-context model reads, 0 for the "
        "latest. For fine-tuning, from records only.",
        group=DATA,
    )
    teacher: str = option("", "Folder of vectors that convert-tf teach wrote.", group=DATA)
    ranking_teacher: str = option(
        "",
        "Folder of vectors that convert-tf teach --sides wrote, whose cosines of contexts and "
        "responses are learnt.",
        group=DATA,
    )
    utterances: str = option(
        "", "Folder of token ids of single texts, trained on next to the pairs.", group=DATA
    )
    utterance_teacher: str = option(
        "", "Folder of the teacher's vectors of --utterances.", group=DATA
    )
    utterances_per_pair: int = option(
        1,
        "Single texts in a batch for each pair.",
        group=DATA,
        at_least=1,
        read_with=("utterances", None),
    )
    hard_negatives: str = option(
        "", "Folder of negatives that convert-tf mine wrote for the token ids.", group=DATA
    )
    negatives_per_pair: int = option(
        1,
        "Mined negatives that are drawn for each pair at each step. They are negatives of the "
        "whole batch.",
        group=DATA,
        at_least=1,
        read_with=("hard_negatives", None),
    )
    micro_batch: int = option(
        0,
        "Pairs that are encoded at a time, to save memory; a divisor of --batch_size. Loss and "
        "gradient stay the same. 0 encodes the whole batch at once.",
        at_least=0,
    )
    scale_start: float = option(1.0, "Factor of the cosines at step 0.", above=0)
    scale_end: float = option(
        0.0,
        "Factor of the cosines after --scale_anneal_steps; 0 for the square root of "
        "--encoding_dim.",
        at_least=0,
    )
    scale_anneal_steps: int = option(
        10_000, "Steps over which the factor of the cosines changes linearly.", at_least=0
    )
    history_only: bool = option(
        False, "Train only the networks that read earlier turns, of a multi-context model."
    )
    mask_duplicates: bool = option(
        False, "Do not use a response that equals a context's own as its negative."
    )
    ranking: float = option(
        1.0,
        "Weight of the ranking loss. 0 learns from a teacher or from intents alone.",
        at_least=0,
    )
    ranking_distillation: float = option(
        0.0,
        "Weight of the cross-entropy with the choice of --ranking_teacher among the responses of "
        "the batch.",
        at_least=0,
    )
    distillation: float = option(
        0.0,
        "Weight of 1 − cosine between the vector of a text by --teacher and a linear map of its "
        "reduced encoding.",
        at_least=0,
    )
    intent_contrast: float = option(
        0.0, "Weight of a loss that draws --utterances with the same label together.", at_least=0
    )
    start_from_teacher: bool = option(
        False, "Start the subword table from the vectors of --teacher."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        shares_of_sources(self.source_shares)
        check(
            not self.micro_batch or self.batch_size % self.micro_batch == 0,
            "micro_batch must divide batch_size.",
            (self.micro_batch, self.batch_size),
        )
        taught = (self.ranking_distillation, self.distillation, self.intent_contrast)
        check(
            self.ranking + sum(taught) > 0,
            "ranking must be greater than 0 without distillation, ranking_distillation and "
            "intent_contrast.",
            self.ranking,
        )
        check(
            not self.history_only or not any(taught),
            "history_only must not go with ranking_distillation, distillation and intent_contrast, "
            "which train the rest of the network.",
            taught,
        )

    @property
    def num_micro_batches(self) -> int:
        """Parts of a batch that are encoded one after the other."""
        return self.batch_size // self.micro_batch if self.micro_batch else 1


def shares_of_sources(items: Sequence[str]) -> dict[str, float]:
    """Return `["forum=0.5"]` as `{"forum": 0.5}`.

    Raises:
      ValueError: an item has no share from 0 to 1, or a source is named twice.
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


# Options to start from (docs/lab/recipes.md has what they reach).
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


def train_recipe(name: str, **overrides: Any) -> EncoderTraining:
    """The recipe `name` with `overrides` of single fields; see `overridden`.

    Raises:
      ValueError: `name` is no recipe, or an override names no field.
    """
    if name not in TRAIN_RECIPES:
        raise ValueError(f"A recipe must be one of {sorted(TRAIN_RECIPES)}. Received: {name!r}.")
    fields = {**EncoderTraining.defaults(), **TRAIN_RECIPES[name]}
    return EncoderTraining.from_dict(overridden(fields, overrides))


def overridden(fields: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Options with `overrides` in their place.

    With another learning rate and no final one, the final rate keeps its share of the peak.
    """
    changed_fields = {**fields, **overrides}
    if "learning_rate" in overrides and "final_learning_rate" not in overrides:
        share = fields["final_learning_rate"] / fields["learning_rate"]
        changed_fields["final_learning_rate"] = overrides["learning_rate"] * share
    return changed_fields
