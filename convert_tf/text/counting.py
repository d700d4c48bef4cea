"""Exact word counts in bounded memory.

When the table of words is full, it is sorted and written to disk as a part. The parts are merged at
the end. Rare words are only dropped after this merge, so the result does not depend on the order of
the input.
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
    """Counter of words that writes to disk when its table is full.

    Attributes:
      max_words: maximum number of words that `counts` returns.
      max_table: maximum number of words in memory before they are written to disk.
      max_word_length: maximum number of characters per word. Longer words are cut.

    Example:
      counter = WordCounter()
      counter.add(["a", "b", "a"])
      counter.counts()  # {"a": 2, "b": 1}
    """

    max_words = 2_000_000
    max_table = 3_000_000
    max_word_length = 64

    def __init__(self) -> None:
        self._table: collections.Counter[bytes | str] = collections.Counter()
        self._parts: list[IO[bytes]] = []

    def add(self, words: Iterable[bytes | str]) -> None:
        """Count words, which must be either all `str` or all UTF-8 `bytes`."""
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
        """Return the words with their counts.

        If there are more than `max_words` words, the words with the lowest counts are dropped.
        Words with equal counts are kept or dropped together.
        """
        words_with_count = collections.Counter(count for _, count in self._merged())
        lowest, num_words = 1, sum(words_with_count.values())
        while num_words > self.max_words:
            num_words -= words_with_count[lowest]
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
