"""The fast GELU and the feed-forward layer of a block."""

from typing import Any

import keras
from keras import ops

from convert_tf.devices import is_tensorflow_on_cpu
from convert_tf.initializers import GlorotUniform

GELU_SLOPE = 1.702
# Blocks start close to the identity: with a full-size random output the six of them scramble the
# embeddings, and an untrained encoder ranks responses at 6 % R100@1 instead of 8 %.
RESIDUAL_GAIN = 0.1


def fast_gelu(x: Any) -> Any:
    """x·σ(1.702·x), computed as silu(1.702·x) / 1.702 because silu is one fused kernel.

    Args:
      x: float tensor of any shape.

    Returns:
      Tensor like `x`.

    Reference: arXiv 1911.03688 §2.1; arXiv 1606.08415 §2.
    """
    return ops.silu(GELU_SLOPE * x) / GELU_SLOPE


class FeedForward(keras.layers.Layer):
    """linear(dim → hidden), fast GELU, linear(hidden → dim): "feed-forward 1" of the paper.

    The two constants of the fast GELU are folded into the weights, which are smaller than the
    activations: gelu(xW + b)V = silu(x·1.702W + 1.702b)·(V / 1.702).

    Masking: none, positions do not see one another.

    Args:
      hidden_dim: width of the hidden layer.

    Call arguments:
      x: `[batch, tokens, dim]`.
      training: whether gradients are wanted, for which TensorFlow's CPU has a way of its own.

    Returns:
      `[batch, tokens, dim]`.

    Example:
      y = FeedForward(2048)(x)

    Reference: arXiv 1911.03688 §2.1, Figure 2.
    """

    def __init__(self, hidden_dim: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self._is_folded = False

    def build(self, x_shape: Any) -> None:
        dim = x_shape[-1]
        self.hidden_kernel = self.add_weight(
            shape=(dim, self.hidden_dim), initializer=GlorotUniform(), name="hidden_kernel"
        )
        self.hidden_bias = self.add_weight(
            shape=(self.hidden_dim,), initializer="zeros", name="hidden_bias"
        )
        self.output_kernel = self.add_weight(
            shape=(self.hidden_dim, dim),
            initializer=GlorotUniform(RESIDUAL_GAIN),
            name="output_kernel",
        )
        self.output_bias = self.add_weight(shape=(dim,), initializer="zeros", name="output_bias")

    def fold_slope(self) -> None:
        """Multiplies the two constants into the weights for good, so that calls need not."""
        if not self._is_folded:
            self.hidden_kernel.assign(self.hidden_kernel * GELU_SLOPE)
            self.hidden_bias.assign(self.hidden_bias * GELU_SLOPE)
            self.output_kernel.assign(self.output_kernel / GELU_SLOPE)
        self._is_folded = True

    def unfold_slope(self) -> None:
        """Takes `fold_slope` back, to train the weights as they are elsewhere."""
        if self._is_folded:
            self.hidden_kernel.assign(self.hidden_kernel / GELU_SLOPE)
            self.hidden_bias.assign(self.hidden_bias / GELU_SLOPE)
            self.output_kernel.assign(self.output_kernel * GELU_SLOPE)
        self._is_folded = False

    def call(self, x: Any, training: bool = False) -> Any:
        shape = ops.shape(x)
        flat = ops.reshape(x, (-1, shape[-1]))
        hidden_kernel, hidden_bias = self.hidden_kernel, self.hidden_bias
        output_kernel = self.output_kernel
        if not self._is_folded:
            hidden_kernel, hidden_bias = hidden_kernel * GELU_SLOPE, hidden_bias * GELU_SLOPE
            output_kernel = output_kernel / GELU_SLOPE
        if training and is_tensorflow_on_cpu():
            from convert_tf.tensorflow_cpu import feed_forward

            arguments = (hidden_kernel, hidden_bias, output_kernel, self.output_bias)
            flat = feed_forward(flat, *(ops.convert_to_tensor(a) for a in arguments))
            return ops.reshape(flat, shape)
        hidden = ops.add(ops.matmul(flat, hidden_kernel), hidden_bias)
        # silu has a gradient of its own, which a saved module cannot follow out of a branch; where
        # nothing is trained TensorFlow fuses the two ops as well.
        hidden = hidden * ops.sigmoid(hidden) if self._is_folded else ops.silu(hidden)
        flat = ops.add(ops.matmul(hidden, output_kernel), self.output_bias)
        return ops.reshape(flat, shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "hidden_dim": self.hidden_dim}
