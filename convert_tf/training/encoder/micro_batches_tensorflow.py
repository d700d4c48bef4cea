"""Micro-batches on TensorFlow, whose loops have no gradient that recomputes."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def encode_parts(
    encode_part: Callable[..., Any], trained: list[Any], before: Any, packed: dict[str, Any]
) -> tuple[dict[str, Any], Any]:
    """Encode micro-batches one after the other. The gradient encodes them again.

    Args:
      encode_part: takes values of the variables that are trained, seeds, others, and one
        micro-batch; returns outputs, seeds and others. It must not read variables.
      trained: values of the trained variables, for which the gradient is computed.
      before: the `State` before the step.
      packed: `[micro-batches, …]` each.

    Returns:
      The outputs, `[micro-batches, …]` each, and the state after the last micro-batch.
    """
    # Keras gives variables, of which a gradient of one's own cannot be taken.
    trained, before = tf.nest.map_structure(tf.convert_to_tensor, (trained, before))
    count = tf.shape(packed["token_ids"])[0]
    kept: dict[str, Any] = {}

    @tf.custom_gradient
    def encode(*trained: Any) -> Any:
        outputs, starts, after = _forward(encode_part, list(trained), before, packed, count)
        is_trained = {name: value.dtype.is_floating for name, value in outputs.items()}
        names = [name for name in outputs if is_trained[name]]
        kept.update(
            names=names, after=after, others={n: v for n, v in outputs.items() if n not in names}
        )

        def gradient(*upstream: Any) -> list[Any]:
            by_name = dict(zip(names, upstream, strict=True))
            return _backward(encode_part, list(trained), starts, before.others, packed, by_name)

        return [outputs[name] for name in names], gradient

    outputs = encode(*trained)
    return {**dict(zip(kept["names"], outputs, strict=True)), **kept["others"]}, kept["after"]


def _part(packed: Any, index: Any) -> Any:
    return tf.nest.map_structure(lambda value: value[index], packed)


def _forward(
    encode_part: Callable[..., Any],
    trained: list[Any],
    before: Any,
    packed: dict[str, Any],
    count: Any,
) -> tuple[dict[str, Any], list[Any], Any]:
    """Return the outputs, the first seeds of each micro-batch, and the last state."""
    arguments = (trained, before.seeds, before.others, _part(packed, 0))
    # Traced here, for what the outputs are, and called in the loop.
    one = tf.function(encode_part, autograph=False).get_concrete_function(
        *tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), arguments)
    )
    specs = one.structured_outputs[0]

    def arrays(of: Any) -> Any:
        return tf.nest.map_structure(
            lambda x: tf.TensorArray(x.dtype, size=count, element_shape=x.shape), of
        )

    def write(arrays: Any, index: Any, values: Any) -> Any:
        return tf.nest.map_structure(lambda array, x: array.write(index, x), arrays, values)

    def body(index: Any, state: Any, starts: Any, outputs: Any) -> tuple[Any, ...]:
        values, seeds, others = one(trained, state.seeds, before.others, _part(packed, index))
        return (
            index + 1,
            before._replace(seeds=seeds, others=others),
            write(starts, index, state.seeds),
            write(outputs, index, values),
        )

    _, after, starts, outputs = tf.while_loop(
        lambda index, *_: index < count,
        body,
        (0, before, arrays(before.seeds), arrays(specs)),
        parallel_iterations=1,  # several at once would need the memory of several
    )
    starts, outputs = tf.nest.map_structure(lambda array: array.stack(), (starts, outputs))
    return outputs, starts, after


def _backward(
    encode_part: Callable[..., Any],
    trained: list[Any],
    starts: list[Any],
    others: list[Any],
    packed: dict[str, Any],
    upstream: dict[str, Any],
) -> list[Any]:
    """Return the sum of the gradients of all micro-batches with respect to `trained`."""

    def body(index: Any, sums: list[Any]) -> tuple[Any, list[Any]]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            own = [tf.identity(value) for value in trained]
            tape.watch(own)
            seeds = [start[index] for start in starts]
            outputs, *_ = encode_part(own, seeds, others, _part(packed, index))
            of_outputs = [outputs[name] for name in upstream]
        gradients = tape.gradient(
            of_outputs, own, output_gradients=[value[index] for value in upstream.values()]
        )
        return index + 1, [_add(total, g) for total, g in zip(sums, gradients, strict=True)]

    zeros = [tf.zeros_like(value) for value in trained]
    count = tf.shape(packed["token_ids"])[0]
    _, sums = tf.while_loop(lambda index, _: index < count, body, (0, zeros), parallel_iterations=1)
    return sums


def _add(total: Any, gradient: Any) -> Any:
    if gradient is None:
        return total
    if isinstance(gradient, tf.IndexedSlices):  # of a gathered table
        return tf.tensor_scatter_nd_add(total, gradient.indices[:, None], gradient.values)
    return total + gradient
