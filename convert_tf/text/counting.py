"""Counts words, more of them than fit in memory, with a result that no order of the input changes.

Counts are exact: a table that is full is written to disk, sorted, and the parts are merged in the
end. Only then are words left out, the rarest first: those seen less than the smallest number of
times for which at most `max_words` remain.
"""

import collections
import heapq
import itertools
import operator
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO

_PART_ROWS = 50_000


class WordCounter:
    """An exact table of word counts in bounded memory.

    Args:
        max_words: Words that `counts` returns, at most.
        max_table: Words held in memory before they are written to disk.
        max_word_length: Characters of a word that are looked at; the rest is cut off.

    Raises:
        ValueError: A number is below 1.

    ```python
    counter = WordCounter()
    counter.add(["a", "b", "a"])
    counter.counts()  # {"a": 2, "b": 1}
    ```
    """

    def __init__(
        self, max_words: int = 2_000_000, max_table: int = 3_000_000, *, max_word_length: int = 64
    ):
        if min(max_words, max_table, max_word_length) < 1:
            raise ValueError(
                f"The limits of a word table are at least 1. Received: max_words={max_words}, "
                f"max_table={max_table}, max_word_length={max_word_length}. Pass larger numbers."
            )
        self.max_words = max_words
        self.max_table = max_table
        self.max_word_length = max_word_length
        self._table: collections.Counter[bytes | str] = collections.Counter()
        self._parts: list[IO[bytes]] = []

    def add(self, words: Iterable[bytes | str]) -> None:
        """Counts words, either all `str` or all UTF-8 `bytes`."""
        self._table.update(words)
        if len(self._table) > self.max_table:
            self._spill()

    def _spill(self) -> None:
        part = tempfile.TemporaryFile()  # noqa: SIM115 (read again in counts)
        rows = iter(sorted(self._table.items()))
        while chunk := list(itertools.islice(rows, _PART_ROWS)):
            pickle.dump(chunk, part, pickle.HIGHEST_PROTOCOL)
        self._parts.append(part)
        self._table.clear()

    def _merged(self) -> Iterator[tuple[bytes | str, int]]:
        if not self._parts:
            yield from self._table.items()
            return
        streams = [_rows(part) for part in self._parts]
        streams.append(iter(sorted(self._table.items())))
        merged = heapq.merge(*streams, key=operator.itemgetter(0))
        for word, rows in itertools.groupby(merged, key=operator.itemgetter(0)):
            yield word, sum(count for _, count in rows)

    def counts(self) -> dict[str, int]:
        """Returns the words and how often each was added, at most `max_words`."""
        with_count = collections.Counter(count for _, count in self._merged())
        lowest, kept = 1, sum(with_count.values())
        while kept > self.max_words:
            kept -= with_count[lowest]
            lowest += 1
        counts: collections.Counter[str] = collections.Counter()
        for word, count in self._merged():
            if count >= lowest:
                text = word.decode("utf-8") if isinstance(word, bytes) else word
                counts[text[: self.max_word_length]] += count
        return dict(counts)


def _rows(part: IO[bytes]) -> Iterator[tuple[bytes | str, int]]:
    part.seek(0)
    while True:
        try:
            yield from pickle.load(part)
        except EOFError:
            return
