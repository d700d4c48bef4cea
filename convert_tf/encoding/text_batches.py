"""Encode texts in batches of similar length, encode equal texts once, and restore the order."""

from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    Set,
)
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import Any

import numpy as np

from convert_tf.data.candidates import extra_context
from convert_tf.storage.json_text import whole_characters

BATCH_SIZE = 256  # default of the maximum number of texts per batch
# Maximum size of a batch in bytes, if all texts are padded to the longest text. 64 KiB are about
# 16,000 English subwords.
BATCH_BYTES = 2**16
# Number of texts from an iterator that are sorted together, unless a batch is larger.
WINDOW_TEXTS = 4096
_WINDOW_BYTES = 2**24
# Each thread gets several batches, so that all threads end at about the same time. A batch still
# has some hundred texts, so that a backend can sort it by the number of tokens.
_BATCHES_PER_THREAD = 4
_LARGEST_SHARED_BATCH = 512
_LEAST_SHARED_BATCH = 8

Columns = Sequence[Sequence[bytes]]
Run = Callable[[Columns], np.ndarray]


def is_text(value: Any) -> bool:
    """Return whether an object is one text."""
    return isinstance(value, str | bytes)


def is_count(value: Any) -> bool:
    """Return whether an object is a positive integer, from Python or numpy."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_whole and bool(value >= 1)


def is_stream(texts: Any) -> bool:
    """Return whether texts come from an iterator. The number of such texts is unknown."""
    return not isinstance(texts, Collection) and not hasattr(texts, "__array__")


def items_in_order(texts: Any, *, what: str = "Texts") -> Iterable[Any]:
    """Return the items of a list, a column of a table or another iterable. Items are not checked.

    Args:
      texts: see `text_bytes`.
      what: name of the texts in error messages.

    Raises:
      ValueError: if `texts` is a single text, has no order (a set or a mapping) or has several
        columns.
    """
    is_iterable = hasattr(texts, "__iter__") or hasattr(texts, "__array__")
    has_no_order = isinstance(texts, Mapping | Set) and not isinstance(texts, KeysView)
    if is_text(texts) or has_no_order or not is_iterable:
        raise ValueError(
            f"{what} must be a list, or another iterable, of strings. Received: "
            f"{type(texts).__name__}."
        )
    if hasattr(texts, "__array__"):  # numpy, pandas and similar libraries
        array = np.asarray(texts)
        if array.ndim != 1:
            raise ValueError(
                f"{what} must be one column. Received: an array of shape {array.shape}. Pass one "
                "of its columns."
            )
        return array.tolist()  # type: ignore[no-any-return]
    return texts  # type: ignore[no-any-return]


def text_bytes(texts: Any, *, what: str = "Texts", numbered: bool | None = None) -> Iterator[bytes]:
    """Yield the texts of any container in UTF-8.

    Args:
      texts: str or bytes in a list, a tuple, a numpy array, a column of a table, or an iterator.
      what: name of the texts in error messages.
      numbered: None if every item must be a text. Otherwise an item may be a list of turns, the
        oldest first, which are joined into one text (`extra_context`). If True, the turns are
        numbered.

    Raises:
      ValueError: if an item is not a text, or the container has no order.
    """
    for position, text in enumerate(items_in_order(texts, what=what)):
        is_turns = numbered is not None and isinstance(text, list | tuple)
        if is_turns and all(isinstance(turn, str) for turn in text):
            text = extra_context((*text, ""), numbered=bool(numbered))
        if isinstance(text, str):
            yield whole_characters(text).encode()
        elif isinstance(text, bytes):
            yield bytes(text)
        else:
            raise ValueError(
                f"{what} must be str or bytes. Received: {text!r} ({type(text).__name__}) at "
                f"position {position}. Remove it, or replace it by ''."
            )


def encode_columns(
    columns: Columns,
    run: Run,
    *,
    batch_size: int,
    on_batch: Callable[[int], None] = lambda number: None,
    concurrent_batches: int = 1,
) -> np.ndarray:
    """Encode texts in batches of similar length, and equal texts once.

    Args:
      columns: the texts. If a row is encoded from several texts, there are several columns.
      run: function that encodes a batch and returns the vectors, float `[rows, dim]`. It must work
        for 0 rows too.
      batch_size: maximum number of rows per batch. Batches of long texts are smaller
        (`BATCH_BYTES`).
      on_batch: function that is called after each batch with the number of finished rows, including
        rows with equal texts.
      concurrent_batches: number of batches to encode at once, each in a thread. If there are
        several and `batch_size` is at least `BATCH_SIZE`, a batch may have up to 512 rows, and
        `run` must divide it if necessary.

    Returns:
      The vectors, float32 `[rows, dim]`, in the order of the rows.
    """
    keys: Sequence[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    if not keys:
        return np.asarray(run(columns), np.float32)
    if len(keys) == 1:
        only = np.asarray(_checked(run(columns), 1), np.float32)
        on_batch(1)
        return only
    # Position of the first occurrence of each text. Positions are in reverse order, so that the
    # first one replaces all later ones.
    first = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
    source = np.fromiter(map(first.__getitem__, keys), np.int64, len(keys))
    times = np.bincount(source, minlength=len(keys))
    is_first = source == np.arange(len(keys))
    lengths = np.array([sum(map(len, row)) for row in zip(*columns, strict=True)])
    order = np.flatnonzero(is_first)
    order = order[np.argsort(lengths[order], kind="stable")]
    if concurrent_batches > 1:
        share = -(-len(order) // (concurrent_batches * _BATCHES_PER_THREAD))
        if batch_size >= BATCH_SIZE:
            batch_size = max(batch_size, _LARGEST_SHARED_BATCH)
        batch_size = min(batch_size, max(share, _LEAST_SHARED_BATCH))
    batches = list(_batches(order.tolist(), lengths[order].tolist(), batch_size))

    def run_batch(batch: Sequence[int]) -> np.ndarray:
        return _checked(run([[column[i] for i in batch] for column in columns]), len(batch))

    encodings = None
    for batch, vectors in _encoded(run_batch, batches, concurrent_batches):
        if encodings is None:
            encodings = np.empty((len(keys), vectors.shape[1]), np.float32)
        encodings[batch] = vectors
        on_batch(int(times[batch].sum()))
    assert encodings is not None
    encodings[~is_first] = encodings[source[~is_first]]
    return encodings


def _checked(vectors: np.ndarray, number: int) -> np.ndarray:
    if vectors.ndim != 2 or len(vectors) != number:
        raise ValueError(
            f"The signature returned an array of shape {vectors.shape} for {number} texts, not one "
            "vector for each text. Use another signature."
        )
    return vectors


def _encoded(
    run_batch: Callable[[Sequence[int]], np.ndarray], batches: Sequence[Sequence[int]], threads: int
) -> Iterator[tuple[Sequence[int], np.ndarray]]:
    """Yield each batch with its vectors.

    With several threads, the batches with the longest texts run first. If such a batch ran last,
    the other threads would be idle until it ended.
    """
    if threads == 1 or len(batches) == 1:
        for batch in batches:
            yield batch, run_batch(batch)
        return
    longest_first = batches[::-1]
    with ThreadPoolExecutor(threads) as pool:
        yield from zip(longest_first, pool.map(run_batch, longest_first), strict=True)


def _batches(
    positions: Sequence[int], lengths: Sequence[int], batch_size: int
) -> Iterator[list[int]]:
    """Divide positions of texts, sorted by the texts' length in bytes, into batches."""
    batch: list[int] = []
    for position, length in zip(positions, lengths, strict=True):
        if batch and (len(batch) == batch_size or (len(batch) + 1) * length > BATCH_BYTES):
            yield batch
            batch = []
        batch.append(position)
    yield batch


