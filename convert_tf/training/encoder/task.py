"""Train dual encoders. `convert-tf train` calls `train`."""

import contextlib
import dataclasses
import io
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras
import numpy as np

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.configs import load_config
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.released import model_path
from convert_tf.config.base import DATA
from convert_tf.config.model import ModelConfig
from convert_tf.data.shards import list_shards
from convert_tf.data.token_arrays import ArrayExamples
from convert_tf.models.encoder import DualEncoder, count_parameters
from convert_tf.numerics.initializers import set_seed
from convert_tf.storage.checksums import file_checksum
from convert_tf.training.encoder.data import EncoderData
from convert_tf.training.encoder.evaluation import evaluate_encoder
from convert_tf.training.encoder.losses.base import Loss
from convert_tf.training.encoder.objective import make_objective
from convert_tf.training.encoder.options import EncoderTraining, chosen_options
from convert_tf.training.loop import carry_out, floats, only_run_in, refuse_module
from convert_tf.training.processes import (
    agreed_precision,
    leaving_at_once,
    running_processes,
    spread_over_devices,
)
from convert_tf.training.state import newest_checkpoint, options_before
from convert_tf.training.summaries import LOSS, RECALL, curves
from convert_tf.training.task import Batch, Task, Tracker, short_checksum

_DRAWN = ("R100@1", "context/R100@1", "extra_context/R100@1", "with_history/R100@1")
_ADDED_FOLDERS = (Kind.TOKEN_IDS, Kind.NEGATIVES, Kind.TEACHER_VECTORS)
# Entries of a row of `metrics.jsonl` besides the losses' metrics and the evaluations.
_OTHER_ENTRIES = (
    *("step", "pairs", "pairs_per_second", "seconds", "cpu_seconds", "evaluated_on"),
    *("ranking_loss", "batch_accuracy"),
)
Evaluator = Callable[[DualEncoder], dict[str, float]]


def train(
    model: ModelConfig | str | None,
    training: EncoderTraining | Mapping[str, Any],
    *,
    output: str,
    vocabulary: str | None = None,
    init_from: str | None = None,
    recipe: str | None = None,
    losses: Sequence[Loss] = (),
    evaluators: Mapping[str, Evaluator] | None = None,
    trackers: Sequence[Tracker] = (),
) -> Path:
    """Train a dual encoder, or resume a run that was stopped.

    Args:
      model: configuration of the model, or the name of a preset. `vocab_size` and `tokenizer` are
        taken from the vocabulary. If None, the configuration of `init_from` is used.
      training: options for training and for the data. A dict may have only some of the fields; the
        recipe supplies the others. `data` may be a file of pairs or dialogues, which is prepared in
        `output`.
      output: folder of the run. If it has checkpoints, training resumes from the newest one.
      vocabulary: vocabulary file. If None, the vocabulary of `init_from` or of the folder of token
        ids is used. If there is neither, a vocabulary is learnt from the file in `data`.
      init_from: run, module or released name to take the initial weights from.
      recipe: name of the recipe that supplies the fields missing in a dict: `small` (the default
        for a file), `paper` (the default for a folder) or `paper_finetune`.
      losses: your own losses, which are added to the losses in `training`.
      evaluators: your own evaluations, as a dict from name to function. A function takes the
        encoder and returns a dict of numbers, which are reported together with the results on the
        evaluation splits. Their names must differ from those of these splits, of the losses'
        metrics and of the other entries of `metrics.jsonl`, such as `step` and `pairs`. Without
        evaluation splits, the best weights are chosen by the first number that the first function
        returns.
      trackers: functions that are called with a step and a dict of the values measured at this
        step; see `Task`.

    Returns:
      The path `output`. This folder now contains the weights with the best R100@1 on the first
      evaluation split.

    Raises:
      ValueError: if the data is unusable, `output` contains a different run, a vocabulary or a
        checkpoint does not match (`CheckpointError`), an evaluator has the name of an evaluation
        split or of another entry of `metrics.jsonl`, or two losses report a metric of the same
        name.
      FloatingPointError: if the loss or a weight became NaN or infinite. The last checkpoint is
        kept.
      OSError: if a file cannot be read or written.
      NotFinishedError: on SIGTERM, after finishing the current step and saving the state. It is a
        `SystemExit` with status 75. If several processes train together
        (`processes.join_processes`), all of them stop.
    """
    processes, folder = running_processes(), Path(output)
    refuse_module(folder)  # before a file of pairs is prepared in it
    init_from = model_path(init_from, wants_module=True) if init_from else None
    model, config, vocabulary = chosen_options(
        model, training, output=output, vocabulary=vocabulary, init_from=init_from, recipe=recipe
    )
    evaluators = evaluators or {}
    _check_names(evaluators, {*config.eval_splits, *_OTHER_ENTRIES})
    with contextlib.ExitStack() as held:
        held.enter_context(leaving_at_once(processes))
        if not processes.is_first:  # only process 0 prints
            held.enter_context(contextlib.redirect_stdout(io.StringIO()))
        with processes.together():
            set_seed(config.seed)
            data = EncoderData(
                model,
                config,
                vocabulary=vocabulary,
                init_from=init_from,
                is_resumed=newest_checkpoint(folder) is not None,
                processes=processes,
            )
            used = opened_losses(data, [*config.losses(), *losses])
            _check_names(evaluators, {metric for loss in used for metric in loss.metrics})
            devices = spread_over_devices(
                processes, batch_size=config.micro_batch or config.batch_size
            )
            held.enter_context(devices)
            if processes.is_first:
                held.enter_context(only_run_in(folder))
        precision = agreed_precision(processes, config.precision)
        with processes.together():
            task = EncoderTask(
                data, used, folder=folder, precision=precision, evaluators=evaluators
            )
            task.trackers = trackers
        return carry_out(task)


