"""Encoded candidates on disk: encoded once, memory-mapped by every search.

A folder that `python -m convert_tf.index build` wrote holds

- `candidates.json`: the `version` of the format, the `count` and `dim` of the vectors, their
  `dtype`, the `max_norm` among them, the `encoder` that made them (its fingerprint) and the
  `texts` (SHA-256 of the texts, each behind its length);
- `vectors.npy`: `count × dim` float32, float16 or int8 values, row by row;
- `scales.npy` (int8 only): float32 `[count]`, by which a row's values are multiplied;
- `texts.npy`: uint8, the UTF-8 bytes of all texts one behind the other, and `offsets.npy`: int64
  `[count + 1]`, where each begins and ends in them.

A candidate's id is its place, from 0.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.data.array_writer import GrowingArray
from convert_tf.data.dumps import BadLines, DumpStats, TooManyBadLinesError, read_lines
from convert_tf.data.output_folder import OutputFolder
from convert_tf.data.progress import Progress
from convert_tf.files import write_file

FACTS_FILE = "candidates.json"
FORMAT_VERSION = 1
DTYPES = ("float32", "float16", "int8")
_FILE_NAME = re.compile(rf"(vectors|scales|texts|offsets)\.npy|faiss-[\w-]+\.index|{FACTS_FILE}")
_AGAIN = "Build it again with `python -m convert_tf.index build`."
_FACTS = {
    "version": int,
    "count": int,
    "dim": int,
    "dtype": str,
    "max_norm": float,
    "encoder": str,
    "texts": str,
}
# A float16 is widened as an integer: its exponent then is 112 too small for a float32.
_EXPONENT_OF_FLOAT16 = np.float32(2.0**112)
_NO_SIGN_COPIES = np.int32(-0x70000001)  # all bits but the three below the sign


def read_candidate_lines(path: str | os.PathLike[str]) -> Iterator[str]:
    """The lines of a UTF-8 file that are not empty, without white space around them.

    Args:
      path: a `.gz`, `.zst`, `.bz2` or plain file.

    Raises:
      ValueError: it is no UTF-8 text, or a damaged archive.
      OSError: it cannot be read.
    """
    stats = DumpStats(os.fspath(path), bad_lines=BadLines(limit=0))
    try:
        for line in read_lines(stats.path, stats):
            yield line.decode("utf-8")
    except (TooManyBadLinesError, UnicodeDecodeError) as error:
        reason = error if isinstance(error, UnicodeDecodeError) else stats.bad_lines.first[0]
        raise ValueError(
            "Candidates are the lines of a UTF-8 file, compressed or not. "
            f"Received: {stats.path!r}, line {stats.lines} ({reason}). Repair the file."
        ) from error


def cache_files(folder: str) -> list[str]:
    """The files of a cache; none where there is no `candidates.json`, which comes last."""
    if not os.path.isfile(os.path.join(folder, FACTS_FILE)):
        return []
    names = [name for name in os.listdir(folder) if _FILE_NAME.fullmatch(name)]
    names.sort(key=lambda name: (name == FACTS_FILE, name))
    return [os.path.join(folder, name) for name in names]


def write_cache(
    folder: str | os.PathLike[str],
    texts: Iterable[str],
    encode: Callable[[Sequence[str]], np.ndarray],
    *,
    fingerprint: str,
    dtype: str = "float32",
    batch_size: int = 1024,
    overwrite: bool = False,
) -> "CandidateCache":
    """Encodes candidates and writes them to a folder, which appears whole or not at all.

    Memory stays flat: a batch of texts at a time is encoded and written.

    Args:
      folder: of the cache; its parents are made.
      texts: the candidates; read once. The same text may come more than once.
      encode: texts → float `[len(texts), dim]`.
      fingerprint: names the encoder; a search with another one is refused.
      dtype: how vectors are stored: `"float32"`, `"float16"` or `"int8"` with a scale for each row.
      batch_size: texts that are encoded together.
      overwrite: whether a cache of that name is replaced.

    Returns:
      The cache, open.

    Raises:
      ValueError: there is no candidate, a vector is no number or too large for `dtype`, `dtype` is
        none of those, or the folder holds something else.

    Example:
      cache = write_cache("cache/", ["yes", "no"], encode, fingerprint="mine", dtype="int8")
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype is one of {', '.join(DTYPES)}. Received: {dtype!r}.")
    if batch_size < 1:
        raise ValueError(f"A batch has a text or more. Received: batch_size={batch_size}.")
    place = os.fspath(folder)
    if os.path.isdir(place) and not cache_files(place):
        if any(not name.startswith(".") for name in os.listdir(place)):
            raise ValueError(
                "Candidates are cached in a folder of their own. "
                f"Received: {place!r}, which holds something else. Choose another --output."
            )
    elif cache_files(place) and not overwrite:
        raise ValueError(
            f"A cache that is there is kept. Received: {place!r}, which holds one. Pass "
            "--overwrite, or choose another --output."
        )
    with OutputFolder(place, data_files=cache_files, overwrite=overwrite).open() as output:
        writer = _CacheWriter(Path(output.written), dtype)
        iterator = iter(texts)
        try:
            with Progress("candidates") as progress:
                while batch := list(islice(iterator, batch_size)):
                    writer.append(batch, np.asarray(encode(batch)))
                    progress.add(len(batch))
            writer.finish(fingerprint)
        finally:
            writer.abort()
        output.publish()
    return CandidateCache(place)


