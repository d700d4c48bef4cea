"""Configuration of rankers and their heads, and options for training them.

Reference: arXiv 1905.01969 §4, §5.
"""

import dataclasses
from typing import Any, ClassVar

from convert_tf.config.base import DATA, MODEL, Config, check, option, preset
from convert_tf.config.bert import BertConfig
from convert_tf.config.model import ModelConfig
from convert_tf.config.train import RankingTraining, overridden
from convert_tf.storage.json_text import parsed_json, written_json

HEADS = ("bi", "poly", "cross")
REDUCTIONS = ("sqrt_n", "first", "mean", "mean_without_first", "first_m_mean")
POLY_VARIANTS = ("learnt", "first_m", "last_m", "last_m_and_first")
MAX_CODES = 360
NEGATIVES = ("in_batch", "given", "sampled", "mined")
AUTO = "auto"
_IF_NOT_IN_BATCH = ("negatives_from", NEGATIVES[1:])
_IF_POLY = ("head", ("poly",))
_IF_NOT_CROSS = ("head", ("bi", "poly"))


@dataclasses.dataclass(frozen=True)
class HeadConfig(Config):
    """Configuration of a ranker's head.

    docs/rankers.md (Heads) lists the defaults that differ from the paper (arXiv 1905.01969 §4).

    These options are stored with a ranker. Dropout rates affect only training, so they are fields
    of `RankerTraining`.

    Attributes:
      head: Kind of ranker: a bi-, poly- or cross-encoder.
      reduction: How the trunk's outputs for a text are reduced to one vector. auto means sqrt_n for
        ConveRT and first for BERT-like trunks.
      reduction_tokens: Number of tokens whose outputs first_m_mean averages.
      poly_codes: Number of vectors that a poly-encoder computes for a context.
      poly_variant: How a poly-encoder computes the vectors of a context.
      scale: Factor for dot products. 0 keeps the factor that --init_from was trained with.
      learn_scale: Train the factor for dot products.
      separate_trunks: Use a second trunk for candidates, which starts as a copy of the first.
      max_context_tokens: Maximum number of tokens per context. The last ones are kept.
      max_candidate_tokens: Maximum number of tokens per candidate. The first ones are kept.
    """

    heading: ClassVar[str] = MODEL
    former: ClassVar[dict[str, Any]] = {
        # Options of training, now in `RankerTraining`. The effect of `output_std` is stored in the
        # weights.
        **dict.fromkeys(
            ("output_std", "negatives", "negatives_from", "mined_with", "mined_top", "epochs",
             "evaluations_per_epoch", "plateau_decay", "freeze", "trainable_blocks",
             "max_examples")
        ),
    }  # fmt: skip

    head: str = option("bi", choices=HEADS, is_kept=True)
    reduction: str = option(AUTO, choices=(AUTO, *REDUCTIONS), is_kept=True)
    reduction_tokens: int = option(
        64, at_least=1, read_with=("reduction", ("first_m_mean",)), is_kept=True
    )
    poly_codes: int = option(64, at_least=1, at_most=MAX_CODES, read_with=_IF_POLY, is_kept=True)
    poly_variant: str = option("learnt", choices=POLY_VARIANTS, read_with=_IF_POLY, is_kept=True)
    scale: float = option(0.0, at_least=0, read_with=_IF_NOT_CROSS)
    learn_scale: bool = option(False, read_with=_IF_NOT_CROSS, is_kept=True)
    separate_trunks: bool = option(False, is_kept=True)
    max_context_tokens: int = option(120, at_least=1)
    max_candidate_tokens: int = option(60, at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            self.head != "cross" or not self.separate_trunks,
            "separate_trunks must be off for a cross-encoder.",
            self.separate_trunks,
        )


