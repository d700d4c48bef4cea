"""Options for training.

This module defines the common options, and those for dual encoders, BERT-like trunks and
similarity maps. `convert_tf.config.ranker` defines the options for rankers.

Reference: arXiv 1911.03688 §3.1; arXiv 1905.01969 §4.1.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from convert_tf.config.base import DATA, OPTIMISATION, OUTPUT, PRECISIONS, Config, check, option


@dataclasses.dataclass(frozen=True)
class Training(Config):
    """Options for all training runs. Subclasses set the defaults from their papers.

    Attributes:
      data: Folder from convert-tf prepare or tokenize, or a file of pairs or dialogues.
      steps: Number of optimizer steps.
      learning_rate: Peak learning rate.
      warmup_steps: Number of steps over which the learning rate rises to its peak.
      precision: Number format. auto chooses the fastest one on this device.
      seed: Seed for the data order, weights and dropout.
      eval_every: Number of steps between evaluations.
      eval_examples: Maximum number of dev examples per evaluation.
      checkpoint_every: Number of steps between checkpoints.
      keep_checkpoints: Number of checkpoints to keep for resuming.
    """

    heading: ClassVar[str] = OPTIMISATION

    data: str = option("", group=DATA, is_common=True)
    steps: int = option(100_000, is_common=True, at_least=1)
    learning_rate: float = option(1.0, is_common=True, above=0)
    warmup_steps: int = option(0, is_common=True, at_least=0)
    precision: str = option("auto", is_common=True, choices=PRECISIONS)
    seed: int = option(0, is_common=True, at_least=0)
    eval_every: int = option(5_000, group=OUTPUT, is_common=True, at_least=1)
    eval_examples: int = option(10_000, group=OUTPUT, at_least=1)
    checkpoint_every: int = option(1_000, group=OUTPUT, is_common=True, at_least=1)
    keep_checkpoints: int = option(2, group=OUTPUT, at_least=1)


@dataclasses.dataclass(frozen=True)
class RankingTraining(Training):
    """Options for training dual encoders and rankers.

    Attributes:
      batch_size: Pairs per step. The other responses in the batch are a context's negatives.
      optimizer: Optimisation algorithm.
      final_learning_rate: Learning rate at the end of the cosine decay. The last step has a
        slightly higher one. If you set only --learning_rate, the final rate changes by the same
        factor.
      label_smoothing: Probability that is spread evenly over the negatives.
      l2: Weight of the sum of squared matrix weights in the loss.
      embedding_dropout: Dropout rate after the embedding.
      attention_dropout: Dropout rate after self-attention.
    """

    batch_size: int = option(512, is_common=True, at_least=2)
    optimizer: str = option("adadelta", is_kept=True)
    final_learning_rate: float = option(0.001, at_least=0)
    label_smoothing: float = option(0.2, at_least=0, below=1)
    l2: float = option(1e-5, at_least=0)
    embedding_dropout: float = option(0.0, at_least=0, below=1)
    attention_dropout: float = option(0.0, at_least=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            self.final_learning_rate <= self.learning_rate,
            "final_learning_rate must not exceed learning_rate.",
            (self.final_learning_rate, self.learning_rate),
        )


@dataclasses.dataclass(frozen=True)
class PairTraining(RankingTraining):
    """Options for training dual encoders on pairs, with any losses.

    Where the paper gives a value for pre-training (§3.1), it is the default.

    Attributes:
      train_examples: Number of examples from the train split to train on. 0 uses all.
      first_train_example: Index of the first example to train on, starting at 0.
      source_shares: For some sources, the share of their examples to train on, such as
        forum=0.5,chat=0.1. Needs token ids.
      eval_splits: Splits to evaluate on. The best weights are chosen on the first split. Without
        any split, the last weights are kept.
      shuffle_buffer: Number of examples to hold in memory for shuffling.
      turn_prefixes: Put 0:, 1:, … before earlier turns, starting with the latest. For records only.
      utterances: Folder with token ids of single texts, to train on in addition to pairs.
      utterances_per_pair: Number of single texts per pair.
      hard_negatives: Folder written by convert-tf mine, with negatives for the token ids in --data.
      negatives_per_pair: Number of mined negatives to draw for each pair at each step. They are
        negatives for all contexts in the batch.
      micro_batch: Number of pairs to encode at a time, to save memory. It must divide --batch_size.
        0 encodes the whole batch at once.
      scale_start: Factor for the cosines at step 0.
      scale_end: Factor for the cosines after --scale_anneal_steps. If 0, the square root of
        --encoding_dim.
      scale_anneal_steps: Number of steps over which the factor for the cosines changes linearly.
      mask_duplicates: Do not use copies of the correct response as negatives, and do not count them
        as wrong in the accuracy and in R100@1.
    """

    steps: int = 966_000
    eval_examples: int = option(10_000, at_least=100)
    optimizer: str = option("adadelta", choices=("adadelta", "adam"))
    train_examples: int = option(0, group=DATA, at_least=0)
    first_train_example: int = option(0, group=DATA, at_least=0)
    source_shares: tuple[str, ...] = option((), group=DATA)
    eval_splits: tuple[str, ...] = option(("dev",), group=DATA)
    shuffle_buffer: int = option(100_000, group=DATA, at_least=1)
    turn_prefixes: bool = option(False, group=DATA)
    utterances: str = option("", group=DATA)
    utterances_per_pair: int = option(1, group=DATA, at_least=1, read_with=("utterances", None))
    hard_negatives: str = option("", group=DATA)
    negatives_per_pair: int = option(1, group=DATA, at_least=1, read_with=("hard_negatives", None))
    micro_batch: int = option(0, at_least=0)
    scale_start: float = option(1.0, above=0)
    scale_end: float = option(0.0, at_least=0)
    scale_anneal_steps: int = option(10_000, at_least=0)
    mask_duplicates: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        shares_of_sources(self.source_shares)
        check(
            not self.micro_batch or self.batch_size % self.micro_batch == 0,
            "micro_batch must divide batch_size.",
            (self.micro_batch, self.batch_size),
        )

    @property
    def num_micro_batches(self) -> int:
        """Number of parts into which a batch is divided for encoding."""
        return self.batch_size // self.micro_batch if self.micro_batch else 1


def shares_of_sources(items: Sequence[str]) -> dict[str, float]:
    """Parse shares of sources: `["forum=0.5"]` → `{"forum": 0.5}`.

    Raises:
      ValueError: if a share is not a number from 0 to 1, or a source occurs twice.
    """
    shares: dict[str, float] = {}
    for item in items:
        name, _, share = item.rpartition("=")
        is_share = re.fullmatch(r"0|1|[01]?\.\d+", share) and 0 <= float(share) <= 1
        check(
            bool(name and is_share),
            "source_shares must be names of sources with numbers from 0 to 1, like forum=0.5.",
            item,
        )
        check(name not in shares, f"source_shares contains {name!r} twice.", list(items))
        shares[name] = float(share)
    return shares


# Named sets of options. docs/lab/recipes.md gives results for them.
TRAIN_RECIPES: dict[str, dict[str, Any]] = {
    "paper": {},
    # Fine-tuning on a task (§3.2). The scale is the final scale of pre-training.
    "paper_finetune": {
        "steps": 60_000,
        "batch_size": 256,
        "learning_rate": 0.1,
        "final_learning_rate": 1e-4,
        "embedding_dropout": 0.2,
        "attention_dropout": 0.2,
        "scale_anneal_steps": 0,
    },
    "small": {
        "steps": 4_000,
        "batch_size": 128,
        "eval_every": 250,
        "checkpoint_every": 250,
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
    },
}


def overridden(fields: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Return the options in `fields`, updated with those in `overrides`.

    If `overrides` has a peak learning rate but no final one, the final rate in `fields` is
    multiplied by the same factor as the peak.
    """
    changed_fields = {**fields, **overrides}
    if "learning_rate" in overrides and "final_learning_rate" not in overrides:
        share = fields["final_learning_rate"] / fields["learning_rate"]
        changed_fields["final_learning_rate"] = overrides["learning_rate"] * share
    return changed_fields


