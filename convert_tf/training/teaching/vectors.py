"""Write a teacher's vectors of training texts.

`convert_tf.data.teacher_vectors` describes the files of the folder.
"""

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from convert_tf.data.packing import join_texts
from convert_tf.data.prefetch import in_order
from convert_tf.data.schema import PAIR
from convert_tf.data.teacher_vectors import (
    DTYPE,
    FACTS_FILE,
    FORMAT_VERSION,
    SUBWORDS_FILE,
    taught_names,
    vectors_file,
)
from convert_tf.data.token_arrays import ArrayExamples, ArrayFolder
from convert_tf.storage.arrays import load_array
from convert_tf.storage.files import only_writer, write_file
from convert_tf.storage.json_text import parsed_json, written_json
from convert_tf.storage.progress import Progress
from convert_tf.training.teaching.teacher import Encode, JoinedTeachers, calls_at_once
from convert_tf.training.teaching.texts import CHUNK, StoredTexts, first_places

_DONE_FILE = "done.json"
_EVERY_SUBWORD = 64  # by which the teacher of an earlier run is known again
_SAME_VECTORS = 0.02  # in a value; in bfloat16 they are not the same everywhere
_WORK_VERSION = 5  # up to 4 another number of examples could be wanted


class TaughtSplit(NamedTuple):
    """The examples of a split that get vectors.

    Attributes:
      examples: all examples of the split.
      texts: restores texts from their token ids.
      numbers: int64 `[taught]`, in ascending order.
      is_alone: bool `[taught]`, whether only the first of joined teachers is used.
      facts: for `teacher.json`.
    """

    examples: ArrayExamples
    texts: StoredTexts
    numbers: np.ndarray
    is_alone: np.ndarray
    facts: dict[str, Any]


def write_teacher_vectors(
    token_ids: str,
    output: str,
    *,
    teacher: Encode | Mapping[str, Encode],
    name: str,
    splits: Sequence[str] = ("train",),
    max_examples: int | None = None,
    source_shares: Mapping[str, float] | None = None,
    joined_sources: Sequence[str] = (),
) -> dict[str, Any]:
    """Encode the texts of token ids, equal ones once, and each entry of the vocabulary.

    The texts are restored from their tokens (`StoredTexts`). So the teacher reads as much of them
    as a model that is trained on the token ids.

    Args:
      token_ids: folder of token ids of pairs or of single texts.
      output: folder to write. It gets its name when it is complete. Until then, the work is kept
        next to it, and the next call resumes it.
      teacher: encodes texts; or a teacher for each of `context` and `response`, if a text has
        another vector on each side. The vocabulary is encoded as contexts.
      name: name of the teacher.
      splits: names of the splits.
      max_examples: number of examples of a split that get vectors; the others have zeros.
      source_shares: shares of sources whose examples get vectors, as a run with the same shares
        draws them from the first example on.
      joined_sources: if given, pairs of all other sources only get the vectors of the first of
        `JoinedTeachers`, followed by zeros.

    Returns:
      The content of `teacher.json`.

    Raises:
      ValueError: if the token ids have no such source; if single texts have a teacher for each
        side, shares or joined sources; if there are joined sources but one teacher; if no example
        of a split is drawn; if `output` exists, or another process writes it.
      OSError: if a file cannot be read or written.
    """
    if os.path.exists(output):
        raise ValueError(f"{output!r} already exists. Pass another --output, or remove it.")
    with only_writer(output):
        return _write(
            ArrayFolder(token_ids),
            output,
            teacher,
            name,
            splits,
            max_examples=max_examples,
            source_shares=source_shares or {},
            joined_sources=joined_sources,
        )


