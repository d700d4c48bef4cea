"""Fine-tune rankers. `convert-tf train --head` calls `train_ranker`.

Reference: arXiv 1905.01969 §4.2 to §4.4, §5.1, §5.3.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.loading import initial_ranker, load_ranker_config
from convert_tf.checkpoints.released import model_path
from convert_tf.config.bert import BertConfig
from convert_tf.config.ranker import RANKER_RECIPES, HeadConfig, RankerTraining, ranker_recipe
from convert_tf.data.ranking_batches import RankingExamples
from convert_tf.data.tasks.formats import head_of, task_format_of
from convert_tf.models.losses import softmax_losses
from convert_tf.models.ranker import RankerModel
from convert_tf.numerics.devices import choose_precision
from convert_tf.numerics.initializers import set_seed
from convert_tf.ranking.checkpoint import ranking_report, score_lists
from convert_tf.training.loop import carry_out, only_run_in
from convert_tf.training.optimizers import decaying_on_plateau, make_optimizer
from convert_tf.training.ranker.data import RankerData
from convert_tf.training.state import options_before
from convert_tf.training.step import Objective, compile_with
from convert_tf.training.summaries import LOSS, RECALL, curves
from convert_tf.training.task import Batch, Task, Tracker, short_checksum

_RESCALED_ON = 256  # number of contexts used to measure the spread of the trunk's outputs
_PLATEAU_DECAY = 0.4  # arXiv 1905.01969 §5.1


class CandidateRanking(Objective):
    """A ranker with its training objective: to score each context's correct candidate highest.

    Args:
      encoder: the ranker. It is named `encoder` because checkpoints save the attribute `encoder`.
      config: training options. Only label smoothing and `l2` are used.

    Call arguments:
      inputs: a batch from `RankingBatches`.

    Returns:
      The score of each candidate, float32 `[batch, candidates]`.

    Reference: arXiv 1905.01969 §4.2, §4.3.
    """

    def __init__(self, encoder: RankerModel, config: RankerTraining) -> None:
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
    """Freeze a part of the ranker's trunk.

    Args:
      ranker: the ranker, which is changed in place. Its optimizer must not have been built yet.
      how: the part to freeze: `nothing`, `embeddings` (the tables for tokens, positions and
        segments, and their layer norm), or `all_but_top_k` (the embeddings and all blocks except
        the last k).
      trainable_blocks: k, the number of last blocks that `all_but_top_k` trains.

    Raises:
      ValueError: if the trunk has fewer than k blocks.

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
                f"trainable_blocks must be at most {len(trunk.blocks)}, the number of blocks in "
                f"the trunk. Received: {trainable_blocks}."
            )
        for block in trunk.blocks[: len(trunk.blocks) - trainable_blocks]:
            block.trainable = False


def make_ranker_training(
    ranker: RankerModel, config: RankerTraining, *, precision: str
) -> CandidateRanking:
    """Return the ranker with its training objective, compiled with an optimizer."""
    freeze(ranker, config.freeze, trainable_blocks=config.trainable_blocks)
    model = CandidateRanking(ranker, config)
    optimizer = make_optimizer(
        config,
        embedding_table=ranker.trunk.embedding.table,
        embedding_clip=0.0,
        precision=precision,
        extend=decaying_on_plateau,
    )
    if config.optimizer == "adamw":  # as in BERT, biases and norms have no weight decay
        vectors = [v for v in model.trainable_variables if len(v.shape) < 2]
        optimizer.exclude_from_weight_decay(var_list=vectors)
    compile_with(model, optimizer)
    return model


def train_ranker(
    head: HeadConfig,
    options: dict[str, Any],
    *,
    init_from: str,
    output: str,
    recipe: str | None = None,
    trackers: Sequence[Tracker] = (),
) -> Path:
    """Fine-tune a ranker, or resume a run that was stopped.

    Args:
      head: configuration of the head.
      options: values for fields of `RankerTraining`. `ranker_options` supplies the missing ones.
      init_from: the model to start from: the model directory of a dual encoder or a ranker, or the
        module or released name of a dual encoder.
      output: folder of the run. If it has checkpoints, training resumes from the newest one.
      recipe: one of `RANKER_RECIPES`. `ranker_options` describes the default.
      trackers: functions that receive the measured values; see `Task`.

    Returns:
      The path `output`. This folder is now a model directory with the weights that were best on the
      dev data.

    Raises:
      ValueError: if the data or options are unusable, `output` contains a different run, or the
        checkpoints do not match.
      FloatingPointError: if the loss or a weight became NaN or infinite. The last checkpoint is
        kept.
      OSError: if a file cannot be read or written.
      NotFinishedError: on SIGTERM, after saving the state. It is a `SystemExit` with status 75.
    """
    config = ranker_options(head.head, options, init_from=init_from, recipe=recipe)
    folder = Path(output)
    init_from = model_path(init_from, wants_module=True)
    precision = choose_precision(config.precision)
    with only_run_in(folder):
        set_seed(config.seed)
        ranker, vocabulary = initial_ranker(
            init_from,
            head,
            dtype=precision,
            embedding_dropout=config.embedding_dropout,
            attention_dropout=config.attention_dropout,
        )
        data = RankerData(
            config, ranker.config, vocabulary, shortens_warmup="warmup_steps" not in options
        )
        started = {"precision": precision, "init_from": init_from}
        task = RankerTask(ranker, data, vocabulary=vocabulary, started=started, folder=folder)
        task.trackers = trackers
        return carry_out(task)


