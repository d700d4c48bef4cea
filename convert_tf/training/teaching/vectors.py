"""Write a teacher's vectors for training texts to a folder. The texts are restored from token ids.

`convert_tf.data.teacher_vectors` describes the files in this folder.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.data.negatives import scattered
from convert_tf.data.packing import TokenIds, join_texts
from convert_tf.data.prefetch import in_order
from convert_tf.data.schema import PAIR
from convert_tf.data.teacher_vectors import (
    DTYPE,
    EVERY_SUBWORD,
    FORMAT,
    SUBWORDS_FILE,
    are_same_vectors,
    taught_names,
    vectors_file,
)
from convert_tf.data.token_arrays import PAIRS, UTTERANCES, ArrayExamples, ArrayFolder
from convert_tf.extras import needs
from convert_tf.storage.arrays import load_array
from convert_tf.storage.files import only_writer, write_file
from convert_tf.storage.json_text import parsed_json
from convert_tf.storage.progress import Progress
from convert_tf.text.plain_tokenizer import BETWEEN_TEXTS, restored_texts
from convert_tf.text.subwords import WORD_START
from convert_tf.text.vocabulary import read_vocabulary
from convert_tf.training.teaching.teacher import Encode, calls_at_once

CHUNK = 8_192  # progress is saved after this many examples
_UNKNOWN = "\ufffd"
_UNKNOWN_PIECE = " \u2047 "  # SentencePiece decodes unknown characters to this text
_DONE_FILE = "done.json"
# Up to version 5, the vectors of contexts and responses were written together. Up to version 6,
# unknown characters of SentencePiece split words.
_WORK_VERSION = 7


class StoredTexts:
    """Restores texts from token ids.

    Restored texts are in lower case, and end where the stored tokens end. Characters outside the
    vocabulary are stored only as hashes, so they become U+FFFD.

    Args:
      folder: folder of token ids.

    Attributes:
      entries: vocabulary entries as texts, without the marker for the start of a word.

    Raises:
      ValueError: if the vocabulary cannot be read, or a package is missing.

    Example:
      texts = StoredTexts(folder)(examples.texts("context", np.arange(10)))
    """

    def __init__(self, folder: ArrayFolder) -> None:
        self._model = None
        if folder.tokenizer_name == "sentencepiece":
            with needs("data", "A SentencePiece vocabulary"):
                import sentencepiece

            self._model = sentencepiece.SentencePieceProcessor(model_file=str(folder.vocabulary))
            pieces = [self._model.id_to_piece(i) for i in range(folder.vocab_size)]
            self.entries = [piece.lstrip("▁") for piece in pieces]
            self._unknown = self._model.unk_id()
        else:
            pieces = read_vocabulary(folder.vocabulary)
            self.entries = [piece.removeprefix(WORD_START) for piece in pieces]
            pieces += [_UNKNOWN] * folder.num_oov_buckets
            # The last entry marks the end of a text.
            self._pieces = np.array([*pieces, BETWEEN_TEXTS], object)

    def __call__(self, ids: TokenIds) -> list[str]:
        """Return the text for each row of token ids."""
        if self._model is not None:
            known = np.where(ids.flat < len(self.entries), ids.flat, self._unknown).tolist()
            bounds = ids.row_splits.tolist()
            rows = [known[start:stop] for start, stop in itertools.pairwise(bounds)]
            texts = self._model.decode(rows) if rows else []
            return [text.replace(_UNKNOWN_PIECE, _UNKNOWN) for text in texts]
        if len(ids.row_splits) == 1:
            return []
        ended = np.insert(ids.flat, ids.row_splits[1:-1], len(self._pieces) - 1)
        return restored_texts("".join(self._pieces[ended]))


def first_places(examples: ArrayExamples, names: Sequence[str], numbers: np.ndarray) -> np.ndarray:
    """Return where each text occurs for the first time.

    Texts are often repeated: a turn may be a response in one example and the context in the next.
    This function needs about 50 bytes of memory per text.

    Args:
      examples: token ids of the examples.
      names: names of the texts in each example.
      numbers: indices of the examples to look at, int64 `[n]`.

    Returns:
      int64 `[names × n]`. Text c of example e has the index `len(names) · e + c`, and the value at
      this index is the first index of an equal text. Texts are compared by 64-bit hashes, so two
      different texts are taken for equal with a probability of 2⁻⁶⁴.
    """
    digests = np.empty((len(numbers), len(names)), np.uint64)
    for start in range(0, len(numbers), CHUNK):
        some = slice(start, start + CHUNK)
        for column, name in enumerate(names):
            digests[some, column] = _digests(examples.texts(name, numbers[some]))
    _, first, kinds = np.unique(digests.ravel(), return_index=True, return_inverse=True)
    return first[kinds]


def _digests(texts: TokenIds) -> np.ndarray:
    """Return a hash of each text, uint64 `[texts]`.

    It depends on the tokens of the text, their order and their number.
    """
    splits = texts.row_splits.astype(np.int64)
    places = np.arange(len(texts.flat)) - np.repeat(splits[:-1], np.diff(splits))
    tokens = (places.astype(np.uint64) << np.uint64(32)) + texts.flat.astype(np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(scattered(tokens), dtype=np.uint64)])
    of_texts = sums[splits[1:]] - sums[splits[:-1]]
    return scattered(of_texts + scattered(np.diff(splits).astype(np.uint64)))


def write_teacher_vectors(
    token_ids: str,
    output: str,
    *,
    teacher: Encode | Mapping[str, Encode],
    name: str,
    max_examples: int | None = None,
    source_shares: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Write a teacher's vectors for the texts in the train split and for all vocabulary entries.

    Equal texts are encoded only once. The texts are restored from their token ids (`StoredTexts`),
    so the teacher reads the same part of each text as a model that is trained on the token ids.

    Args:
      token_ids: folder with token ids of pairs or single texts.
      output: folder to write. It appears only when it is complete. Until then, the unfinished work
        is in a folder next to it, from which a later call with the same settings resumes.
      teacher: function that encodes texts. If the teacher encodes contexts and responses
        differently, pass a dict with a function for `context` and one for `response`; the
        vocabulary is then encoded as contexts.
      name: name of the teacher.
      max_examples: number of examples to encode, starting with the first, or None for all. All
        later examples get vectors of zeros.
      source_shares: share of the examples to encode, by source. Only the examples that a run with
        the same shares would train on get vectors.

    Returns:
      A dict with the content of `teacher.json`.

    Raises:
      ValueError: if the token ids lack one of the sources; if shares, or separate teachers for
        contexts and responses, are given for single texts; if the shares leave no example; if
        `output` exists, or another process is writing it.
      OSError: if a file cannot be read or written.
    """
    if os.path.exists(output):
        raise ValueError(f"{output!r} already exists. Pass another --output, or remove it.")
    output = os.path.realpath(output)  # a link may point to a folder that does not exist yet
    folder, shares = ArrayFolder(token_ids), source_shares or {}
    if folder.holds == UTTERANCES and (isinstance(teacher, Mapping) or shares):
        raise ValueError(
            f"{str(folder.folder)!r} contains single texts, but --sides and --source_shares are "
            "for pairs. Pass token ids of pairs, or omit these options."
        )
    # Each teacher with the names of the texts that it encodes.
    teachers: list[tuple[Encode, tuple[str, ...]]]
    if isinstance(teacher, Mapping):
        teachers = [(teacher[side], (side,)) for side in PAIR]
    else:
        teachers = [(teacher, ("text",) if folder.holds == UTTERANCES else PAIR)]
    texts, encode = StoredTexts(folder), teachers[0][0]
    with only_writer(output):
        examples = _TaughtExamples(folder, max_examples, shares)
        some_subwords = np.asarray(encode(texts.entries[::EVERY_SUBWORD]), DTYPE)
        facts: dict[str, Any] = {
            "teacher": name,
            "dim": int(some_subwords.shape[1]),
            "dtype": DTYPE,
            **({"has_sides": True} if len(teachers) > 1 else {}),
            "splits": {"train": examples.facts},
        }
        work = Path(f"{output.rstrip(os.sep)}.partial")
        work.mkdir(parents=True, exist_ok=True)
        settings = {"version": _WORK_VERSION, **facts}
        done = _read_done(work, settings, some_subwords, len(texts.entries))
        if done is None:
            done = {"settings": settings, "done": {}}
            # A progress file that still exists belongs to other settings or to another teacher.
            (work / _DONE_FILE).unlink(missing_ok=True)
            np.save(work / SUBWORDS_FILE, _vocabulary_vectors(encode, texts.entries))
            write_file(work / _DONE_FILE, json.dumps(done))
        for encode, names in teachers:
            start = done["done"].get(names[0], 0)
            for number in examples.write(work, texts, encode, names, dim=facts["dim"], start=start):
                done["done"][names[0]] = number
                write_file(work / _DONE_FILE, json.dumps(done))
        facts = FORMAT.write_facts(work, facts)
        (work / _DONE_FILE).unlink()
        os.rename(work, output)
    return facts


