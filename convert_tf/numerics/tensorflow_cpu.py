"""Faster versions of some parts of a training step, for TensorFlow on a CPU.

With TensorFlow on a CPU, each op reads and writes whole arrays. Apart from matrix products, these
passes over memory take most of the time of a step, so the functions in this module make fewer of
them. On other devices a compiler fuses ops, so the plain formulas in `convert_tf.layers` are used.
Saved modules also use the plain formulas.
"""

from typing import Any

import keras
import tensorflow as tf


def feed_forward(
    x: Any,
    hidden_kernel: Any,
    hidden_bias: Any,
    output_kernel: Any,
    output_bias: Any,
    *,
    is_compiled: bool = False,
) -> Any:
    """Return `silu(x · hidden_kernel + hidden_bias) · output_kernel + output_bias`.

    The derivative silu' = σ + silu·(1 − σ) takes six passes over memory in TensorFlow, four in this
    function, and one with XLA. TensorFlow computes σ of 16-bit numbers one by one, but of several
    float32 numbers at a time. Therefore numbers are cast to float32 before σ is computed.

    Args:
      x: input vectors, `[tokens, dim]`.
      hidden_kernel: matrix of the hidden layer, `[dim, hidden_dim]`.
      hidden_bias: bias of the hidden layer, `[hidden_dim]`.
      output_kernel: matrix of the output layer, `[hidden_dim, dim]`.
      output_bias: bias of the output layer, `[dim]`.
      is_compiled: whether XLA compiles everything except the matrix products. XLA recompiles for
        each number of tokens.

    Returns:
      The output vectors, `[tokens, dim]`.
    """

    @tf.custom_gradient
    def compute(x: Any, hidden_kernel: Any, hidden_bias: Any, output_kernel: Any, bias: Any) -> Any:
        product = tf.matmul(x, hidden_kernel)
        if is_compiled:
            hidden = _silu(product, hidden_bias)
        else:
            before = tf.nn.bias_add(product, hidden_bias)
            hidden = tf.nn.silu(before)

        def gradient(upstream: Any) -> tuple[Any, ...]:
            with tf.name_scope("feed_forward_gradient"):  # name of the ops in profiles
                d_hidden = tf.matmul(upstream, output_kernel, transpose_b=True)
                if is_compiled:
                    d_before = _silu_gradient(product, hidden_bias, d_hidden)
                else:
                    sigmoid = tf.cast(tf.sigmoid(tf.cast(before, tf.float32)), x.dtype)
                    d_before = d_hidden * (sigmoid + hidden * (1.0 - sigmoid))
                return (
                    tf.matmul(d_before, hidden_kernel, transpose_b=True),
                    tf.matmul(x, d_before, transpose_a=True),
                    tf.raw_ops.BiasAddGrad(out_backprop=d_before),
                    tf.matmul(hidden, upstream, transpose_a=True),
                    tf.raw_ops.BiasAddGrad(out_backprop=upstream),
                )

        return tf.nn.bias_add(tf.matmul(hidden, output_kernel), bias), gradient

    # Functions with a custom gradient need tensors, but Keras passes variables.
    arguments = (x, hidden_kernel, hidden_bias, output_kernel, output_bias)
    return compute(*(tf.convert_to_tensor(argument) for argument in arguments))


@tf.function(autograph=False, jit_compile=True)
def _silu(product: Any, bias: Any) -> Any:
    before = tf.cast(product + bias, tf.float32)
    return tf.cast(before * tf.sigmoid(before), product.dtype)


@tf.function(autograph=False, jit_compile=True)
def _silu_gradient(product: Any, bias: Any, upstream: Any) -> Any:
    before = tf.cast(product + bias, tf.float32)
    sigmoid = tf.sigmoid(before)
    slope = sigmoid * (1.0 + before * (1.0 - sigmoid))
    return tf.cast(tf.cast(upstream, tf.float32) * slope, upstream.dtype)


