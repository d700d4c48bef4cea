"""Write a teacher's vectors of training texts.

`convert_tf.data.teacher_vectors` describes the files of the folder.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

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
from convert_tf.data.token_arrays import ArrayFolder
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
    folder, shares = ArrayFolder(token_ids), source_shares or {}
    has_sides = isinstance(teacher, Mapping)
    of_side = teacher if isinstance(teacher, Mapping) else dict.fromkeys((*PAIR, "text"), teacher)
    if folder.holds_utterances and (has_sides or shares or joined_sources):
        given = [
            *(["a teacher of either side"] if has_sides else []),
            *([f"source_shares {dict(shares)}"] if shares else []),
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
    texts, encode = StoredTexts(folder), of_side[PAIR[0]]
    with only_writer(output):
        opened = {
            split: _Split(folder, split, max_examples, shares, joined_sources) for split in splits
        }
        some_subwords = np.asarray(encode(texts.entries[::_EVERY_SUBWORD]), DTYPE)
        facts: dict[str, Any] = {
            "version": FORMAT_VERSION,
            "teacher": name,
            "dim": int(some_subwords.shape[1]),
            "dtype": DTYPE,
            **({"has_sides": True} if has_sides else {}),
            **({"joined_sources": sorted(joined_sources)} if joined_sources else {}),
            "splits": {split: own.facts for split, own in opened.items()},
        }
        work = Path(f"{output.rstrip(os.sep)}.partial")
        work.mkdir(parents=True, exist_ok=True)
        settings = {n: v for n, v in facts.items() if n != "dtype"} | {"version": _WORK_VERSION}
        done = _read_done(work, settings, some_subwords, len(texts.entries))
        if done is None:
            done = {"settings": settings, "done": {}}
            (work / _DONE_FILE).unlink(missing_ok=True)  # it is of another teacher
            np.save(work / SUBWORDS_FILE, _vocabulary_vectors(encode, texts.entries))
            write_file(work / _DONE_FILE, json.dumps(done))
        for split, own in opened.items():
            start = done["done"].get(split, 0)
            for number in own.write(work, texts, of_side, dim=facts["dim"], start=start):
                done["done"][split] = number
                write_file(work / _DONE_FILE, json.dumps(done))
        write_file(work / FACTS_FILE, written_json(facts))
        (work / _DONE_FILE).unlink()
        os.rename(work, output)
    return facts


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


class _Split:
    """The examples of a split that get vectors. Arguments and errors as of `write_teacher_vectors`.

    Attributes:
      facts: for `teacher.json`.
    """

    def __init__(
        self,
        folder: ArrayFolder,
        split: str,
        max_examples: int | None,
        shares: Mapping[str, float],
        joined_sources: Sequence[str],
    ):
        opening = folder.open_utterances if folder.holds_utterances else folder.open
        own = self._examples = opening(split, max_tokens=folder.max_tokens)
        self._names = taught_names(own)
        self._files = [vectors_file(split, name) for name in self._names]
        wanted = min(own.num_examples, max_examples or own.num_examples)
        self._numbers = own.thinned(shares, 0, wanted) if shares else np.arange(wanted)
        if not len(self._numbers):
            raise ValueError(
                f"source_shares {dict(shares)} leave no example of {split}. Raise the shares."
            )
        self._is_alone = np.zeros(len(self._numbers), bool)  # whether the first teacher is alone
        if joined_sources:
            self._is_alone = ~own.of_sources(joined_sources)[self._numbers]
        self.facts = {
            "examples": own.num_examples,
            "texts_sha256": own.checksum(self._names),
            "taught": len(self._numbers),
            **({"source_shares": dict(shares), "of_first": wanted} if shares else {}),
            **({"sources_sha256": own.sources_checksum()} if shares or joined_sources else {}),
        }

    def write(
        self,
        work: Path,
        texts: StoredTexts,
        of_side: Mapping[str, Encode],
        *,
        dim: int,
        start: int,
    ) -> Iterator[int]:
        """Write the vectors, zeros where an example gets none.

        Text c of taught example e has the place `names · e + c`.

        Args:
          work: folder of the files; those that an earlier call began are in it.
          texts: restores texts from token ids.
          of_side: what encodes texts, by the names of `taught_names`.
          dim: width of the vectors.
          start: number of examples that an earlier call wrote.

        Yields:
          After each chunk, the number of examples that are written.
        """
        shape = (self._examples.num_examples, dim)
        arrays = [
            np.lib.format.open_memmap(work / file, "r+" if start else "w+", DTYPE, shape)
            for file in self._files
        ]
        names, numbers, width = self._names, self._numbers, len(self._names)
        if start == len(numbers):
            return
        is_one = len({id(of_side[name]) for name in names}) == 1
        first_of = first_places(
            self._examples, names, numbers, self._is_alone, across_columns=is_one
        )
        # Which of a side's teachers, all joined or the first alone, and which side.
        encoders = np.repeat(self._is_alone, width) * width
        if not is_one:
            encoders += np.tile(np.arange(width), len(numbers))

        def encoded(chunk: range) -> tuple[range, np.ndarray, np.ndarray]:
            """Return the places of a chunk whose texts are new, and the texts' vectors."""
            places = np.arange(width * chunk.start, width * chunk.stop)
            new = places[first_of[places] == places]
            rows = numbers[chunk.start : chunk.stop]
            ids = join_texts([self._examples.texts(name, rows) for name in names])
            of_places = np.array(texts(ids), object).reshape(width, -1).T.ravel()
            vectors = np.empty((len(new), dim), DTYPE)
            # All texts of a teacher at once: the more texts, the more of them have like lengths.
            for encoder in np.unique(encoders[new]).tolist():
                some = encoders[new] == encoder
                teach, own_texts = of_side[names[encoder % width]], of_places[new[some] - places[0]]
                if encoder >= width:
                    assert isinstance(teach, JoinedTeachers)
                    vectors[some] = 0
                    first = np.asarray(teach.teachers[0](own_texts.tolist()))
                    vectors[some, : first.shape[1]] = first
                else:
                    vectors[some] = teach(own_texts.tolist())
            return chunk, new, vectors

        left = first_of[width * start :] >= np.arange(width * start, width * len(numbers))
        chunks = (range(i, min(i + CHUNK, len(numbers))) for i in range(start, len(numbers), CHUNK))
        with Progress("different texts", total=int(left.sum())) as progress:
            for chunk, new, vectors in in_order(encoded, chunks, at_once=calls_at_once()):
                for side, array in enumerate(arrays):
                    is_side = new % width == side
                    array[numbers[new[is_side] // width]] = vectors[is_side]
                places = np.arange(width * chunk.start, width * chunk.stop)
                repeated = places[first_of[places] < places]
                first = first_of[repeated]
                for side, other in itertools.product(range(width), repeat=2):
                    some = (repeated % width == side) & (first % width == other)
                    rows, first_rows = (
                        numbers[repeated[some] // width],
                        numbers[first[some] // width],
                    )
                    arrays[side][rows] = arrays[other][first_rows]
                for array in arrays:
                    array.flush()
                progress.add(len(new))
                yield chunk.stop