@dataclasses.dataclass(frozen=True)
class RankerTraining(RankingTraining):
    """Options for training rankers.

    The defaults are the paper's for a bi-encoder (§5.1, §5.3). `ranker_recipe` returns the paper's
    options for other heads.

    If `steps` is 0, a ranker is trained for one pass over the data. The default warm-up then takes
    at most a fifth of the steps. If `eval_every` is 0, the ranker is evaluated twice per pass.
    `adamw` has a weight decay of 0.01.

    Attributes:
      dev_data: Examples to evaluate on. Default: the dev split of --data.
      max_examples: Train only on this many examples from the start of the data. 0 uses all.
      negatives_from: Source of the wrong candidates. in_batch: the other responses in the batch.
        given: the candidates in the data. sampled: random responses from the data. mined: the
        negatives in --hard_negatives.
      negatives: Number of wrong candidates per context.
      hard_negatives: Folder written by convert-tf mine, with negatives for the token ids in --data.
      freeze: Parts of the model whose weights stay fixed. The default for a published BERT is
        embeddings.
      trainable_blocks: Number of topmost blocks to train with --freeze=all_but_top_k.
      output_std: Standard deviation that the outputs of the trunks are rescaled to before the first
        step. 0 leaves the outputs unchanged.
    """

    dev_data: str = option("", group=DATA)
    max_examples: int = option(0, group=DATA, at_least=0)
    negatives_from: str = option("in_batch", group=DATA, choices=NEGATIVES)
    negatives: int = option(15, group=DATA, at_least=1, read_with=_IF_NOT_IN_BATCH)
    hard_negatives: str = option("", group=DATA)
    batch_size: int = 256
    optimizer: str = option("adamax", choices=("adadelta", "adam", "adamax", "adamw"))
    learning_rate: float = 5e-5
    final_learning_rate: float = 5e-5
    warmup_steps: int = 100
    label_smoothing: float = 0.0
    l2: float = 0.0
    freeze: str = option(
        "nothing", choices=("nothing", "embeddings", "all_but_top_k"), is_kept=True
    )
    trainable_blocks: int = option(
        1, at_least=0, read_with=("freeze", ("all_but_top_k",)), is_kept=True
    )
    output_std: float = option(0.0, at_least=0, is_kept=True)
    steps: int = option(0, at_least=0)
    eval_every: int = option(0, at_least=0)
    eval_examples: int = option(1_000, at_least=100)
    checkpoint_every: int = option(0, at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            (self.negatives_from == "mined") == bool(self.hard_negatives),
            "hard_negatives must be set if, and only if, negatives_from is mined.",
            (self.negatives_from, self.hard_negatives),
        )

    def of_examples(self, number: int, *, shortens_warmup: bool = True) -> "RankerTraining":
        """Replace steps and intervals of 0 by their defaults for `number` training examples.

        If the steps are the default and `shortens_warmup` is set, a warm-up of more than a fifth of
        the steps is shortened.
        """
        per_epoch = number // min(self.batch_size, number)
        per_evaluation = max(1, per_epoch // 2)
        is_shortened = shortens_warmup and not self.steps
        longest = per_epoch // 5 if is_shortened else self.warmup_steps
        return dataclasses.replace(
            self,
            steps=self.steps or per_epoch,
            warmup_steps=min(self.warmup_steps, longest),
            eval_every=self.eval_every or per_evaluation,
            checkpoint_every=self.checkpoint_every or per_evaluation,
        )


_SAMPLED = {"cross": {"negatives_from": "sampled", "negatives": 15}}

# Options that differ from the defaults, by recipe and head (arXiv 1905.01969 §5.1). The texts in
# ConvAI2 are shorter, so the paper uses larger batches for ConvAI2. The cross-encoder for ConvAI2
# uses the 19 negatives in the data. For DSTC7 and Ubuntu V2, the paper samples negatives; the
# training file of Ubuntu V2 contains none.
RANKER_RECIPES: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {},
    "dstc7": _SAMPLED,
    "ubuntu": _SAMPLED,
    "convai2": {
        "bi": {"batch_size": 512},
        "poly": {"batch_size": 512},
        "cross": {"negatives_from": "given", "negatives": 19},
    },
}


