"""Configuration of ranker heads, and options of their training.

Reference: arXiv 1905.01969 §4, §5.
"""

import dataclasses
from typing import Any, ClassVar

from convert_tf.config.base import DATA, MODEL, Config, changed, check, option
from convert_tf.config.train import RankingTraining, Training, overridden

HEADS = ("bi", "poly", "cross")
REDUCTIONS = ("sqrt_n", "first", "mean", "mean_without_first")
POLY_VARIANTS = ("learnt", "first_m", "last_m", "last_m_and_first")
MAX_CODES = 360
NEGATIVES = ("in_batch", "given", "sampled", "mined")
AUTO = "auto"
_NOT_CROSS = ("bi", "poly")


@dataclasses.dataclass(frozen=True)
class HeadConfig(Config):
    """Configuration of a head. The defaults are the paper's (arXiv 1905.01969 §4), except for
    `separate_trunks`, which is off.
    """

    heading: ClassVar[str] = MODEL
    former: ClassVar[dict[str, Any]] = {
        "output_std": 0.0,
        "reduction_tokens": None,
        # Options of training, now in `RankerTraining`.
        **dict.fromkeys(
            ("negatives", "negatives_from", "mined_with", "mined_top", "epochs",
             "evaluations_per_epoch", "plateau_decay", "freeze", "trainable_blocks",
             "max_examples")
        ),
    }  # fmt: skip

    head: str = option("bi", "Kind of ranker: a bi-, poly- or cross-encoder.", choices=HEADS)
    reduction: str = option(
        AUTO,
        "How the outputs for a text become one vector. auto is sqrt_n for ConveRT and first for "
        "BERT-like trunks.",
        choices=(AUTO, *REDUCTIONS),
    )
    poly_codes: int = option(
        64,
        "Number of context vectors of a poly-encoder.",
        at_least=1,
        at_most=MAX_CODES,
        read_with=("head", ("poly",)),
    )
    poly_variant: str = option(
        "learnt",
        "How a poly-encoder computes its context vectors.",
        choices=POLY_VARIANTS,
        read_with=("head", ("poly",)),
    )
    scale: float = option(
        0.0,
        "Factor of the dot products. 0 uses the factor that --init_from was trained with.",
        at_least=0,
        read_with=("head", _NOT_CROSS),
    )
    learn_scale: bool = option(
        False, "Train the factor of the dot products.", read_with=("head", _NOT_CROSS)
    )
    separate_trunks: bool = option(
        False, "Use a second trunk for candidates, which starts as a copy of the first."
    )
    max_context_tokens: int = option(
        120, "Contexts are cut to their last tokens, this many.", at_least=1
    )
    max_candidate_tokens: int = option(
        60, "Candidates are cut to their first tokens, this many.", at_least=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            self.head != "cross" or not self.separate_trunks,
            "separate_trunks must be off for a cross-encoder.",
            self.separate_trunks,
        )


