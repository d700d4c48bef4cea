"""A teacher's vectors of the texts that are trained on.

`convert_tf.data.teacher_vectors` says what is in the folder.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from convert_tf.data.batches import PAIR
from convert_tf.data.record_examples import damaged_records, parse_texts
from convert_tf.data.record_index import RecordIndex
from convert_tf.data.shards import list_shards
from convert_tf.data.teacher_vectors import (
    DTYPE,
    FACTS_FILE,
    FORMAT_VERSION,
    SUBWORDS_FILE,
    taught_names,
    vectors_file,
)
from convert_tf.data.token_arrays import ArrayExamples, ArrayFolder
from convert_tf.data.utterances import Utterances
from convert_tf.extras import needs
from convert_tf.storage.arrays import load_array
from convert_tf.storage.checksums import short_digest
from convert_tf.storage.files import only_writer, write_file
from convert_tf.storage.json_text import parsed_json, written_json
from convert_tf.storage.progress import Progress
from convert_tf.text.subwords import WORD_START
from convert_tf.text.vocabulary import read_vocabulary
from convert_tf.training.teacher import Encode

CHUNK = 8_192  # examples between two notes of how far the work is
_DONE_FILE = "done.json"
_EVERY_SUBWORD = 64  # by which the teacher of an earlier run is known again
_SAME_VECTORS = 0.02  # in a value; in bfloat16 they are not the same everywhere
_WORK_VERSION = 2  # 1: teachers ran in 8 bits, whose vectors are others

# From the number of an example on: its texts and those of the next ones, by name.
Columns = Sequence[list[bytes]]
ReadTexts = Callable[[int], Iterator[Columns]]


def _texts(data: str, split: str, skip: int) -> Iterator[Columns]:
    """Contexts and responses of a split, `CHUNK` examples at a time, from the `skip`-th on."""
    records = tf.data.TFRecordDataset(list_shards(data, split)).skip(skip).batch(CHUNK)
    try:
        for serialized in records:
            contexts, responses = parse_texts(serialized, PAIR)
            yield list(contexts.numpy()), list(responses.numpy())
    except tf.errors.OpError as error:
        raise damaged_records(data, split, error) from error


def _single_texts(utterances: Utterances, skip: int) -> Iterator[Columns]:
    number = utterances.examples.num_examples
    for start in range(skip, number, CHUNK):
        yield (utterances.texts(start, min(start + CHUNK, number)),)


def _first_places(
    read: ReadTexts, columns: int, wanted: int, *, across_columns: bool
) -> np.ndarray:
    """Where each text comes for the first time; a turn is often a response and then a context.

    Takes some 50 bytes of memory for each text.

    Args:
      read: the texts.
      columns: texts of an example.
      wanted: so many examples, from the first on.
      across_columns: whether texts of different columns may be the same.

    Returns:
      int64 `[columns × wanted]`: of text c of example e, at place `columns · e + c`, the first
      place of the same text.
    """
    digests = []
    for texts in read(0):
        rows = zip(*texts, strict=True)
        digests.append(
            b"".join(
                short_digest(text if across_columns else b"%d\n%b" % (column, text))
                for row in rows
                for column, text in enumerate(row)
            )
        )
        if len(digests) * CHUNK >= wanted:
            break
    every = np.frombuffer(b"".join(digests), np.uint64)[: columns * wanted]
    _, first, kinds = np.unique(every, return_index=True, return_inverse=True)
    return first[kinds]


def write_teacher_vectors(
    data: str | None,
    token_ids: str,
    output: str,
    *,
    teacher: Encode | Mapping[str, Encode],
    name: str,
    splits: Sequence[str] = ("train",),
    max_examples: int | None = None,
) -> dict[str, Any]:
    """Encodes the texts of splits, equal ones once, and each entry of the vocabulary.

    Args:
      data: folder of records; None for token ids of single texts, which hold their texts.
      token_ids: the folder of token ids that was written from them, or that of single texts.
      output: folder to write. It gets its name when it is whole; until then its work is kept
        beside it, where the next call finds it.
      teacher: encodes texts; or one for each of `context` and `response`, where a text has another
        vector on either side. The vocabulary is read as contexts.
      name: of the teacher.
      splits: which splits.
      max_examples: how many examples of a split get vectors, from the first on; the others have
        zeros.

    Returns:
      What `teacher.json` says.

    Raises:
      ValueError: the token ids are of other records, `output` exists, or another process writes
        it.
      OSError: a file cannot be read or written.
    """
    if os.path.exists(output):
        raise ValueError(
            f"The output must not exist yet. Received: {output!r}. Pass another --output, or "
            "remove it."
        )
    with only_writer(output):
        return _write(
            data, ArrayFolder(token_ids), output, teacher, name, splits, max_examples=max_examples
        )


def _write(
    data: str | None,
    folder: ArrayFolder,
    output: str,
    teacher: Encode | Mapping[str, Encode],
    name: str,
    splits: Sequence[str],
    *,
    max_examples: int | None,
) -> dict[str, Any]:
    opened = {split: _open(folder, data, split) for split in splits}
    texts = {
        split: {
            "examples": own.num_examples,
            "texts_sha256": own.checksum(taught_names(own)),
        }
        for split, (own, _) in opened.items()
    }
    wanted = {
        split: min(own.num_examples, max_examples or own.num_examples)
        for split, (own, _) in opened.items()
    }
    work = Path(f"{output.rstrip(os.sep)}.partial")
    work.mkdir(parents=True, exist_ok=True)
    subwords = _subword_texts(folder)
    has_sides = isinstance(teacher, Mapping)
    of_side = teacher if isinstance(teacher, Mapping) else dict.fromkeys((*PAIR, "text"), teacher)
    encode = of_side[PAIR[0]]
    some = np.asarray(encode(subwords[::_EVERY_SUBWORD]), DTYPE)
    dim = int(some.shape[1])
    settings = {
        "version": _WORK_VERSION,
        "data": data and os.path.realpath(data),
        "teacher": name,
        "dim": dim,
        "has_sides": has_sides,
        "splits": texts,
    }
    done = _read_done(work, settings, some, len(subwords))
    if done is None:
        done = {"settings": settings, "done": {}}
        (work / _DONE_FILE).unlink(missing_ok=True)  # it is of another teacher
        np.save(work / SUBWORDS_FILE, _vocabulary_vectors(encode, subwords))
        write_file(work / _DONE_FILE, json.dumps(done))
    for split, (own, read) in opened.items():
        _encode_split(read, split, own, wanted[split], work, of_side, done=done, dim=dim)
    facts = {
        "version": FORMAT_VERSION,
        "teacher": name,
        "dim": dim,
        "dtype": DTYPE,
        **({"has_sides": True} if has_sides else {}),
        "splits": {split: {**own, "taught": wanted[split]} for split, own in texts.items()},
    }
    write_file(work / FACTS_FILE, written_json(facts))
    (work / _DONE_FILE).unlink()
    os.rename(work, output)
    return facts


def _open(folder: ArrayFolder, data: str | None, split: str) -> tuple[ArrayExamples, ReadTexts]:
    """The token ids of a split, and what reads their texts."""
    if folder.holds_utterances != (data is None):
        raise ValueError(
            "Token ids of pairs are taught with the records that they were written from, those of "
            f"single texts without. Received: data {data!r} for {str(folder.folder)!r}. "
            f"{'Leave --data away' if data else 'Pass --data'}."
        )
    if data is None:
        utterances = Utterances(folder, split, max_tokens=1)
        return utterances.examples, lambda skip: _single_texts(utterances, skip)
    own = folder.open(split, max_tokens=1)
    found = RecordIndex(list_shards(data, split)).num_records
    if found != own.num_examples:
        raise ValueError(
            "Token ids must be those of the records. Received: "
            f"{found} records of {split} in {data!r} for {own.num_examples} examples of "
            f"{str(folder.folder)!r}. Write the token ids again with `convert-tf tokenize`."
        )
    return own, lambda skip: _texts(data, split, skip)


def _encode_split(
    read: ReadTexts,
    split: str,
    examples: ArrayExamples,
    wanted: int,
    work: Path,
    of_side: Mapping[str, Encode],
    *,
    done: dict[str, Any],
    dim: int,
) -> None:
    start = done["done"].get(split, 0)
    if start >= wanted:
        return
    names = taught_names(examples)
    width = len(names)
    arrays = [
        np.lib.format.open_memmap(
            work / vectors_file(split, name),
            mode="r+" if start else "w+",
            dtype=DTYPE,
            shape=(examples.num_examples, dim),
        )
        for name in names
    ]
    is_one = len({id(of_side[name]) for name in names}) == 1
    first_places = _first_places(read, width, wanted, across_columns=is_one)
    left = first_places[width * start :] >= np.arange(width * start, width * wanted)
    with Progress("different texts", total=int(left.sum())) as progress:
        for texts in read(start):
            if start >= wanted:
                break
            stop = min(start + len(texts[0]), wanted)
            places = np.arange(width * start, width * stop)
            first = first_places[width * start : width * stop]
            new = places[first == places]
            # All of one teacher at once: the more texts, the more of them have like lengths.
            for own in [new] if is_one else [new[new % width == kind] for kind in range(width)]:
                if len(own):
                    vectors = of_side[names[own[0] % width]](
                        [
                            texts[i % width][i // width - start].decode("utf-8", "replace")
                            for i in own.tolist()
                        ]
                    )
                    for kind, array in enumerate(arrays):
                        array[own[own % width == kind] // width] = vectors[own % width == kind]
            for kind, array in enumerate(arrays):
                for first_kind, other in enumerate(arrays):
                    known = (
                        (first < places) & (places % width == kind) & (first % width == first_kind)
                    )
                    array[places[known] // width] = other[first[known] // width]
            for array in arrays:
                array.flush()
            progress.add(len(new))
            start = done["done"][split] = stop
            write_file(work / _DONE_FILE, json.dumps(done))


def _read_done(
    work: Path, settings: dict[str, Any], some_subwords: np.ndarray, num_subwords: int
) -> dict[str, Any] | None:
    """How far an earlier run with the same settings came; None without one.

    Two teachers may share a name; `some_subwords`, float `[n, dim]`, tell them apart.
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
    """float16 `[vocab_size, dim]`."""
    vectors = []
    with Progress("subwords", total=len(subwords)) as progress:
        for start in range(0, len(subwords), CHUNK):
            some = subwords[start : start + CHUNK]
            vectors.append(np.asarray(encode(some), DTYPE))
            progress.add(len(some))
    return np.concatenate(vectors)


def _subword_texts(folder: ArrayFolder) -> list[str]:
    """The entries of a vocabulary as texts, without what marks the start of a word."""
    if folder.tokenizer_name == "sentencepiece":
        with needs("data", "A SentencePiece vocabulary"):
            import sentencepiece

        model = sentencepiece.SentencePieceProcessor(model_file=str(folder.vocabulary))
        return [model.id_to_piece(i).lstrip("▁") for i in range(folder.vocab_size)]
    return [entry.removeprefix(WORD_START) for entry in read_vocabulary(folder.vocabulary)]
