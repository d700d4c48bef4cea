"""The training loop: take steps, evaluate, write checkpoints, and resume.

`carry_out` starts from the newest checkpoint in the folder of the run. It takes one batch after
another and trains on each for one step. At fixed intervals it evaluates the model and writes a
checkpoint. A run ends after its last step, when the process is told to end, or when the loss or a
weight is NaN or infinite. `take_steps` can also train a task in memory, which writes nothing.
"""

import contextlib
import itertools
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.folder import remove_maps
from convert_tf.checkpoints.kinds import CheckpointError, kind_of
from convert_tf.config.base import Config
from convert_tf.data.prefetch import prefetched
from convert_tf.figures import write_picture
from convert_tf.storage.checksums import file_checksum
from convert_tf.storage.files import lock_output, opened_lock, remove_leftovers, write_file
from convert_tf.storage.json_text import parsed_json, written_json
from convert_tf.training.optimizers import current_learning_rate
from convert_tf.training.processes import (
    NotFinishedError,
    Termination,
    agreed_batches,
    check_same,
    check_shared,
    termination_noted,
)
from convert_tf.training.state import (
    CHECKPOINTS_FOLDER,
    load_training_state,
    newest_checkpoint,
    resumed_checkpoint,
    save_training_state,
    step_folder,
)
from convert_tf.training.step import make_step
from convert_tf.training.summaries import opened_summaries
from convert_tf.training.task import Batch, Task, Tracker

METRICS_FILE = "metrics.jsonl"
CURVE_FILE = "curve.png"
SECONDS_BETWEEN_LINES = 10.0
STEPS_BETWEEN_SUMMARIES = 50
LOCK_FILE = ".lock"
# Entry of a checkpoint's `training.json`. If a signal stopped the run when an evaluation was due,
# the entry has the means that this evaluation has to report.
_MEANS_TO_REPORT = "means_to_report"
_EVALUATED_ON = "evaluated_on"  # entry of a row of `metrics.jsonl`; see `Task`


