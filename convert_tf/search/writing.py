"""Write candidates for `convert_tf.search.cache`, in little memory."""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from convert_tf.search.cache import (
    FACTS_FILE,
    FORMAT_VERSION,
    CandidateCache,
)
from convert_tf.storage.checksums import CHECKSUMS_FILE, record_checksums
from convert_tf.storage.files import write_file
from convert_tf.storage.folders import OutputFolder, files_with_facts
from convert_tf.storage.json_text import written_json
from convert_tf.storage.mapped import GrowingArray
from convert_tf.storage.progress import Progress

_FILE_NAME = re.compile(
    rf"(vectors|scales|texts|offsets)\.npy|faiss-[\w-]+\.index|{re.escape(CHECKSUMS_FILE)}"
)


def cache_files(folder: str) -> list[str]:
    """Return the files of a cache; none if there is no `candidates.json`, which is written last."""
    return files_with_facts(folder, FACTS_FILE, _FILE_NAME.fullmatch)


def write_cache(
    folder: str | os.PathLike[str],
    texts: Iterable[str],
    encode: Callable[[Sequence[str]], np.ndarray],
    *,
    fingerprint: str,
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
      dtype: type of the stored vectors: `"float32"`, `"float16"` or `"int8"` with a scale per row.
      batch_size: number of texts to encode together.
      overwrite: whether to replace an existing cache.

    Returns:
      The cache, open.

    Raises:
      ValueError: if there is no candidate, a vector is NaN, infinite or too large for `dtype`, or
        the folder has other files.

    Example:
      cache = write_cache("cache/", ["yes", "no"], encode, fingerprint="mine", dtype="int8")
    """
    output = OutputFolder(folder, data_files=cache_files, is_own=True, overwrite=overwrite)
    with output.open() as place:
        with contextlib.ExitStack() as arrays, Progress("candidates") as progress:
            writer = _CacheWriter(place, dtype, arrays)
            iterator = iter(texts)
            while batch := list(islice(iterator, batch_size)):
                writer.append(batch, np.asarray(encode(batch)))
                progress.add(len(batch))
        writer.finish(fingerprint)
    return CandidateCache(folder)


class _CacheWriter:
    def __init__(self, folder: Path, dtype: str, stack: contextlib.ExitStack):
        self._folder = folder
        self._dtype = dtype
        dtypes = {"vectors": dtype, "texts": "uint8", "offsets": "int64", "scales": "float32"}
        self._arrays = {
            name: stack.enter_context(GrowingArray(folder / f"{name}.npy", kind))
            for name, kind in dtypes.items()
            if name != "scales" or dtype == "int8"
        }
        self._arrays["offsets"].append(np.zeros(1, np.int64))
        self._hash = hashlib.sha256()
        self._dim = 0
        self._max_norm = 0.0

    def append(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        self._dim = vectors.shape[1]
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
            self._hash.update(b"%d:%b" % (len(text), text))

    def finish(self, fingerprint: str) -> None:
        count = self._arrays["offsets"].size - 1
        if not count:
            raise ValueError("There is no candidate: all texts are empty. Pass another --input.")
        facts = {
            "version": FORMAT_VERSION,
            "count": count,
            "dim": self._dim,
            "dtype": self._dtype,
            "max_norm": self._max_norm,
            "encoder": fingerprint,
            "texts": self._hash.hexdigest(),
        }
        write_file(self._folder / FACTS_FILE, written_json(facts))
        record_checksums(self._folder, (FACTS_FILE, *(f"{name}.npy" for name in self._arrays)))


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
