"""What a kind of model says of its training runs; `convert_tf.training.run` does the rest."""

import abc
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Generic, TypeVar

import keras

from convert_tf.config.train import Training
from convert_tf.training.objective import Objective
from convert_tf.training.processes import ALONE, Processes

ModelT = TypeVar("ModelT", bound=Objective)


class RunKind(abc.ABC, Generic[ModelT]):
    """One run of a kind of model: what is built, fed, measured and shown.

    The methods are called in their order here; from `evaluate` on, between steps.

    Args:
      output: the run's folder.
      config: of the training.
      options: what the run file says of how the run was started: configurations and JSON values.
      vocabulary: the vocabulary file that goes into each checkpoint.
      tokenizer: whose vocabulary it is.
      processes: those that train together.

    Attributes:
      precision: a `Training.precision`; from `make_model` on a dtype policy name.
      learning_rate: the schedule, of which summaries tell the rate at a step.
      facts: what each checkpoint says of its training.
      padding_id: of packed batches, where several processes train.
    """

    run_file = "train_config.json"
    keeps = "model"  # what a resumed run may not change, in words
    decides_order: frozenset[str] = frozenset()  # options on which the order of examples hangs
    unit = "pairs"  # of which speed is told
    padding_id = 0
    varies_in_width = False  # whether more than the first dimension differs between batches
    learning_rate: keras.optimizers.schedules.LearningRateSchedule

    def __init__(
        self,
        output: str,
        config: Training,
        options: dict[str, Any],
        *,
        vocabulary: Path,
        tokenizer: str,
        processes: Processes = ALONE,
    ):
        self.folder = Path(output)
        self.config = config
        self.options = options
        self.vocabulary = vocabulary
        self.tokenizer = tokenizer
        self.processes = processes
        self.precision = config.precision
        self.facts: dict[str, Any] = {}

    def say(self, line: str) -> None:
        """Prints a line of what the run does; of several processes the first one does."""
        if self.processes.is_first:
            print(line, file=sys.stderr, flush=True)

    @abc.abstractmethod
    def changes_of_model(self, checkpoint: Path) -> dict[str, tuple[Any, Any]]:
        """In what the model of an earlier checkpoint differs: name → (value there, value now)."""

    def facts_to_agree_on(self, resume_from: Path | None) -> Any:
        """What several processes must have been given alike; its `repr` is compared."""
        return None

    @abc.abstractmethod
    def make_model(self) -> ModelT:
        """The model in `precision`, compiled."""

    def begin(self, model: ModelT) -> None:
        """Gives a new run its initial weights."""

    def resume(self, facts: dict[str, Any]) -> None:
        """Takes over the `facts` of the checkpoint that the run goes on from."""

    @abc.abstractmethod
    def open_batches(self) -> None:
        """Makes what the run is trained and evaluated on; not called where no step is left."""

    @abc.abstractmethod
    def batches_from(self, step: int) -> Iterable[dict[str, Any]]:
        """Endless batches, of which the first is that of the step behind `step`."""

    @abc.abstractmethod
    def count_step(self, logs: dict[str, Any]) -> int:
        """How many units a step had; called behind each with its metrics."""

    @abc.abstractmethod
    def evaluate(
        self, model: ModelT, step: int, logs: dict[str, Any], rows: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """What `metrics.jsonl` is to say of this step, behind the `rows` so far.

        Args:
          model: what is evaluated.
          step: steps done.
          logs: means of the metrics since the last evaluation or checkpoint.
          rows: of the evaluations before.
        """

    @abc.abstractmethod
    def score(self, row: dict[str, Any]) -> float | None:
        """What chooses the best weights, the highest; None keeps the last."""

    def beside_weights(self, model: ModelT) -> dict[str, Any]:
        """Further arguments of `save_checkpoint` for the best weights."""
        return {}

    @abc.abstractmethod
    def curve(self, rows: list[dict[str, Any]]) -> bytes:
        """`curve.png`."""

    def shown(self, logs: dict[str, Any]) -> str:
        """The losses of a line of progress: of one objective, or of each one of several."""
        ending = "_ranking_loss"
        others = [name for name in logs if name.endswith(ending)]
        if not others:
            return f"loss {float(logs['ranking_loss']):.4f}"
        shown = {"context": "ranking_loss", **{name.removesuffix(ending): name for name in others}}
        return "loss " + ", ".join(f"{name} {float(logs[key]):.4f}" for name, key in shown.items())
