"""The steps of a training run, and what happens between them.

`take_steps` draws a batch and takes a step, again and again; every so many steps it evaluates and
writes a checkpoint. A run ends at its last step, when the process is told to end, or when the loss
or a weight is no number.
"""

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
import numpy as np

from convert_tf.checkpoints.folder import save_checkpoint, training_facts
from convert_tf.config.train import Training
from convert_tf.data.prefetch import prefetched
from convert_tf.figures import write_picture
from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import parsed_json
from convert_tf.training.objective import Objective
from convert_tf.training.optimizers import current_learning_rate
from convert_tf.training.processes import ALONE, Processes, Termination
from convert_tf.training.shares import AgreedSteps
from convert_tf.training.state import CHECKPOINTS_FOLDER, save_training_state, step_folder
from convert_tf.training.step import make_step
from convert_tf.training.summaries import opened_summaries

METRICS_FILE = "metrics.jsonl"
RUN_FILE = "train_config.json"
CURVE_FILE = "curve.png"
SECONDS_BETWEEN_LINES = 10.0
STEPS_BETWEEN_SUMMARIES = 50


class Batch(NamedTuple):
    """The input of one training step.

    Attributes:
      inputs: what the model takes.
      units: pairs or tokens in it, for the speed.
      facts: added to the facts of the next checkpoints, such as where the data go on.
    """

    inputs: dict[str, np.ndarray]
    units: int
    facts: Mapping[str, Any] = MappingProxyType({})


@dataclasses.dataclass
class Run:
    """A training run: its model, data, options and folder, as `make_run` of each kind returns it.

    Attributes:
      folder: the run's folder.
      config: the options of training.
      options: configurations and JSON values that the run file stores.
      vocabulary: the vocabulary file that is copied into each checkpoint.
      tokenizer: the tokenizer of that vocabulary.
      model: the compiled model under its objective.
      facts: what checkpoints say of the training.
      batches_from: takes the steps done; yields batches without end from the next step on.
      evaluate: takes the steps done, the means of the metrics since the last evaluation or
        checkpoint, and the rows so far; returns what `metrics.jsonl` says further of this step.
      score: of such a row; the row with the highest has the best weights. None keeps the last.
      curve: makes `curve.png` of the rows.
      shown: the losses in a line of progress, of the means of the metrics.
      model_changes: takes an earlier checkpoint; returns how its model differs, as name → (value
        there, value now).
      start: called once before the steps if any are left: with None in a new run, else with the
        facts of the checkpoint whose weights were loaded.
      to_save: further arguments of `save_checkpoint` for the best weights.
      to_agree_on: takes the checkpoint to resume from; returns what must be the same in all
        processes.
      run_file: name of the file of `options`.
      keeps: what a resumed run may not change, in words.
      decides_order: options on which the order of examples depends.
      unit: what speed counts.
      padding_id: of packed batches, where several processes train.
      processes: those that train together.
    """

    folder: Path
    config: Training
    options: dict[str, Any]
    vocabulary: Path
    tokenizer: str
    model: Objective
    facts: dict[str, Any]
    batches_from: Callable[[int], Iterable[Batch]]
    evaluate: Callable[[int, dict[str, float], list[dict[str, Any]]], dict[str, Any]]
    score: Callable[[dict[str, Any]], float | None]
    curve: Callable[[list[dict[str, Any]]], bytes]
    shown: Callable[[dict[str, float]], str]
    model_changes: Callable[[Path], dict[str, tuple[Any, Any]]]
    start: Callable[[dict[str, Any] | None], None] = lambda facts: None
    to_save: Callable[[], dict[str, Any]] = dict
    to_agree_on: Callable[[Path | None], Any] = lambda resume_from: None
    run_file: str = RUN_FILE
    keeps: str = "model"
    decides_order: frozenset[str] = frozenset()
    unit: str = "pairs"
    padding_id: int = 0
    processes: Processes = ALONE


class NonFiniteError(FloatingPointError):
    """The loss or a weight is NaN or infinite."""


