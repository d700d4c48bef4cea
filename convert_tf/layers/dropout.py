"""Dropout that draws fewer random bits."""

from typing import Any

import keras

from convert_tf.numerics.devices import is_tensorflow_on_cpu


class Dropout(keras.layers.Dropout):
    """Keras's dropout; on TensorFlow's CPU with 16 random bits for each number instead of 32.

    Masking: none.

    Call arguments:
      inputs: float `[..., dim]`.
      training: whether anything is dropped.

    Returns:
      Tensor like `inputs`.

    Example:
      y = Dropout(0.1)(x, training=True)
    """

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not (training and 0 < self.rate < 1 and is_tensorflow_on_cpu()):
            return super().call(inputs, training=training)
        if inputs.shape[-1] is None or inputs.shape[-1] % 2:
            return super().call(inputs, training=training)
        from convert_tf.numerics.tensorflow_cpu import drop

        return drop(inputs, self.rate, self.seed_generator.next())