@dataclasses.dataclass(frozen=True)
class Pretraining(Training):
    """Options for pre-training. The defaults are from arXiv 1905.01969 §4.1.

    The paper does not give the length of the warm-up, so the default is 4,000 steps, as for XLM.
    After the warm-up, the learning rate falls with the inverse square root of the step.

    Attributes:
      data: Folder of records, or of token ids.
      all_turns: Use all turns as the context. With token ids, only the last turn is available.
      max_tokens: Maximum number of tokens per text. Longer texts are cut; a context of all turns
        keeps its last tokens.
      shuffle_buffer: Number of examples to hold in memory, to form batches of texts of similar
        length.
      steps: Number of optimizer steps. Steps for the masked language model alternate with steps for
        predicting the next utterance.
      batch_tokens: Number of tokens per batch, including padding.
      learning_rate: Peak learning rate of Adam.
      dropout: Dropout rate in all layers.
    """

    data: str = ""
    all_turns: bool = option(True, group=DATA)
    max_tokens: int = option(128, group=DATA, at_least=1)
    shuffle_buffer: int = option(20_000, group=DATA, at_least=4)  # two pairs for each objective
    steps: int = 100_000
    batch_tokens: int = option(32_000, is_common=True, at_least=1)
    learning_rate: float = 2e-4
    warmup_steps: int = option(4_000, at_least=1)
    dropout: float = option(0.1, at_least=0, below=1)
    eval_examples: int = 2_000


@dataclasses.dataclass(frozen=True)
class MapTraining(Config):
    """Options for training the map to similarity vectors on triplets.

    Attributes:
      opposites: Weight of the loss that moves texts closer to their paraphrases than to their
        opposites.
      intent_contrast: Weight of the loss that moves texts closer to texts with the same intent.
      holding: Weight of the loss that keeps the vectors of other texts unchanged.
      teaching: Weight of the loss that keeps texts close if their teacher vectors are close.
      map_steps: Number of optimizer steps.
      map_learning_rate: Initial learning rate of Adam, relative to the root mean square of the
        map's weights. The rate falls to 0.
      seed: Seed for the order of the texts.
    """

    opposites: float = option(2.0, at_least=0)
    intent_contrast: float = option(1.0, at_least=0)
    holding: float = option(10.0, at_least=0)
    teaching: float = option(2.0, at_least=0)
    map_steps: int = option(1_500, at_least=1)
    map_learning_rate: float = option(0.02, above=0)
    seed: int = option(0, at_least=0)
