"""Held-out records as turns, for evaluation."""

from collections.abc import Iterator

import tensorflow as tf

from convert_tf.data.record_examples import damaged_records
from convert_tf.data.records import parse_examples
from convert_tf.data.schema import TurnExample
from convert_tf.data.shards import list_shards


def read_turns(data: str, split: str, *, max_examples: int | None = None) -> Iterator[TurnExample]:
    """The examples of a split, in the order of the shards; memory holds a few thousand.

    Args:
      data: folder of records.
      split: which shards.
      max_examples: stop after this many.

    Raises:
      ValueError: there are no records, or they are damaged.
    """
    dataset = tf.data.TFRecordDataset(list_shards(data, split))
    if max_examples is not None:
        dataset = dataset.take(max_examples)
    try:
        for serialized in dataset.batch(4096):
            parsed = {name: texts.numpy() for name, texts in parse_examples(serialized).items()}
            for context, extra, response, source in zip(
                *(parsed[name] for name in ("context", "extra_contexts", "response", "source")),
                strict=True,
            ):
                turns = [*(turn for turn in extra[::-1] if turn), context]
                yield TurnExample(tuple(map(_text, turns)), _text(response), _text(source))
    except tf.errors.OpError as error:
        raise damaged_records(data, split, error) from error


def _text(utf8: bytes) -> str:
    return utf8.decode("utf-8", "replace")