def ranker_options(
    head: str, options: Mapping[str, Any], *, init_from: str | None, recipe: str | None = None
) -> RankerTraining:
    """Return the options of a run, with defaults for those that are not given.

    If `data` is a file of a task that has its own recipe, such as `convai2`, that recipe is the
    default. For other data, the default recipe is `paper`.

    If `data` is a folder, its dev split is used for evaluation by default. With the recipe `paper`,
    a cross-encoder uses the given candidates as negatives if `data` is a file, and sampled
    responses if it is a folder. `ranker_recipe` supplies the defaults of all other options.

    Raises:
      ValueError: if there is no data or no trained trunk, or if an option would have no effect.
    """
    options = dict(options)
    data = options.get("data", "")
    if os.path.isdir(data):
        options.setdefault("dev_data", data)
    if not data or not options.get("dev_data") or not init_from:
        raise ValueError(
            "Training a head needs --init_from and --data. --data is a folder of records or token "
            "ids, or a file with candidates. For a file, --dev_data is needed too. Received: "
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
    """The task of fine-tuning a ranker, for `train_ranker`.

    The weights with the highest R@1 on the dev data are kept. The learning rate is reduced after
    each evaluation in which the loss on the dev data is not lower than its earlier minimum on the
    same data.

    Args:
      ranker: the ranker to train. Its weights must already be initialised.
      data: data of the run.
      vocabulary: vocabulary file that the ranker and the data use.
      started: facts about the start of the run, with the keys `precision` and `init_from`.
      folder: folder of the run.

    Attributes:
      ranker: the ranker to train.
      data: data of the run.
    """

    config: RankerTraining

    def __init__(
        self,
        ranker: RankerModel,
        data: RankerData,
        *,
        vocabulary: Path,
        started: dict[str, Any],
        folder: Path,
    ) -> None:
        self.ranker, self.data, self._started = ranker, data, started
        self.folder, self.config, self.vocabulary = folder, data.config, vocabulary
        self.evaluated_on = short_checksum(_arrays_of(data.dev))
        if std := data.config.output_std:
            factor = ranker.rescale_outputs(data.first_contexts(_RESCALED_ON), std)
            print(f"outputs rescaled by {factor:.4g} to a standard deviation of {std:g}")
        self.model = make_ranker_training(ranker, data.config, precision=started["precision"])
        print(
            f"{ranker.config.head.head} on {data.examples.num_examples} examples in batches of "
            f"{data.batches.batch_size}, {data.config.steps} steps; precision "
            f"{started['precision']} (backend {keras.backend.backend()})"
        )

    def options(self) -> dict[str, Any]:
        return {**self._started, "train": self.config, "head": self.ranker.config.head}

    def batches(self, step: int) -> Iterator[Batch]:
        batches = self.data.batches
        batches.skip_batches = step
        return (Batch(inputs, batches.batch_size) for inputs in batches)

    def evaluate(
        self, step: int, logs: dict[str, float], rows: list[dict[str, Any]]
    ) -> dict[str, Any]:
        factor = float(np.asarray(self.model.optimizer.plateau_factor))
        dev = self.data.dev
        scores = score_lists(self.ranker, dev.contexts, dev.pool, dev.candidates)
        measured = ranking_report(scores, dev)
        losses = [row["dev"]["loss"] for row in rows if not math.isnan(row["dev"]["loss"])]
        if losses and not measured["loss"] < min(losses):
            self.model.optimizer.decay(_PLATEAU_DECAY)
        return {
            "pairs": step * self.data.batches.batch_size,
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
            **self._started,
            "data": self.config.data,
            "dev_data": self.config.dev_data,
            "train": self.config.to_dict(),
            "unknown_tokens": self.data.unknown_share,
        }

    def model_changes(self, earlier: Path) -> dict[str, tuple[Any, Any]]:
        before = load_ranker_config(earlier)
        head, config = self.ranker.config.head, self.config
        changes = head.only_kept(before.head.differences(head))
        changes |= config.only_kept(
            config.changes_since(options_before(self.folder / self.run_file))
        )
        if before.model != self.ranker.config.model:
            changes["model"] = (before.model, self.ranker.config.model)
        return changes


def _arrays_of(examples: RankingExamples) -> Iterator[np.ndarray]:
    for texts in (examples.contexts, examples.pool):
        yield from texts
    yield from (*examples.candidates, *examples.labels)


def _weights_of(folder: str) -> str:
    """Return the kind of the weights in a folder, as `ranker_recipe` names it."""
    kind = kind_of(folder)
    if kind is Kind.RANKER:
        model = load_ranker_config(folder).model
        if isinstance(model, BertConfig):
            return "published_bert" if model.is_published else "bert"
        return "convert"
    return {Kind.BERT: "bert", Kind.HUGGING_FACE: "published_bert"}.get(kind, "convert")
