"""Transformer block of ConveRT, and its parts: dropout, layer norm and the feed-forward layer.

With TensorFlow on a CPU, these parts train faster than their counterparts in Keras.
"""

from typing import Any

import keras
from keras import ops

from convert_tf.layers.attention import RelativeSelfAttention
from convert_tf.numerics.devices import is_tensorflow_on_cpu
from convert_tf.numerics.initializers import glorot_uniform


@keras.saving.register_keras_serializable(package="convert_tf")
class Dropout(keras.layers.Dropout):
    """Keras's dropout. With TensorFlow on a CPU, it draws 16 instead of 32 random bits per number.

    Masking: none.

    Call arguments:
      inputs: numbers to apply dropout to, float `[..., dim]`.
      training: whether to apply dropout. If false, the inputs are returned unchanged.

    Returns:
      A tensor with the shape and dtype of `inputs`.

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


@keras.saving.register_keras_serializable(package="convert_tf")
class LayerNorm(keras.layers.LayerNormalization):
    """Keras's layer norm over the last axis. With TensorFlow on a CPU, its gradient is faster.

    Mean and variance are computed in float32, whatever the compute dtype.

    Masking: none; positions are independent.

    Call arguments:
      inputs: vectors to normalise, `[..., dim]`.
      training: whether gradients will be computed.

    Returns:
      The normalised vectors, `[..., dim]`, in the compute dtype.

    Example:
      y = LayerNorm(epsilon=1e-6)(x, training=True)

    Reference: arXiv 1607.06450 §3.
    """

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not (training and is_tensorflow_on_cpu()):
            return super().call(inputs)
        from convert_tf.numerics.tensorflow_cpu import layer_norm

        gamma, beta = ops.convert_to_tensor(self.gamma), ops.convert_to_tensor(self.beta)
        return ops.cast(layer_norm(inputs, gamma, beta, self.epsilon), self.compute_dtype)


GELU_SLOPE = 1.702
# Gain of each block's output kernel at initialisation. With this gain, untrained blocks are close
# to the identity. With a gain of 1, six random blocks scramble the embeddings: the R100@1 of an
# untrained encoder is then 6 % instead of 8 %.
_RESIDUAL_GAIN = 0.1


def fast_gelu(x: Any) -> Any:
    """Return x·σ(1.702·x), computed as silu(1.702·x) / 1.702 because silu is one fused kernel.

    Args:
      x: numbers, a float tensor of any shape.

    Returns:
      A tensor with the shape and dtype of `x`.

    Reference: arXiv 1911.03688 §2.1; arXiv 1606.08415 §2.
    """
    return ops.silu(GELU_SLOPE * x) / GELU_SLOPE


def plain_fast_gelu(x: Any) -> Any:
    """Return `fast_gelu(x)` without silu, for graphs that are saved.

    TensorFlow's silu has a custom gradient. If a process loads a graph with a custom gradient, it
    never frees the memory of this graph.
    """
    x = GELU_SLOPE * x
    return x * ops.sigmoid(x) / GELU_SLOPE


@keras.saving.register_keras_serializable(package="convert_tf")
class FeedForward(keras.layers.Layer):
    """Linear(dim → hidden), fast GELU, linear(hidden → dim): "feed-forward 1" of the paper.

    Each call multiplies the weights, rather than the larger activations, by the two constants of
    the fast GELU: gelu(xW + b)V = silu(x·1.702W + 1.702b)·(V / 1.702).

    Masking: none; positions are independent.

    Args:
      hidden_dim: width of the hidden layer.

    Attributes:
      jit_compile: whether XLA compiles everything except the matrix products when the layer is
        trained with TensorFlow on a CPU. XLA recompiles for each number of tokens. False by
        default.

    Call arguments:
      x: vectors of the tokens, `[batch, tokens, dim]`.
      training: whether gradients will be computed.

    Returns:
      The new vectors of the tokens, `[batch, tokens, dim]`.

    Example:
      y = FeedForward(2048)(x)

    Reference: arXiv 1911.03688 §2.1, Figure 2.
    """

    def __init__(self, hidden_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.jit_compile = False
        self._is_folded = False

    def build(self, x_shape: Any) -> None:
        dim = x_shape[-1]
        self.hidden_kernel, self.hidden_bias, self.output_kernel, self.output_bias = (
            self.add_weight(shape=shape, initializer=initializer, name=name)
            for name, shape, initializer in (
                ("hidden_kernel", (dim, self.hidden_dim), glorot_uniform()),
                ("hidden_bias", (self.hidden_dim,), "zeros"),
                ("output_kernel", (self.hidden_dim, dim), glorot_uniform(_RESIDUAL_GAIN)),
                ("output_bias", (dim,), "zeros"),
            )
        )

    def fold_slope(self) -> None:
        """Multiply the stored weights by the constants of the GELU. Calls then skip this work."""
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

            arguments = (flat, hidden_kernel, hidden_bias, output_kernel, self.output_bias)
            return ops.reshape(feed_forward(*arguments, is_compiled=self.jit_compile), shape)
        hidden = ops.add(ops.matmul(flat, hidden_kernel), hidden_bias)
        # If no gradients are needed, plain ops are used as in `plain_fast_gelu`. TensorFlow also
        # fuses these ops.
        hidden = ops.silu(hidden) if training else hidden * ops.sigmoid(hidden)
        flat = ops.add(ops.matmul(hidden, output_kernel), self.output_bias)
        return ops.reshape(flat, shape)


@keras.saving.register_keras_serializable(package="convert_tf")
class TransformerBlock(keras.layers.Layer):
    """Transformer block: self-attention and feed-forward, each with a skip and a layer norm.

    The layer norm comes after the sum, as in the original Transformer, and is computed in float32.

    Masking: see `RelativeSelfAttention`.

    Args:
      attention_dim: query/key width of each head.
      max_distance: maximum distance, in tokens, between two tokens that attend to each other.
      feed_forward_dim: hidden width of the feed-forward layer.
      num_heads, use_relative_bias: see `RelativeSelfAttention`.
      dropout: dropout rate after self-attention.

    Call arguments:
      x: vectors of the tokens, `[batch, tokens, dim]`.
      attention_mask: bool `[batch, tokens, tokens]`, true where one token may read the other. If
        None, every token may read all tokens within `max_distance`.
      across_mask, across_bias: for joint sequences only; see `RelativeSelfAttention`.

    Returns:
      The new vectors of the tokens, `[batch, tokens, dim]`.

    Example:
      y = TransformerBlock(64, 48, feed_forward_dim=2048)(x, attention_mask=mask)

    Reference: arXiv 1911.03688 §2.1; arXiv 1706.03762 §3.1.
    """

    def __init__(
        self,
        attention_dim: int,
        max_distance: int,
        *,
        feed_forward_dim: int,
        num_heads: int = 1,
        use_relative_bias: bool = True,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.attention = RelativeSelfAttention(
            attention_dim,
            max_distance,
            num_heads=num_heads,
            use_relative_bias=use_relative_bias,
            dtype=policy,
            name="attention",
        )
        self.drop = Dropout(dropout, dtype=policy, name="dropout")
        self.attention_norm = LayerNorm(epsilon=1e-6, dtype=policy, name="attention_norm")
        self.feed_forward = FeedForward(feed_forward_dim, dtype=policy, name="feed_forward")
        self.feed_forward_norm = LayerNorm(epsilon=1e-6, dtype=policy, name="feed_forward_norm")

    def build(self, x_shape: Any) -> None:
        for layer in (
            self.attention, self.attention_norm, self.feed_forward, self.feed_forward_norm
        ):  # fmt: skip
            layer.build(x_shape)

    def call(
        self,
        x: Any,
        attention_mask: Any = None,
        across_mask: Any = None,
        across_bias: Any = None,
        training: bool = False,
    ) -> Any:
        attended = self.attention(
            x, attention_mask=attention_mask, across_mask=across_mask, across_bias=across_bias
        )
        x = self.attention_norm(x + self.drop(attended, training=training), training=training)
        transformed = self.feed_forward(x, training=training)
        return self.feed_forward_norm(x + transformed, training=training)
