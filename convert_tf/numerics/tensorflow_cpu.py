"""Parts of a training step in few passes over memory, for TensorFlow's CPU.

There each op reads and writes all of its arrays, and beside the matmuls this is what a step costs.
Elsewhere a compiler joins the ops, and the plain formulas in `convert_tf.layers` are what runs.
What a saved module holds is not from here either.
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
    """`silu(x · hidden_kernel + hidden_bias) · output_kernel + output_bias`.

    silu' = σ + silu·(1 − σ). TensorFlow computes σ of 16-bit numbers one by one, and of float32
    eight or sixteen at a time; it has the derivative in six passes, this in four, and XLA in one.

    Args:
      x: `[tokens, dim]`.
      hidden_kernel: `[dim, hidden_dim]`.
      hidden_bias: `[hidden_dim]`.
      output_kernel: `[hidden_dim, dim]`.
      output_bias: `[dim]`.
      is_compiled: whether what is no matmul is compiled by XLA, anew for each number of tokens.

    Returns:
      `[tokens, dim]`.
    """
    # A custom gradient is of tensors: in float32 Keras hands the variables themselves over.
    arguments = (x, hidden_kernel, hidden_bias, output_kernel, output_bias)
    compute = _compiled_feed_forward if is_compiled else _feed_forward
    return compute(*(tf.convert_to_tensor(each) for each in arguments))


@tf.custom_gradient
def _feed_forward(
    x: Any, hidden_kernel: Any, hidden_bias: Any, output_kernel: Any, output_bias: Any
) -> Any:
    before = tf.nn.bias_add(tf.matmul(x, hidden_kernel), hidden_bias)
    hidden = tf.nn.silu(before)
    result = tf.nn.bias_add(tf.matmul(hidden, output_kernel), output_bias)

    def gradient(upstream: Any) -> tuple[Any, ...]:
        with tf.name_scope("feed_forward_gradient"):  # by which a profile tells its ops
            of_hidden = tf.matmul(upstream, output_kernel, transpose_b=True)
            sigmoid = tf.cast(tf.sigmoid(tf.cast(before, tf.float32)), x.dtype)
            of_before = of_hidden * (sigmoid + hidden * (1.0 - sigmoid))
            return _feed_forward_gradients(x, hidden_kernel, hidden, of_before, upstream)

    return result, gradient


@tf.custom_gradient
def _compiled_feed_forward(
    x: Any, hidden_kernel: Any, hidden_bias: Any, output_kernel: Any, output_bias: Any
) -> Any:
    product = tf.matmul(x, hidden_kernel)
    hidden = _silu(product, hidden_bias)
    result = tf.nn.bias_add(tf.matmul(hidden, output_kernel), output_bias)

    def gradient(upstream: Any) -> tuple[Any, ...]:
        with tf.name_scope("feed_forward_gradient"):
            of_hidden = tf.matmul(upstream, output_kernel, transpose_b=True)
            of_before = _silu_gradient(product, hidden_bias, of_hidden)
            return _feed_forward_gradients(x, hidden_kernel, hidden, of_before, upstream)

    return result, gradient


@tf.function(jit_compile=True)
def _silu(product: Any, bias: Any) -> Any:
    before = tf.cast(product + bias, tf.float32)
    return tf.cast(before * tf.sigmoid(before), product.dtype)


@tf.function(jit_compile=True)
def _silu_gradient(product: Any, bias: Any, upstream: Any) -> Any:
    before = tf.cast(product + bias, tf.float32)
    sigmoid = tf.sigmoid(before)
    slope = sigmoid * (1.0 + before * (1.0 - sigmoid))
    return tf.cast(tf.cast(upstream, tf.float32) * slope, upstream.dtype)


def _feed_forward_gradients(
    x: Any, hidden_kernel: Any, hidden: Any, of_before: Any, upstream: Any
) -> tuple[Any, ...]:
    return (
        tf.matmul(of_before, hidden_kernel, transpose_b=True),
        tf.matmul(x, of_before, transpose_a=True),
        tf.raw_ops.BiasAddGrad(out_backprop=of_before),
        tf.matmul(hidden, upstream, transpose_a=True),
        tf.raw_ops.BiasAddGrad(out_backprop=upstream),
    )


def layer_norm(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """Layer norm over the last axis; sums over tokens and over `dim` of its gradient are matmuls.

    With n the normalised x, g the upstream gradient, r one over the standard deviation and the
    means over `dim`: dx = r·(g·γ − mean(g·γ) − n·mean(g·γ·n)).

    Args:
      x: `[..., dim]` of any float type.
      gamma, beta: float32 `[dim]`.
      epsilon: what is added to the variance.

    Returns:
      Tensor like `x`.

    Reference: arXiv 1607.06450 §3.
    """
    gamma, beta = tf.convert_to_tensor(gamma), tf.convert_to_tensor(beta)
    flat = tf.reshape(x, [-1, x.shape[-1]])

    @tf.custom_gradient
    def normalise(x: Any, gamma: Any, beta: Any) -> Any:
        wide = tf.cast(x, tf.float32)
        centred = wide - tf.reduce_mean(wide, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        scale = tf.math.rsqrt(variance + epsilon)
        normal = centred * scale

        def gradient(upstream: Any) -> tuple[Any, Any, Any]:
            with tf.name_scope("layer_norm_gradient"):
                upstream = tf.cast(upstream, tf.float32)
                product = upstream * normal
                ones = tf.ones([1, tf.shape(upstream)[0]])
                share = gamma[:, None] / gamma.shape[0]
                along = scale * tf.matmul(upstream, share)
                of_x = (upstream * gamma - normal * tf.matmul(product, share)) * scale - along
                of_gamma = tf.matmul(ones, product)[0]
                return tf.cast(of_x, x.dtype), of_gamma, tf.matmul(ones, upstream)[0]

        return tf.cast(normal * gamma + beta, x.dtype), gradient

    return tf.reshape(normalise(flat, gamma, beta), tf.shape(x))


def drop(x: Any, rate: float, seed: Any) -> Any:
    """Dropout from 16 random bits for each number: the rate is rounded to a multiple of 2⁻¹⁶.

    Args:
      x: `[..., dim]` of any float type; `dim` is known and even.
      rate: share that becomes 0, in (0, 1).
      seed: int `[2]`.

    Returns:
      Tensor like `x`; what is not 0 is divided by one minus the rate.
    """
    threshold = min(max(round(rate * 2**16), 1), 2**16 - 1)
    shape = tf.shape(x)
    words = tf.random.stateless_uniform(
        tf.concat([shape[:-1], [x.shape[-1] // 2]], axis=0),
        seed,
        minval=None,
        maxval=None,
        dtype=tf.uint32,
    )
    is_kept = tf.reshape(tf.bitcast(words, tf.uint16), shape) >= tf.constant(threshold, tf.uint16)
    scale = tf.constant(1.0 / (1.0 - threshold / 2**16), x.dtype)
    return x * tf.where(is_kept, scale, tf.zeros([], x.dtype))


def dense_gradient(slices: tf.IndexedSlices, *, max_norm: float = 0.0) -> Any:
    """The gradient of a gathered table from its slices, one for each time that a row was read.

    Rows are summed before the table is filled with zeros, so that the norm reads a few of them.

    Args:
      slices: of a table `[rows, dim]`.
      max_norm: the gradient's largest L2 norm, above which it is scaled down; 0 for none.

    Returns:
      `[rows, dim]`.
    """
    with tf.name_scope("table_gradient"):
        rows, places = tf.unique(slices.indices)
        summed = tf.math.unsorted_segment_sum(slices.values, places, tf.size(rows))
        if max_norm:
            norm = tf.sqrt(2.0 * tf.nn.l2_loss(tf.cast(summed, tf.float32)))
            summed *= tf.cast(max_norm / tf.maximum(norm, max_norm), summed.dtype)
        shape = tf.cast(slices.dense_shape, rows.dtype)
        return tf.scatter_nd(rows[:, None], summed, shape)


def in_one_pass(base: type) -> type:
    """An optimizer class that updates each variable in one op, in place of the ten of Keras.

    Args:
      base: a subclass of Keras's Adam, Adamax or Adadelta, whose formulas those ops have.

    Returns:
      A subclass of it with the same variables.
    """

    class InOnePass(base):  # type: ignore[misc, valid-type]
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            if tf.distribute.has_strategy() or isinstance(gradient, tf.IndexedSlices):
                super().update_step(gradient, variable, learning_rate)
                return
            index = self._get_variable_index(variable)
            common = {
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
                tf.raw_ops.ResourceApplyAdadelta(
                    accum=handle(self._accumulated_grads),
                    accum_update=handle(self._accumulated_delta_vars),
                    rho=self.rho,
                    **common,
                )
            elif isinstance(self, keras.optimizers.Adamax):
                tf.raw_ops.ResourceApplyAdaMax(
                    m=handle(self._m),
                    v=handle(self._u),
                    beta1_power=power(self.beta_1),
                    beta1=self.beta_1,
                    beta2=self.beta_2,
                    **common,
                )
            else:
                tf.raw_ops.ResourceApplyAdam(
                    m=handle(self._momentums),
                    v=handle(self._velocities),
                    beta1_power=power(self.beta_1),
                    beta2_power=power(self.beta_2),
                    beta1=self.beta_1,
                    beta2=self.beta_2,
                    **common,
                )

    InOnePass.__name__ = base.__name__
    return InOnePass