class _CacheWriter:
    def __init__(self, folder: Path, dtype: str):
        self._folder = folder
        self._dtype = dtype
        self._arrays = {
            "vectors": GrowingArray(folder / "vectors.npy", dtype),
            "texts": GrowingArray(folder / "texts.npy", "uint8"),
            "offsets": GrowingArray(folder / "offsets.npy", "int64"),
        }
        if dtype == "int8":
            self._arrays["scales"] = GrowingArray(folder / "scales.npy", "float32")
        self._arrays["offsets"].append(np.zeros(1, np.int64))
        self._hash = hashlib.sha256()
        self._dim = 0
        self._max_norm = 0.0

    def append(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        self._dim = self._dim or vectors.shape[-1]
        if vectors.shape != (len(texts), self._dim):
            raise ValueError(
                "Encoding texts gives a vector for each, all equally long. Received: shape "
                f"{vectors.shape} for {len(texts)} texts, after vectors of {self._dim}. Use an "
                "encoder of candidates."
            )
        stored, scales = stored_vectors(vectors, self._dtype)
        self._arrays["vectors"].append(stored.reshape(-1))
        if scales is not None:
            self._arrays["scales"].append(scales)
        floats = stored.astype(np.float64) * (1 if scales is None else scales[:, None])
        self._max_norm = max(self._max_norm, float(np.linalg.norm(floats, axis=1).max()))
        encoded = [text.encode("utf-8") for text in texts]
        lengths = np.array([len(text) for text in encoded], np.int64)
        self._arrays["offsets"].append(self._arrays["texts"].size + np.cumsum(lengths))
        self._arrays["texts"].append(np.frombuffer(b"".join(encoded), np.uint8))
        for text in encoded:
            self._hash.update(b"%d:" % len(text))
            self._hash.update(text)

    def finish(self, fingerprint: str) -> None:
        count = self._arrays["offsets"].size - 1
        if not count:
            raise ValueError(
                "There must be a candidate. Received: no text that is not empty. Name another "
                "--input."
            )
        for array in self._arrays.values():
            array.close()
        facts = {
            "version": FORMAT_VERSION,
            "count": count,
            "dim": self._dim,
            "dtype": self._dtype,
            "max_norm": self._max_norm,
            "encoder": fingerprint,
            "texts": self._hash.hexdigest(),
        }
        write_file(self._folder / FACTS_FILE, json.dumps(facts, indent=2) + "\n")

    def abort(self) -> None:
        for array in self._arrays.values():
            array.abort()


def stored_vectors(vectors: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Vectors as a cache stores them.

    Args:
      vectors: float `[rows, dim]`.
      dtype: one of `DTYPES`.

    Returns:
      `(values [rows, dim], scales float32 [rows])`; None in place of scales but for int8, whose
      rows span −127 … 127, so that no value is off by more than half a scale.

    Raises:
      ValueError: a value is no number, or too large.
    """
    if dtype == "int8":
        largest = np.abs(vectors).max(axis=1)
        scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
        values = np.rint(vectors / scales[:, None])
        is_finite = np.isfinite(values).all()
        if is_finite:
            return np.clip(values, -127, 127).astype(np.int8), scales
    else:
        with np.errstate(over="ignore"):
            values = vectors.astype(dtype)
        if np.isfinite(values).all():
            return values, None
    raise ValueError(
        f"Vectors must be numbers that {dtype} holds. Received: others. Use another checkpoint, or "
        "float32."
    )


class CandidateCache:
    """A folder of encoded candidates, mapped into memory and read where it is needed.

    Args:
      folder: that `write_cache` wrote.

    Attributes:
      count, dim, dtype: of the stored vectors.
      max_norm: length of the longest vector.
      encoder: fingerprint of what encoded them.
      texts_hash: names the texts; equal where the texts are.

    Raises:
      ValueError: the folder is no cache, or a damaged one.

    Example:
      cache = CandidateCache("cache/")
      cache.text(3), cache.vectors_at([3])
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        facts = _read_facts(self.folder / FACTS_FILE)
        self.count: int = facts["count"]
        self.dim: int = facts["dim"]
        self.dtype: str = facts["dtype"]
        self.max_norm: float = facts["max_norm"]
        self.encoder: str = facts["encoder"]
        self.texts_hash: str = facts["texts"]
        flat = self._mapped("vectors", self.dtype, self.count * self.dim)
        self._vectors = flat.reshape(self.count, self.dim)
        self._scales = (
            self._mapped("scales", "float32", self.count) if self.dtype == "int8" else None
        )
        self._offsets = self._mapped("offsets", "int64", self.count + 1)
        self._texts = self._mapped("texts", "uint8", int(self._offsets[-1]))

    def __len__(self) -> int:
        return self.count

    def check_encoder(self, fingerprint: str) -> None:
        """Raises `ValueError` unless the vectors are of the encoder with this fingerprint."""
        if fingerprint != self.encoder:
            raise ValueError(
                "Candidates must be searched with the encoder that encoded them. Received: "
                f"{str(self.folder)!r}, encoded by {self.encoder}, and the encoder {fingerprint}. "
                "Name the model of the cache, or build a cache with this one."
            )

    def stored(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows as they are stored, and their scales; both mapped, nothing is copied."""
        scales = None if self._scales is None else self._scales[start:stop]
        return self._vectors[start:stop], scales

    def vectors_at(self, ids: np.ndarray | Sequence[int]) -> np.ndarray:
        """float32 `[len(ids), dim]`, as stored."""
        rows = self._vectors[np.asarray(ids)].astype(np.float32)
        return rows if self._scales is None else rows * self._scales[np.asarray(ids), None]

    def text(self, candidate_id: int) -> str:
        """The text of a candidate."""
        if not 0 <= candidate_id < self.count:
            raise ValueError(
                f"Candidates are numbered from 0. Received: {candidate_id} of {self.count}."
            )
        start, stop = self._offsets[candidate_id : candidate_id + 2]
        return self._texts[start:stop].tobytes().decode("utf-8")

    def texts(self, start: int = 0, stop: int | None = None) -> Iterator[str]:
        """The texts from `start` to before `stop`, in order."""
        return (self.text(i) for i in range(start, self.count if stop is None else stop))

    def _mapped(self, name: str, dtype: str, size: int) -> np.ndarray:
        path = self.folder / f"{name}.npy"
        with contextlib.suppress(OSError, ValueError, EOFError):
            # Where all texts are empty there is nothing to map.
            array = np.load(path, mmap_mode="r" if size else None)
            if array.dtype == dtype and array.shape == (size,):
                return np.asarray(array)
        raise ValueError(
            f"A candidate cache must be whole. Received: {path}, which is not {size} values of "
            f"{dtype}. {_AGAIN}"
        )


def widen_float16(values: np.ndarray, out: np.ndarray) -> None:
    """`out[...] = values`, float16 → float32, for finite values.

    Reads them as integers: six times as fast as numpy's own conversion, which goes value by value.
    """
    bits = out.view(np.int32)
    np.copyto(bits, values.view(np.int16))
    bits <<= 13
    bits &= _NO_SIGN_COPIES
    out *= _EXPONENT_OF_FLOAT16


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"A candidate cache must hold {FACTS_FILE}. Received: {path} ({error}). {_AGAIN}"
        ) from error
    version = facts.get("version") if isinstance(facts, dict) else None
    if version != FORMAT_VERSION:
        raise ValueError(
            f"Candidate caches are read in version {FORMAT_VERSION} of their format. Received: "
            f"version {version!r} in {path}. {_AGAIN}"
        )
    wrong = [name for name, kind in _FACTS.items() if not isinstance(facts.get(name), kind)]
    if wrong or facts["dtype"] not in DTYPES:
        raise ValueError(
            f"{FACTS_FILE} must say what the vectors are. Received: {path}, with "
            f"{', '.join(wrong or ['dtype'])} missing or of another kind. {_AGAIN}"
        )
    return facts
