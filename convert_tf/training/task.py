"""Base class for tasks, which tell the training loop what to train, evaluate and save."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from convert_tf.checkpoints.folder import save_checkpoint
from convert_tf.config.train import Training
from convert_tf.storage.checksums import checksum
from convert_tf.training.processes import ALONE, Processes
from convert_tf.training.step import Objective

RUN_FILE = "train_config.json"

# A tracker receives the number of a step and a dict of the values measured at this step.
Tracker = Callable[[int, dict[str, float]], object]


class Batch(NamedTuple):
    """The input of one training step.

    Attributes:
      inputs: input of the model.
      units: number of pairs or tokens in the batch, used to compute the speed.
      facts: entries to add to the `training.json` of later checkpoints, such as the position in the
        data.
    """

    inputs: dict[str, np.ndarray]
    units: int
    facts: Mapping[str, Any] = MappingProxyType({})


def short_checksum(arrays: Iterable[np.ndarray]) -> str:
    """Return 16 hexadecimal digits that depend on the values and shapes of arrays."""
    return checksum(f"{array.shape}".encode() + array.tobytes() for array in arrays)[:16]


class Task:
    """What one training run does: its model, its batches, and how it is evaluated and saved.

    `convert_tf.training.loop.carry_out` carries out a run and writes its files.
    `convert_tf.training.loop.take_steps` can train a task in memory: it changes the weights of the
    model but writes no files. Such a task needs a configuration, a model and batches, but none of
    the methods for writing files.

    Attributes:
      folder: folder of the run.
      config: training options.
      vocabulary: vocabulary file, which is copied into each checkpoint.
      model: compiled model with its losses.
      run_file: name of the file in which the result of `options` is stored.
      unit: name of what `Batch.units` counts, such as pairs. It is shown with the speed.
      padding_id: token id for padding in packed batches; required for training with several
        processes.
      processes: processes that train together.
      trackers: functions that receive the same values as TensorBoard: losses, speed and learning
        rate every 50 steps, and evaluation results with names such as `dev/R100@1`. With several
        processes, only the first process calls these functions.
      evaluated_on: short checksum of the data that the score is measured on (`short_checksum`), so
        that scores on different data are not compared; `""` if it is unknown.
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
    evaluated_on = ""
    in_memory = False
    remedy = (
        "The checkpoints written so far are kept. Lower --learning_rate or change --precision, and "
        "run the command again to resume from the last checkpoint."
    )

    def options(self) -> dict[str, Any]:
        """Return the configurations and JSON values that the run file stores."""
        raise NotImplementedError

    def batches(self, step: int) -> Iterable[Batch]:
        """Return an endless series of batches for the steps after step `step`."""
        raise NotImplementedError

    def evaluate(
        self, step: int, logs: dict[str, float], rows: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Evaluate the model.

        Args:
          step: number of steps done so far.
          logs: mean of each metric since the last evaluation or checkpoint.
          rows: earlier rows of `metrics.jsonl`, back to the last change of the evaluation data.

        Returns:
          The entries for this step's row in `metrics.jsonl`. The loop adds the step, the times and
          `evaluated_on`.
        """
        return {}

    def score(self, row: dict[str, Any]) -> float | None:
        """Return the score of a row of `metrics.jsonl`.

        Only scores on the same data (`evaluated_on`) are compared, and the weights with the highest
        score are kept. If scores are equal, the MRR decides if the row has one. NaN counts as lower
        than any number. If the score is None, the last weights are kept.
        """
        return None

    def curve(self, rows: list[dict[str, Any]]) -> bytes:
        """Draw the rows of `metrics.jsonl` as curves, and return the bytes of `curve.png`."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Return the entries that the task adds to `training.json`."""
        raise NotImplementedError

    def model_changes(self, earlier: Path) -> dict[str, tuple[Any, Any]]:
        """Return the changed options with which a run cannot be resumed.

        Returns:
          A dict from the name of each option to a pair: its value in the checkpoint and its value
          in this run.
        """
        raise NotImplementedError

    def to_agree_on(self, resume_from: Path | None) -> Any:
        """Return values that must be equal in all processes.

        Args:
          resume_from: the checkpoint that the run resumes from; None for a new run.
        """
        return None

    def start(self, resumed: dict[str, Any] | None) -> None:
        """Set the initial weights. Called once before the first step, unless the run is complete.

        Args:
          resumed: None in a new run; otherwise the facts in the checkpoint whose weights were
            loaded.
        """

    def save(self, folder: Path, facts: dict[str, Any], *, is_best: bool = False) -> None:
        """Write the model as a model directory.

        Args:
          folder: folder to write to.
          facts: content of `training.json` in the folder.
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
