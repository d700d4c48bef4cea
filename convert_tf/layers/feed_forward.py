"""Fast GELU and the feed-forward layer of a transformer block."""

from typing import Any

import keras
from keras import ops

from convert_tf.numerics.devices import is_tensorflow_on_cpu
from convert_tf.numerics.initializers import GlorotUniform

GELU_SLOPE = 1.702
# Blocks start close to the identity. With a gain of 1, six random blocks scramble the embeddings:
# an untrained encoder then ranks responses at 6 % R100@1 instead of 8 %.
RESIDUAL_GAIN = 0.1


def fast_gelu(x: Any) -> Any:
    """Return x·σ(1.702·x), computed as silu(1.702·x) / 1.702 because silu is one fused kernel.

    Args:
      x: float tensor of any shape.

    Returns:
      Tensor like `x`.

    Reference: arXiv 1911.03688 §2.1; arXiv 1606.08415 §2.
    """
    return ops.silu(GELU_SLOPE * x) / GELU_SLOPE


def plain_fast_gelu(x: Any) -> Any:
    """Return `fast_gelu(x)` without silu, for graphs that are saved.

    TensorFlow's silu has a custom gradient. A process that loads a graph with a custom gradient
    never frees the memory of this graph.
    """
    x = GELU_SLOPE * x
    return x * ops.sigmoid(x) / GELU_SLOPE


class FeedForward(keras.layers.Layer):
    """Linear(dim → hidden), fast GELU, linear(hidden → dim): "feed-forward 1" of the paper.

    Each call multiplies the two constants of the fast GELU into the weights, which are smaller than
    the activations: gelu(xW + b)V = silu(x·1.702W + 1.702b)·(V / 1.702).

    Masking: none; positions are independent.

    Args:
      hidden_dim: width of the hidden layer.

    Attributes:
      jit_compile: whether training on TensorFlow's CPU compiles everything but the matrix
        products. XLA compiles again for each number of tokens. False by default.

    Call arguments:
      x: `[batch, tokens, dim]`.
      training: whether gradients will be computed.

    Returns:
      `[batch, tokens, dim]`.

    Example:
      y = FeedForward(2048)(x)

    Reference: arXiv 1911.03688 §2.1, Figure 2.
    """

    def __init__(self, hidden_dim: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.jit_compile = False
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
        """Multiply the constants of the GELU into the stored weights. Calls then skip that work."""
        if not self._is_folded:
            self.hidden_kernel.assign(self.hidden_kernel * GELU_SLOPE)
            self.hidden_bias.assign(self.hidden_bias * GELU_SLOPE)
            self.output_kernel.assign(self.output_kernel / GELU_SLOPE)
        self._is_folded = True

    def unfold_slope(self) -> None:
        """Undo `fold_slope`, for example before training."""
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
            from convert_tf.numerics.tensorflow_cpu import feed_forward

            arguments = (hidden_kernel, hidden_bias, output_kernel, self.output_bias)
            flat = feed_forward(
                flat,
                *(ops.convert_to_tensor(argument) for argument in arguments),
                is_compiled=self.jit_compile,
            )
            return ops.reshape(flat, shape)
        hidden = ops.add(ops.matmul(flat, hidden_kernel), hidden_bias)
        # Without gradients, plain ops as in `plain_fast_gelu`: TensorFlow fuses these too.
        hidden = ops.silu(hidden) if training else hidden * ops.sigmoid(hidden)
        flat = ops.add(ops.matmul(hidden, output_kernel), self.output_bias)
        return ops.reshape(flat, shape)