def _check_names(evaluators: Mapping[str, Evaluator], taken: Set[str]) -> None:
    if names := sorted(taken & evaluators.keys()):
        raise ValueError(
            "evaluators must not have the name of an evaluation split, or of another entry of "
            f"metrics.jsonl. Received: {', '.join(names)}. Choose another name."
        )


def _identity(data: EncoderData) -> dict[str, Any]:
    """Return facts that differ if the data of two processes differ.

    For each split of token ids, this is a checksum, and for each split of records, the sizes of the
    shards. For each other folder in the options, such as `teacher`, it is a checksum of the JSON
    files that describe the content of the folder.
    """
    config = data.config
    facts: dict[str, Any] = {}
    for split, examples in data.examples.items():
        if isinstance(examples, ArrayExamples):
            facts[split] = examples.checksum(examples.names)
        else:
            shards = map(Path, list_shards(config.data, split))
            facts[split] = [(shard.name, shard.stat().st_size) for shard in shards]
    for name, value in config.to_dict().items():
        is_path = name != "data" and isinstance(value, str) and value
        if is_path and kind_of(value) in _ADDED_FOLDERS:
            facts[name] = file_checksum(*sorted(Path(value).glob("*.json")))
    train = data.examples["train"]
    if config.source_shares and isinstance(train, ArrayExamples):
        facts["sources"] = train.sources_checksum()
    return facts