def _non_finite(what: str, step: int) -> NonFiniteError:
    return NonFiniteError(
        f"Training stopped: {what} at step {step}. The checkpoints written so far are kept. Lower "
        "--learning_rate or change --precision, and run the same command again to resume from the "
        "last one."
    )


class Clock:
    """Time of the steps; evaluations and checkpoints do not count.

    Args:
      before: the `total` of earlier processes of the run.

    Attributes:
      per_second, steps_per_second: units and steps a second since the clock was started.
    """

    def __init__(self, before: dict[str, float]):
        self._before = before
        self.per_second = self.steps_per_second = 0.0
        self.start()

    def start(self) -> None:
        """Go on after a pause."""
        self._started = time.perf_counter(), time.process_time()
        self._units = self._steps = 0

    def count(self, units: int) -> None:
        """Count a step."""
        self._units += units
        self._steps += 1
        seconds = max(time.perf_counter() - self._started[0], 1e-9)
        self.per_second, self.steps_per_second = self._units / seconds, self._steps / seconds

    def pause(self) -> None:
        """Add the time since the start to the total."""
        now = time.perf_counter(), time.process_time()
        for name, start, end in zip(("seconds", "cpu_seconds"), self._started, now, strict=True):
            self._before = {**self._before, name: self._before.get(name, 0.0) + end - start}

    def total(self) -> dict[str, float]:
        """`seconds` of all steps, and `cpu_seconds` of all threads in them.

        Other programs on the machine hardly change the latter.
        """
        return {name: round(self._before.get(name, 0.0), 3) for name in ("seconds", "cpu_seconds")}


def take_steps(run: Run, step: int, termination: Termination) -> None:
    """Take the steps after `step`, until the last one or until the process is told to end.

    Raises:
      NonFiniteError: the loss or a weight became NaN or infinite.
      ValueError, OSError: as the batches and the files of the run raise.
    """
    steps = _Steps(run, step)
    try:
        if step == 0:
            steps.evaluate({})
        with prefetched(run.batches_from(step)) as batches:
            if run.processes.number > 1:
                termination = agreed = AgreedSteps(
                    run.processes, termination, padding_id=run.padding_id
                )
                batches = agreed.batches(batches)
            steps.go_on()
            for batch in batches:
                steps.take(batch)
                is_ending = termination.is_requested and steps.step < run.config.steps
                steps.pause_where_due(is_ending=is_ending)
                if is_ending or steps.step >= run.config.steps:
                    break
    finally:
        if steps.summaries is not None:
            steps.summaries.close()