def _read_done(
    work: Path, settings: dict[str, Any], some_subwords: np.ndarray, num_subwords: int
) -> dict[str, Any] | None:
    """Return the progress of an earlier call with the same settings, or None if there is none.

    Args:
      work: folder of the unfinished work.
      settings: settings of this call.
      some_subwords: the teacher's vectors for every 64th subword, float `[n, dim]`. They
        distinguish two teachers with the same name.
      num_subwords: number of entries in the vocabulary.
    """
    with contextlib.suppress(OSError, ValueError):
        done = parsed_json((work / _DONE_FILE).read_text())
        before = load_array(work / SUBWORDS_FILE)
        is_of_vocabulary = done["settings"] == settings and len(before) == num_subwords
        before = before[::EVERY_SUBWORD]
        if is_of_vocabulary and are_same_vectors(before, some_subwords):
            return dict(done)
    return None


def _vocabulary_vectors(encode: Encode, subwords: Sequence[str]) -> np.ndarray:
    """Return the vectors of all vocabulary entries, float16 `[vocab_size, dim]`."""
    vectors = []
    with Progress("subwords", total=len(subwords)) as progress:
        for start in range(0, len(subwords), CHUNK):
            some = subwords[start : start + CHUNK]
            vectors.append(np.asarray(encode(some), DTYPE))
            progress.add(len(some))
    return np.concatenate(vectors)


