"""Base class of all losses for dual encoders."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from convert_tf.config.base import Config
from convert_tf.config.model import ModelConfig
from convert_tf.data.schema import Addition

if TYPE_CHECKING:
    from convert_tf.training.encoder.data import EncoderData


class Loss:
    """A loss for dual encoders. Training minimises the weighted sum of all losses.

    Every subclass defined in this folder is a loss of `convert-tf train`, and the fields of its
    `Options` become flags. Users can also pass their own losses to `train`. A subclass only has to
    define `name` and `__call__`. Files in this folder import Keras inside functions, so that
    `--help` does not have to wait for Keras.

    Args:
      options: options of the run, which include the fields of `Options`. Pass None for your own
        loss without options.
      weight: factor of the loss in the sum. Default: the weight in the options, or 1 without
        options.

    Attributes:
      name: name of the loss. The mean of the loss is reported as `{name}_loss`.
      Options: configuration class whose fields become flags, under the heading `Options.heading`.
      weight_option: name of the option for the weight. Default: `name`.
      metrics: names of the metrics that `measures` yields.
      additions: texts and columns that `open` returned.
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
        """Return whether the loss is opened and measured for a model.

        A loss with a weight of 0 is measured, but the model is not trained on it.

        Args:
          model: configuration of the model that is trained.
        """
        return self.weight > 0

    def check(self, losses: Sequence["Loss"]) -> None:
        """Raise `ValueError` if the options contradict one another or do not fit the other losses.

        Args:
          losses: all losses in the run, including losses with a weight of 0.
        """

    def open(self, data: "EncoderData") -> Sequence[Addition]:
        """Open the data that the loss reads in addition to the pairs.

        Args:
          data: data of the run.

        Returns:
          Columns and texts to add to each batch. For texts named `{name}`, the batch gets the
          column `{name}_slots`, and their reduced encodings are `outputs["reduced_{name}"]`.

        Raises:
          ValueError: if a file is missing, is damaged or does not fit the data.
        """
        return ()

    def build(self, model: Any) -> None:
        """Add layers to the model or freeze layers, before the optimizer is created.

        Args:
          model: the `EncoderObjective` to change. A layer that you assign to an attribute of the
            model is trained and saved in checkpoints.
        """
        self.model = model

    def __call__(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        """Return the loss of each example, float32 `[batch]`, or the mean loss, float32 `[]`.

        Args:
          inputs: the batch, with the columns that `TrainingBatches` yields and those from
            `additions`. `candidates_of` in `ranking.py` finds copies of correct responses in the
            batch.
          outputs: outputs of `DualEncoder` for the whole batch, even with micro-batches, and the
            `scale` of the cosines.
        """
        raise NotImplementedError

    def measures(
        self, inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> Iterator[tuple[str, Any, Any]]:
        """For each metric, yield its name, its values and the weights of the values, or None.

        By default, the loss is the only metric. Each row of `metrics.jsonl` contains the mean of
        the metric's values since the previous row or checkpoint, whichever is later.
        """
        for metric in self.metrics:
            yield metric, self(inputs, outputs), None

    def facts(self) -> dict[str, Any]:
        """Return the entries that `training.json` gets for this loss in addition to its options."""
        return {}

    def facts_to_keep(self) -> Sequence[str]:
        """Return the names of entries in the initial model's `training.json` that remain valid."""
        return ()

    def start(self, init_from: str | None) -> None:
        """Set initial weights. Called once in a new run, after the encoder's weights have been set.

        Args:
          init_from: model that the run starts from, or None.
        """

    def keep(self, folder: str) -> None:
        """Keep the parts of an earlier model that this run does not train.

        Args:
          folder: folder of the initial model, or of the run that is resumed.
        """

    def to_save(self) -> dict[str, Any]:
        """Return additional arguments for `save_checkpoint` when the best weights are saved."""
        return {}