def rows_of(columns: Sequence[Iterator[bytes]]) -> Iterator[tuple[bytes, ...]]:
    """Yield the rows of several columns.

    Raises:
      ValueError: if the columns have different lengths. The error is raised at the end of the
        shortest column.
    """
    for number, row in enumerate(zip_longest(*columns)):
        if None in row:
            raise ValueError(
                f"Texts and extra contexts differ in number: one of them ends after {number}. Pass "
                "an extra context for each text; it may be ''."
            )
        yield row


def windows(columns: Sequence[Iterator[bytes]], *, batch_size: int) -> Iterator[Columns]:
    """Divide columns of texts from iterators into pieces whose texts can be sorted by length.

    A piece has `WINDOW_TEXTS` texts, or fewer if the texts are long.
    """
    size = max(WINDOW_TEXTS, batch_size)
    window: list[tuple[bytes, ...]] = []
    num_bytes = 0
    for row in rows_of(columns):
        window.append(row)
        num_bytes += sum(map(len, row))
        if len(window) == size or num_bytes >= _WINDOW_BYTES:
            yield list(zip(*window, strict=True))
            window, num_bytes = [], 0
    if window:
        yield list(zip(*window, strict=True))


def in_memory(columns: Sequence[Iterator[bytes]]) -> Columns:
    """Return columns of texts in memory as one piece."""
    if len(columns) == 1:
        return [list(columns[0])]
    return list(zip(*rows_of(columns), strict=True)) or [[]] * len(columns)


def joined(pieces: Iterable[np.ndarray]) -> np.ndarray:
    """Concatenate the rows of pieces, and free each piece after it is copied.

    `np.concatenate` would need memory for the pieces and the result at the same time.
    """
    waiting = list(pieces)
    if len(waiting) == 1:
        return waiting[0]
    rows = sum(map(len, waiting))
    whole = np.empty((rows, waiting[0].shape[1]), waiting[0].dtype)
    end = rows
    while waiting:
        piece = waiting.pop()
        whole[end - len(piece) : end] = piece
        end -= len(piece)
    return whole
