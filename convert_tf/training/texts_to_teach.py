"""The texts of a split that a teacher reads, some thousand examples at a time."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from convert_tf.data.batches import PAIR
from convert_tf.data.record_examples import damaged_records, parse_texts
from convert_tf.data.shards import list_shards
from convert_tf.data.utterances import Utterances
from convert_tf.storage.checksums import short_digest

CHUNK = 8_192  # examples between two notes of how far the work is

# Texts of some examples, by name.
Columns = Sequence[list[bytes]]
# From the number of an example on: its texts and those of the next ones.
ReadTexts = Callable[[int], Iterator[Columns]]


def pair_texts(data: str, split: str, skip: int) -> Iterator[Columns]:
    """Contexts and responses of a split, `CHUNK` examples at a time, from the `skip`-th on."""
    records = tf.data.TFRecordDataset(list_shards(data, split)).skip(skip).batch(CHUNK)
    try:
        for serialized in records:
            contexts, responses = parse_texts(serialized, PAIR)
            yield list(contexts.numpy()), list(responses.numpy())
    except tf.errors.OpError as error:
        raise damaged_records(data, split, error) from error


def single_texts(utterances: Utterances, skip: int) -> Iterator[Columns]:
    """As `pair_texts`."""
    number = utterances.examples.num_examples
    for start in range(skip, number, CHUNK):
        yield (utterances.texts(start, min(start + CHUNK, number)),)


def texts_of(read: ReadTexts, numbers: np.ndarray) -> ReadTexts:
    """What reads the texts of examples `numbers`, int64 `[n]`, rising: the first is number 0."""

    def chosen(skip: int) -> Iterator[Columns]:
        if skip >= len(numbers):
            return
        start = int(numbers[skip])
        for texts in read(start):
            stop = start + len(texts[0])
            own = numbers[slice(*np.searchsorted(numbers, (start, stop)))] - start
            yield [[column[place] for place in own.tolist()] for column in texts]
            if stop > numbers[-1]:
                return
            start = stop

    return chosen


def first_places(
    read: ReadTexts, columns: int, is_alone: np.ndarray, *, across_columns: bool
) -> np.ndarray:
    """Where each text comes for the first time; a turn is often a response and then a context.

    Takes some 50 bytes of memory for each text.

    Args:
      read: the texts.
      columns: texts of an example.
      is_alone: bool `[examples]`; texts of these and of others are not the same.
      across_columns: whether texts of different columns may be the same.

    Returns:
      int64 `[columns × examples]`: of text c of example e, at place `columns · e + c`, the first
      place of the same text.
    """
    digests, number = [], 0
    for texts in read(0):
        stop = number + len(texts[0])
        rows = zip(zip(*texts, strict=True), is_alone[number:stop].tolist(), strict=True)
        digests.append(
            b"".join(
                short_digest(b"%d%d\n%b" % (0 if across_columns else column, alone, text))
                for row, alone in rows
                for column, text in enumerate(row)
            )
        )
        number = stop
    every = np.frombuffer(b"".join(digests), np.uint64)
    _, first, kinds = np.unique(every, return_index=True, return_inverse=True)
    return first[kinds]
