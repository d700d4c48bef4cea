"""Writes the single texts that encoders are trained on, of files of such texts and of records.

    python hub_modules/recipes/single_texts.py 'utterances/*.jsonl.zst' work/data work/texts all

Of the intents of two sources a tenth is left away, on which training is judged, and what has a text
of theirs in any other source. `all` writes all others, and those that `prepare --single_texts` wrote
beside the records. `first` and `second` are what the second edition read: of two large sources some
are drawn at random, and of pairs the first are taken.
"""

import glob
import hashlib
import itertools
import json
import random
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf
import zstandard

from convert_tf.data.batches import PAIR
from convert_tf.data.record_examples import parse_texts
from convert_tf.data.shards import list_shards
from convert_tf.storage.lines import TextLines


class Draw(NamedTuple):
    """What is taken of large sources; all of the others is."""

    seed: int
    drawn: dict[str, int]
    pairs: int


DRAWS = {
    "first": Draw(7, {"reddit_top_titles": 90_000, "goemotions_reddit": 15_000}, 90_000),
    "all": Draw(0, {}, 0),
    "second": Draw(11, {"reddit_top_titles": 50_000, "goemotions_reddit": 12_000}, 40_000),
}
MOST_CHARACTERS = 160  # of a text of a pair
PREPARED = "single_texts.jsonl.zst"  # what `prepare --single_texts` writes in the folder of records
JUDGED_ON = ("rasa_bots_nlu", "small_intent_sets")


def is_left_away(row: dict[str, str]) -> bool:
    digest = hashlib.md5(f"{row.get('source', '')}|{row.get('label', '')}".encode()).hexdigest()
    return int(digest, 16) % 10 == 0


def texts_of_pairs(records: str) -> Iterator[dict[str, str]]:
    """Of each of the first pairs its context or its response, in turns."""
    for serialized in tf.data.TFRecordDataset(list_shards(records, "train")).batch(4096):
        contexts, responses = (column.numpy() for column in parse_texts(serialized, PAIR))
        for i in range(len(contexts)):
            text = (contexts if i % 2 else responses)[i].decode("utf-8", "replace")
            if len(text) <= MOST_CHARACTERS:
                yield {"source": "pair_texts", "text": text}


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    return (json.loads(line) for line in TextLines(str(path)) if line.strip())


def write(path: Path, rows: Iterable[dict[str, str]]) -> None:
    number = 0
    with open(path, "wb") as file, zstandard.ZstdCompressor().stream_writer(file) as writer:
        for row in rows:
            writer.write(json.dumps(row).encode() + b"\n")
            number += 1
    print(f"{path.name}: {number:,} texts")


def main(utterances: str, records: str, output: str, draw: str) -> None:
    own = DRAWS[draw]
    paths = [Path(path) for path in sorted(glob.glob(utterances))]
    if not paths:
        raise ValueError(
            "Single texts come from files of JSON lines. Received: no file for "
            f"{utterances!r}. Name some, the pattern in quotes."
        )
    named = {path.name.split(".")[0]: path for path in paths}
    judged = {
        row["text"].strip()
        for name in JUDGED_ON
        if name in named
        for row in rows_of(named[name])
        if is_left_away(row)
    }
    if draw == "all":
        named[PREPARED.split(".")[0]] = Path(records) / PREPARED
    rng, folder = random.Random(own.seed), Path(f"{output}.partial")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, path in named.items():
        rows = (row for row in rows_of(path) if row["text"].strip() not in judged)
        if name in own.drawn:
            several = [*rows]
            rows = iter(rng.sample(several, min(own.drawn[name], len(several))))
        write(folder / f"{name}.jsonl.zst", rows)
    if own.pairs:
        drawn = itertools.islice(texts_of_pairs(records), own.pairs)
        write(folder / "pair_texts.jsonl.zst", drawn)
    folder.rename(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
