"""A teacher's vectors of a split, written chunk by chunk, where an earlier call may have begun."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from convert_tf.data.teacher_vectors import DTYPE, taught_names, vectors_file
from convert_tf.data.token_arrays import ArrayExamples
from convert_tf.storage.progress import Progress
from convert_tf.training.teacher import Encode, JoinedTeachers
from convert_tf.training.texts_to_teach import CHUNK, ReadTexts, first_places


class TaughtSplit(NamedTuple):
    """The examples of a split that get vectors.

    Attributes:
      examples: all of the split.
      read: the texts of those of `numbers`, the first of which is number 0.
      numbers: int64 `[taught]`, rising.
      is_alone: bool `[taught]`, whether the first of joined teachers is the teacher.
      facts: of `teacher.json`.
    """

    examples: ArrayExamples
    read: ReadTexts
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
    first_of = first_places(own.read, width, own.is_alone, across_columns=is_one)
    # By which of a side's teachers, all joined or the first alone, and of which side.
    encoders = np.repeat(own.is_alone, width) * width
    if not is_one:
        encoders += np.tile(np.arange(width), wanted)
    left = first_of[width * start :] >= np.arange(width * start, width * wanted)
    with Progress("different texts", total=int(left.sum())) as progress:
        for texts in own.read(start):
            stop = start + len(texts[0])
            places = np.arange(width * start, width * stop)
            first = first_of[width * start : width * stop]
            new = places[first == places]
            # All of one teacher at once: the more texts, the more of them have like lengths.
            for encoder in np.unique(encoders[new]).tolist():
                some = new[encoders[new] == encoder]
                vectors = _encoded(
                    of_side[names[encoder % width]],
                    [
                        texts[i % width][i // width - start].decode("utf-8", "replace")
                        for i in some.tolist()
                    ],
                    first_alone=encoder >= width,
                    dim=dim,
                )
                for kind, array in enumerate(arrays):
                    is_kind = some % width == kind
                    array[own.numbers[some[is_kind] // width]] = vectors[is_kind]
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
            start = stop
            note(stop)


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