def ranker_recipe(
    head: str, *, weights: str = "convert", recipe: str = "paper", **overrides: Any
) -> RankerTraining:
    """Return the paper's training options for a head (arXiv 1905.01969 §5.1, §5.3).

    After the warm-up, the learning rate falls only on plateaus. The optimizer is Adamax. Published
    BERT weights are trained with AdamW instead, with frozen embeddings. BERT-like trunks use the
    dropout of their pre-training, 0.1.

    Args:
      head: kind of ranker, one of `HEADS`.
      weights: kind of the initial weights: `convert`, `bert` or `published_bert`.
      recipe: name of a recipe for a task, one of `RANKER_RECIPES`.
      **overrides: values for fields of `RankerTraining`, applied by `overridden`.

    Raises:
      ValueError: if an override is not a field, a value is out of bounds, or there is no such
        recipe.
    """
    fields = RankerTraining.defaults()
    if head == "cross":
        fields |= {"batch_size": 16, "warmup_steps": 1_000}
    if weights != "convert":
        fields |= {"embedding_dropout": 0.1, "attention_dropout": 0.1}
    if weights == "published_bert":
        fields |= {"optimizer": "adamw", "freeze": "embeddings"}
    fields |= preset(RANKER_RECIPES, recipe).get(head, {})
    config = RankerTraining.from_dict(overridden(fields, overrides))
    check(
        head != "cross" or config.negatives_from != "in_batch",
        "negatives_from must not be in_batch for a cross-encoder, which scores one pair at a time.",
        config.negatives_from,
    )
    return config


# The class that configures each kind of trunk.
TRUNKS: dict[str, type[ModelConfig] | type[BertConfig]] = {
    "convert": ModelConfig,
    "bert": BertConfig,
}


@dataclasses.dataclass(frozen=True)
class RankerConfig:
    """Configuration of a ranker, as in the `config.json` of its folder.

    Attributes:
      model: configuration of the trunk.
      head: configuration of the head. This class replaces the reduction `auto` by one that suits
        the trunk. `initial_ranker` replaces a scale of 0.
      trunk: kind of the trunk: `convert` for a dual encoder, or `bert`.
    """

    model: ModelConfig | BertConfig
    head: HeadConfig
    trunk: str = "convert"

    def __post_init__(self) -> None:
        has_start = self.trunk == "bert" or self.head.head == "cross"
        if self.head.reduction == "mean_without_first" and not has_start:
            raise ValueError(
                "mean_without_first needs a trunk that puts [S] before a text, and ConveRT's trunk "
                "does not. Choose mean."
            )
        if self.head.reduction == AUTO:
            reduction = "first" if self.trunk == "bert" else "sqrt_n"
            object.__setattr__(self, "head", dataclasses.replace(self.head, reduction=reduction))

    @property
    def tokenizer(self) -> str:
        """Kind of the tokenizer."""
        return self.model.tokenizer

    @classmethod
    def from_json(cls, text: str) -> "RankerConfig":
        """Return the configuration that `to_json` wrote.

        Raises:
          ValueError: if the text is not the configuration of a ranker.
        """
        values = parsed_json(text)
        if not isinstance(values, dict) or set(values) != {"trunk", "model", "head"}:
            raise ValueError(
                "This is not a ranker's configuration, which has the keys head, model and trunk. "
                f"Received: {text[:80]!r}. Use a folder that convert-tf train --head wrote."
            )
        trunk = values["trunk"]
        is_known = isinstance(trunk, str) and trunk in TRUNKS
        check(is_known, f"trunk must be one of {', '.join(TRUNKS)}.", trunk)
        return cls(
            TRUNKS[trunk].from_dict(values["model"]), HeadConfig.from_dict(values["head"]), trunk
        )

    def to_json(self) -> str:
        values = {"trunk": self.trunk, "model": self.model.to_dict(), "head": self.head.to_dict()}
        return written_json(values)
