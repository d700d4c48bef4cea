"""The encodings that were asked for last."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np


class EncodingCache:
    """Keeps the encodings of the texts that were asked for last; several threads may use it.

    Args:
      encode: keys, all different → float `[keys, dim]`. It is called outside of the lock: two
        threads that miss the same key at once both compute it.
      size: how many encodings are kept; 0 for none.

    Attributes:
      hits: how many keys were found.
    """

    def __init__(self, encode: Callable[[Any], np.ndarray], *, size: int):
        self._encode = encode
        self._size = size
        self._rows: OrderedDict[Hashable, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()
        self.hits = 0

    def __getstate__(self) -> dict[str, Any]:
        """What a copy in another process begins with: nothing is kept yet."""
        return {**self.__dict__, "_rows": OrderedDict(), "_lock": None, "hits": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __call__(self, keys: Sequence[Hashable]) -> np.ndarray:
        """Encodings of keys, in their order; an array of the caller's own."""
        found: dict[Hashable, np.ndarray] = {}
        missing: list[Hashable] = []
        with self._lock:
            for key in dict.fromkeys(keys):
                if (row := self._rows.get(key)) is None:
                    missing.append(key)
                else:
                    self._rows.move_to_end(key)
                    found[key] = row
            self.hits += len(found)
        if missing or not keys:
            encodings = self._encode(missing)
            if not found and len(missing) == len(keys):
                self.add(missing, encodings)
                return encodings
            found.update(zip(missing, encodings, strict=True))
            self.add(missing, encodings)
        return np.stack([found[key] for key in keys])

    def kept(self) -> tuple[list[Hashable], np.ndarray]:
        """All keys whose encodings are kept, and these; there is one at least."""
        with self._lock:
            return list(self._rows), np.stack(list(self._rows.values()))

    def add(self, keys: Sequence[Hashable], encodings: np.ndarray) -> None:
        """Keeps encodings that are known: float `[keys, dim]`."""
        newest = max(len(keys) - self._size, 0)
        with self._lock:
            for key, row in zip(keys[newest:], encodings[newest:], strict=True):
                # A copy: the row would keep the whole array in memory, which the caller may change.
                self._rows[key] = row.copy()
                self._rows.move_to_end(key)
            while len(self._rows) > self._size:
                self._rows.popitem(last=False)
