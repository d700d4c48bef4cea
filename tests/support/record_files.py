"""Records read back, for the tests of the data package."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from convert_tf.data.records import parse_examples


def read_examples(paths: Sequence[str]) -> list[dict[str, Any]]:
    """`parse_examples` of one record after the other, in the order of the files."""
    records = tf.data.TFRecordDataset(list(paths)).batch(1000).map(parse_examples)
    return list(records.unbatch().as_numpy_iterator())
