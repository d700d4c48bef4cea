"""Read records back, for the tests of the data package."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from convert_tf.data.records import parse_texts
from convert_tf.data.schema import PAIR
from convert_tf.data.shards import list_shards

FEATURES = (
    "context", "response", "extra_contexts", "subreddit", "thread_id", "context_author",
    "response_author", "source",
)  # fmt: skip


def read_examples(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Return the features of each record, in the order of the files."""
    records = tf.data.TFRecordDataset(list(paths)).batch(1000)
    parsed = records.map(lambda some: dict(zip(FEATURES, parse_texts(some, FEATURES), strict=True)))
    return list(parsed.unbatch().as_numpy_iterator())


def read_texts(
    data: str, split: str, names: Sequence[str] = PAIR, *, max_examples: int = -1
) -> dict[str, list[bytes]]:
    """Return the texts of a split for each name, as `parse_texts` gives them."""
    records = tf.data.TFRecordDataset(list_shards(data, split)).take(max_examples).batch(4096)
    batches = [parse_texts(serialized, names) for serialized in records]
    return {
        name: [text for texts in column for text in texts.numpy()]
        for name, column in zip(names, zip(*batches, strict=True), strict=True)
    }


def read_pairs(data: str, split: str, **options: int) -> tuple[list[bytes], list[bytes]]:
    """Return the contexts and responses of a split."""
    texts = read_texts(data, split, **options)
    return texts["context"], texts["response"]