@dataclasses.dataclass(frozen=True)
class RankerTraining(RankingTraining):
    """Options of the training of rankers. The defaults are the paper's for a bi-encoder (§5.1,
    §5.3); see `ranker_recipe` for other heads.
    """

    former: ClassVar[dict[str, Any]] = {
        "loss_scale": 128.0,
        "embedding_clip": 0.0,
        "quantizer_update_steps": 100,
        "learning_rate_cycles": 1,
        "adadelta_rho": 0.9,
        "mined_top": 100,
        "mined_with": None,
        "plateau_decay": 0.4,
        "output_std": 0.0,
        "evaluations_per_epoch": None,
        "weight_decay": None,
        "epochs": None,
    }

    dev_data: str = option(
        "", "Examples to evaluate on. Default: the dev split of --data.", group=DATA
    )
    max_examples: int = option(
        0, "Train on the first examples only, this many. 0 uses all.", group=DATA, at_least=0
    )
    negatives_from: str = option(
        "in_batch",
        "Where wrong candidates come from. in_batch: the other responses of the batch. given: the "
        "data. sampled: random responses of the data. mined: those of --hard_negatives.",
        group=DATA,
        choices=NEGATIVES,
    )
    negatives: int = option(
        15,
        "Number of wrong candidates per context.",
        group=DATA,
        at_least=1,
        read_with=("negatives_from", NEGATIVES[1:]),
    )
    hard_negatives: str = option(
        "", "Folder of negatives from convert-tf mine, for the token ids.", group=DATA
    )
    batch_size: int = changed(RankingTraining, "batch_size", 256)
    optimizer: str = changed(
        RankingTraining,
        "optimizer",
        "adamax",
        text="Optimizer. adamw has a weight decay of 0.01.",
        choices=("adadelta", "adam", "adamax", "adamw"),
    )
    learning_rate: float = changed(Training, "learning_rate", 5e-5)
    final_learning_rate: float = changed(RankingTraining, "final_learning_rate", 5e-5)
    warmup_steps: int = changed(Training, "warmup_steps", 100)
    label_smoothing: float = changed(RankingTraining, "label_smoothing", 0.0)
    l2: float = changed(RankingTraining, "l2", 0.0)
    freeze: str = option(
        "nothing",
        "Parts to keep unchanged. The default for a published BERT is embeddings.",
        choices=("nothing", "embeddings", "all_but_top_k"),
    )
    trainable_blocks: int = option(
        1,
        "Number of topmost blocks to train with --freeze=all_but_top_k.",
        at_least=0,
        read_with=("freeze", ("all_but_top_k",)),
    )
    steps: int = changed(
        Training,
        "steps",
        0,
        text="Optimizer steps. 0 trains rankers for one pass over the data.",
        at_least=0,
    )
    eval_every: int = changed(
        Training,
        "eval_every",
        0,
        text="Steps between evaluations. 0 evaluates rankers twice per pass over the data.",
        at_least=0,
    )
    eval_examples: int = changed(Training, "eval_examples", 1_000, at_least=100)
    checkpoint_every: int = changed(Training, "checkpoint_every", 0, at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            (self.negatives_from == "mined") == bool(self.hard_negatives),
            "hard_negatives must name a folder if, and only if, negatives_from is mined.",
            (self.negatives_from, self.hard_negatives),
        )

    def of_examples(self, number: int) -> "RankerTraining":
        """Return the options for `number` examples, with the intervals that were left open."""
        per_epoch = number // min(self.batch_size, number)
        per_evaluation = max(1, per_epoch // 2)
        return dataclasses.replace(
            self,
            steps=self.steps or per_epoch,
            eval_every=self.eval_every or per_evaluation,
            checkpoint_every=self.checkpoint_every or per_evaluation,
        )


def ranker_recipe(head: str, *, weights: str = "convert", **overrides: Any) -> RankerTraining:
    """Return the paper's training options for a head (arXiv 1905.01969 §5.1, §5.3).

    After the warm-up, the learning rate falls only on plateaus. The optimizer is Adamax. Published
    BERT weights are trained with AdamW and frozen embeddings instead. BERT-like trunks use the
    dropout of their pre-training, 0.1.

    Args:
      head: one of `HEADS`.
      weights: kind of the initial weights: `convert`, `bert` or `published_bert`.
      **overrides: fields of `RankerTraining`; see `overridden`.

    Raises:
      ValueError: if an override is not a field, or a value is out of bounds.
    """
    fields = RankerTraining.defaults()
    if head == "cross":
        fields |= {"batch_size": 16, "warmup_steps": 1_000}
    if weights != "convert":
        fields |= {"embedding_dropout": 0.1, "attention_dropout": 0.1}
    if weights == "published_bert":
        fields |= {"optimizer": "adamw", "freeze": "embeddings"}
    config = RankerTraining.from_dict(overridden(fields, overrides))
    check(
        head != "cross" or config.negatives_from != "in_batch",
        "negatives_from must not be in_batch for a cross-encoder, which cannot reuse encodings.",
        config.negatives_from,
    )
    return config