def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Return the layer norm over the last axis. Its gradient computes sums as matrix products.

    The gradient is dx = r·(g·γ − mean(g·γ) − n·mean(g·γ·n)), where n is the normalised x, g the
    upstream gradient and r the inverse of the standard deviation. The means are over `dim`.

    Args:
      x: vectors to normalise, `[..., dim]`, of any float type.
      gamma, beta: scale and offset of the norm, float32 `[dim]`.
      epsilon: constant that is added to the variance.

    Returns:
      A tensor with the shape and dtype of `x`.

    Reference: arXiv 1607.06450 §3.
    """
    gamma, beta = tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta)
    flat = tf.reshape(x, [-1, x.shape[-1]])

    @tf.custom_gradient
    def normalise(x: Any, gamma: Any, beta: Any) -> Any:
        x_float32 = tf.cast(x, tf.float32)
        centred = x_float32 - tf.reduce_mean(x_float32, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        scale = tf.math.rsqrt(variance + epsilon)
        normal = centred * scale

        def gradient(upstream: Any) -> tuple[Any, Any, Any]:
            with tf.name_scope("layer_norm_gradient"):
                upstream = tf.cast(upstream, tf.float32)
                product = upstream * normal
                ones = tf.ones([1, tf.shape(upstream)[0]])
                mean_weights = gamma[:, None] / gamma.shape[0]
                mean_term = scale * tf.matmul(upstream, mean_weights)
                normal_term = normal * tf.matmul(product, mean_weights)
                dx = (upstream * gamma - normal_term) * scale - mean_term
                dgamma = tf.matmul(ones, product)[0]
                return tf.cast(dx, x.dtype), dgamma, tf.matmul(ones, upstream)[0]

        return tf.cast(normal * gamma + beta, x.dtype), gradient

    return tf.reshape(normalise(flat, gamma, beta), tf.shape(x))


def drop(x: Any, rate: float, seed: Any) -> Any:
    """Apply dropout with 16 random bits per number. The rate is rounded to a multiple of 2⁻¹⁶.

    Args:
      x: numbers to apply dropout to, `[..., dim]`, of any float type. `dim` must be known and even.
      rate: share of numbers to set to 0, in (0, 1).
      seed: seed for TensorFlow's stateless random ops, int `[2]`.

    Returns:
      A tensor with the shape and dtype of `x`. The remaining numbers are divided by 1 − rate.
    """
    threshold = min(max(round(rate * 2**16), 1), 2**16 - 1)
    shape = tf.shape(x)
    half = tf.concat([shape[:-1], [x.shape[-1] // 2]], axis=0)
    words = tf.random.stateless_uniform(half, seed, minval=None, maxval=None, dtype=tf.uint32)
    is_kept = tf.reshape(tf.bitcast(words, tf.uint16), shape) >= tf.constant(threshold, tf.uint16)
    scale = tf.constant(1.0 / (1.0 - threshold / 2**16), x.dtype)
    return x * tf.where(is_kept, scale, tf.zeros([], x.dtype))


def dense_gradient(slices: tf.IndexedSlices, *, max_norm: float = 0.0) -> Any:
    """Sum the slices of an embedding table's gradient into a dense tensor.

    Slices for the same row are summed first, so that the norm is computed from only a few rows.

    Args:
      slices: gradient for a table `[rows, dim]`, with one slice for each time that a row was read.
      max_norm: maximum L2 norm. A gradient with a larger norm is scaled down to this norm. 0 means
        no limit.

    Returns:
      The dense gradient, `[rows, dim]`.
    """
    with tf.name_scope("table_gradient"):
        rows, row_of_slice = tf.unique(slices.indices)
        summed = tf.math.unsorted_segment_sum(slices.values, row_of_slice, tf.size(rows))
        if max_norm:
            norm = tf.sqrt(2.0 * tf.nn.l2_loss(tf.cast(summed, tf.float32)))
            summed *= tf.cast(max_norm / tf.maximum(norm, max_norm), summed.dtype)
        shape = tf.cast(slices.dense_shape, rows.dtype)
        return tf.scatter_nd(rows[:, None], summed, shape)


def in_one_pass(base: type) -> type:
    """Return an optimizer class that updates each variable with one op instead of about ten ops.

    Args:
      base: Keras's Adam, Adamax or Adadelta, or a subclass of one of these.

    Returns:
      A subclass of `base` with the same variables and formulas.
    """

    class InOnePass(base):  # type: ignore[misc, valid-type]
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            if tf.distribute.has_strategy() or isinstance(gradient, tf.IndexedSlices):
                super().update_step(gradient, variable, learning_rate)
                return
            index = self._get_variable_index(variable)
            arguments = {
                "var": variable.handle,
                "lr": tf.cast(learning_rate, variable.dtype),
                "epsilon": self.epsilon,
                "grad": tf.cast(gradient, variable.dtype),
            }

            def handle(variables: Any) -> Any:
                return variables[index].value.handle

            def power(beta: float) -> Any:
                step = tf.cast(self.iterations.value + 1, variable.dtype)
                return tf.pow(tf.constant(beta, variable.dtype), step)

            if isinstance(self, keras.optimizers.Adadelta):
                accumulators = {
                    "accum": handle(self._accumulated_grads),
                    "accum_update": handle(self._accumulated_delta_vars),
                }
                tf.raw_ops.ResourceApplyAdadelta(rho=self.rho, **accumulators, **arguments)
                return
            arguments |= {"beta1": self.beta_1, "beta2": self.beta_2}
            arguments["beta1_power"] = power(self.beta_1)
            if isinstance(self, keras.optimizers.Adamax):
                moments = {"m": handle(self._m), "v": handle(self._u)}
                tf.raw_ops.ResourceApplyAdaMax(**moments, **arguments)
            else:
                moments = {"m": handle(self._momentums), "v": handle(self._velocities)}
                arguments["beta2_power"] = power(self.beta_2)
                tf.raw_ops.ResourceApplyAdam(**moments, **arguments)

    InOnePass.__name__ = base.__name__
    return InOnePass
