"""What happens around the steps of a run: progress, evaluation, checkpoints, the curve.

A run calls `fit` with "epochs" of a fixed number of steps; evaluation and checkpoints come at their
ends, when every backend has its variables in place. An epoch also ends, with a checkpoint, when the
process is told to end.
"""

import io
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from convert_tf.checkpoint import save_checkpoint, training_facts
from convert_tf.dev_evaluation import evaluate_encoder
from convert_tf.distribution import ALONE, Processes
from convert_tf.files import write_file
from convert_tf.termination import Termination
from convert_tf.train_config import TrainConfig
from convert_tf.training_state import CHECKPOINTS_FOLDER, save_training_state, step_folder

METRICS_FILE = "metrics.jsonl"
CURVE_FILE = "curve.png"
_PER_OBJECTIVE = ("_ranking_loss", "_batch_accuracy")
_DRAWN = ("R100@1", "context/R100@1", "extra_context/R100@1", "both_without_history/R100@1")


class NonFiniteError(FloatingPointError):
    """The loss or a weight is NaN or infinite."""


def _non_finite(what: str, step: int) -> NonFiniteError:
    return NonFiniteError(
        f"Training needs finite numbers. Received: {what} at step {step}. The checkpoints written "
        "so far are kept; lower --learning_rate or change --precision, and run the same command "
        "again to resume from the last one."
    )


class Progress(keras.callbacks.Callback):
    """A line with loss, steps/s, pairs/s and the time left; stops on a loss that is no number.

    Args:
      first_step: steps done before this process.
      total_steps: steps at the end.
      batch_size: pairs per step.
      termination: stops training when the process is told to end.
      seconds_between: seconds between lines.
      prints: whether there are lines.

    Attributes:
      seconds: of this process's steps, evaluations and checkpoints not counted.
      cpu_seconds: the same of all its threads on all cores, which other programs on the machine
        change little.
    """

    def __init__(
        self,
        first_step: int,
        total_steps: int,
        batch_size: int,
        *,
        termination: Termination,
        seconds_between: float = 10.0,
        prints: bool = True,
    ):
        super().__init__()
        self.step = first_step
        self.total_steps = total_steps
        self.batch_size = batch_size
        self.termination = termination
        self.seconds_between = seconds_between
        self.prints = prints
        self.pairs_per_second = 0.0
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self._mark = (time.perf_counter(), first_step)
        self._cpu_mark = time.process_time()
        self._printed = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._mark = (time.perf_counter(), self.step)
        self._cpu_mark = time.process_time()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds += time.perf_counter() - self._mark[0]
        self.cpu_seconds += time.process_time() - self._cpu_mark

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self.step += 1
        logs = logs or {}
        if not math.isfinite(float(logs["loss"])):
            raise _non_finite(f"a loss of {float(logs['loss'])}", self.step)
        now = time.perf_counter()
        seconds = max(now - self._mark[0], 1e-9)
        self.pairs_per_second = (self.step - self._mark[1]) * self.batch_size / seconds
        is_due = now - self._printed >= self.seconds_between or self.step == self.total_steps
        if self.prints and is_due:
            self._printed = now
            left = (self.total_steps - self.step) * self.batch_size / self.pairs_per_second
            print(
                f"step {self.step}/{self.total_steps}  "
                f"loss {_ranking_losses(logs)}  "
                f"{self.pairs_per_second / self.batch_size:.2f} steps/s  "
                f"{self.pairs_per_second:.0f} pairs/s  "
                f"{int(left) // 3600}:{int(left) // 60 % 60:02d}:{int(left) % 60:02d} left",
                file=sys.stderr,
                flush=True,
            )
        if self.is_over:
            self.model.stop_training = True

    @property
    def is_over(self) -> bool:
        """Whether the last step is done, or the process was told to end."""
        return self.step >= self.total_steps or self.termination.is_requested


