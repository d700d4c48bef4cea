"""Encode a batch in micro-batches, so that it needs only as much memory as one micro-batch.

After a micro-batch has been encoded, only its encodings are kept. The loss reads the encodings of
the whole batch. For the gradient, each micro-batch is encoded again with the same seeds, so that
dropout drops the same values.

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
    """Encode a batch, using only as much memory as one micro-batch needs.

    Args:
      encoder: the dual encoder.
      inputs: a batch from `packing.pack_micro_batches`. It has `token_ids`, int32 `[rows,
        micro-batches, tokens]`, `segment_lengths`, int32 `[rows, micro-batches, segments]`, and
        `…_slots`, int32 `[n, micro-batches]`, where n is the number of texts of this kind in a
        micro-batch. Other entries are ignored.
      training: whether to apply dropout and update the quantizer's ranges.

    Returns:
      A dict of the encoder's outputs for all examples, in the order of the batch: `[batch, …]`, or
      `[batch × k, …]` for a kind of text that occurs k times per example.
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
        [v for v in untrained if id(v) not in weights],  # seeds for dropout
        # Range and counter of the quantizer, and weights of frozen layers.
        [v for v in untrained if id(v) in weights],
    )
    trained, seeds, others = ([ops.convert_to_tensor(v) for v in kind] for kind in kinds)
    # TensorFlow rejects a custom gradient that depends on variables which are not arguments.
    others = [ops.stop_gradient(value) for value in others]

    def encode_part(of_trained: Any, inputs: Any) -> tuple[dict[str, Any], list[Any], list[Any]]:
        part, of_seeds = inputs
        variables = [v for kind in kinds for v in kind]
        values = [*of_trained, *of_seeds, *others]
        with keras.StatelessScope(list(zip(variables, values, strict=True))) as scope:
            outputs = encoder(part, training=training)
        after = [[scope.get_current_value(v) for v in kind] for kind in kinds[1:]]
        return outputs, *after

    # This encoding of the first micro-batch only shows how the seeds change. Each later micro-batch
    # starts with the seeds that the previous one leaves behind. But all micro-batches start with
    # the quantizer's values from before the step, so that the step is counted only once.
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
    """Put the outputs of all micro-batches in the order of the batch.

    The result is `[batch × k, …]` for outputs `[micro-batches, examples × k, …]` with k texts per
    example.
    """
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
    """Encode micro-batches one after another, with a gradient that encodes them again.

    TensorFlow has no built-in loop whose gradient recomputes the forward pass.

    Args:
      encode_part: function that encodes one micro-batch, given the values of the trained variables
        and the inputs of the micro-batch. It returns a dict of outputs, and two lists of values
        that have no gradient. It must not read variables.
      trained: values of the trained variables, for which the gradient is computed.
      inputs: inputs of all micro-batches, a nested structure of tensors `[micro-batches, …]`.
      like: results for one micro-batch. Only their shapes and dtypes are used.

    Returns:
      The results of `encode_part`, stacked to `[micro-batches, …]`.
    """
    import tensorflow as tf

    # Encoding micro-batches in parallel would need the memory of all of them.
    one_by_one = {"parallel_iterations": 1}
    signature = tf.nest.map_structure(lambda x: tf.TensorSpec(x.shape, x.dtype), like)
    names = [name for name, value in like[0].items() if value.dtype.is_floating]
    results: Any = None

    def plus(total: Any, gradient: Any) -> Any:
        if gradient is None:
            return total
        if isinstance(gradient, tf.IndexedSlices):  # the gradient of an embedding table
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

    # Keras may pass variables, which tf.custom_gradient does not accept.
    with_gradient = encode(*map(tf.convert_to_tensor, trained))
    outputs, *after = results
    return {**outputs, **dict(zip(names, with_gradient, strict=True))}, *after
