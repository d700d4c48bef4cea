"""Models with their objectives, as `keras.Model.fit` takes them, for every kind of run."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import ops


class Objective(keras.Model):
    """A model with what is computed from its outputs in training.

    A kind of run defines `outputs_of`, `loss_of` and `measures_of`.

    Args:
      encoder: the model that is trained, and saved alone as the result of a run.
      means: names of the metrics, which are means.
      l2: factor of the sum of squared matrix weights of the encoder. Biases have none, among them
        those per relative position, which are a matrix only to have a row for each head.

    Attributes:
      steps_done: int32 `[]`, the steps that were trained.
    """

    def __init__(self, encoder: Any, means: Sequence[str] = (), *, l2: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.l2 = l2
        self.steps_done = self.add_weight(
            shape=(), initializer="zeros", dtype="int32", trainable=False, name="steps_done"
        )
        self.means = {name: keras.metrics.Mean(name=name) for name in means}

    def outputs_of(self, inputs: dict[str, Any], training: bool) -> Any:
        """Return the outputs for a batch."""
        raise NotImplementedError

    def loss_of(self, inputs: dict[str, Any], outputs: Any) -> Any:
        """Return the loss of a batch, a scalar, without the penalty of the matrices."""
        raise NotImplementedError

    def measures_of(self, inputs: dict[str, Any], outputs: Any) -> Iterator[tuple[str, Any, Any]]:
        """Yield the name of a metric, its values of a batch, and their weights or None."""
        yield from ()

    def call(self, inputs: dict[str, Any], training: bool = False) -> Any:
        outputs = self.outputs_of(inputs, training)
        if training:
            self.steps_done.assign(self.steps_done + 1)
        return outputs

    def compute_loss(self, x: Any, y: Any = None, y_pred: Any = None, *_: Any) -> Any:
        loss = self.loss_of(x, y_pred)
        if not self.l2:
            return loss
        matrices = [
            v
            for v in self.encoder.trainable_variables
            if len(v.shape) > 1 and not v.name.endswith("_bias")
        ]
        return loss + self.l2 * sum(ops.sum(ops.square(ops.convert_to_tensor(v))) for v in matrices)

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, Any]:
        for name, values, weights in self.measures_of(x, y_pred):
            self.means[name].update_state(values, sample_weight=weights)
        return self.get_metrics_result()