def _write(
    folder: ArrayFolder,
    output: str,
    teacher: Encode | Mapping[str, Encode],
    name: str,
    splits: Sequence[str],
    *,
    max_examples: int | None,
    source_shares: Mapping[str, float],
    joined_sources: Sequence[str],
) -> dict[str, Any]:
    has_sides = isinstance(teacher, Mapping)
    of_side = teacher if isinstance(teacher, Mapping) else dict.fromkeys((*PAIR, "text"), teacher)
    if folder.holds_utterances and (has_sides or source_shares or joined_sources):
        given = [
            *(["a teacher of either side"] if has_sides else []),
            *([f"source_shares {dict(source_shares)}"] if source_shares else []),
            *([f"joined_sources {', '.join(joined_sources)}"] if joined_sources else []),
        ]
        raise ValueError(
            f"{str(folder.folder)!r} holds single texts, and {', '.join(given)} are for pairs. "
            "Pass token ids of pairs, or omit these options."
        )
    if joined_sources and not all(
        isinstance(own, JoinedTeachers) and len(own.teachers) > 1 for own in of_side.values()
    ):
        raise ValueError(
            f"joined_sources {', '.join(joined_sources)} needs several teachers, and there is one. "
            "Name more teachers, or omit joined_sources."
        )
    texts = StoredTexts(folder)
    opened = {
        split: _open(folder, texts, split, max_examples, source_shares, joined_sources)
        for split in splits
    }
    work = Path(f"{output.rstrip(os.sep)}.partial")
    work.mkdir(parents=True, exist_ok=True)
    subwords = texts.entries
    encode = of_side[PAIR[0]]
    some = np.asarray(encode(subwords[::_EVERY_SUBWORD]), DTYPE)
    dim = int(some.shape[1])
    options = {
        **({"has_sides": True} if has_sides else {}),
        **({"joined_sources": sorted(joined_sources)} if joined_sources else {}),
    }
    settings = {
        "version": _WORK_VERSION,
        "teacher": name,
        "dim": dim,
        "splits": {split: own.facts for split, own in opened.items()},
        **options,
    }
    done = _read_done(work, settings, some, len(subwords))
    if done is None:
        done = {"settings": settings, "done": {}}
        (work / _DONE_FILE).unlink(missing_ok=True)  # it is of another teacher
        np.save(work / SUBWORDS_FILE, _vocabulary_vectors(encode, subwords))
        write_file(work / _DONE_FILE, json.dumps(done))
    for split, own in opened.items():

        def note(number: int, split: str = split) -> None:
            done["done"][split] = number
            write_file(work / _DONE_FILE, json.dumps(done))

        start = done["done"].get(split, 0)
        _write_split(split, own, work, of_side, dim=dim, start=start, note=note)
    facts = {
        "version": FORMAT_VERSION,
        "teacher": name,
        "dim": dim,
        "dtype": DTYPE,
        **options,
        "splits": {split: own.facts for split, own in opened.items()},
    }
    write_file(work / FACTS_FILE, written_json(facts))
    (work / _DONE_FILE).unlink()
    os.rename(work, output)
    return facts


def _open(
    folder: ArrayFolder,
    texts: StoredTexts,
    split: str,
    max_examples: int | None,
    source_shares: Mapping[str, float],
    joined_sources: Sequence[str],
) -> TaughtSplit:
    """Open the examples of a split that get vectors. Raises as `write_teacher_vectors`."""
    opening = folder.open_utterances if folder.holds_utterances else folder.open
    own = opening(split, max_tokens=folder.max_tokens)
    wanted = min(own.num_examples, max_examples or own.num_examples)
    numbers = own.thinned(source_shares, 0, wanted) if source_shares else np.arange(wanted)
    if not len(numbers):
        raise ValueError(
            f"source_shares {dict(source_shares)} leave no example of {split}. Raise the shares."
        )
    is_alone = np.zeros(len(numbers), bool)
    if joined_sources:
        is_alone = ~own.of_sources(joined_sources)[numbers]
    facts = {
        "examples": own.num_examples,
        "texts_sha256": own.checksum(taught_names(own)),
        "taught": len(numbers),
        **({"source_shares": dict(source_shares), "of_first": wanted} if source_shares else {}),
        **({"sources_sha256": own.sources_checksum()} if source_shares or joined_sources else {}),
    }
    return TaughtSplit(own, texts, numbers, is_alone, facts)


def _read_done(
    work: Path, settings: dict[str, Any], some_subwords: np.ndarray, num_subwords: int
) -> dict[str, Any] | None:
    """Return the progress of an earlier run with the same settings, or None.

    `some_subwords`, float `[n, dim]`, distinguish two teachers with the same name.
    """
    with contextlib.suppress(OSError, ValueError):
        done = parsed_json((work / _DONE_FILE).read_text())
        if done["settings"] == settings:
            before = load_array(work / SUBWORDS_FILE)
            is_of_vocabulary = len(before) == num_subwords
            before = before[::_EVERY_SUBWORD]
            if is_of_vocabulary and np.allclose(before, some_subwords, atol=_SAME_VECTORS):
                return dict(done)
    return None


def _vocabulary_vectors(encode: Encode, subwords: Sequence[str]) -> np.ndarray:
    """Return float16 `[vocab_size, dim]`."""
    vectors = []
    with Progress("subwords", total=len(subwords)) as progress:
        for start in range(0, len(subwords), CHUNK):
            some = subwords[start : start + CHUNK]
            vectors.append(np.asarray(encode(some), DTYPE))
            progress.add(len(some))
    return np.concatenate(vectors)


def _write_split(
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
      start: how many of `own.numbers` an earlier call wrote.
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
