"""What happens around the steps of a run: progress, evaluation, checkpoints, non-finite numbers."""

import json
import math
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from convert_tf.checkpoints.folder import save_checkpoint, training_facts
from convert_tf.figures import write_picture
from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import parsed_json
from convert_tf.training.kind import RunKind
from convert_tf.training.state import CHECKPOINTS_FOLDER, save_training_state, step_folder
from convert_tf.training.termination import Termination

METRICS_FILE = "metrics.jsonl"
CURVE_FILE = "curve.png"
SECONDS_BETWEEN_LINES = 10.0


class NonFiniteError(FloatingPointError):
    """The loss or a weight is NaN or infinite."""


def _non_finite(what: str, step: int) -> NonFiniteError:
    return NonFiniteError(
        f"Training needs finite numbers. Received: {what} at step {step}. The checkpoints written "
        "so far are kept; lower --learning_rate or change --precision, and run the same command "
        "again to resume from the last one."
    )


class RunProgress(keras.callbacks.Callback):
    """A line with losses, speed and the time left; stops on a loss that is no number.

    Args:
      kind: the run.
      first_step: steps done before this process.
      termination: stops training when the process is told to end.

    Attributes:
      per_second: units (pairs or tokens) per second since the epoch began.
      seconds: of this process's steps, evaluations and checkpoints not counted.
      cpu_seconds: the same of all its threads on all cores, which other programs on the machine
        change little.
    """

    def __init__(self, kind: RunKind, first_step: int, *, termination: Termination):
        super().__init__()
        self.kind = kind
        self.step = first_step
        self.total_steps = kind.config.steps
        self.termination = termination
        self.per_second = 0.0
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self._printed = 0.0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._mark = (time.perf_counter(), self.step)
        self._cpu_mark = time.process_time()
        self._units = 0

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
        self._units += self.kind.count_step(logs)
        self.per_second = self._units / seconds
        is_due = now - self._printed >= SECONDS_BETWEEN_LINES or self.step == self.total_steps
        if is_due:
            self._printed = now
            steps_per_second = (self.step - self._mark[1]) / seconds
            left = int((self.total_steps - self.step) / steps_per_second)
            self.kind.say(
                f"step {self.step}/{self.total_steps}  {self.kind.shown(logs)}  "
                f"{steps_per_second:.2f} steps/s  {self.per_second:.0f} {self.kind.unit}/s  "
                f"{left // 3600}:{left // 60 % 60:02d}:{left % 60:02d} left"
            )
        if self.is_over:
            self.model.stop_training = True

    @property
    def is_over(self) -> bool:
        """Whether the last step is done, or the process was told to end."""
        return self.step >= self.total_steps or self.termination.is_requested


class Recorder(keras.callbacks.Callback):
    """Evaluates, keeps the best weights, checkpoints, and draws the curve.

    Args:
      kind: the run. All its processes evaluate, and the first one writes.
      progress: tells the step and the speed.
    """

    def __init__(self, kind: RunKind, progress: RunProgress):
        super().__init__()
        self.kind = kind
        self.progress = progress
        self.rows = _rows_up_to(kind.folder, progress.step)
        self._last_step = progress.step
        resumed = kind.folder / CHECKPOINTS_FOLDER / step_folder(progress.step)
        self._time_before = training_facts(resumed).get("time", {})

    def on_train_begin(self, logs: Any = None) -> None:
        if self.progress.step == 0:
            self._evaluate({})

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._refuse_non_finite_weights()
        config = self.kind.config
        step, last_step = self.progress.step, self._last_step
        self._last_step = step

        def is_due(interval: int) -> bool:
            # A run that resumes between two multiples of an interval still passes over the next.
            return step >= config.steps or step // interval > last_step // interval

        is_ending = self.progress.termination.is_requested and step < config.steps
        if is_due(config.eval_every) and not is_ending:
            self._evaluate(logs or {})
        if is_due(config.checkpoint_every) or is_ending:
            with self.kind.processes.together():
                if self.kind.processes.is_first:
                    save_training_state(
                        self.kind.folder,
                        self.model,
                        step=step,
                        vocabulary=self.kind.vocabulary,
                        training=self._training_facts(),
                        keep=config.keep_checkpoints,
                    )
        if is_ending:
            self.kind.say(f"told to end: saved step {step}; the same command goes on from there")

    def _refuse_non_finite_weights(self) -> None:
        """The loss of the step that breaks a weight is still finite; the next step's is not."""
        for variable in self.model.trainable_variables:
            if not np.isfinite(keras.ops.convert_to_numpy(variable)).all():
                raise _non_finite(f"a value that is no number in {variable.path}",
                                  self.progress.step)  # fmt: skip

    def _training_facts(self) -> dict[str, Any]:
        evaluation = self.rows[-1] if self.rows else None
        return {**self.kind.facts, "evaluation": evaluation, "time": self._time()}

    def _time(self) -> dict[str, float]:
        """Seconds of all steps whose work is in the weights, those of earlier processes too."""
        spent = {"seconds": self.progress.seconds, "cpu_seconds": self.progress.cpu_seconds}
        before = self._time_before
        return {name: round(before.get(name, 0.0) + new, 3) for name, new in spent.items()}

    def _evaluate(self, logs: dict[str, Any]) -> None:
        kind, step = self.kind, self.progress.step
        row = {
            "step": step,
            f"{kind.unit}_per_second": round(self.progress.per_second, 1),
            **self._time(),
            **kind.evaluate(self.model, step, logs, self.rows),
        }
        score, before = kind.score(row), [kind.score(earlier) for earlier in self.rows]
        is_best = score is None or all(score > other for other in before if other is not None)
        self.rows.append(row)
        with kind.processes.together():
            if kind.processes.is_first:
                self._write(is_best)

    def _write(self, is_best: bool) -> None:
        kind = self.kind
        write_file(kind.folder / METRICS_FILE, "".join(json.dumps(r) + "\n" for r in self.rows))
        if len(self.rows) > 1:  # one point is no curve
            write_picture(kind.folder / CURVE_FILE, lambda: kind.curve(self.rows))
        if is_best:
            save_checkpoint(
                kind.folder,
                self.model.encoder,
                vocabulary=kind.vocabulary,
                training=self._training_facts(),
                **kind.beside_weights(self.model),
            )


def _rows_up_to(run: Path, step: int) -> list[dict[str, Any]]:
    path = run / METRICS_FILE
    if step == 0 or not path.is_file():
        return []
    rows = [parsed_json(line) for line in path.read_text().splitlines()]
    return [row for row in rows if row["step"] <= step]
