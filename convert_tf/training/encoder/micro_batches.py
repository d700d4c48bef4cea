"""Encode a batch in micro-batches, which needs the memory of one micro-batch.

Only the encodings of a micro-batch are kept. The loss reads the encodings of the whole batch. For
the gradient, each micro-batch is encoded again with the same seeds, so dropout is the same.

Reference: arXiv 2101.06983 §3.2 (same loss and gradient as for the whole batch); arXiv
1604.06174 (recomputation instead of storage).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from convert_tf.models.encoder import DualEncoder


class State(NamedTuple):
    """Values of untrained variables that change when a micro-batch is encoded.

    Attributes:
      seeds: seeds of dropout. Each micro-batch starts where the one before ended.
      others: the quantizer's range and counter. Each micro-batch starts from the values before the
        step, so that a step counts once.
    """

    seeds: list[Any]
    others: list[Any]


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
      The encoder's outputs of all examples, `[batch, …]` or `[batch × k, …]`, in the order of the
      batch. Example e is in micro-batch e mod the number of micro-batches.
    """
    packed = {
        name: ops.swapaxes(value, 0, 1)
        for name, value in inputs.items()
        if name in ("token_ids", "segment_lengths") or name.endswith("_slots")
    }
    weights = {id(v) for v in encoder.weights}
    trained = encoder.trainable_variables
    seeds = [v for v in encoder.non_trainable_variables if id(v) not in weights]
    others = [v for v in encoder.non_trainable_variables if id(v) in weights]

    def encode_part(
        of_trained: list[Any], of_seeds: list[Any], of_others: list[Any], part: dict[str, Any]
    ) -> tuple[dict[str, Any], list[Any], list[Any]]:
        variables = [*trained, *seeds, *others]
        values = [*of_trained, *of_seeds, *of_others]
        with keras.StatelessScope(list(zip(variables, values, strict=True))) as scope:
            outputs = encoder(part, training=training)
        after = [[scope.get_current_value(v) for v in own] for own in (seeds, others)]
        return outputs, *after

    if keras.backend.backend() == "tensorflow":
        from convert_tf.training.encoder.micro_batches_tensorflow import encode_parts
    else:
        encode_parts = _scan_parts
    trained_values, *before = ([ops.convert_to_tensor(v) for v in own]
                               for own in (trained, seeds, others))  # fmt: skip
    outputs, after = encode_parts(encode_part, trained_values, State(*before), packed)
    for own, values in zip((seeds, others), after, strict=True):
        for variable, value in zip(own, values, strict=True):
            variable.assign(value)
    examples = ops.shape(packed["context_slots"])[1]
    return {name: _in_order(value, examples) for name, value in outputs.items()}


def _in_order(outputs: Any, examples: int) -> Any:
    """`[micro-batches, examples × k, …]` → `[batch × k, …]`."""
    parts, _, *rest = ops.shape(outputs)
    by_example = ops.reshape(outputs, (parts, examples, -1, *rest))
    return ops.reshape(ops.swapaxes(by_example, 0, 1), (-1, *rest))


def _scan_parts(
    encode_part: Callable[..., Any], trained: list[Any], before: State, packed: dict[str, Any]
) -> tuple[dict[str, Any], State]:
    """Return the outputs `[micro-batches, …]` and the last state, if a scan has a gradient."""
    encode_again = keras.remat(encode_part)

    def encode(state: State, part: dict[str, Any]) -> tuple[State, dict[str, Any]]:
        outputs, *after = encode_again(trained, state.seeds, before.others, part)
        return State(*after), outputs

    after, outputs = ops.scan(encode, before, packed)
    return outputs, after
