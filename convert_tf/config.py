"""Configuration of the model, of training and of the data, as frozen dataclasses with strict JSON.

Reference: arXiv 1911.03688 §2.1 (model) and §3.1 (training).
"""

import dataclasses
import inspect
import json
import math
import re
from typing import Any, TypeVar

TOKENIZERS = ("subword", "sentencepiece")
BERT_TOKENIZERS = (*TOKENIZERS, "wordpiece")
MAX_TOKENS = 512  # that an exported model reads of a text, unless told otherwise
PRECISIONS = ("auto", "float32", "mixed_bfloat16", "mixed_float16")
OPTIMIZERS = ("adadelta", "adam", "adamw", "adamax")
HEADS = ("bi", "poly", "cross")
REDUCTIONS = ("sqrt_n", "first", "mean", "first_m_mean")
POLY_VARIANTS = ("learnt", "first_m", "last_m", "last_m_and_first")
NEGATIVES = ("in_batch", "given", "sampled", "mined")
FREEZE = ("nothing", "embeddings", "all_but_top_k")

ConfigT = TypeVar("ConfigT", bound="_Config")


def _typed(name: str, value: Any, default: Any) -> Any:
    """`value` in the type of the field's default: JSON knows no tuples, and 1 stands for 1.0."""
    if isinstance(default, tuple) and isinstance(value, list | tuple):
        return tuple(_typed(name, item, default[0]) for item in value)
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if type(value) is not type(default):
        raise ValueError(
            f"{name} must be of type {type(default).__name__}, as {default!r} is. "
            f"Received: {value!r}. Correct it."
        )
    return value


def _check(condition: bool, rule: str, received: object) -> None:
    if not condition:
        raise ValueError(f"{rule} Received: {received!r}. Choose a value that keeps this rule.")


@dataclasses.dataclass(frozen=True)
class _Config:
    """JSON in and out; unknown keys are an error that lists the valid ones."""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_dict(cls: type[ConfigT], values: dict[str, Any]) -> ConfigT:
        names = {field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(values) - names)
        if unknown:
            raise ValueError(
                f"Every key of a {cls.__name__} must be one of its fields. Received: {unknown}. "
                f"Valid keys: {sorted(names)}."
            )
        defaults = {field.name: field.default for field in dataclasses.fields(cls)}
        return cls(**{k: _typed(k, v, defaults[k]) for k, v in values.items()})

    @classmethod
    def explanations(cls) -> dict[str, str]:
        """What each field means: its entry under `Args` in the docstring."""
        entries = inspect.cleandoc(cls.__doc__ or "").partition("Args:\n")[2]
        found = re.findall(r"^  (\w[\w, ]*): (.*(?:\n    .*)*)", entries, re.MULTILINE)
        return {name: " ".join(text.split()) for names, text in found for name in names.split(", ")}

    @classmethod
    def from_json(cls: type[ConfigT], text: str) -> ConfigT:
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(
                f"A {cls.__name__} file must hold JSON. Received: {text[:80]!r} ({error})."
            ) from error
        if not isinstance(values, dict):
            raise ValueError(
                f"A {cls.__name__} file must hold one JSON object. Received: {text[:80]!r}."
            )
        return cls.from_dict(values)

    def differences(self: ConfigT, other: ConfigT) -> dict[str, tuple[Any, Any]]:
        """Fields whose values differ: name → (value here, value in `other`)."""
        return {
            field.name: (getattr(self, field.name), getattr(other, field.name))
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        }


