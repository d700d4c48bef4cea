"""Encodings of texts beside a teacher's vectors of the same, to which maps are fitted."""

from collections.abc import Iterator, Sequence

import numpy as np
from keras import ops

from convert_tf.data.batches import EvaluationBatches, Examples
from convert_tf.data.packing import ROW_MULTIPLE
from convert_tf.data.teacher_vectors import TeacherVectors, taught_names
from convert_tf.models.encoder import DualEncoder
from convert_tf.numerics.devices import compiles_shapes

_SIDES = ("context", "response")


def taught_texts(
    encoder: DualEncoder,
    examples: Examples,
    teacher: TeacherVectors,
    *,
    row_tokens: int,
    max_examples: int | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """r of the texts of examples, and the teacher's vectors of them, batch by batch.

    Args:
      encoder: the model.
      examples: contexts and responses, or single texts.
      teacher: vectors of these.
      row_tokens: of a packed row.
      max_examples: only so many of the first examples; None for all.

    Yields:
      float32 `[n, batch, reduced_dim]` and `[n, batch, teacher_dim]`, where n is 2 for contexts and
      responses, 1 for single texts.
    """
    batches = EvaluationBatches(
        examples,
        max_examples=max_examples or examples.num_examples,
        row_tokens=row_tokens,
        row_multiple=ROW_MULTIPLE if compiles_shapes() else 1,
    )
    names = taught_names(examples)
    numbers = examples.load(np.array([0]), np.array([batches.num_examples]))
    for batch, start in zip(batches, range(0, len(numbers), batches.batch_size), strict=True):
        outputs = encoder.predict_on_batch(_as_pairs(batch, names, encoder))
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
