"""What is trained: a model, its batches, and what is measured and saved of it."""

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

# Takes the number of a step, and what was measured there: a number for each name.
Tracker = Callable[[int, dict[str, float]], object]


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


class Task:
    """What one run trains. `convert_tf.training.loop.carry_out` takes its steps.

    A task in memory writes nothing: `convert_tf.training.loop.take_steps` changes the weights of
    its model. It needs a configuration, a model and batches, and needs no method that writes files.

    Attributes:
      folder: the run's folder.
      config: the options of training.
      vocabulary: the vocabulary file that is copied into each checkpoint.
      model: the compiled model with its losses.
      run_file: name of the file of `options`.
      unit: what speed counts.
      padding_id: of packed batches, where several processes train.
      processes: those that train together.
      trackers: called with what TensorBoard gets: losses, speed and learning rate every 50 steps,
        and evaluations, named as `dev/R100@1`. With several processes, only the first one calls
        them.
      in_memory: whether the task writes no folder, checkpoints or log.
      remedy: what a user does if the loss or a weight is no number.
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
        """Return batches without end, after so many steps."""
        raise NotImplementedError

    def evaluate(
        self, step: int, logs: dict[str, float], rows: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Measure the model.

        Args:
          step: the steps done.
          logs: means of the metrics since the last evaluation or checkpoint.
          rows: the results so far.

        Returns:
          What `metrics.jsonl` says of this step besides its time.
        """
        return {}

    def score(self, row: dict[str, Any]) -> float | None:
        """Return a number of a result; the highest has the best weights. None keeps the last."""
        return None

    def curve(self, rows: list[dict[str, Any]]) -> bytes:
        """Return `curve.png` of the results."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Return what `training.json` says of the training."""
        raise NotImplementedError

    def model_changes(self, earlier: Path) -> dict[str, tuple[Any, Any]]:
        """Return how the model of a checkpoint differs: name → (value there, value here)."""
        raise NotImplementedError

    def to_agree_on(self, resume_from: Path | None) -> Any:
        """Return what must be the same in all processes, given the checkpoint to resume from."""
        return None

    def start(self, resumed: dict[str, Any] | None) -> None:
        """Set initial weights. Called once before the steps, if any are left.

        Args:
          resumed: None in a new run, else the facts of the checkpoint whose weights were loaded.
        """

    def save(self, folder: Path, facts: dict[str, Any], *, is_best: bool = False) -> None:
        """Write a model directory.

        Args:
          folder: where.
          facts: the content of its `training.json`.
          is_best: whether it is the result of the run, and no checkpoint to resume from.
        """
        further = self.saved_with_best() if is_best else {}
        save_checkpoint(
            folder, self.model.encoder, vocabulary=self.vocabulary, training=facts, **further
        )

    def saved_with_best(self) -> dict[str, Any]:
        """Return the further arguments of `save_checkpoint` for the result of the run."""
        return {}
