"""Write candidates for `convert_tf.search.cache`, in little memory."""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import numpy as np

from convert_tf.search.cache import (
    FACTS_FILE,
    FORMAT_VERSION,
    CandidateCache,
)
from convert_tf.storage.arrays import GrowingArray
from convert_tf.storage.checksums import CHECKSUMS_FILE, record_checksums
from convert_tf.storage.files import write_file
from convert_tf.storage.folders import OutputFolder, files_with_facts
from convert_tf.storage.json_text import written_json
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
      ValueError: if there is no candidate, a vector is missing, NaN, infinite or too large for
        `dtype`, or the folder has other files.

    Example:
      cache = write_cache("cache/", ["yes", "no"], encode, fingerprint="mine", dtype="int8")
    """
    output = OutputFolder(folder, data_files=cache_files, is_own=True, overwrite=overwrite)
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
            "version": FORMAT_VERSION,
            "count": arrays["offsets"].size - 1,
            "dim": dim,
            "dtype": dtype,
            "max_norm": max_norm,
            "encoder": fingerprint,
            "texts": digest.hexdigest(),
        }
        write_file(place / FACTS_FILE, written_json(facts))
        record_checksums(place, (FACTS_FILE, *(f"{name}.npy" for name in arrays)))
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
