"""Write the token ids of records, single texts and triplets to a folder.

Training on such a folder does not need TensorFlow. `convert_tf.data.token_arrays` describes the
files in it.
"""

import contextlib
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from convert_tf.data import token_arrays
from convert_tf.data.packing import TokenIds
from convert_tf.data.records import naming_records, parse_texts
from convert_tf.data.schema import PAIR_AND_EXTRA_CONTEXT, SPLITS
from convert_tf.data.shards import RecordIndex, list_shards, record_files
from convert_tf.data.triplets import read_triplets
from convert_tf.data.unknown_tokens import warn_of_unknown
from convert_tf.data.utterances import TEXT, UtteranceFiles, is_held_out
from convert_tf.storage.arrays import GrowingArray
from convert_tf.storage.checksums import file_checksum, record_checksums
from convert_tf.storage.files import write_file
from convert_tf.storage.progress import Progress
from convert_tf.text.tokenizer import load_tokenizer
from convert_tf.text.vocabulary import SETTINGS_FILE, VOCABULARY_FILES

BATCH_SIZE = 1024  # records, single texts or triplets

# The texts of a batch of examples, and the values in the columns, such as the examples' sources.
TextsAndColumns: TypeAlias = tuple[Sequence[TokenIds], Mapping[str, Sequence[str | None]]]


class _Writer:
    """Writes a folder of token ids.

    Args:
      folder: an empty folder to write to.
      tokenizer: a tokenizer from `convert_tf.text`. The writer copies its vocabulary file and
        records its attributes.
      max_tokens: maximum number of tokens per text.
      columns: names of the columns to write in addition to the texts.
    """

    def __init__(
        self, folder: Path, tokenizer: Any, *, max_tokens: int, columns: Sequence[str]
    ) -> None:
        self._folder = folder
        self._dtype = token_arrays.dtype_of_ids(tokenizer.padding_id)
        path = Path(tokenizer.path)
        name = VOCABULARY_FILES[tokenizer.name]
        write_file(folder / name, path.read_bytes())
        settings = path.with_name(SETTINGS_FILE)
        if tokenizer.name == "wordpiece" and settings.is_file():
            write_file(folder / SETTINGS_FILE, settings.read_bytes())
        self._tokenizer = tokenizer
        self._num_tokens = self._num_unknown = 0
        self._facts: dict[str, Any] = {
            "tokenizer": tokenizer.name,
            "vocab_size": tokenizer.vocab_size,
            "num_oov_buckets": tokenizer.num_oov_buckets,
            "padding_id": tokenizer.padding_id,
            "max_tokens": max_tokens,
            "dtype": self._dtype,
            "vocabulary": name,
            "vocabulary_sha256": file_checksum(tokenizer.path),
            "splits": {},
        }
        self._places: dict[str, dict[str, int]] = {column: {} for column in columns}

    def write_split(
        self, split: str, names: Sequence[str], batches: Iterator[TextsAndColumns]
    ) -> None:
        """Write the texts and columns of a split.

        Each column is written as indices into its distinct values, with −1 for None.

        Args:
          split: name of the split.
          names: names of the texts.
          batches: for each batch of examples, the texts for each name, and the columns.
        """
        files: dict[str, tuple[GrowingArray, GrowingArray]] = {}
        with contextlib.ExitStack() as arrays:

            def new(file: str, dtype: str) -> GrowingArray:
                return arrays.enter_context(GrowingArray(self._folder / file, dtype))

            columns = {
                name: new(token_arrays.column_file(split, name), token_arrays.COLUMN_DTYPE)
                for name in self._places
            }
            for name in names:
                offsets = new(token_arrays.offsets_file(split, name), "int64")
                files[name] = new(token_arrays.ids_file(split, name), self._dtype), offsets
                offsets.append(np.zeros(1, np.int64))
            for batch, of_columns in batches:
                for name, values in of_columns.items():
                    codes = self._places[name]
                    places = [-1 if v is None else codes.setdefault(v, len(codes)) for v in values]
                    columns[name].append(np.array(places))
                for name, texts in zip(names, batch, strict=True):
                    ids, offsets = files[name]
                    offsets.append(ids.size + texts.row_splits[1:].astype(np.int64))
                    ids.append(texts.flat)
                    self._num_tokens += len(texts.flat)
                    self._num_unknown += self._tokenizer.count_unknown(texts.flat)
        self._facts["splits"][split] = {
            "examples": files[names[0]][1].size - 1,
            "tokens": {name: ids.size for name, (ids, _) in files.items()},
        }

    def finish(self, **facts: Any) -> dict[str, Any]:
        """Write the checksums and `arrays.json`, and return the content of `arrays.json`.

        `arrays.json` completes the folder. Warn if most tokens are unknown.

        Args:
          **facts: further entries for `arrays.json`.
        """
        share = self._num_unknown / max(1, self._num_tokens)
        warn_of_unknown(share, self._tokenizer.path, "these texts")
        if "labels" in self._places:
            self._facts[token_arrays.UTTERANCES] = {"labels": list(self._places["labels"])}
        self._facts["sources"] = list(self._places["sources"])
        record_checksums(self._folder, [path.name for path in self._folder.glob("*.npy")])
        return token_arrays.FORMAT.write_facts(self._folder, {**self._facts, **facts})


