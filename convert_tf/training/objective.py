"""What every kind of run trains: a model under its objective, as `keras.Model.fit` takes it."""

from typing import Any

import keras
from keras import ops


class Objective(keras.Model):
    """A model with what is computed from its outputs in training.

    Args:
      encoder: the model that is trained, and saved alone as the result of a run.
      l2: factor of the sum of squared matrix weights of the encoder. Biases have none, among them
        those per relative position, which are a matrix only to have a row for each head.

    Attributes:
      steps_done: int32 `[]`, the steps that were trained.
    """

    def __init__(self, encoder: Any, *, l2: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.encoder = encoder
        self.l2 = l2
        self.steps_done = self.add_weight(
            shape=(), initializer="zeros", dtype="int32", trainable=False, name="steps_done"
        )

    def with_l2(self, loss: Any) -> Any:
        """`loss`, `[]`, and the penalty of the matrices."""
        if not self.l2:
            return loss
        matrices = [
            v
            for v in self.encoder.trainable_variables
            if len(v.shape) > 1 and not v.name.endswith("_bias")
        ]
        return loss + self.l2 * sum(ops.sum(ops.square(ops.convert_to_tensor(v))) for v in matrices)
