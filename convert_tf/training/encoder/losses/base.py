"""The base class of all losses for dual encoders."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from convert_tf.config.base import Config
from convert_tf.config.model import ModelConfig
from convert_tf.data.schema import Addition

if TYPE_CHECKING:
    from convert_tf.training.encoder.data import EncoderData


class Loss:
    """A loss for dual encoders. Training minimises the weighted sum of all losses.

    Every subclass in a file in this folder is a loss of `convert-tf train`, and the fields of its
    `Options` become flags. Users can also pass their own losses to `train`. A subclass only needs
    `name` and `__call__`. Files in this folder import Keras inside functions, so that `--help` does
    not have to wait for Keras.

    Args:
      options: the options of the run, which include the fields of `Options`. None for a user's loss
        without options.
      weight: factor of the loss in the sum. Default: the weight in the options, or 1 without
        options.

    Attributes:
      name: name of the loss. Its mean is reported as `{name}_loss`.
      Options: fields that become flags, under the heading `Options.heading`.
      weight_option: name of the option that holds the weight. Default: `name`.
      metrics: names of the metrics that `measures` yields.
      additions: the texts and columns that `open` returned.
      model: the `EncoderObjective` that the loss belongs to, set by `build`. `model.similarity(r)`
        maps reduced encodings to similarity vectors.

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
        """Return whether to open and measure the loss. With a weight of 0, it is not trained."""
        return self.weight > 0

    def check(self, losses: Sequence["Loss"]) -> None:
        """Raise `ValueError` if the options do not fit each other or the other losses.

        Args:
          losses: all losses in the run, including losses with a weight of 0.
        """

    def open(self, data: "EncoderData") -> Sequence[Addition]:
        """Open the data that the loss reads in addition to the pairs.

        Args:
          data: the data of the run.

        Returns:
          Columns and texts to add to each batch. For a text named `{name}`, the batch has the
          column `{name}_slots`, and its reduced encoding is `outputs["reduced_{name}"]`.

        Raises:
          ValueError: if the files are missing, damaged or do not fit the data.
        """
        return ()

    def build(self, model: Any) -> None:
        """Add layers to the model, or freeze some of its layers, before its optimizer is made.

        Args:
          model: an `EncoderObjective`. A layer that is assigned to an attribute of the model is
            trained and saved in checkpoints.
        """
        self.model = model

    def __call__(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        """Return the loss of each example, float32 `[batch]`, or its mean `[]`.

        Args:
          inputs: the batch: the columns that `TrainingBatches` yields, and the columns from
            `additions`. `candidates_of` in `ranking.py` finds copies of right responses in the
            batch.
          outputs: the outputs of `DualEncoder` for the whole batch, even with micro-batches, and
            the `scale` of the cosines.
        """
        raise NotImplementedError

    def measures(
        self, inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        """Yield the name, the values, and the weights (or None) of each metric.

        By default, the loss is the only metric. Each row in `metrics.jsonl` has the mean of a
        metric's values since the previous row.
        """
        for metric in self.metrics:
            yield metric, self(inputs, outputs), None

    def facts(self) -> dict[str, Any]:
        """Return the entries that `training.json` has for the loss in addition to its options."""
        return {}

    def facts_to_keep(self) -> Sequence[str]:
        """Return the names of entries in the initial model's `training.json` that stay true."""
        return ()

    def start(self, init_from: str | None) -> None:
        """Set initial weights. Called once in a new run, after the encoder's weights are set.

        Args:
          init_from: the model that the run starts from, or None.
        """

    def keep(self, folder: str) -> None:
        """Keep the parts of an earlier model that this run does not train.

        Args:
          folder: the folder of the initial model, or of the run that is resumed.
        """

    def to_save(self) -> dict[str, Any]:
        """Return further arguments for `save_checkpoint` when the best weights are saved."""
        return {}
