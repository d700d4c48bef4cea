"""The base class for tasks: the model and batches of a run, and how it is evaluated and saved."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from convert_tf.checkpoints.folder import save_checkpoint
from convert_tf.config.train import Training
from convert_tf.training.processes import ALONE, Processes
from convert_tf.training.step import Objective

RUN_FILE = "train_config.json"

# A tracker takes the number of a step and the values measured at this step, by name.
Tracker = Callable[[int, dict[str, float]], object]


class Batch(NamedTuple):
    """The input of one training step.

    Attributes:
      inputs: the input of the model.
      units: number of pairs or tokens in the batch, to measure the speed.
      facts: entries to add to `training.json` in later checkpoints, such as the position in the
        data.
    """

    inputs: dict[str, np.ndarray]
    units: int
    facts: Mapping[str, Any] = MappingProxyType({})


class Task:
    """The task of one run. `convert_tf.training.loop.carry_out` trains it.

    A task in memory is trained by `convert_tf.training.loop.take_steps`, which only changes the
    weights of its model. It needs a configuration, a model and batches, but none of the methods for
    writing files.

    Attributes:
      folder: the run's folder.
      config: training options.
      vocabulary: the vocabulary file that is copied into each checkpoint.
      model: the compiled model with its losses.
      run_file: name of the file that stores `options`.
      unit: unit of the speed, such as pairs.
      padding_id: token id for padding in packed batches, for training with several processes.
      processes: the processes that train together.
      trackers: functions that get the same values as TensorBoard: losses, speed and learning rate
        every 50 steps, and evaluation results with names such as `dev/R100@1`. With several
        processes, only the first process calls them.
      in_memory: whether the task writes no files.
      remedy: sentence that tells users what to do if the loss or a weight is NaN or infinite.
    """

    folder: Path
    config: Training
    vocabulary: Path
    model: Objective
    run_file = RUN_FILE
    unit = "pairs"
    padding_id = 0
    processes: Processes = ALONE
    trackers: Sequence[Tracker] = ()
    in_memory = False
    remedy = (
        "The checkpoints written so far are kept. Lower --learning_rate or change --precision, and "
        "run the same command again to resume from the last one."
    )

    def options(self) -> dict[str, Any]:
        """Return the configurations and JSON values that the run file stores."""
        raise NotImplementedError

    def batches(self, step: int) -> Iterable[Batch]:
        """Return endless batches, starting after `step` steps."""
        raise NotImplementedError

    def evaluate(
        self, step: int, logs: dict[str, float], rows: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Measure the model.

        Args:
          step: number of steps done.
          logs: means of the metrics since the last evaluation or checkpoint.
          rows: the earlier rows of `metrics.jsonl`.

        Returns:
          The entries for this step's row in `metrics.jsonl`. The loop adds the step and the times.
        """
        return {}

    def score(self, row: dict[str, Any]) -> float | None:
        """Return the score of a row. The best weights are kept; if it is None, the last weights."""
        return None

    def curve(self, rows: list[dict[str, Any]]) -> bytes:
        """Draw the rows of `metrics.jsonl`, and return the content of `curve.png`."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Return the task's entries in `training.json`."""
        raise NotImplementedError

    def model_changes(self, earlier: Path) -> dict[str, tuple[Any, Any]]:
        """Compare the model with a checkpoint's: name of an option → (value there, value here)."""
        raise NotImplementedError

    def to_agree_on(self, resume_from: Path | None) -> Any:
        """Return values that must be equal in all processes that resume from this checkpoint."""
        return None

    def start(self, resumed: dict[str, Any] | None) -> None:
        """Set initial weights. Called once before the first step, unless the run is complete.

        Args:
          resumed: None in a new run, else the facts of the checkpoint whose weights were loaded.
        """

    def save(self, folder: Path, facts: dict[str, Any], *, is_best: bool = False) -> None:
        """Write a model directory.

        Args:
          folder: the folder to write to.
          facts: the content of the folder's `training.json`.
          is_best: whether the directory is the result of the run rather than a checkpoint to resume
            from.
        """
        further = self.saved_with_best() if is_best else {}
        save_checkpoint(
            folder, self.model.encoder, vocabulary=self.vocabulary, training=facts, **further
        )

    def saved_with_best(self) -> dict[str, Any]:
        """Return additional arguments for `save_checkpoint` when the result of the run is saved."""
        return {}
