"""Fine-tuning of rankers, as `train.py --head` starts it: objective, data and task.

Reference: arXiv 1905.01969 §4.2 to §4.4, §5.1, §5.3.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.loading import initial_ranker, load_ranker_config
from convert_tf.checkpoints.released import model_path
from convert_tf.checkpoints.vocabulary import check_same_vocabulary
from convert_tf.config.bert import BertConfig
from convert_tf.config.ranker import (
    RANKER_RECIPES,
    HeadConfig,
    RankerConfig,
    RankerTraining,
    ranker_recipe,
)
from convert_tf.data.candidates import read_examples
from convert_tf.data.negatives import HardNegatives
from convert_tf.data.ranking_batches import (
    NegativeSampler,
    RankingBatches,
    RankingExamples,
    padded,
    tokenize_examples,
)
from convert_tf.data.tasks.formats import head_of, task_format_of
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.data.unknown_tokens import SAMPLE, checked_share
from convert_tf.metrics import BLOCK_SIZE
from convert_tf.models.losses import softmax_losses
from convert_tf.models.ranker import RankerModel
from convert_tf.numerics.devices import choose_precision
from convert_tf.numerics.initializers import set_seed
from convert_tf.ranking.checkpoint import make_tokenize, pad_multiple, ranking_report, score_lists
from convert_tf.training.loop import carry_out, only_run_in
from convert_tf.training.optimizers import decaying_on_plateau, make_optimizer
from convert_tf.training.state import options_before
from convert_tf.training.step import Objective, compile_with
from convert_tf.training.summaries import LOSS, RECALL, curves
from convert_tf.training.task import Batch, Task
from convert_tf.training.teaching.vectors import first_places

_DEV_LIST = 20  # candidates of a context where records are ranked by a cross-encoder
# What must stay when a run resumes: the shapes of the head, and what its weights were trained to.
_KEPT_OF_HEAD = (
    "head", "reduction", "reduction_tokens", "poly_codes", "poly_variant", "learn_scale",
    "separate_trunks",
)  # fmt: skip
_KEPT_OF_TRAINING = ("freeze", "trainable_blocks", "output_std")
_RESCALED_ON = 256  # contexts to measure the outputs of the trunk on
_PLATEAU_DECAY = 0.4  # arXiv 1905.01969 §5.1


class CandidateRanking(Objective):
    """A ranker under its objective: pick each context's right candidate.

    Args:
      encoder: the ranker; named as the checkpoints' functions name what they save.
      config: label smoothing and l2.

    Call arguments:
      inputs: a batch of `RankingBatches`.

    Returns:
      float32 `[batch, candidates]`, the scores.

    Reference: arXiv 1905.01969 §4.2, §4.3.
    """

    def __init__(self, encoder: RankerModel, config: RankerTraining):
        super().__init__(encoder, ("batch_accuracy", "ranking_loss"), l2=config.l2)
        self.label_smoothing = config.label_smoothing
        self.built = True

    def outputs_of(self, inputs: dict[str, Any], training: bool) -> Any:
        return self.encoder.score(inputs["context_ids"], inputs["candidate_ids"], training=training)

    def loss_of(self, inputs: dict[str, Any], outputs: Any) -> Any:
        losses = softmax_losses(
            outputs,
            self.label_smoothing,
            labels=inputs["labels"],
            is_candidate=inputs["candidate_mask"],
        )
        return ops.mean(losses)

    def measures_of(self, inputs: dict[str, Any], outputs: Any) -> Iterator[tuple[str, Any, Any]]:
        right = ops.take_along_axis(outputs, ops.cast(inputs["labels"], "int32")[:, None], axis=1)
        is_ahead = ops.logical_and(outputs >= right, inputs["candidate_mask"])
        is_first = ops.sum(ops.cast(is_ahead, "int32"), axis=1) == 1
        yield "batch_accuracy", ops.cast(is_first, "float32"), None
        yield "ranking_loss", self.loss_of(inputs, outputs), None


def freeze(ranker: RankerModel, how: str, *, trainable_blocks: int = 1) -> None:
    """Take a part of the trunk out of training.

    Args:
      ranker: changed in place, before its optimizer is built.
      how: `nothing`, `embeddings` (the tables of tokens, positions and segments, and the norm), or
        `all_but_top_k` (these and all blocks but the last ones).
      trainable_blocks: k.

    Raises:
      ValueError: the trunk has fewer blocks than that.

    Reference: arXiv 1905.01969 §5.1, Table 3.
    """
    if how == "nothing":
        return
    for trunk in (ranker.trunk, ranker.candidate_trunk):
        if trunk is None:
            continue
        trunk.embedding.trainable = False
        if how == "embeddings":
            continue
        if trainable_blocks > len(trunk.blocks):
            raise ValueError(
                f"trainable_blocks must be at most {len(trunk.blocks)}, the blocks of the trunk. "
                f"Received: {trainable_blocks}."
            )
        for block in trunk.blocks[: len(trunk.blocks) - trainable_blocks]:
            block.trainable = False


def make_ranker_training(
    ranker: RankerModel, config: RankerTraining, *, precision: str
) -> CandidateRanking:
    """Return `ranker` under its objective, compiled with its optimizer."""
    freeze(ranker, config.freeze, trainable_blocks=config.trainable_blocks)
    model = CandidateRanking(ranker, config)
    optimizer = make_optimizer(
        config,
        embedding_table=ranker.trunk.embedding.table,
        embedding_clip=0.0,
        precision=precision,
        extend=decaying_on_plateau,
    )
    if config.optimizer == "adamw":  # no decay of biases and norms, as BERT's
        vectors = [v for v in model.trainable_variables if len(v.shape) < 2]
        optimizer.exclude_from_weight_decay(var_list=vectors)
    compile_with(model, optimizer)
    return model


def open_examples(
    data: str,
    split: str,
    config: RankerConfig,
    *,
    vocabulary: str | os.PathLike[str],
    max_examples: int | None,
) -> RankingExamples:
    """Open a candidates file, records or token ids for a ranker.

    Token ids need no TensorFlow. They do not store where a turn ends, so their contexts have no
    earlier turns.

    Args:
      data: the file or the folder.
      split: split of a folder.
      config: configuration of the ranker.
      vocabulary: vocabulary of the ranker.
      max_examples: number of examples to read; None for all.

    Raises:
      ValueError: if there are no examples, they are damaged, or the token ids have another
        vocabulary.
      OSError: if the file cannot be read.
    """
    head = config.head
    if kind_of(data) is Kind.TOKEN_IDS:
        folder = ArrayFolder(data)
        check_same_vocabulary(
            folder.vocabulary,
            vocabulary,
            rule="A ranker reads token ids of its own vocabulary",
            remedy="Write them again with `convert-tf tokenize` and that vocabulary.",
        )
        return _stored_examples(folder, split, head, max_examples)
    return tokenize_examples(
        read_examples(data, split, max_examples=max_examples),
        make_tokenize(vocabulary, config),
        max_context_tokens=head.max_context_tokens,
        max_candidate_tokens=head.max_candidate_tokens,
    )


def _stored_examples(
    folder: ArrayFolder, split: str, head: HeadConfig, max_examples: int | None
) -> RankingExamples:
    limits = (head.max_context_tokens, head.max_candidate_tokens)
    contexts, responses = (
        folder.open(split, max_tokens=min(limit, folder.max_tokens)) for limit in limits
    )
    numbers = np.arange(min(max_examples or contexts.num_examples, contexts.num_examples))
    if not len(numbers):
        raise ValueError(f"{folder.folder!r} has no example in the split {split}.")
    first = first_places(responses, ("response",), numbers)
    chosen, places = np.unique(first, return_inverse=True)
    return RankingExamples(
        contexts.texts("context", numbers),
        responses.texts("response", chosen),
        [*places[:, None]],
        [*np.zeros((len(numbers), 1), np.int64)],
    )


def with_dev_candidates(examples: RankingExamples, *, is_joint: bool) -> RankingExamples:
    """Return examples with candidates to rank: the given ones, or those of other examples.

    Records only have the right candidate. A bi- or poly-encoder then ranks the right candidates of
    a block of 100 examples. A cross-encoder, which reads each pair, ranks those of 20.

    Raises:
      ValueError: if there are fewer examples than a block.
    """
    if any(len(own) > 1 for own in examples.candidates):
        return examples
    size = _DEV_LIST if is_joint else BLOCK_SIZE
    usable = examples.num_examples // size * size
    if not usable:
        raise ValueError(
            f"Ranking among {size} needs at least {size} dev examples. Received: "
            f"{examples.num_examples}. Use more."
        )
    right = np.concatenate(examples.candidates[:usable]).reshape(-1, size)
    candidates, labels = [], []
    for block in right:
        # If several contexts of the block have the same right text, it is one candidate.
        texts, places = np.unique(block, return_inverse=True)
        candidates += [texts] * size
        labels += [*places[:, None]]
    contexts = examples.contexts.take(np.arange(usable))
    return RankingExamples(contexts, examples.pool, candidates, labels)


def open_sampler(examples: RankingExamples, config: RankerTraining) -> NegativeSampler | None:
    """Return the sampler of negatives; None to use the other responses of the batch.

    Raises:
      ValueError: if an example has no wrong candidate, or negatives were mined from other data.
    """
    if config.negatives_from == "in_batch":
        return None
    mined = _mined_places(examples, config) if config.negatives_from == "mined" else None
    return NegativeSampler(
        examples, source=config.negatives_from, count=config.negatives, mined=mined
    )


def _mined_places(examples: RankingExamples, config: RankerTraining) -> np.ndarray:
    """Return int64 `[examples, mined]`, indices into the pool; −1 if fewer were mined."""
    if kind_of(config.data) is not Kind.TOKEN_IDS:
        raise ValueError(
            f"Mined negatives go with token ids (--hard_negatives), and {config.data!r} holds "
            "none. Write token ids with `convert-tf tokenize`, mine negatives from them with "
            "`convert-tf mine`, and pass them as --data."
        )
    folder = ArrayFolder(config.data)
    negatives = HardNegatives(
        config.hard_negatives,
        folder.open("train", max_tokens=folder.max_tokens),
        per_pair=1,
        seed=config.seed,
    )
    number = examples.num_examples
    mined = negatives.numbers(np.arange(number))
    places = np.concatenate(examples.candidates)  # token ids have one response each
    is_there = (mined >= 0) & (mined < number)  # --max_examples may have left some out
    return np.where(is_there, places[np.where(is_there, mined, 0)], -1)


def train_ranker(
    head: HeadConfig,
    options: dict[str, Any],
    *,
    init_from: str,
    output: str,
    recipe: str | None = None,
) -> Path:
    """Fine-tune a ranker, or resume a run that was stopped.

    Args:
      head: the head.
      options: fields of `RankerTraining`; see `ranker_options` for the others.
      init_from: model directory of a dual encoder or a ranker, a module of the former, or its name.
      output: the run's folder. If it has checkpoints, training resumes from the newest.
      recipe: one of `RANKER_RECIPES`; see `ranker_options` for the default.

    Returns:
      `output`, a ranker's model directory with the best weights on the dev data.

    Raises:
      ValueError: if data or options are unusable, another run is in this folder, or checkpoints do
        not match.
      FloatingPointError: if the loss or a weight became NaN; the last checkpoint is kept.
      OSError: if a file cannot be read or written.
    """
    config = ranker_options(head.head, options, init_from=init_from, recipe=recipe)
    folder = Path(output)
    with only_run_in(folder):
        set_seed(config.seed)
        return carry_out(RankerTask(head, config, init_from=model_path(init_from), folder=folder))


def ranker_options(
    head: str, options: Mapping[str, Any], *, init_from: str | None, recipe: str | None = None
) -> RankerTraining:
    """Return all options of a run, from those that were given.

    Without a recipe, a ConvAI2 file as `data` selects `convai2`. Other data select `paper`.

    Folders are evaluated on their own dev split. By the recipe `paper`, a cross-encoder ranks the
    given candidates of a file, and random responses of a folder. The rest is as in `ranker_recipe`.

    Raises:
      ValueError: if there is no data or no trained trunk, or options have no effect.
    """
    options = dict(options)
    data = options.get("data", "")
    if os.path.isdir(data):
        options.setdefault("dev_data", data)
    if not data or not options.get("dev_data") or not init_from:
        raise ValueError(
            "A head is trained with --init_from, --data and --dev_data (a folder of records or of "
            "token ids, which has a dev split, or a file of given candidates). Received: "
            f"init_from {init_from!r}, data {data!r}, dev_data {options.get('dev_data')!r}."
        )
    if recipe is None:
        task = task_format_of(head_of(data))
        recipe = task.name if task and task.name in RANKER_RECIPES else "paper"
    if head == "cross" and recipe == "paper":
        options.setdefault("negatives_from", "sampled" if os.path.isdir(data) else "given")
    config = ranker_recipe(head, weights=_weights_of(init_from), recipe=recipe, **options)
    config.check_effect(options)
    return config


class RankerTask(Task):
    """A ranker on a trained trunk; see `train_ranker`.

    The best weights are those of the highest R@1 on the dev data. The learning rate falls whenever
    the loss there is not the lowest so far.

    Attributes:
      ranker: the ranker.
      head: its head, without values that the trunk decides.
      dev: the examples that it is evaluated on.
      unknown_share: share of unknown tokens in the first examples.
    """

    config: RankerTraining

    def __init__(self, head: HeadConfig, config: RankerTraining, *, init_from: str, folder: Path):
        self.folder = folder
        self.precision = choose_precision(config.precision)
        self.init_from = init_from
        self.ranker, self.vocabulary = initial_ranker(
            init_from,
            head,
            dtype=self.precision,
            embedding_dropout=config.embedding_dropout,
            attention_dropout=config.attention_dropout,
        )
        self.head = self.ranker.config.head
        examples = self._opened(config.data, "train", config.max_examples or None)
        self.dev = with_dev_candidates(
            self._opened(config.dev_data, "dev", config.eval_examples),
            is_joint=self.ranker.is_joint,
        )
        self.unknown_share = checked_share(
            examples.contexts.flat[: examples.contexts.row_splits[:SAMPLE][-1]],
            self.vocabulary,
            tokenizer=self.ranker.config.tokenizer,
            vocab_size=self.ranker.config.model.vocab_size,
            what=f"the texts of {config.data}",
        )
        sampler = open_sampler(examples, config)
        self.config = config = config.of_examples(examples.num_examples)
        if config.output_std:
            numbers = np.arange(min(_RESCALED_ON, examples.num_examples))
            contexts = padded(examples.contexts, numbers, self.ranker.padding_id)
            factor = self.ranker.rescale_outputs(contexts, config.output_std)
            print(
                f"outputs rescaled by {factor:.4g} to a standard deviation of {config.output_std:g}"
            )
        self.model = make_ranker_training(self.ranker, config, precision=self.precision)
        self._batches = RankingBatches(
            examples,
            batch_size=config.batch_size,
            padding_id=self.ranker.padding_id,
            seed=config.seed,
            sampler=sampler,
            pad_multiple=pad_multiple(),
        )
        print(
            f"{self.head.head} on {examples.num_examples} examples in batches of "
            f"{self._batches.batch_size}, {config.steps} steps; precision {self.precision} "
            f"(backend {keras.backend.backend()})"
        )

    def _opened(self, data: str, split: str, max_examples: int | None) -> RankingExamples:
        return open_examples(
            data, split, self.ranker.config, vocabulary=self.vocabulary, max_examples=max_examples
        )

    def options(self) -> dict[str, Any]:
        return {**self._started(), "train": self.config, "head": self.head}

    def _started(self) -> dict[str, Any]:
        return {"precision": self.precision, "init_from": self.init_from}

    def batches(self, step: int) -> Iterator[Batch]:
        self._batches.skip_batches = step
        return (Batch(inputs, self._batches.batch_size) for inputs in self._batches)

    def evaluate(
        self, step: int, logs: dict[str, float], rows: list[dict[str, Any]]
    ) -> dict[str, Any]:
        factor = float(np.asarray(self.model.optimizer.plateau_factor))
        dev = self.dev
        scores = score_lists(self.ranker, dev.contexts, dev.pool, dev.candidates)
        measured = ranking_report(scores, dev)
        if rows and measured["loss"] >= min(row["dev"]["loss"] for row in rows):
            self.model.optimizer.decay(_PLATEAU_DECAY)
        return {
            "pairs": step * self.config.batch_size,
            "ranking_loss": logs.get("ranking_loss"),
            "batch_accuracy": logs.get("batch_accuracy"),
            "plateau_factor": factor,
            "dev": measured,
        }

    def score(self, row: dict[str, Any]) -> float:
        return row["dev"]["R@1"]

    def curve(self, rows: list[dict[str, Any]]) -> bytes:
        return curves(rows, {RECALL: [("dev", "R@1")], LOSS: [("", "ranking_loss")]})

    def facts(self) -> dict[str, Any]:
        return {
            **self._started(),
            "data": self.config.data,
            "dev_data": self.config.dev_data,
            "train": self.config.to_dict(),
            "unknown_tokens": self.unknown_share,
        }

    def model_changes(self, earlier: Path) -> dict[str, tuple[Any, Any]]:
        before = load_ranker_config(earlier)
        heads = before.head.differences(self.head).items()
        changes = {name: change for name, change in heads if name in _KEPT_OF_HEAD}
        options = self.config.changes_since(options_before(self.folder / self.run_file)).items()
        changes |= {name: change for name, change in options if name in _KEPT_OF_TRAINING}
        if before.model != self.ranker.config.model:
            changes["model"] = (before.model, self.ranker.config.model)
        return changes


def _weights_of(folder: str) -> str:
    """Return the kind of the weights in a folder, as `ranker_recipe` names it."""
    kind = kind_of(folder)
    if kind is Kind.RANKER:
        model = load_ranker_config(folder).model
        if isinstance(model, BertConfig):
            return "published_bert" if model.is_published else "bert"
        return "convert"
    return {Kind.BERT: "bert", Kind.HUGGING_FACE: "published_bert"}.get(kind, "convert")