def _tokenized(
    shards: Sequence[str], tokenizer: Any, max_tokens: int, progress: Progress
) -> Iterator[TextsAndColumns]:
    """Yield batches of the token ids of `PAIR_AND_EXTRA_CONTEXT`, with the examples' sources."""

    def tokenize(serialized: tf.Tensor) -> tuple[Any, tf.Tensor]:
        *texts, sources = parse_texts(serialized, (*PAIR_AND_EXTRA_CONTEXT, "source"))
        cut = [tokenizer.token_ids(strings)[:, :max_tokens] for strings in texts]
        return tuple((ids.flat_values, ids.row_splits) for ids in cut), sources

    records = tf.data.TFRecordDataset(list(shards)).batch(BATCH_SIZE)
    batches = records.map(tokenize, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    for batch, sources in batches.prefetch(2).as_numpy_iterator():
        progress.add(len(batch) * len(sources))
        names = [source.decode("utf-8", "replace") for source in sources.tolist()]
        yield [TokenIds(*ids) for ids in batch], {"sources": names}


def tokenize_records(
    data: str,
    output: str,
    *,
    vocabulary: str,
    max_tokens: int = 60,
    num_oov_buckets: int = 1000,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write the token ids for all splits of a folder of records.

    A few batches of records are in memory at a time. The folder gets its final name when it is
    complete. If a run is killed, the next run deletes the incomplete files of the killed run.

    Args:
      data: folder of records.
      output: folder to write.
      vocabulary: vocabulary file, which is copied into the folder.
      max_tokens: longer texts are cut to this many tokens. A model may read fewer tokens.
      num_oov_buckets: number of ids that unknown tokens share. A model that is trained on the token
        ids must have the same number.
      overwrite: whether to replace existing token ids in `output`.

    Returns:
      The content of `arrays.json`, with the duration as `seconds`.

    Raises:
      ValueError: if there are no records, a record is damaged, the vocabulary cannot be read, or
        `output` is not empty.
      OSError: if a file cannot be read or written.
    """
    place = token_arrays.FORMAT.output(output, overwrite=overwrite)
    started = time.monotonic()
    present = {os.path.basename(path).split("-")[0] for path in record_files(data)}
    shards = {
        split: list_shards(data, split) for split in SPLITS if split in present or not present
    }
    examples = sum(RecordIndex(paths).num_records for paths in shards.values())
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=num_oov_buckets)
    names = PAIR_AND_EXTRA_CONTEXT
    with place.open() as folder, Progress("texts", total=len(names) * examples) as progress:
        writer = _Writer(folder, tokenizer, max_tokens=max_tokens, columns=["sources"])
        for split, paths in shards.items():
            batches = _tokenized(paths, tokenizer, max_tokens, progress)
            with naming_records(data, split):
                writer.write_split(split, names, batches)
        facts = writer.finish()
    return {**facts, "seconds": time.monotonic() - started}


def tokenize_utterances(
    patterns: Sequence[str],
    output: str,
    *,
    vocabulary: str,
    max_tokens: int = 60,
    num_oov_buckets: int = 1000,
    dev_fraction: float = 0.0,
    ignored_labels: Collection[str] = (),
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write the token ids of the single texts in files. Repeated texts are written once.

    If a text occurs with and without a label, the copy with the label is written. The files are
    read once to find such texts, and once for each split. The folder gets its final name when it is
    complete.

    Args:
      patterns: file names or patterns.
      output: folder to write.
      vocabulary, max_tokens, num_oov_buckets, overwrite: as in `tokenize_records`.
      dev_fraction: share of the intents, and of the texts without an intent, to put in the split
        `dev`, from 0 to below 1. The rest are in `train`.
      ignored_labels: names of sources whose labels are not intents. For example, the label of a
        post's title may be its forum.

    Returns:
      The content of `arrays.json`, with the duration as `seconds`.

    Raises:
      ValueError: if there is no file or no text, a row has no text, `dev_fraction` is out of range,
        a file is a pipe and `dev_fraction` is not 0, the vocabulary cannot be read, or `output` is
        not empty.
      FileChangedError: if a file changed after the start.
      OSError: if a file cannot be read or written.
    """
    if not 0 <= dev_fraction < 1:
        raise ValueError(f"dev_fraction must be from 0 to below 1. Received: {dev_fraction}.")
    files = UtteranceFiles(patterns, ignored_labels=ignored_labels)
    if dev_fraction and files.pipes:
        raise ValueError(
            f"{files.pipes[0]} is a pipe, which can be read only once. To split the texts by "
            "dev_fraction, the input is read several times. Write the texts to a file first."
        )
    place = token_arrays.FORMAT.output(output, overwrite=overwrite)
    started = time.monotonic()
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=num_oov_buckets)

    def batches_of(split: str) -> Iterator[TextsAndColumns]:
        utterances = (
            utterance
            for utterance in files
            if is_held_out(utterance, dev_fraction) == (split == "dev")
        )
        while batch := list(islice(utterances, BATCH_SIZE)):
            texts = TokenIds(*tokenizer.flat_ids([one.text.encode() for one in batch], max_tokens))
            sources = [one.source for one in batch]
            yield [texts], {"sources": sources, "labels": [one.label or None for one in batch]}
            progress.add(len(batch))

    with place.open() as folder, Progress("texts") as progress:
        columns = ("sources", "labels")
        writer = _Writer(folder, tokenizer, max_tokens=max_tokens, columns=columns)
        for split in ("train", "dev")[: 2 if dev_fraction else 1]:
            writer.write_split(split, TEXT, batches_of(split))
        facts = writer.finish()
        _check_any(facts, "text", patterns)
    return {**facts, "seconds": time.monotonic() - started}


def tokenize_triplets(
    patterns: Sequence[str],
    output: str,
    *,
    vocabulary: str,
    max_tokens: int = 60,
    num_oov_buckets: int = 1000,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write the token ids of the triplets in files.

    The folder gets its final name when it is complete.

    Args:
      patterns: file names or patterns.
      output: folder to write.
      vocabulary, max_tokens, num_oov_buckets, overwrite: as in `tokenize_records`.

    Returns:
      The content of `arrays.json`, with the duration as `seconds`.

    Raises:
      ValueError: if there is no file or no row, a row is not a triplet, the vocabulary cannot be
        read, or `output` is not empty.
      OSError: if a file cannot be read or written.
    """
    place = token_arrays.FORMAT.output(output, overwrite=overwrite)
    started = time.monotonic()
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=num_oov_buckets)

    def batches() -> Iterator[TextsAndColumns]:
        triplets = read_triplets(patterns)
        while batch := list(islice(triplets, BATCH_SIZE)):
            *texts, sources = zip(*batch, strict=True)
            ids = [
                tokenizer.flat_ids([one.encode() for one in column], max_tokens) for column in texts
            ]
            yield [TokenIds(*arrays) for arrays in ids], {"sources": sources}
            progress.add(len(batch))

    with place.open() as folder, Progress("triplets") as progress:
        writer = _Writer(folder, tokenizer, max_tokens=max_tokens, columns=["sources"])
        writer.write_split("train", token_arrays.TRIPLET, batches())
        facts = writer.finish(triplets={})
        _check_any(facts, "triplet", patterns)
    return {**facts, "seconds": time.monotonic() - started}


def _check_any(facts: Mapping[str, Any], what: str, patterns: Sequence[str]) -> None:
    if not any(counts["examples"] for counts in facts["splits"].values()):
        raise ValueError(f"{', '.join(map(repr, patterns))} has no {what}.")


def summary(facts: Mapping[str, Any]) -> str:
    """Format the result of a `tokenize_…` function for a terminal."""
    lines, texts = [], 0
    for split, counts in facts["splits"].items():
        texts += counts["examples"] * len(counts["tokens"])
        tokens = ", ".join(f"{number:,} of {name}" for name, number in counts["tokens"].items())
        lines.append(f"{split}: {counts['examples']:,} examples; tokens: {tokens}")
    if "utterances" in facts:
        labels = len(facts["utterances"]["labels"])
        lines.append(f"{len(facts['sources']):,} sources, {labels:,} names of labels")
    lines.append(
        f"tokens as {facts['dtype']}; {texts:,} texts in {facts['seconds']:.1f} s, "
        f"{texts / max(facts['seconds'], 1e-9):,.0f}/s"
    )
    return "\n".join(lines)
