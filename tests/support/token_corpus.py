"""A small corpus as records and as token ids."""

import string
from pathlib import Path
from typing import NamedTuple

import numpy as np
from support.texts import random_texts

from convert_tf.data.records import write_shards
from convert_tf.data.schema import Example
from convert_tf.data.token_writer import tokenize_records, tokenize_utterances
from convert_tf.text.vocabulary import write_vocabulary

NUM_OOV_BUCKETS = 5
SOURCES = ("forum", "chat", "forum", "")  # assigned to the examples in turn


class Corpus(NamedTuple):
    """Paths of a folder of records, its vocabulary, and a folder of the same texts as token ids."""

    records: str
    vocabulary: str
    arrays: str


def write_corpus(folder: Path, *, num_train: int, num_dev: int = 100) -> Corpus:
    """Write a train split of three uneven shards and a dev split, as records and as token ids."""
    letters = [*string.ascii_lowercase]
    vocabulary = folder / "vocab.txt"
    write_vocabulary(vocabulary, [*(f"\ufe4f{letter}" for letter in letters), *letters])
    examples = _examples(num_train, seed=0)
    bounds = [0, num_train // 7, num_train // 2, num_train]
    placed = [("dev", 0, example) for example in _examples(num_dev, seed=1)]
    for shard in range(3):
        placed += [("train", shard, x) for x in examples[bounds[shard] : bounds[shard + 1]]]
    records = folder / "records"
    records.mkdir()
    write_shards(str(records), placed, num_shards={"dev": 1, "train": 3})
    tokenize_records(
        str(records),
        str(folder / "ids"),
        vocabulary=str(vocabulary),
        num_oov_buckets=NUM_OOV_BUCKETS,
    )
    return Corpus(str(records), str(vocabulary), str(folder / "ids"))


def _examples(number: int, *, seed: int) -> list[Example]:
    """Return pairs with up to ten earlier turns; some characters are not in the vocabulary."""
    rng = np.random.default_rng(seed)
    texts = iter(random_texts(12 * number, seed=seed))
    return [
        Example(
            context=f"{next(texts)} {index}?",  # digits are not in the vocabulary
            response=next(texts),
            extra_contexts=tuple(next(texts) for _ in range(rng.integers(0, 11))),
            response_id=f"r{index}",
            subreddit="s",
            thread_id=str(index),
            context_author="a",
            response_author="b",
            source=SOURCES[index % len(SOURCES)],
        )
        for index in range(number)
    ]


def write_utterances(output: Path, patterns: list[str], vocabulary: str, **options) -> str:
    """Write the token ids of files of single texts, with as many hash buckets as the corpus."""
    tokenize_utterances(
        patterns, str(output), vocabulary=vocabulary, num_oov_buckets=NUM_OOV_BUCKETS, **options
    )
    return str(output)
