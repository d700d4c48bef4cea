"""Micro-batches on TensorFlow, whose loops have no gradient that recomputes."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def map_parts(
    encode_part: Callable[..., tuple[dict[str, Any], list[Any], list[Any]]],
    trained: list[Any],
    inputs: Any,
    *,
    like: Any,
) -> tuple[dict[str, Any], list[Any], list[Any]]:
    """Encode micro-batches one after the other. The gradient encodes them again.

    Args:
      encode_part: takes values of the variables that are trained, and the inputs of a micro-batch;
        returns a dict of outputs, and two lists of values without a gradient. It must not read
        variables.
      trained: values of the trained variables, for which the gradient is computed.
      inputs: a structure of `[micro-batches, …]`.
      like: the results for a micro-batch, of which shapes and types are read.

    Returns:
      The results, `[micro-batches, …]` each.
    """
    # Several at once would need the memory of several.
    one_by_one = {"parallel_iterations": 1}
    signature = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), like)
    names = [name for name, value in like[0].items() if value.dtype.is_floating]
    others: Any = None

    @tf.custom_gradient
    def encode(*trained: Any) -> Any:
        nonlocal others
        others = tf.map_fn(
            lambda own: encode_part(list(trained), own),
            inputs,
            fn_output_signature=signature,
            **one_by_one,
        )

        def add(sums: list[Any], own: Any) -> list[Any]:
            inputs_of_part, upstream = own
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                values = [tf.identity(value) for value in trained]
                tape.watch(values)
                outputs, *_ = encode_part(values, inputs_of_part)
                with_gradient = [outputs[name] for name in names]
            gradients = tape.gradient(with_gradient, values, output_gradients=upstream)
            return [_sum(total, g) for total, g in zip(sums, gradients, strict=True)]

        def gradient(*upstream: Any) -> list[Any]:
            zeros = [tf.zeros_like(value) for value in trained]
            return tf.foldl(add, (inputs, list(upstream)), zeros, **one_by_one)

        return [others[0][name] for name in names], gradient

    # Keras gives variables, of which a gradient of one's own cannot be taken.
    with_gradient = encode(*map(tf.convert_to_tensor, trained))
    outputs, *after = others
    return {**outputs, **dict(zip(names, with_gradient, strict=True))}, *after


def _sum(total: Any, gradient: Any) -> Any:
    if gradient is None:
        return total
    if isinstance(gradient, tf.IndexedSlices):  # of a gathered table
        return tf.tensor_scatter_nd_add(total, gradient.indices[:, None], gradient.values)
    return total + gradient
