"""Encoding a batch part by part, so that memory holds what one part needs and not the whole batch.

Nothing of a part is kept but its encodings. The loss reads those of the whole batch; for the
gradient each part is encoded once more, from the seeds that it had before, so that dropout drops
the same.

Reference: arXiv 2101.06983 §3.2 (the same loss and gradient as of the whole batch); arXiv
1604.06174 (computing again in place of keeping).
"""

from typing import Any

import keras
from keras import ops

from convert_tf.models.encoder import DualEncoder
from convert_tf.training.encoder.micro_batch_state import EncodePart, State


def is_in_micro_batches(inputs: dict[str, Any]) -> bool:
    """Whether a packed batch has its second axis, that of the micro-batches."""
    return len(inputs["token_ids"].shape) == 3


def encode_micro_batches(
    encoder: DualEncoder, inputs: dict[str, Any], *, training: bool = False
) -> dict[str, Any]:
    """What the encoder returns for a batch, in the memory that one micro-batch takes.

    Args:
      encoder: the dual encoder. Its own `call` encodes each micro-batch.
      inputs: what `packing.pack_micro_batches` makes: `token_ids` int32 `[rows, micro-batches,
        tokens]`, `segment_lengths` int32 `[rows, micro-batches, segments]`, and `…_slots` int32
        `[examples of a micro-batch, micro-batches]`, or `[examples of a micro-batch × k,
        micro-batches]`. What has other names is not encoded.
      training: whether dropout and range updates are on.

    Returns:
      The encoder's outputs of all examples, `[batch, …]` or `[batch × k, …]`, in the order of the
      batch: example e is in micro-batch e mod their number.
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
    encode_part: EncodePart, trained: list[Any], before: State, packed: dict[str, Any]
) -> tuple[dict[str, Any], State]:
    """Outputs `[micro-batches, …]` and the state after the last, where a scan has a gradient."""
    encode_again = keras.remat(encode_part)

    def encode(state: State, part: dict[str, Any]) -> tuple[State, dict[str, Any]]:
        outputs, *after = encode_again(trained, state.seeds, before.others, part)
        return State(*after), outputs

    after, outputs = ops.scan(encode, before, packed)
    return outputs, after
