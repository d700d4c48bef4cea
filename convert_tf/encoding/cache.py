"""A cache of recent encodings."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np


class EncodingCache:
    """Cache of the most recent encodings. Several threads may use it at once.

    Args:
      encode: function that takes distinct keys and returns their encodings, float `[keys, dim]`. It
        is called while the cache is not locked. If two threads need the encoding of the same key at
        the same time, both compute it.
      size: maximum number of encodings in the cache; 0 turns caching off.

    Attributes:
      hits: number of requested encodings that were in the cache.
    """

    def __init__(self, encode: Callable[[Any], np.ndarray], *, size: int) -> None:
        self._encode = encode
        self._size = size
        self._rows: OrderedDict[Hashable, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()
        self.hits = 0

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, without the encodings."""
        return {**self.__dict__, "_rows": OrderedDict(), "_lock": None, "hits": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __call__(self, keys: Sequence[Hashable]) -> np.ndarray:
        """Return the encodings of keys, in the order of the keys, as a new array."""
        rows: dict[Hashable, np.ndarray] = {}
        missing: list[Hashable] = []
        with self._lock:
            for key in dict.fromkeys(keys):
                if (row := self._rows.get(key)) is None:
                    missing.append(key)
                else:
                    self._rows.move_to_end(key)
                    rows[key] = row
            self.hits += len(rows)
        if missing or not keys:
            encodings = self._encode(missing)
            if not rows and len(missing) == len(keys):
                self.add(missing, encodings)
                return encodings
            rows.update(zip(missing, encodings, strict=True))
            self.add(missing, encodings)
        return np.stack([rows[key] for key in keys])

    def kept(self) -> tuple[list[Hashable], np.ndarray]:
        """Return all keys in the cache and their encodings. The cache must not be empty."""
        with self._lock:
            return list(self._rows), np.stack(list(self._rows.values()))

    def add(self, keys: Sequence[Hashable], encodings: np.ndarray) -> None:
        """Add encodings that were computed elsewhere, float `[keys, dim]`."""
        newest = max(len(keys) - self._size, 0)
        with self._lock:
            for key, row in zip(keys[newest:], encodings[newest:], strict=True):
                # A view of the row would keep the whole array in memory, and callers may change it.
                self._rows[key] = row.copy()
                self._rows.move_to_end(key)
            while len(self._rows) > self._size:
                self._rows.popitem(last=False)