@contextlib.contextmanager
def only_run_in(folder: Path) -> Iterator[None]:
    """Lock the folder of a run during a `with` block.

    The lock is released even if the process is killed.

    Raises:
      ValueError: if the folder is a module, or another process has locked it.
    """
    refuse_module(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with opened_lock(folder / LOCK_FILE) as lock:
        lock_output(lock, f"training in {str(folder)!r}")
        remove_leftovers(folder)
        yield


def refuse_module(folder: Path) -> None:
    """Raise `ValueError` if the folder for a run is a module."""
    if kind_of(folder).is_module:
        raise ValueError(
            f"{str(folder)!r} is a module, so it cannot hold a training run. Choose another "
            "--output."
        )


def carry_out(task: Task) -> Path:
    """Train until the last step, starting from the newest checkpoint if the folder has one.

    The caller must already have locked the folder (`only_run_in`) and set the random seed.

    Returns:
      The path of the run's folder, which is now a model directory with the best weights.

    Raises:
      CheckpointError: if the checkpoints in the folder belong to another model, or are damaged.
      FloatingPointError: if the loss or a weight became NaN or infinite. The last checkpoint is
        kept.
      OSError: if a file cannot be read or written.
      NotFinishedError: on SIGTERM, after finishing the current step and saving the state. If one of
        several processes (`processes.join_processes`) is told to end, all processes raise this
        error.
    """
    processes, steps = task.processes, task.config.steps
    with termination_noted() as termination:
        resume_from = None
        with processes.together():
            if processes.is_first:
                resume_from = resumed_checkpoint(task)
                options = {
                    name: value.to_dict() if isinstance(value, Config) else value
                    for name, value in task.options().items()
                }
                write_file(task.folder / task.run_file, written_json(options))
        if processes.number > 1:
            check_shared(processes, task.folder)
            with processes.together():
                resume_from = newest_checkpoint(task.folder)
            vocabulary = file_checksum(task.vocabulary)
            check_same(processes, repr((task.to_agree_on(resume_from), vocabulary, resume_from)))
        step, facts = 0, None
        with processes.together():
            if resume_from is not None:
                step = load_training_state(resume_from, task.model)
                print(f"resuming at step {step} from {resume_from}")
                facts = training_facts(resume_from)
            if step < steps:
                task.start(facts)
        if step >= steps:
            print(f"nothing to do: the run has already taken its {steps} steps")
        else:
            take_steps(task, step, termination)
    return task.folder


def take_steps(task: Task, step: int = 0, termination: Termination | None = None) -> None:
    """Take the remaining steps of a task, until the last one or until the process is told to end.

    Args:
      task: the task to train.
      step: number of steps already done; 0 for a task in memory.
      termination: record of whether the process was told to end; None for a task in memory.

    Raises:
      NonFiniteError: if the loss or a weight became NaN or infinite.
      NotFinishedError: if the process was told to end. The state has been saved.
      ValueError, OSError: if a batch cannot be made, or a file cannot be read or written.
    """
    steps, termination = _Steps(task, step), termination or Termination()
    try:
        steps.evaluate_at_start()
        with prefetched(task.batches(step)) as batches:
            if task.processes.number > 1:
                local, termination = termination, Termination()
                batches = agreed_batches(
                    task.processes, batches, local, termination, padding_id=task.padding_id
                )
            steps.go_on()
            for batch in batches:
                steps.take(batch)
                is_ending = termination.is_requested and steps.step < task.config.steps
                steps.pause_where_due(is_ending=is_ending)
                if is_ending:
                    raise NotFinishedError
                if steps.step >= task.config.steps:
                    break
    finally:
        if steps.summaries is not None:
            steps.summaries.close()


class _Steps:
    """The state of a run between two steps."""

    def __init__(self, task: Task, step: int) -> None:
        self.task = task
        self.step = step
        self.rows: list[dict[str, Any]] = []
        self._rivals: list[dict[str, Any]] = []  # the evaluations that new ones are compared with
        self._resumed: dict[str, Any] = {}
        self.summaries = None
        self._is_writer = task.processes.is_first and not task.in_memory
        if not task.in_memory:
            self.rows = _rows_up_to(task.folder, step)
            self._resumed = training_facts(task.folder / CHECKPOINTS_FOLDER / step_folder(step))
            later = _later_best(task.folder, step)
            earlier = [*self.rows, *later]
            self._rivals = self._comparable(earlier)
            if earlier and not self._rivals:
                task.processes.say(
                    "the evaluation data has changed, or an earlier version did not name it: "
                    "scores are not compared with earlier ones, so the next evaluation replaces "
                    "the weights that were best before"
                )
            for row in later:
                if row in self._rivals and (score := task.score(row)) is not None:
                    task.processes.say(
                        f"the best weights are from step {row['step']}, after the step to resume "
                        f"from (score {score:.4g}): only a better evaluation replaces them"
                    )
        self._trackers: list[Tracker] = []
        if self._is_writer:
            self.summaries = opened_summaries(task.folder / "logs")
            self._trackers = [*task.trackers]
            if self.summaries is not None:
                self._trackers.append(self.summaries.scalars)
        self.clock = Clock(self._resumed.get("time", {}))
        self._train_step = make_step(task.model)
        self._shown_at = 0.0
        self._batch_facts: Mapping[str, Any] = {}

    def evaluate_at_start(self) -> None:
        """Evaluate a new run, or a resumed run that a signal stopped when an evaluation was due.

        With another `eval_every` than before, an evaluation may be due at this step too.
        """
        # The checkpoint decides, not `metrics.jsonl`: if the run was killed after this evaluation,
        # its row is in the file, but the checkpoint still has the state before the evaluation.
        is_evaluated = (self._resumed.get("evaluation") or {}).get("step") == self.step
        if is_evaluated or self.step % self.task.config.eval_every:
            return
        self.rows = [row for row in self.rows if row["step"] < self.step]
        self._rivals = [row for row in self._rivals if row["step"] != self.step]
        self.evaluate(self._resumed.get(_MEANS_TO_REPORT, {}))

    def take(self, batch: Batch) -> None:
        """Train on a batch, and print the progress at some steps."""
        logs = self._train_step(batch.inputs)
        self.step += 1
        self.count(batch, logs)
        now = time.perf_counter()
        is_last = self.step == self.task.config.steps
        if now - self._shown_at >= SECONDS_BETWEEN_LINES or is_last:
            self._shown_at = now
            self._print_progress(floats(logs))
        if self._trackers and self.step % STEPS_BETWEEN_SUMMARIES == 0:
            self._train_step.sync()
            speed = {f"{self.task.unit}_per_second": self.clock.per_second}
            rate = {"learning_rate": current_learning_rate(self.task.model.optimizer)}
            self._track({**logs, **speed, **rate})

    def count(self, batch: Batch, logs: dict[str, Any]) -> None:
        """Count a batch that has been trained on, and remember the means of the metrics."""
        loss = float(logs["loss"])
        if not math.isfinite(loss):
            raise NonFiniteError(f"a loss of {loss}", self.step, self.task.remedy)
        self._batch_facts = batch.facts
        self.clock.count(batch.units)
        self._logs = logs

    def _track(self, values: dict[str, Any]) -> None:
        for track in self._trackers:
            track(self.step, floats(values))

    def _print_progress(self, logs: dict[str, float]) -> None:
        total = self.task.config.steps
        left = int((total - self.step) / self.clock.steps_per_second)
        losses = {name: loss for name, loss in logs.items() if name.endswith("_loss")}
        self.task.processes.say(
            f"step {self.step}/{total}  {_as_text(losses or logs)}  "
            f"{self.clock.steps_per_second:.2f} steps/s  "
            f"{self.clock.per_second:.0f} {self.task.unit}/s  "
            f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"
        )

    def pause_where_due(self, *, is_ending: bool) -> None:
        """Evaluate the model and write a checkpoint, each only if it is due at this step."""
        config, processes = self.task.config, self.task.processes
        is_last = self.step >= config.steps
        is_due = is_last or self.step % config.eval_every == 0
        is_evaluated = is_due and not is_ending
        is_saved = is_last or is_ending or self.step % config.checkpoint_every == 0
        if not is_evaluated and not is_saved:
            return
        self.clock.pause()
        self._train_step.sync()
        self._refuse_non_finite_weights()
        if is_evaluated:
            self.evaluate(floats(self._logs))
        if is_saved:
            with processes.together():
                if self._is_writer:
                    facts = self._facts()
                    if is_due and is_ending:  # `evaluate_at_start` makes up for it
                        facts[_MEANS_TO_REPORT] = floats(self._logs)
                    save_training_state(self.task, step=self.step, facts=facts)
        if is_ending:
            processes.say(
                f"stopped by a signal: saved step {self.step}; run the same command again to "
                "continue"
            )
        self.go_on()

    def go_on(self) -> None:
        """Reset the metrics and the clock before the next step."""
        self.task.model.reset_metrics()
        self.clock.start()

    def _refuse_non_finite_weights(self) -> None:
        """Raise an error if a weight is NaN or infinite.

        The loss would show this only one step later.
        """
        for variable in self.task.model.trainable_variables:
            if not np.isfinite(keras.ops.convert_to_numpy(variable)).all():
                what = f"a NaN or infinite value in {variable.path}"
                raise NonFiniteError(what, self.step, self.task.remedy)

    def evaluate(self, logs: dict[str, float]) -> None:
        """Evaluate the model, and add a row to `metrics.jsonl`.

        All processes must call this method. Only the first one writes.
        """
        task = self.task
        row = {
            "step": self.step,
            f"{task.unit}_per_second": round(self.clock.per_second, 1),
            **self.clock.total(),
            **task.evaluate(self.step, logs, self._comparable(self.rows)),
            **({_EVALUATED_ON: task.evaluated_on} if task.evaluated_on else {}),
        }
        measured = {name: v for name, v in row.items() if isinstance(v, dict) and v}
        for name, values in measured.items():
            task.processes.say(f"step {self.step}  {name}  {_as_text(values)}")
        is_best = all(_is_better(task, row, rival) for rival in self._rivals)
        self.rows.append(row)
        self._rivals.append(row)
        with task.processes.together():
            if self._is_writer:
                self._write_rows()
                if self.step == 0:  # this run was not resumed
                    remove_maps(task.folder)
                if is_best:
                    task.save(task.folder, self._facts(), is_best=True)
                for name, values in measured.items():
                    self._track({f"{name}/{metric}": value for metric, value in values.items()})

    def _comparable(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows since the evaluation data last changed.

        Rows of earlier versions do not name their data, so they are not compared with named rows.
        """
        data = self.task.evaluated_on
        same = itertools.takewhile(lambda row: row.get(_EVALUATED_ON, "") == data, reversed(rows))
        return [*same][::-1]

    def _write_rows(self) -> None:
        folder = self.task.folder
        write_file(folder / METRICS_FILE, "".join(json.dumps(r) + "\n" for r in self.rows))
        if len(self.rows) > 1:  # one point does not make a curve
            write_picture(folder / CURVE_FILE, lambda: self.task.curve(self.rows))

    def _facts(self) -> dict[str, Any]:
        """Return the content of `training.json` for a checkpoint at this step."""
        return {
            **self.task.facts(),
            **self._batch_facts,
            "evaluation": self.rows[-1] if self.rows else None,
            "time": self.clock.total(),
        }


def _score(task: Task, row: dict[str, Any]) -> tuple[float, float] | None:
    """Return the score of a row and its MRR, which decides between equal scores."""
    score = task.score(row)
    if score is None:
        return None
    # The score is a value of the first table of measurements.
    judged: dict[str, float] = next((v for v in row.values() if isinstance(v, dict)), {})
    return score, judged.get("MRR", 0.0)


def _is_better(task: Task, row: dict[str, Any], rival: dict[str, Any]) -> bool:
    """Return whether the weights of a row should replace those of another evaluation."""
    score, other = _score(task, row), _score(task, rival)
    # NaN compares as false, so a NaN among the earlier scores would rule out all later weights.
    if score is None or other is None or math.isnan(other[0]):
        return True
    # A run that was killed repeats evaluations. Their weights are written again, because the run
    # may have been killed before all files of the folder were written.
    return score > other or (score == other and row["step"] == rival["step"])


def _as_text(measured: dict[str, float]) -> str:
    def shown(name: str, value: float) -> str:
        if "@" in name:  # recalls such as R100@1
            return f"{100 * value:.2f} %"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return "  ".join(f"{name} {shown(name, value)}" for name, value in measured.items())


def floats(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the values as Python numbers, which JSON can store."""
    return {name: float(value) for name, value in logs.items()}


def _rows_up_to(folder: Path, step: int) -> list[dict[str, Any]]:
    """Return the rows of `metrics.jsonl` up to a step.

    Raises:
      CheckpointError: if a line is not a row with the number of its step.
    """
    path = folder / METRICS_FILE
    if step == 0 or not path.is_file():
        return []
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            row = parsed_json(line)
            if row["step"] <= step:
                rows.append(row)
        except (ValueError, LookupError, TypeError) as error:
            raise CheckpointError(
                f"{str(path)!r}, line {number:,}, is damaged: it is not a JSON object with the "
                "number of a step. Remove this line."
            ) from error
    return rows


def _later_best(run: Path, step: int) -> list[dict[str, Any]]:
    """Return the evaluation of a run's best weights if it is later than the step to resume from.

    Returns:
      A list with the row of this evaluation. It is empty if there is none, the run is new or the
      file is damaged.
    """
    if step == 0:
        return []
    with contextlib.suppress(ValueError, TypeError):
        best = training_facts(run).get("evaluation") or {}
        if best.get("step", 0) > step:
            return [best]
    return []


class NonFiniteError(FloatingPointError):
    """The loss or a weight is NaN or infinite.

    Args:
      what: description of the problem, such as "a loss of nan".
      step: number of the step at which the problem was noticed.
      remedy: sentence that tells the user what to do.
    """

    def __init__(self, what: str, step: int, remedy: str) -> None:
        super().__init__(f"Training stopped: {what} at step {step}. {remedy}")


class Clock:
    """Measures the time and speed of the steps, excluding evaluations and checkpoints.

    Args:
      before: result of `total` when the run was last interrupted; an empty dict for a new run.

    Attributes:
      per_second: units, such as pairs, processed per second since the last start of the clock.
      steps_per_second: steps per second since the last start of the clock.
    """

    def __init__(self, before: dict[str, float]) -> None:
        self._total = {"seconds": 0.0, "cpu_seconds": 0.0, **before}
        self.per_second = self.steps_per_second = 0.0
        self.start()

    def start(self) -> None:
        """Start the clock, at the beginning of the run or after a pause."""
        self._started = time.perf_counter(), time.process_time()
        self._units = self._steps = 0

    def count(self, units: int) -> None:
        """Count a step that processed this many units."""
        self._units += units
        self._steps += 1
        seconds = max(time.perf_counter() - self._started[0], 1e-9)
        self.per_second, self.steps_per_second = self._units / seconds, self._steps / seconds

    def pause(self) -> None:
        """Stop the clock, and add the time since its start to the total."""
        self._total["seconds"] += time.perf_counter() - self._started[0]
        self._total["cpu_seconds"] += time.process_time() - self._started[1]

    def total(self) -> dict[str, float]:
        """Return the time of all steps so far.

        Returns:
          A dict with `seconds`, the elapsed time, and `cpu_seconds`, the processor time of all
          threads together. Other programs on the machine hardly affect `cpu_seconds`.
        """
        return {name: round(seconds, 3) for name, seconds in self._total.items()}
