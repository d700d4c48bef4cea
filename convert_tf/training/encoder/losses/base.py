"""The base class of the losses of dual encoders."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from convert_tf.config.base import Config
from convert_tf.config.model import ModelConfig
from convert_tf.data.schema import Addition

if TYPE_CHECKING:
    from convert_tf.training.encoder.data import EncoderData


class Loss:
    """A loss of dual encoders, added to the others with a weight.

    A subclass in a file of this folder is a loss of `convert-tf train`: the fields of its `Options`
    become flags. Users pass losses of their own to `train`. Only `name` and `__call__` are needed.
    Files of this folder import Keras inside functions, so that `--help` need not wait for it.

    Args:
      options: the options of the run, among them the fields of `Options`. None for a loss that is
        passed to `train`, unless it is made with some.
      weight: factor of the loss; by default the one in the options, or 1 without options.

    Attributes:
      name: name of the loss. Its mean is reported as `{name}_loss`.
      Options: fields that become flags, under the heading `Options.heading`.
      weight_option: the field that is the weight; `name` by default.
      metrics: names of the metrics that `measures` yields.
      additions: what `open` returned.
      model: the model with its losses, set by `build`. `model.similarity(r)` maps reduced encodings
        to similarity vectors.

    Example:
      class Length(Loss):
          name = "length"

          def __call__(self, inputs, outputs):
              return keras.ops.mean(keras.ops.square(outputs["reduced_context"]), axis=-1)

      train("tiny", {"data": "faq.csv"}, losses=[Length(weight=0.1)], output="runs/faq")
    """

    name: ClassVar[str]
    Options: ClassVar[type[Config]] = Config
    weight_option: ClassVar[str] = ""
    metrics: tuple[str, ...] = ()
    additions: Sequence[Addition] = ()
    model: Any = None

    def __init__(self, options: Any = None, *, weight: float | None = None) -> None:
        self.options = options
        if weight is None:
            weight = 1.0 if options is None else getattr(options, self.weight_option or self.name)
        self.weight = weight
        self.metrics = self.metrics or ((f"{self.name}_loss",) if weight > 0 else ())

    @property
    def reads_utterances(self) -> bool:
        """Whether the loss reads the single texts of `--utterances`."""
        return False

    def applies_to(self, model: ModelConfig) -> bool:
        """Return whether the loss is opened and measured. With a weight of 0 it is not trained."""
        return self.weight > 0

    def check(self, losses: Sequence["Loss"]) -> None:
        """Raise `ValueError` if the options do not fit each other or the other losses.

        Args:
          losses: all losses of the run, including those with a weight of 0.
        """

    def open(self, data: "EncoderData") -> Sequence[Addition]:
        """Open what the loss reads in addition to the pairs.

        Args:
          data: the data of the run.

        Returns:
          Columns and texts to add to each batch. A text called `{name}` is in the batch as
          `{name}_slots`, and its reduced encoding is `outputs["reduced_{name}"]`.

        Raises:
          ValueError: if the files are missing, damaged or do not fit the data.
        """
        return ()

    def build(self, model: Any) -> None:
        """Add layers to the model, or freeze some, before its optimizer is made.

        Args:
          model: an `EncoderObjective`. A layer that becomes its attribute is trained and saved.
        """
        self.model = model

    def __call__(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        """Return the loss of each example, float32 `[batch]`, or its mean `[]`.

        Args:
          inputs: the batch: the columns that `TrainingBatches` yields, and those of `additions`.
            `candidates_of` in `ranking.py` finds the copies of right responses in it.
          outputs: the outputs of `DualEncoder`, of the whole batch also with micro-batches, and the
            `scale` of cosines.
        """
        raise NotImplementedError

    def measures(
        self, inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        """Yield the name of a metric, its values, and their weights or None.

        By default the only metric is the loss. `metrics.jsonl` has the means of a metric's values
        since the row before.
        """
        for metric in self.metrics:
            yield metric, self(inputs, outputs), None

    def facts(self) -> dict[str, Any]:
        """Return what `training.json` records about the loss besides its options."""
        return {}

    def facts_to_keep(self) -> Sequence[str]:
        """Return the names of the initial model's facts that are still true after training."""
        return ()

    def start(self, init_from: str | None) -> None:
        """Set initial weights. Called once in a new run, when the encoder has its initial weights.

        Args:
          init_from: the model that the run starts from, or None.
        """

    def keep(self, folder: str) -> None:
        """Keep the parts of an earlier model that this run does not train.

        Args:
          folder: the initial model, or the run that resumes.
        """

    def to_save(self) -> dict[str, Any]:
        """Return arguments of `save_checkpoint` for the best weights."""
        return {}