class _TaughtExamples:
    """The examples that get vectors. `write_teacher_vectors` explains the arguments and errors.

    Attributes:
      facts: entries of `teacher.json` that describe the examples.
    """

    def __init__(
        self, folder: ArrayFolder, max_examples: int | None, shares: Mapping[str, float]
    ) -> None:
        examples = self._examples = folder.open(
            "train",
            max_tokens=folder.max_tokens,
            holds=UTTERANCES if folder.holds == UTTERANCES else PAIRS,
        )
        wanted = min(examples.num_examples, max_examples or examples.num_examples)
        self._numbers = examples.thinned(shares, 0, wanted) if shares else np.arange(wanted)
        if not len(self._numbers):
            raise ValueError(
                f"source_shares {dict(shares)} leave no training example. Raise the shares."
            )
        self.facts = {
            "examples": examples.num_examples,
            "texts_sha256": examples.checksum(taught_names(examples)),
            "taught": len(self._numbers),
        }
        if shares:
            self.facts |= {
                "source_shares": dict(shares),
                "of_first": wanted,
                "sources_sha256": examples.sources_checksum(),
            }

    def write(
        self,
        work: Path,
        texts: StoredTexts,
        encode: Encode,
        names: Sequence[str],
        *,
        dim: int,
        start: int,
    ) -> Iterator[int]:
        """Write the vectors for the named texts, and zeros for examples that get no vectors.

        Text c of the e-th example that gets vectors has the index `len(names) · e + c`.

        Args:
          work: folder for the files. It may contain files that an earlier call began.
          texts: restores texts from token ids.
          encode: teacher that encodes the texts.
          names: names of the texts to encode in each example.
          dim: dimension of the vectors.
          start: number of examples that earlier calls have written.

        Yields:
          The number of examples written so far, after each chunk.
        """
        shape = (self._examples.num_examples, dim)
        arrays = [
            np.lib.format.open_memmap(
                work / vectors_file(name), "r+" if start else "w+", DTYPE, shape
            )
            for name in names
        ]
        numbers, width = self._numbers, len(names)
        if start == len(numbers):
            return
        first_of = first_places(self._examples, names, numbers)

        def rows_of(places: np.ndarray) -> np.ndarray:
            return numbers[places // width]

        def encoded(chunk: range) -> tuple[range, np.ndarray, np.ndarray]:
            """Return the chunk, the indices of texts that first occur in it, and their vectors."""
            places = np.arange(width * chunk.start, width * chunk.stop)
            new = places[first_of[places] == places]
            rows = numbers[chunk.start : chunk.stop]
            ids = join_texts([self._examples.texts(name, rows) for name in names])
            of_places = np.array(texts(ids), object).reshape(width, -1).T.ravel()
            vectors = np.empty((len(new), dim), DTYPE)
            if len(new):
                vectors[:] = encode(of_places[new - places[0]].tolist())
            return chunk, new, vectors

        left = first_of[width * start :] >= np.arange(width * start, width * len(numbers))
        chunks = (range(i, min(i + CHUNK, len(numbers))) for i in range(start, len(numbers), CHUNK))
        with Progress("different texts", total=int(left.sum())) as progress:
            for chunk, new, vectors in in_order(encoded, chunks, at_once=calls_at_once()):
                for side, array in enumerate(arrays):
                    is_side = new % width == side
                    array[rows_of(new[is_side])] = vectors[is_side]
                places = np.arange(width * chunk.start, width * chunk.stop)
                repeated = places[first_of[places] < places]
                first = first_of[repeated]
                for side, other in itertools.product(range(width), repeat=2):
                    some = (repeated % width == side) & (first % width == other)
                    arrays[side][rows_of(repeated[some])] = arrays[other][rows_of(first[some])]
                for array in arrays:
                    array.flush()
                progress.add(len(new))
                yield chunk.stop