def _ranking_losses(logs: dict[str, Any]) -> str:
    """One number, or one for each objective of a multi-context model."""
    ending = "_ranking_loss"
    others = [name for name in logs if name.endswith(ending)]
    if not others:
        return f"{float(logs['ranking_loss']):.4f}"
    shown = {"context": "ranking_loss", **{name.removesuffix(ending): name for name in others}}
    return ", ".join(f"{name} {float(logs[key]):.4f}" for name, key in shown.items())


class RunRecorder(keras.callbacks.Callback):
    """Evaluates, keeps the best weights, checkpoints, and draws the curve.

    Args:
      run: the run's folder.
      config: reads the intervals.
      vocabulary: the vocabulary file that goes into each checkpoint.
      eval_sets: split name → packed batches; the first split chooses the best weights. Where
        there is none, every evaluation keeps the weights of its step.
      progress: tells the step and the speed.
      facts: what each checkpoint says of the training.
      processes: those that train; all evaluate, and the first writes.
    """

    def __init__(
        self,
        run: Path,
        config: TrainConfig,
        *,
        vocabulary: Path,
        eval_sets: dict[str, Iterable[dict[str, Any]]],
        progress: Progress,
        facts: dict[str, Any],
        processes: Processes = ALONE,
    ):
        super().__init__()
        self.processes = processes
        self.run = run
        self.config = config
        self.vocabulary = vocabulary
        self.eval_sets = eval_sets
        self.progress = progress
        self.facts = facts
        self.rows = _rows_up_to(run, progress.step)
        self._last_step = progress.step
        resumed = run / CHECKPOINTS_FOLDER / step_folder(progress.step)
        self._time_before = training_facts(resumed).get("time", {})

    def on_train_begin(self, logs: Any = None) -> None:
        if self.progress.step == 0:
            self._evaluate({})

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._refuse_non_finite_weights()
        step, last_step = self.progress.step, self._last_step
        self._last_step = step

        def is_due(interval: int) -> bool:
            # A run that resumes between two multiples of an interval still passes over the next.
            return step >= self.config.steps or step // interval > last_step // interval

        is_ending = self.progress.termination.is_requested and step < self.config.steps
        if is_due(self.config.eval_every) and not is_ending:
            self._evaluate(logs or {})
        if is_due(self.config.checkpoint_every) or is_ending:
            with self.processes.together():
                if self.processes.is_first:
                    save_training_state(
                        self.run,
                        self.model,
                        step=step,
                        vocabulary=self.vocabulary,
                        training=self._training_facts(),
                        config=self.config,
                    )
        if is_ending and self.processes.is_first:
            print(
                f"told to end: saved step {step}; the same command goes on from there",
                file=sys.stderr,
            )

    def _refuse_non_finite_weights(self) -> None:
        """The loss of the step that breaks a weight is still finite; the next step's is not."""
        for variable in self.model.encoder.trainable_variables:
            if not np.isfinite(keras.ops.convert_to_numpy(variable)).all():
                raise _non_finite(f"a value that is no number in {variable.path}",
                                  self.progress.step)  # fmt: skip

    def _training_facts(self) -> dict[str, Any]:
        evaluation = self.rows[-1] if self.rows else None
        return {**self.facts, "evaluation": evaluation, "time": self._time()}

    def _time(self) -> dict[str, float]:
        """Seconds of all steps whose work is in the weights, those of earlier processes too."""
        spent = {"seconds": self.progress.seconds, "cpu_seconds": self.progress.cpu_seconds}
        before = self._time_before
        return {name: round(before.get(name, 0.0) + new, 3) for name, new in spent.items()}

    def _evaluate(self, logs: dict[str, Any]) -> None:
        row: dict[str, Any] = {
            "step": self.progress.step,
            "pairs": self.progress.step * self.config.batch_size,
            "pairs_per_second": round(self.progress.pairs_per_second, 1),
            **self._time(),
            "ranking_loss": logs.get("ranking_loss"),
            "batch_accuracy": logs.get("batch_accuracy"),
            **{name: value for name, value in logs.items() if name.endswith(_PER_OBJECTIVE)},
        }
        for split, batches in self.eval_sets.items():
            row[split] = evaluate_encoder(self.model.encoder, batches)
            if not self.processes.is_first:
                continue
            print(
                f"step {self.progress.step}  {split} R100@1 {100 * row[split]['R100@1']:.2f} %  "
                f"MRR {row[split]['MRR']:.4f}  ({row[split]['examples']} examples)"
                + "".join(
                    f"  {name.removesuffix('/R100@1')} {100 * value:.2f} %"
                    for name, value in row[split].items()
                    if name.endswith("/R100@1")
                ),
                file=sys.stderr,
                flush=True,
            )
        first = next(iter(self.eval_sets), None)
        is_best = first is None or all(
            row[first]["R100@1"] > r[first]["R100@1"] for r in self.rows if first in r
        )
        self.rows.append(row)
        with self.processes.together():
            if self.processes.is_first:
                self._write(is_best)

    def _write(self, is_best: bool) -> None:
        write_file(self.run / METRICS_FILE, "".join(json.dumps(r) + "\n" for r in self.rows))
        write_file(self.run / CURVE_FILE, draw_curve(self.rows, list(self.eval_sets)))
        if is_best:
            layer = getattr(self.model, "teacher_projection", None)
            projection = None if layer is None else keras.ops.convert_to_numpy(layer.kernel)
            save_checkpoint(
                self.run,
                self.model.encoder,
                vocabulary=self.vocabulary,
                training=self._training_facts(),
                teacher_projection=projection,
            )


