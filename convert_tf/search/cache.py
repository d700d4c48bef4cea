"""Encoded candidates on disk, which every search maps into memory.

`convert-tf index build` writes a folder with these files:

- `candidates.json`: `version` of the format, `count` and `dim` of the vectors, their `dtype`, the
  largest length `max_norm`, `encoder` (the encoder's fingerprint), `encoder_name` and `texts`
  (SHA-256 of the texts, each after its length);
- `vectors.npy`: `[count, dim]` of float32, float16 or int8;
- `scales.npy`, only for int8: float32 `[count]`, factors of the rows of `vectors.npy`;
- `texts.npy`: uint8, the UTF-8 bytes of all texts, concatenated;
- `offsets.npy`: int64 `[count + 1]`, the positions in `texts.npy` where texts start and end;
- `sha256.json`: checksums of these files, which are checked when the cache is opened.

The id of a candidate is its position, from 0.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from convert_tf.storage.arrays import FolderFormat, GrowingArray
from convert_tf.storage.checksums import CHECKSUMS_FILE, check_files, record_checksums
from convert_tf.storage.progress import Progress

DTYPES = ("float32", "float16", "int8")
_ARRAYS = ("vectors", "scales", "texts", "offsets")
FORMAT = FolderFormat(
    what="candidate cache",
    facts_file="candidates.json",
    other_files=r"(vectors|scales|texts|offsets)\.npy|faiss-[\w-]+\.(index|npy)|sha256\.json",
    kinds={"count": int, "dim": int, "max_norm": float, "encoder": str, "texts": str},
    dtypes=DTYPES,
    remedy="Build it again with `convert-tf index build`.",
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
      encoder_name: its name in messages; its fingerprint if it has none.
      texts_hash: checksum of the texts.

    Raises:
      ValueError: if the folder is not a cache, or is damaged.

    Example:
      cache = CandidateCache("cache/")
      cache.text(3), cache.vectors_at([3])
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        facts = FORMAT.facts(folder)
        self.count: int = facts["count"]
        self.dim: int = facts["dim"]
        self.dtype: str = facts["dtype"]
        self.max_norm: float = facts["max_norm"]
        self.encoder: str = facts["encoder"]
        self.encoder_name = str(facts.get("encoder_name") or self.encoder)
        self.texts_hash: str = facts["texts"]
        if not (self.folder / CHECKSUMS_FILE).is_file():
            raise ValueError(
                f"{str(folder)!r} has no {CHECKSUMS_FILE}: it is incomplete, or an earlier version "
                f"wrote it. {FORMAT.remedy}"
            )
        check_files(folder, FORMAT.facts_file, *(f"{name}.npy" for name in _ARRAYS))

        def mapped(name: str, dtype: str, size: int) -> np.ndarray:
            return FORMAT.mapped(folder, f"{name}.npy", dtype, (size,)).array

        flat = mapped("vectors", self.dtype, self.count * self.dim)
        self._vectors = flat.reshape(self.count, self.dim)
        self._scales = mapped("scales", "float32", self.count) if self.dtype == "int8" else None
        self._offsets = mapped("offsets", "int64", self.count + 1)
        self._texts = mapped("texts", "uint8", int(self._offsets[-1]))

    def check_encoder(self, fingerprint: str, name: str = "") -> None:
        """Raise `ValueError` unless the encoder has this fingerprint."""
        if fingerprint != self.encoder:
            raise ValueError(
                f"The index {str(self.folder)!r} was encoded by {self.encoder_name}, not by "
                f"{name or fingerprint}. Pass its own encoder and kind, or encode its texts again: "
                f"convert-tf index build --from {self.folder} --encoder NEW --output OTHER."
            )

    @property
    def kind(self) -> str:
        """The kind of its vectors: `"response"` or `"similarity"`."""
        return "similarity" if self.encoder.endswith("-similarity") else "response"

    def texts(self) -> Iterator[str]:
        """Yield the texts of all candidates."""
        return map(self.text, range(self.count))

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


def write_cache(
    folder: str | os.PathLike[str],
    texts: Iterable[str],
    encode: Callable[[Sequence[str]], np.ndarray],
    *,
    fingerprint: str,
    name: str = "",
    dtype: str = "float32",
    batch_size: int = 1024,
    overwrite: bool = False,
) -> CandidateCache:
    """Encode candidates and write them to a folder, which appears whole or not at all.

    A batch of texts at a time is encoded and written, so memory stays small.

    Args:
      folder: the folder of the cache; its parents are created.
      texts: the candidates; read once. They may repeat.
      encode: texts → float `[len(texts), dim]`.
      fingerprint: identifies the encoder; a search with another one is refused.
      name: the encoder in messages.
      dtype: type of the stored vectors: `"float32"`, `"float16"` or `"int8"` with a scale per row.
      batch_size: number of texts to encode together.
      overwrite: whether to replace an existing cache.

    Returns:
      The cache, open.

    Raises:
      ValueError: if there is no candidate, a vector is missing, NaN, infinite or too large for
        `dtype`, or the folder has other files.

    Example:
      cache = write_cache("cache/", ["yes", "no"], encode, fingerprint="mine", dtype="int8")
    """
    output = FORMAT.output(folder, overwrite=overwrite)
    dtypes = {"vectors": dtype, "texts": "uint8", "offsets": "int64", "scales": "float32"}
    if dtype != "int8":
        del dtypes["scales"]
    with output.open() as place:
        digest, dim, max_norm = hashlib.sha256(), 0, 0.0
        with contextlib.ExitStack() as stack, Progress("candidates") as progress:
            arrays = {
                name: stack.enter_context(GrowingArray(place / f"{name}.npy", kind))
                for name, kind in dtypes.items()
            }
            arrays["offsets"].append(np.zeros(1, np.int64))
            iterator = iter(texts)
            while batch := list(islice(iterator, batch_size)):
                vectors = np.asarray(encode(batch))
                if vectors.shape != (len(batch), dim or vectors.shape[-1]):
                    raise ValueError(
                        f"encode must return a vector of one width for each of {len(batch)} texts. "
                        f"Received: shape {vectors.shape}."
                    )
                stored, scales = stored_vectors(vectors, dtype)
                dim = stored.shape[1]
                arrays["vectors"].append(stored.reshape(-1))
                floats = stored.astype(np.float64)
                if scales is not None:
                    arrays["scales"].append(scales)
                    floats *= scales[:, None]
                max_norm = max(max_norm, float(np.linalg.norm(floats, axis=1).max()))
                encoded = [text.encode("utf-8") for text in batch]
                ends = np.cumsum([len(text) for text in encoded])
                arrays["offsets"].append(arrays["texts"].size + ends)
                arrays["texts"].append(np.frombuffer(b"".join(encoded), np.uint8))
                for text in encoded:
                    digest.update(b"%d:%b" % (len(text), text))
                progress.add(len(batch))
        if not dim:
            raise ValueError("There is no candidate: all texts are empty. Pass another --input.")
        facts = {
            "count": arrays["offsets"].size - 1,
            "dim": dim,
            "dtype": dtype,
            "max_norm": max_norm,
            "encoder": fingerprint,
            "encoder_name": name,
            "texts": digest.hexdigest(),
        }
        FORMAT.write_facts(place, facts)
        record_checksums(place, (FORMAT.facts_file, *(f"{name}.npy" for name in arrays)))
    return CandidateCache(folder)


def stored_vectors(vectors: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Convert vectors for storage in a cache.

    Args:
      vectors: float `[rows, dim]`.
      dtype: one of `DTYPES`.

    Returns:
      `(values [rows, dim], scales float32 [rows])`. Scales are None unless `dtype` is int8, whose
      rows span −127 … 127, so that no value is off by more than half a scale.

    Raises:
      ValueError: if a value is NaN, infinite or too large.
    """
    if dtype == "int8":
        largest = np.abs(vectors).max(axis=1)
        scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
        values = np.rint(vectors / scales[:, None])
        if np.isfinite(values).all():
            return np.clip(values, -127, 127).astype(np.int8), scales
    else:
        with np.errstate(over="ignore"):
            values = vectors.astype(dtype)
        if np.isfinite(values).all():
            return values, None
    raise ValueError(
        f"Some vectors are NaN, infinite or too large for {dtype}. Use another checkpoint, or "
        "--dtype=float32."
    )


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