def _arrays_of(batch: Mapping[str, np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the arrays of a packed batch, without the empty rows that some devices need."""
    is_used = batch["segment_lengths"].any(axis=1)
    for name, array in sorted(batch.items()):
        yield array[is_used] if name in ("segment_lengths", "token_ids") else array


def opened_losses(data: EncoderData, losses: Sequence[Loss]) -> list[Loss]:
    """Open the files of the losses that apply to the model, and return these losses.

    Raises:
      ValueError: if a file that a loss reads is missing, damaged or does not fit the data.
    """
    used = [loss for loss in losses if loss.applies_to(data.model)]
    for loss in used:
        loss.additions = loss.open(data)
    return used


class EncoderTask(Task):
    """The task of training a dual encoder, whose weights are random until `start` is called.

    Args:
      data: data of the run.
      losses: losses of the run. Their files must be open, as `opened_losses` returns them.
      folder: folder of the run.
      precision: name of a Keras dtype policy.
      evaluators: functions that evaluate the encoder; see `train`.

    Attributes:
      data, losses, evaluators: the arguments of the same names.
      encoder: the model without its losses.
    """

    config: EncoderTraining

    def __init__(
        self,
        data: EncoderData,
        losses: Sequence[Loss],
        *,
        folder: Path,
        precision: str,
        evaluators: Mapping[str, Evaluator] = MappingProxyType({}),
    ) -> None:
        config: Any = data.config
        self.data, self.losses, self.evaluators = data, losses, evaluators
        self.folder, self.config, self.processes = folder, config, data.processes
        self.vocabulary = data.source.vocabulary
        self.padding_id = data.examples["train"].padding_id
        self.precision = precision
        self.encoder = DualEncoder(
            data.model,
            embedding_dropout=data.config.embedding_dropout,
            attention_dropout=data.config.attention_dropout,
            dtype=precision,
        )
        self.sizes = count_parameters(self.encoder)
        print(
            f"precision {precision} (backend {keras.backend.backend()}); "
            f"{self.sizes['embedding'] / 1e6:.1f} M embedding and "
            f"{self.sizes['network'] / 1e6:.1f} M network parameters"
        )
        self.model = make_objective(self.encoder, config, losses, precision=precision)
        additions = [addition for loss in losses for addition in loss.additions]
        self._batches = data.batches(additions, precision=precision)
        self._evaluation_batches = data.evaluation_batches()
        for split in config.eval_splits[:1]:  # the one that `score` reads
            batches = self._evaluation_batches[split]
            self.evaluated_on = short_checksum(x for batch in batches for x in _arrays_of(batch))
        self._facts_before: dict[str, Any] = {}

    def options(self) -> dict[str, Any]:
        return {"model": self.data.model, "train": self.config}

    def batches(self, step: int) -> Iterator[Batch]:
        self._batches.skip_batches = step
        return (Batch(inputs, self.config.batch_size) for inputs in self._batches)

    def evaluate(
        self, step: int, logs: dict[str, float], rows: list[dict[str, Any]]
    ) -> dict[str, Any]:
        return {
            "pairs": step * self.config.batch_size,
            **dict.fromkeys(("ranking_loss", "batch_accuracy")),
            **{name: value for name, value in logs.items() if name != "loss"},
            **{
                split: evaluate_encoder(self.encoder, batches)
                for split, batches in self._evaluation_batches.items()
            },
            **{name: floats(evaluate(self.encoder)) for name, evaluate in self.evaluators.items()},
        }

    def score(self, row: dict[str, Any]) -> float | None:
        for split in self.config.eval_splits[:1]:
            return row[split]["R100@1"] if split in row else None
        for name in self.evaluators:
            return next(iter(row.get(name, {}).values()), None)
        return None

    def curve(self, rows: list[dict[str, Any]]) -> bytes:
        # With history_only, the ranking loss of the context alone stays constant.
        loss = "both_ranking_loss" if self.config.history_only else "ranking_loss"
        recalls = [(split, name) for split in self.config.eval_splits for name in _DRAWN]
        return curves(rows, {RECALL: recalls, LOSS: [("", loss)]})

    def facts(self) -> dict[str, Any]:
        of_data = self.config.group(DATA)
        trained_with = {
            name: value for name, value in self.config.to_dict().items() if name not in of_data
        }
        facts = {
            "precision": self.precision,
            "parameters": self.sizes,
            "train": trained_with,
            "data": of_data,
            "unknown_tokens": self.data.unknown_share,
        }
        for loss in self.losses:
            facts |= loss.facts()
        return facts | self._facts_before

    def model_changes(self, earlier: Path) -> dict[str, tuple[Any, Any]]:
        changes = load_config(earlier).differences(self.data.model)
        before = options_before(self.folder / self.run_file)
        return changes | self.config.only_kept(self.config.changes_since(before))

    def to_agree_on(self, resume_from: Path | None) -> Any:
        data = self.data
        initial = []
        if data.init_from and resume_from is None:
            projection = Path(data.init_from) / checkpoint.PROJECTION_FILE
            files = [*checkpoint.weights_files(data.init_from), projection]
            initial = [file_checksum(path) for path in files if path.is_file()]
        # The data may have different paths on different hosts, so its path is not compared.
        options = dataclasses.replace(self.config, data="")
        return data.model, options, _identity(data), data.trained_on.num_examples, initial

    def start(self, resumed: dict[str, Any] | None) -> None:
        init_from = self.data.init_from
        if resumed is not None:
            self._keep(str(self.folder), resumed)
            return
        if init_from is not None:
            facts = {**checkpoint.training_facts(init_from), "initial_weights": str(init_from)}
            checkpoint.load_initial_weights(self.encoder, init_from)
            self._keep(init_from, facts)
        for loss in self.losses:
            loss.start(init_from)

    def _keep(self, folder: str, facts: dict[str, Any]) -> None:
        """Keep the facts and weights of the earlier model that remain valid in this run."""
        names = ["initial_weights"]
        names += [name for loss in self.losses for name in loss.facts_to_keep()]
        kept = {name: facts[name] for name in names if facts.get(name) is not None}
        self._facts_before = kept
        for loss in self.losses:
            loss.keep(folder)

    def saved_with_best(self) -> dict[str, Any]:
        return {name: value for loss in self.losses for name, value in loss.to_save().items()}