def fit_on(
    model: keras.Model,
    batches: Any,
    callbacks: Sequence[keras.callbacks.Callback],
    *,
    progress: Progress,
    interval: int,
) -> None:
    """Calls `fit`, with an epoch for each multiple of `interval` steps.

    A run that goes on between two multiples only gets to the next one, so that it is evaluated at
    the steps at which an uninterrupted one is; call this again, with new batches, until
    `progress.is_over`.

    Args:
      model: a compiled model.
      batches: what `fit` takes.
      callbacks: those of the run, `progress` among them.
      progress: tells the step, and when to stop.
      interval: steps of an epoch.
    """
    steps_between = progress.step % interval
    whole_epochs = math.ceil((progress.total_steps - progress.step) / interval)
    model.fit(
        batches,
        epochs=1 if steps_between else whole_epochs,
        steps_per_epoch=interval - steps_between,
        shuffle=False,
        verbose=0,
        callbacks=list(callbacks),
    )


def _rows_up_to(run: Path, step: int) -> list[dict[str, Any]]:
    path = run / METRICS_FILE
    if step == 0 or not path.is_file():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if row["step"] <= step]


def draw_curve(
    rows: list[dict[str, Any]], splits: list[str], names: Iterable[str] = _DRAWN
) -> bytes:
    """Loss and recall over pairs seen.

    Args:
      rows: rows of `metrics.jsonl`.
      splits: which splits' recall is drawn.
      names: which of their metrics.

    Returns:
      A PNG.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    recall_axis = figure.add_subplot()
    loss_axis = recall_axis.twinx()
    for split in splits:
        for name in names:
            points = [(r["pairs"], 100 * r[split][name]) for r in rows if name in r.get(split, ())]
            if points:
                recall_axis.plot(*zip(*points, strict=True), marker="o", label=f"{split} {name}")
    losses = [(r["pairs"], r["ranking_loss"]) for r in rows if r["ranking_loss"] is not None]
    if losses:
        loss_axis.plot(*zip(*losses, strict=True), color="tab:gray", ls="--", label="training loss")
    recall_axis.set_xlabel("pairs seen")
    recall_axis.set_ylabel("recall, %")
    recall_axis.set_ylim(bottom=0)
    loss_axis.set_ylabel("ranking loss since the last point, nats per pair")
    recall_axis.grid(alpha=0.3)
    figure.legend(
        handles=[*recall_axis.lines, *loss_axis.lines], loc="outside upper center", ncols=3
    )
    png = io.BytesIO()
    figure.savefig(png, dpi=120)
    return png.getvalue()
