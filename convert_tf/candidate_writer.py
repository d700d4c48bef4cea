"""Writing candidates as `convert_tf.candidate_cache` reads them, in little memory."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from convert_tf.candidate_cache import DTYPES, FACTS_FILE, FORMAT_VERSION, CandidateCache
from convert_tf.data.array_writer import GrowingArray
from convert_tf.data.dumps import BadLines, DumpStats, TooManyBadLinesError, read_lines
from convert_tf.data.output_folder import OutputFolder
from convert_tf.data.progress import Progress
from convert_tf.files import write_file

_FILE_NAME = re.compile(rf"(vectors|scales|texts|offsets)\.npy|faiss-[\w-]+\.index|{FACTS_FILE}")


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
) -> CandidateCache:
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
