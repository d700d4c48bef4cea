"""Encode a batch in micro-batches, with the memory of one micro-batch.

Only the encodings of a micro-batch are kept. The loss reads the encodings of the whole batch. For
the gradient, each micro-batch is encoded again with the same seeds, so dropout is the same.

Reference: arXiv 2101.06983 §3.2 (same loss and gradient as for the whole batch); arXiv
1604.06174 (recomputation instead of storage).
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops, tree

from convert_tf.models.encoder import DualEncoder


def is_in_micro_batches(inputs: dict[str, Any]) -> bool:
    """Return whether a packed batch has a second axis for micro-batches."""
    return len(inputs["token_ids"].shape) == 3


def encode_micro_batches(
    encoder: DualEncoder, inputs: dict[str, Any], *, training: bool = False
) -> dict[str, Any]:
    """Encode a batch in the memory of one micro-batch.

    Args:
      encoder: the dual encoder. Its own `call` encodes each micro-batch.
      inputs: the result of `packing.pack_micro_batches`: `token_ids` int32 `[rows, micro-batches,
        tokens]`, `segment_lengths` int32 `[rows, micro-batches, segments]`, and `…_slots` int32
        `[examples of a micro-batch, micro-batches]`, or `[examples of a micro-batch × k,
        micro-batches]`. Other entries are not encoded.
      training: whether to use dropout and update ranges.

    Returns:
      The encoder's outputs for all examples, `[batch, …]` or `[batch × k, …]`, in the order of the
      batch. Example e is in micro-batch e mod the number of micro-batches.
    """
    packed = {
        name: ops.swapaxes(value, 0, 1)
        for name, value in inputs.items()
        if name in ("token_ids", "segment_lengths") or name.endswith("_slots")
    }
    weights = {id(v) for v in encoder.weights}
    untrained = encoder.non_trainable_variables
    kinds = (
        encoder.trainable_variables,
        [v for v in untrained if id(v) not in weights],  # the seeds of dropout
        # The quantizer's range and counter, and layers that are not trained.
        [v for v in untrained if id(v) in weights],
    )
    trained, seeds, others = ([ops.convert_to_tensor(v) for v in kind] for kind in kinds)
    # TensorFlow refuses a custom gradient that depends on variables other than its arguments.
    others = [ops.stop_gradient(value) for value in others]

    def encode_part(of_trained: Any, inputs: Any) -> tuple[dict[str, Any], list[Any], list[Any]]:
        part, of_seeds = inputs
        variables = [v for kind in kinds for v in kind]
        values = [*of_trained, *of_seeds, *others]
        with keras.StatelessScope(list(zip(variables, values, strict=True))) as scope:
            outputs = encoder(part, training=training)
        after = [[scope.get_current_value(v) for v in kind] for kind in kinds[1:]]
        return outputs, *after

    # Of this encoding, only the seeds after the first micro-batch are computed. Each later
    # micro-batch starts with the seeds at which the one before ends. All start with the quantizer's
    # values from before the step, so that a step counts once.
    first = encode_part(trained, (tree.map_structure(lambda x: x[0], packed), seeds))
    numbers = ops.arange(ops.shape(packed["token_ids"])[0])[:, None]
    starts = [
        start + ops.cast(numbers, start.dtype) * (end - start)
        for start, end in zip(seeds, first[1], strict=True)
    ]
    if keras.backend.backend() == "tensorflow":
        encoded = _map_on_tensorflow(encode_part, trained, (packed, starts), like=first)
    else:
        encode_again = keras.remat(encode_part)
        encoded = ops.map(lambda inputs: encode_again(trained, inputs), (packed, starts))
    outputs, *after = encoded
    for variables, values in zip(kinds[1:], after, strict=True):
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value[-1])
    examples = ops.shape(packed["context_slots"])[1]
    return {name: _in_order(value, examples) for name, value in outputs.items()}


def _in_order(outputs: Any, examples: int) -> Any:
    """Restore the order of the batch: `[micro-batches, examples × k, …]` → `[batch × k, …]`."""
    parts, _, *rest = ops.shape(outputs)
    by_example = ops.reshape(outputs, (parts, examples, -1, *rest))
    return ops.reshape(ops.swapaxes(by_example, 0, 1), (-1, *rest))


def _map_on_tensorflow(
    encode_part: Callable[..., tuple[dict[str, Any], list[Any], list[Any]]],
    trained: list[Any],
    inputs: Any,
    *,
    like: Any,
) -> tuple[dict[str, Any], list[Any], list[Any]]:
    """Encode micro-batches one after the other, with a gradient that encodes them again.

    TensorFlow has no loop whose gradient recomputes.

    Args:
      encode_part: function of the values of the trained variables and the inputs of a micro-batch.
        Returns a dict of outputs, and two lists of values without a gradient. It must not read
        variables.
      trained: values of the trained variables, for which the gradient is computed.
      inputs: a structure of `[micro-batches, …]`.
      like: the results for one micro-batch. Only their shapes and types are used.

    Returns:
      The results, `[micro-batches, …]` each.
    """
    import tensorflow as tf

    # Parallel micro-batches would need memory for all of them.
    one_by_one = {"parallel_iterations": 1}
    signature = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), like)
    names = [name for name, value in like[0].items() if value.dtype.is_floating]
    results: Any = None

    def plus(total: Any, gradient: Any) -> Any:
        if gradient is None:
            return total
        if isinstance(gradient, tf.IndexedSlices):  # the gradient of a gathered table
            return tf.tensor_scatter_nd_add(total, gradient.indices[:, None], gradient.values)
        return total + gradient

    @tf.custom_gradient
    def encode(*trained: Any) -> Any:
        nonlocal results
        results = tf.map_fn(
            lambda inputs_of_part: encode_part(list(trained), inputs_of_part),
            inputs,
            fn_output_signature=signature,
            **one_by_one,
        )

        def add_gradients(sums: list[Any], part: Any) -> list[Any]:
            inputs_of_part, upstream = part
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                values = [tf.identity(value) for value in trained]
                tape.watch(values)
                outputs, *_ = encode_part(values, inputs_of_part)
                with_gradient = [outputs[name] for name in names]
            gradients = tape.gradient(with_gradient, values, output_gradients=upstream)
            return [plus(total, g) for total, g in zip(sums, gradients, strict=True)]

        def gradient(*upstream: Any) -> list[Any]:
            zeros = [tf.zeros_like(value) for value in trained]
            return tf.foldl(add_gradients, (inputs, list(upstream)), zeros, **one_by_one)

        return [results[0][name] for name in names], gradient

    # Keras gives variables, which tf.custom_gradient does not take.
    with_gradient = encode(*map(tf.convert_to_tensor, trained))
    outputs, *after = results
    return {**outputs, **dict(zip(names, with_gradient, strict=True))}, *after