@dataclasses.dataclass(frozen=True)
class ModelConfig(_Config):
    """What the network is. The defaults are the paper's (arXiv 1911.03688 §2.1, §3.1).

    Args:
      vocab_size: entries of the vocabulary, hash buckets not counted.
      num_oov_buckets: hash buckets for characters outside the vocabulary.
      tokenizer: `"subword"` (the paper's) or `"sentencepiece"`.
      embedding_dim: width of subword embeddings and of the transformer blocks.
      position_table_sizes: rows of the two position tables; position i reads row i mod size of
        each.
      max_relative_attention: one entry per block: how many tokens away attention may look.
      num_heads: attention heads per block; 1 in the paper, 8 in its ablation A.
      attention_dim: query/key width of one head.
      use_value_projection: whether attention projects its values; the paper's parameter count says
        no.
      use_relative_bias: whether a learned bias per relative position is added to attention scores.
      feed_forward_dim: hidden width of the feed-forward layer of a block.
      reduction_heads: heads of the √N reduction; its output r has reduction_heads × embedding_dim.
      reduction_dim: query/key width of one reduction head.
      side_layers: hidden layers of each side network.
      side_hidden_dim: width of those layers.
      use_side_skip: whether the side networks have skip connections.
      encoding_dim: width of the normalised encodings h.
      embedding_bits: 8 trains the subword table quantization-aware; 32 leaves it alone.
      max_tokens: longest sequence, in subwords, that training reads; longer texts are cut.
      multi_context: whether the model reads earlier turns too, up to ten joined into one text.
    """

    vocab_size: int = 31_476
    num_oov_buckets: int = 1_000
    tokenizer: str = "subword"
    embedding_dim: int = 512
    position_table_sizes: tuple[int, int] = (47, 11)
    max_relative_attention: tuple[int, ...] = (3, 5, 48, 48, 48, 48)
    num_heads: int = 1
    attention_dim: int = 64
    use_value_projection: bool = False
    use_relative_bias: bool = True
    feed_forward_dim: int = 2_048
    reduction_heads: int = 2
    reduction_dim: int = 64
    side_layers: int = 3
    side_hidden_dim: int = 1_024
    use_side_skip: bool = True
    encoding_dim: int = 512
    embedding_bits: int = 8
    max_tokens: int = 60
    multi_context: bool = False

    def __post_init__(self) -> None:
        for name in (
            "vocab_size", "num_oov_buckets", "embedding_dim", "num_heads", "attention_dim",
            "feed_forward_dim", "reduction_heads", "reduction_dim", "side_hidden_dim",
            "encoding_dim", "max_tokens",
        ):  # fmt: skip
            _check(getattr(self, name) >= 1, f"{name} must be at least 1.", getattr(self, name))
        _check(self.side_layers >= 0, "side_layers must not be negative.", self.side_layers)
        _check(
            self.tokenizer in TOKENIZERS, f"tokenizer must be one of {TOKENIZERS}.", self.tokenizer
        )
        _check(
            len(self.position_table_sizes) == 2
            and min(self.position_table_sizes) >= 1
            and math.gcd(*self.position_table_sizes) == 1,
            "position_table_sizes must be two positive coprime numbers, so that positions repeat "
            "only after their product.",
            self.position_table_sizes,
        )
        _check(
            len(self.max_relative_attention) >= 1 and min(self.max_relative_attention) >= 1,
            "max_relative_attention must hold one positive distance per block.",
            self.max_relative_attention,
        )
        _check(
            self.embedding_dim % self.num_heads == 0,
            "embedding_dim must be a multiple of num_heads.",
            (self.embedding_dim, self.num_heads),
        )
        _check(self.embedding_bits in (8, 32), "embedding_bits must be 8 or 32.",
               self.embedding_bits)  # fmt: skip

    @property
    def num_ids(self) -> int:
        """Rows of the embedding table; also the id of padding, which has no row."""
        return self.vocab_size + self.num_oov_buckets

    @property
    def reduced_dim(self) -> int:
        """Width of r, the reduced encoding before the side network."""
        return self.reduction_heads * self.embedding_dim