class _Steps:
    """The state of a run between two steps."""

    def __init__(self, run: Run, step: int):
        self.run = run
        self.step = step
        self.rows = _rows_up_to(run.folder, step)
        resumed = run.folder / CHECKPOINTS_FOLDER / step_folder(step)
        self.clock = Clock(training_facts(resumed).get("time", {}))
        self.summaries = opened_summaries(run.folder / "logs") if run.processes.is_first else None
        self._train_step = make_step(run.model)
        self._shown_at = 0.0

    def take(self, batch: Batch) -> None:
        """Train on a batch, and show how far the run is."""
        logs = self._train_step(batch.inputs)
        self.step += 1
        self.count(batch, logs)
        now = time.perf_counter()
        is_last = self.step == self.run.config.steps
        if now - self._shown_at >= SECONDS_BETWEEN_LINES or is_last:
            self._shown_at = now
            self._print_progress(_floats(logs))
        if self.summaries is not None and self.step % STEPS_BETWEEN_SUMMARIES == 0:
            self._train_step.sync()
            speed = {f"{self.run.unit}_per_second": self.clock.per_second}
            rate = {"learning_rate": current_learning_rate(self.run.model.optimizer)}
            self.summaries.scalars(self.step, {**_floats(logs), **speed, **rate})

    def count(self, batch: Batch, logs: dict[str, Any]) -> None:
        """Note that a batch was trained on, with these means of the metrics."""
        loss = float(logs["loss"])
        if not math.isfinite(loss):
            raise _non_finite(f"a loss of {loss}", self.step)
        self.run.facts |= batch.facts
        self.clock.count(batch.units)
        self._logs = logs

    def _print_progress(self, logs: dict[str, float]) -> None:
        total = self.run.config.steps
        left = int((total - self.step) / self.clock.steps_per_second)
        self.run.processes.say(
            f"step {self.step}/{total}  {self.run.shown(logs)}  "
            f"{self.clock.steps_per_second:.2f} steps/s  "
            f"{self.clock.per_second:.0f} {self.run.unit}/s  "
            f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"
        )

    def pause_where_due(self, *, is_ending: bool) -> None:
        """Evaluate and write a checkpoint after the steps at which they are due."""
        config, processes = self.run.config, self.run.processes
        is_last = self.step >= config.steps
        is_evaluated = (is_last or self.step % config.eval_every == 0) and not is_ending
        is_saved = is_last or is_ending or self.step % config.checkpoint_every == 0
        if not is_evaluated and not is_saved:
            return
        self.clock.pause()
        self._train_step.sync()
        self._refuse_non_finite_weights()
        if is_evaluated:
            self.evaluate(_floats(self._logs))
        if is_saved:
            with processes.together():
                if processes.is_first:
                    save_training_state(
                        self.run.folder,
                        self.run.model,
                        step=self.step,
                        vocabulary=self.run.vocabulary,
                        training=self._training_facts(),
                        keep=config.keep_checkpoints,
                    )
        if is_ending:
            processes.say(
                f"told to end: saved step {self.step}; the same command goes on from there"
            )
        self.go_on()

    def go_on(self) -> None:
        """Begin the means of the metrics and the speed anew."""
        self.run.model.reset_metrics()
        self.clock.start()

    def _refuse_non_finite_weights(self) -> None:
        """Raise before they are saved: the loss is no number only a step after a weight."""
        for variable in self.run.model.trainable_variables:
            if not np.isfinite(keras.ops.convert_to_numpy(variable)).all():
                raise _non_finite(f"a value that is no number in {variable.path}", self.step)

    def evaluate(self, logs: dict[str, float]) -> None:
        """Add a row to `metrics.jsonl`; in all processes, of which the first one writes."""
        run = self.run
        row = {
            "step": self.step,
            f"{run.unit}_per_second": round(self.clock.per_second, 1),
            **self.clock.total(),
            **run.evaluate(self.step, logs, self.rows),
        }
        score, before = run.score(row), [run.score(earlier) for earlier in self.rows]
        is_best = score is None or all(score > other for other in before if other is not None)
        self.rows.append(row)
        with run.processes.together():
            if run.processes.is_first:
                self._write_rows()
                if is_best:
                    save_checkpoint(
                        run.folder,
                        run.model.encoder,
                        vocabulary=run.vocabulary,
                        training=self._training_facts(),
                        **run.to_save(),
                    )
                for name, measured in row.items():
                    if isinstance(measured, dict) and self.summaries is not None:
                        values = {f"{name}/{metric}": value for metric, value in measured.items()}
                        self.summaries.scalars(self.step, values)

    def _write_rows(self) -> None:
        folder = self.run.folder
        write_file(folder / METRICS_FILE, "".join(json.dumps(r) + "\n" for r in self.rows))
        if len(self.rows) > 1:  # one point is no curve
            write_picture(folder / CURVE_FILE, lambda: self.run.curve(self.rows))

    def _training_facts(self) -> dict[str, Any]:
        evaluation = self.rows[-1] if self.rows else None
        return {**self.run.facts, "evaluation": evaluation, "time": self.clock.total()}


def _floats(logs: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in logs.items()}


def _rows_up_to(run: Path, step: int) -> list[dict[str, Any]]:
    path = run / METRICS_FILE
    if step == 0 or not path.is_file():
        return []
    rows = [parsed_json(line) for line in path.read_text().splitlines()]
    return [row for row in rows if row["step"] <= step]
