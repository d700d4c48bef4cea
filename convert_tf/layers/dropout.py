"""Dropout that needs fewer random bits."""

from typing import Any

import keras

from convert_tf.numerics.devices import is_tensorflow_on_cpu


class Dropout(keras.layers.Dropout):
    """Keras's dropout, with 16 random bits per number instead of 32 on TensorFlow's CPU.

    Masking: none.

    Call arguments:
      inputs: float `[..., dim]`.
      training: whether to drop numbers.

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
