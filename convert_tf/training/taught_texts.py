"""Encodings of texts beside a teacher's vectors of the same, to which maps are fitted."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from keras import ops

from convert_tf.data.batches import EvaluationBatches
from convert_tf.data.teacher_vectors import TeacherVectors, taught_names
from convert_tf.models.encoder import DualEncoder

_SIDES = ("context", "response")


def taught_texts(
    encoder: DualEncoder,
    batches: EvaluationBatches,
    teacher: TeacherVectors,
    *,
    encode: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """r of the texts of examples, and the teacher's vectors of them, batch by batch.

    Args:
      encoder: the model.
      batches: of contexts and responses, or of single texts.
      teacher: vectors of these.
      encode: a packed batch → what `DualEncoder` returns; None for `predict_on_batch`.

    Yields:
      float32 `[n, batch, reduced_dim]` and `[n, batch, teacher_dim]`, where n is 2 for contexts and
      responses, 1 for single texts.
    """
    encode = encode or encoder.predict_on_batch
    names = taught_names(batches.examples)
    numbers = batches.examples.load(np.array([0]), np.array([batches.num_examples]))
    for batch, start in zip(batches, range(0, len(numbers), batches.batch_size), strict=True):
        outputs = encode(_as_pairs(batch, names, encoder))
        columns = teacher.columns(numbers[start : start + batches.batch_size])
        reduced = [ops.cast(outputs[f"reduced_{name}"], "float32") for name in _SIDES[: len(names)]]
        yield (
            np.stack([ops.convert_to_numpy(own) for own in reduced]),
            np.stack([columns[f"teacher_{name}"] for name in names]).astype(np.float32),
        )


def _as_pairs(
    batch: dict[str, np.ndarray], names: Sequence[str], encoder: DualEncoder
) -> dict[str, np.ndarray]:
    """A packed batch with all that the encoder takes: single texts on both sides, no history."""
    own = [batch[f"{name}_slots"] for name in names]
    slots = {"context_slots": own[0], "response_slots": own[-1]}
    if encoder.config.multi_context:
        slots["extra_context_slots"] = own[0]
    return {name: batch[name] for name in ("token_ids", "segment_lengths")} | slots