@dataclasses.dataclass(frozen=True)
class BertConfig(_Config):
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
            _check(getattr(self, name) >= 1, f"{name} must be at least 1.", getattr(self, name))
        _check(self.num_oov_buckets >= 0, "num_oov_buckets must not be negative.",
               self.num_oov_buckets)  # fmt: skip
        _check(self.tokenizer in BERT_TOKENIZERS, f"tokenizer must be one of {BERT_TOKENIZERS}.",
               self.tokenizer)  # fmt: skip
        for name in ("start_id", "separator_id", "mask_id"):
            _check(
                getattr(self, name) >= 0 and getattr(self, name) != self.padding_id,
                f"{name} must be an id, and not that of padding ({self.padding_id}).",
                getattr(self, name),
            )
        _check(self.dim % self.num_heads == 0, "dim must be a multiple of num_heads.",
               (self.dim, self.num_heads))  # fmt: skip
        _check(self.max_positions >= 4, "max_positions must be at least 4: two tokens of text "
               "between two [S].", self.max_positions)  # fmt: skip
        _check(self.num_segments >= 2, "num_segments must be at least 2: context and candidate.",
               self.num_segments)  # fmt: skip
        _check(self.layer_norm_epsilon > 0, "layer_norm_epsilon must be positive.",
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
class TrainConfig(_Config):
    """How the network is trained. The defaults are the paper's pre-training (§3.1).

    Args:
      steps: optimizer steps in all.
      batch_size: pairs per step; each context's negatives are the other responses of the batch.
      micro_batch: pairs that are encoded at a time, which sets the memory of a step; it divides
        batch_size, and changes neither loss nor gradient. 0 encodes the whole batch at once.
      optimizer: one of `adadelta`, `adam`, `adamw`, `adamax`.
      learning_rate: peak learning rate.
      final_learning_rate: learning rate at the last step, reached by cosine decay.
      warmup_steps: steps of linear warm-up from 0.
      adadelta_rho: ADADELTA's decay of squared averages.
      weight_decay: decoupled weight decay, read by `adamw` only.
      scale_start, scale_end: factor of the cosine at step 0 and after annealing; `scale_end` 0
        means √encoding_dim.
      scale_anneal_steps: steps over which the scale rises linearly.
      label_smoothing: probability taken from the positive and spread evenly over the negatives.
      l2: factor of the sum of squared matrix weights added to the loss.
      embedding_clip: largest L2 norm of the subword table's gradient; 0 turns clipping off.
      embedding_dropout, attention_dropout: drop rates after the embedding and after self-attention.
      history_dropout: share of the examples whose encoding of both texts is made without the
        earlier turns; read by multi-context models only.
      mask_duplicates: whether a response that is equal to a context's own is none of its negatives.
      distillation: weight of 1 − cosine between the teacher's vector of each text and a linear map
        of its reduced encoding; 0 leaves the teacher's vectors away.
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
    adadelta_rho: float = 0.9
    weight_decay: float = 0.0
    scale_start: float = 1.0
    scale_end: float = 0.0
    scale_anneal_steps: int = 10_000
    label_smoothing: float = 0.2
    l2: float = 1e-5
    embedding_clip: float = 1.0
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    history_dropout: float = 0.0
    mask_duplicates: bool = False
    distillation: float = 0.0
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
        for name in ("steps", "eval_every", "checkpoint_every", "keep_checkpoints",
                     "quantizer_update_steps"):  # fmt: skip
            _check(getattr(self, name) >= 1, f"{name} must be at least 1.", getattr(self, name))
        _check(self.batch_size >= 2, "batch_size must be at least 2, for negatives.",
               self.batch_size)  # fmt: skip
        _check(
            self.micro_batch == 0
            or (self.micro_batch > 0 and self.batch_size % self.micro_batch == 0),
            "batch_size must be a multiple of micro_batch, or micro_batch 0 for the whole batch.",
            (self.batch_size, self.micro_batch),
        )
        _check(
            self.eval_examples >= 100,
            "eval_examples must be at least 100: R100@1 ranks each response among 100.",
            self.eval_examples,
        )
        _check(
            self.optimizer in OPTIMIZERS, f"optimizer must be one of {OPTIMIZERS}.", self.optimizer
        )
        _check(
            self.precision in PRECISIONS, f"precision must be one of {PRECISIONS}.", self.precision
        )
        for name in ("learning_rate", "scale_start", "loss_scale"):
            _check(getattr(self, name) > 0, f"{name} must be positive.", getattr(self, name))
        for name in ("final_learning_rate", "warmup_steps", "weight_decay", "scale_end",
                     "scale_anneal_steps", "l2", "embedding_clip", "distillation"):  # fmt: skip
            _check(getattr(self, name) >= 0, f"{name} must not be negative.", getattr(self, name))
        for name in ("label_smoothing", "embedding_dropout", "attention_dropout",
                     "history_dropout"):  # fmt: skip
            _check(0 <= getattr(self, name) < 1, f"{name} must be in [0, 1).", getattr(self, name))

    @property
    def num_micro_batches(self) -> int:
        """Parts of a batch that are encoded one after the other."""
        return self.batch_size // self.micro_batch if self.micro_batch else 1


@dataclasses.dataclass(frozen=True)
class DataConfig(_Config):
    """What is trained on.

    Args:
      data: folder that `python -m convert_tf.data.prepare` wrote, or token ids that
        `python -m convert_tf.data.tokenize` wrote; train.py also takes a file of one's own pairs
        (CSV, TSV) or dialogues (JSON lines).
      train_split: split that is trained on.
      eval_splits: splits scored at every evaluation; the first chooses the best weights. Empty
        where there are too few examples to rank: the last weights are kept.
      shuffle_buffer: examples held in memory for shuffling.
      row_tokens: tokens in one packed row; several short texts share a row.
      teacher: folder of teacher vectors that `python -m convert_tf.data.teach` wrote for the token
        ids.
      hard_negatives: folder of negatives that `python -m convert_tf.data.mine` wrote for the token
        ids; empty for none but the other responses of the batch.
      negatives_per_pair: how many of a pair's mined negatives are drawn at each step; their
        responses are encoded with the batch, as negatives of all its contexts.
      turn_prefixes: whether `0: `, `1: `, … stand before the earlier turns that a multi-context
        model reads, 0 for the most recent one; for fine-tuning, from records only.
    """

    data: str = ""
    train_split: str = "train"
    eval_splits: tuple[str, ...] = ("dev",)
    shuffle_buffer: int = 100_000
    row_tokens: int = 64
    teacher: str = ""
    hard_negatives: str = ""
    negatives_per_pair: int = 1
    turn_prefixes: bool = False

    def __post_init__(self) -> None:
        _check(self.shuffle_buffer >= 1, "shuffle_buffer must be at least 1.", self.shuffle_buffer)
        _check(self.row_tokens >= 1, "row_tokens must be at least 1.", self.row_tokens)
        _check(
            self.negatives_per_pair >= 1,
            "negatives_per_pair must be at least 1.",
            self.negatives_per_pair,
        )
        _check(
            bool(self.hard_negatives) or self.negatives_per_pair == 1,
            "negatives_per_pair must be left away where hard_negatives names no folder.",
            self.negatives_per_pair,
        )


@dataclasses.dataclass(frozen=True)
class HeadConfig(_Config):
    """A head and how it is trained. The numbers are the paper's (arXiv 1905.01969 §4, §5.1, §5.3).

    Args:
      head: `bi`, `poly` or `cross`.
      reduction: how a text becomes one vector: `sqrt_n` (ConveRT's), `first`, `mean` or
        `first_m_mean`; `poly` reduces candidates only, `cross` reads its score from the result.
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
      freeze: `nothing`, `embeddings`, or `all_but_top_k`.
      trainable_blocks: k of `all_but_top_k`, counted from the top.
      max_examples: examples that are trained on, the first ones; 0 takes all.
    """

    head: str = "bi"
    reduction: str = "sqrt_n"
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
    freeze: str = "nothing"
    trainable_blocks: int = 1
    max_examples: int = 0

    def __post_init__(self) -> None:
        for name, choices in (
            ("head", HEADS),
            ("reduction", REDUCTIONS),
            ("poly_variant", POLY_VARIANTS),
            ("negatives_from", NEGATIVES),
            ("freeze", FREEZE),
        ):
            value = getattr(self, name)
            _check(value in choices, f"{name} must be one of {choices}.", value)
        for name in ("reduction_tokens", "max_context_tokens", "max_candidate_tokens", "negatives",
                     "mined_top", "evaluations_per_epoch"):  # fmt: skip
            _check(getattr(self, name) >= 1, f"{name} must be at least 1.", getattr(self, name))
        for name in ("scale", "output_std", "trainable_blocks", "max_examples"):
            _check(getattr(self, name) >= 0, f"{name} must not be negative.", getattr(self, name))
        _check(1 <= self.poly_codes <= 360, "poly_codes must be from 1 to 360.", self.poly_codes)
        _check(self.epochs > 0, "epochs must be positive.", self.epochs)
        _check(0 < self.plateau_decay <= 1, "plateau_decay must be in (0, 1].", self.plateau_decay)
        _check(
            self.head != "cross" or self.negatives_from != "in_batch",
            "negatives_from must not be in_batch for a cross-encoder, which scores each pair anew.",
            self.negatives_from,
        )
        _check(
            self.head != "cross" or not self.separate_trunks,
            "separate_trunks must be off for a cross-encoder, which reads both texts together.",
            self.separate_trunks,
        )
        _check(
            (self.negatives_from == "mined") == bool(self.mined_with),
            "mined_with must name a checkpoint where negatives_from is mined, and only there.",
            (self.negatives_from, self.mined_with),
        )
        _check(
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


def head_train_defaults(head: str) -> dict[str, Any]:
    """What `TrainConfig` has for a head where nothing is said (arXiv 1905.01969 §5.1, §5.3).

    The optimizer is Adamax, as for the paper's own pre-trained weights; the learning rate stays
    after the warm-up, and falls on plateaus only.
    """
    return {
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


MODEL_PRESETS: dict[str, dict[str, Any]] = {
    "convert": {},
    "convert_multi_context": {"multi_context": True},
    "convert_small": {"max_relative_attention": (3, 5, 48)},
    "tiny": {
        "embedding_dim": 64,
        "max_relative_attention": (3, 48),
        "attention_dim": 16,
        "feed_forward_dim": 128,
        "reduction_dim": 16,
        "side_layers": 1,
        "side_hidden_dim": 128,
        "encoding_dim": 64,
    },
}


def model_preset(name: str, **overrides: Any) -> ModelConfig:
    """The preset `name` as a `ModelConfig`, with `overrides` of single fields.

    Raises:
      ValueError: `name` is no preset, or an override names no field.
    """
    if name not in MODEL_PRESETS:
        raise ValueError(
            f"A model must be one of the presets {sorted(MODEL_PRESETS)}. Received: {name!r}."
        )
    return ModelConfig.from_dict({**MODEL_PRESETS[name], **overrides})


# What is trained by default, and what learns from a million pairs or fewer (docs/results.md).
TRAIN_RECIPES: dict[str, dict[str, Any]] = {
    "paper": {},
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
    """The recipe `name` as a `TrainConfig`, with `overrides` of single fields.

    Raises:
      ValueError: `name` is no recipe, or an override names no field.
    """
    if name not in TRAIN_RECIPES:
        raise ValueError(f"A recipe must be one of {sorted(TRAIN_RECIPES)}. Received: {name!r}.")
    return TrainConfig.from_dict({**TRAIN_RECIPES[name], **overrides})


@dataclasses.dataclass(frozen=True)
class PretrainConfig(_Config):
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
            _check(getattr(self, name) >= 1, f"{name} must be at least 1.", getattr(self, name))
        _check(self.shuffle_buffer >= 4, "shuffle_buffer must be at least 4: two pairs for each "
               "objective.", self.shuffle_buffer)  # fmt: skip
        _check(
            self.precision in PRECISIONS, f"precision must be one of {PRECISIONS}.", self.precision
        )
        for name in ("learning_rate", "loss_scale"):
            _check(getattr(self, name) > 0, f"{name} must be positive.", getattr(self, name))
        for name in ("beta_1", "beta_2", "dropout"):
            _check(0 <= getattr(self, name) < 1, f"{name} must be in [0, 1).", getattr(self, name))
        _check(0 < self.mask_rate < 1, "mask_rate must be in (0, 1).", self.mask_rate)
        _check(self.seed >= 0, "seed must not be negative.", self.seed)


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
