"""A teacher's vectors of a split, written chunk by chunk, where an earlier call may have begun."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from convert_tf.data.packing import join_texts
from convert_tf.data.prefetch import in_order
from convert_tf.data.teacher_vectors import DTYPE, taught_names, vectors_file
from convert_tf.data.token_arrays import ArrayExamples
from convert_tf.storage.progress import Progress
from convert_tf.training.teacher import Encode, JoinedTeachers, calls_at_once
from convert_tf.training.texts_to_teach import CHUNK, StoredTexts, first_places


class TaughtSplit(NamedTuple):
    """The examples of a split that get vectors.

    Attributes:
      examples: all of the split.
      texts: reads their token ids.
      numbers: int64 `[taught]`, rising.
      is_alone: bool `[taught]`, whether the first of joined teachers is the teacher.
      facts: of `teacher.json`.
    """

    examples: ArrayExamples
    texts: StoredTexts
    numbers: np.ndarray
    is_alone: np.ndarray
    facts: dict[str, Any]


def write_split(
    split: str,
    own: TaughtSplit,
    work: Path,
    of_side: Mapping[str, Encode],
    *,
    dim: int,
    start: int,
    note: Callable[[int], None],
) -> None:
    """Writes the vectors of a split, zeros where an example gets none.

    Args:
      split: its name.
      own: what gets vectors.
      work: folder of the files; those that an earlier call began are in it.
      of_side: what encodes texts, by the names of `taught_names`.
      dim: width of the vectors.
      start: how many of `own.numbers` an earlier call wrote, which may have wanted more.
      note: is told how many of them are written, behind each chunk.
    """
    arrays = [
        np.lib.format.open_memmap(
            work / vectors_file(split, name),
            mode="r+" if start else "w+",
            dtype=DTYPE,
            shape=(own.examples.num_examples, dim),
        )
        for name in taught_names(own.examples)
    ]
    if start < len(own.numbers):
        _encode(own, arrays, of_side, dim=dim, start=start, note=note)
    else:
        note(len(own.numbers))
    if start:
        for array in arrays:
            _clear_others(array, own.numbers)


def _encode(
    own: TaughtSplit,
    arrays: list[np.memmap],
    of_side: Mapping[str, Encode],
    *,
    dim: int,
    start: int,
    note: Callable[[int], None],
) -> None:
    wanted, names = len(own.numbers), taught_names(own.examples)
    width = len(names)
    is_one = len({id(of_side[name]) for name in names}) == 1
    first_of = first_places(own.examples, names, own.numbers, own.is_alone, across_columns=is_one)
    # By which of a side's teachers, all joined or the first alone, and of which side.
    encoders = np.repeat(own.is_alone, width) * width
    if not is_one:
        encoders += np.tile(np.arange(width), wanted)

    def encoded(chunk: range) -> tuple[range, np.ndarray, np.ndarray]:
        """The places of a chunk whose texts come for the first time, and the texts' vectors."""
        places = np.arange(width * chunk.start, width * chunk.stop)
        new = places[first_of[places] == places]
        rows = own.numbers[chunk.start : chunk.stop]
        ids = join_texts([own.examples.texts(name, rows) for name in names])
        texts = own.texts(ids)
        vectors = np.empty((len(new), dim), DTYPE)
        # All of one teacher at once: the more texts, the more of them have like lengths.
        for encoder in np.unique(encoders[new]).tolist():
            some = encoders[new] == encoder
            vectors[some] = _encoded(
                of_side[names[encoder % width]],
                [
                    texts[i % width * len(chunk) + i // width - chunk.start]
                    for i in new[some].tolist()
                ],
                first_alone=encoder >= width,
                dim=dim,
            )
        return chunk, new, vectors

    left = first_of[width * start :] >= np.arange(width * start, width * wanted)
    chunks = (range(i, min(i + CHUNK, wanted)) for i in range(start, wanted, CHUNK))
    with Progress("different texts", total=int(left.sum())) as progress:
        for chunk, new, vectors in in_order(encoded, chunks, at_once=calls_at_once()):
            for kind, array in enumerate(arrays):
                is_kind = new % width == kind
                array[own.numbers[new[is_kind] // width]] = vectors[is_kind]
            places = np.arange(width * chunk.start, width * chunk.stop)
            first = first_of[places]
            for kind, array in enumerate(arrays):
                for first_kind, other in enumerate(arrays):
                    known = (
                        (first < places) & (places % width == kind) & (first % width == first_kind)
                    )
                    rows = own.numbers[places[known] // width]
                    array[rows] = other[own.numbers[first[known] // width]]
            for array in arrays:
                array.flush()
            progress.add(len(new))
            note(chunk.stop)


def _encoded(teacher: Encode, texts: list[str], *, first_alone: bool, dim: int) -> np.ndarray:
    """A teacher's vectors `[texts, dim]`, or those of the first of its teachers and then zeros."""
    if not first_alone:
        return np.asarray(teacher(texts))
    assert isinstance(teacher, JoinedTeachers)
    vectors = np.asarray(teacher.teachers[0](texts))
    return np.pad(vectors, ((0, 0), (0, dim - vectors.shape[1])))


def _clear_others(array: np.memmap, numbers: np.ndarray) -> None:
    """Zeros in all rows but `numbers`: an earlier call wanted more, or was killed in a chunk."""
    is_other = np.ones(len(array), bool)
    is_other[numbers] = False
    for start in range(0, len(array), CHUNK):
        rows = start + np.flatnonzero(is_other[start : start + CHUNK])
        if array[rows].any():  # the file is sparse, and stays so
            array[rows] = 0
    array.flush()
