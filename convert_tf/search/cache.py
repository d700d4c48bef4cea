"""Encoded candidates on disk, which every search maps into memory.

`convert-tf index build` writes a folder with these files:

- `candidates.json`: `version` of the format, `count` and `dim` of the vectors, their `dtype`, the
  largest length `max_norm`, `encoder` (the encoder's fingerprint) and `texts` (SHA-256 of the
  texts, each after its length);
- `vectors.npy`: `[count, dim]` of float32, float16 or int8;
- `scales.npy`, only for int8: float32 `[count]`, factors of the rows of `vectors.npy`;
- `texts.npy`: uint8, the UTF-8 bytes of all texts, concatenated;
- `offsets.npy`: int64 `[count + 1]`, the positions in `texts.npy` where texts start and end;
- `sha256.json`: checksums of these files, which are checked when the cache is opened.

The id of a candidate is its position, from 0.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from convert_tf.storage.arrays import FolderFormat
from convert_tf.storage.checksums import CHECKSUMS_FILE, check_files

FACTS_FILE = "candidates.json"
FORMAT_VERSION = 1
DTYPES = ("float32", "float16", "int8")
_ARRAYS = ("vectors", "scales", "texts", "offsets")
_AGAIN = "Build it again with `convert-tf index build`."
_FORMAT = FolderFormat(
    what="candidate cache",
    facts_file=FACTS_FILE,
    version=FORMAT_VERSION,
    kinds={
        "version": int,
        "count": int,
        "dim": int,
        "dtype": str,
        "max_norm": float,
        "encoder": str,
        "texts": str,
    },
    dtypes=DTYPES,
    remedy=_AGAIN,
)
# A float16 is widened as an integer: its exponent then is 112 too small for a float32.
_EXPONENT_OF_FLOAT16 = np.float32(2.0**112)
_NO_SIGN_COPIES = np.int32(-0x70000001)  # all bits but the three below the sign


class CandidateCache:
    """A folder of encoded candidates, memory-mapped.

    Args:
      folder: a folder that `write_cache` wrote.

    Attributes:
      count, dim, dtype: of the stored vectors.
      max_norm: length of the longest vector.
      encoder: fingerprint of the encoder.
      texts_hash: checksum of the texts.

    Raises:
      ValueError: if the folder is not a cache, or is damaged.

    Example:
      cache = CandidateCache("cache/")
      cache.text(3), cache.vectors_at([3])
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        facts = _FORMAT.facts(folder)
        self.count: int = facts["count"]
        self.dim: int = facts["dim"]
        self.dtype: str = facts["dtype"]
        self.max_norm: float = facts["max_norm"]
        self.encoder: str = facts["encoder"]
        self.texts_hash: str = facts["texts"]
        if not (self.folder / CHECKSUMS_FILE).is_file():
            raise ValueError(
                f"{str(folder)!r} has no {CHECKSUMS_FILE}: it is incomplete, or an earlier version "
                f"wrote it. {_AGAIN}"
            )
        check_files(folder, FACTS_FILE, *(f"{name}.npy" for name in _ARRAYS))

        def mapped(name: str, dtype: str, size: int) -> np.ndarray:
            return _FORMAT.mapped(folder, f"{name}.npy", dtype, (size,)).array

        flat = mapped("vectors", self.dtype, self.count * self.dim)
        self._vectors = flat.reshape(self.count, self.dim)
        self._scales = mapped("scales", "float32", self.count) if self.dtype == "int8" else None
        self._offsets = mapped("offsets", "int64", self.count + 1)
        self._texts = mapped("texts", "uint8", int(self._offsets[-1]))

    def __len__(self) -> int:
        return self.count

    def check_encoder(self, fingerprint: str) -> None:
        """Raise `ValueError` unless the encoder has this fingerprint."""
        if fingerprint != self.encoder:
            raise ValueError(
                f"The cache {str(self.folder)!r} was encoded by {self.encoder}, not by this "
                f"encoder ({fingerprint}). Pass the encoder of the cache, or build a cache with "
                "this one."
            )

    def stored(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return stored rows and their scales. Both are mapped, not copied."""
        scales = None if self._scales is None else self._scales[start:stop]
        return self._vectors[start:stop], scales

    def vectors_at(self, ids: np.ndarray | Sequence[int]) -> np.ndarray:
        """Return float32 `[len(ids), dim]`."""
        rows = self._vectors[np.asarray(ids)].astype(np.float32)
        return rows if self._scales is None else rows * self._scales[np.asarray(ids), None]

    def text(self, candidate_id: int) -> str:
        """Return the text of a candidate."""
        if not 0 <= candidate_id < self.count:
            raise ValueError(
                f"There is no candidate {candidate_id}: the cache has numbers 0 to "
                f"{self.count - 1}."
            )
        start, stop = self._offsets[candidate_id : candidate_id + 2]
        return self._texts[start:stop].tobytes().decode("utf-8")


def widened_float16(values: np.ndarray) -> np.ndarray:
    """Return finite float16 values as float32.

    They are read as integers, which is six times as fast as numpy's conversion.
    """
    bits = values.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= _NO_SIGN_COPIES
    floats = bits.view(np.float32)
    floats *= _EXPONENT_OF_FLOAT16
    return floats
