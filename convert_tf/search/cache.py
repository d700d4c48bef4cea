"""Encoded candidates on disk. A search maps them into memory.

`convert-tf index build` writes a folder with these files, and `convert-tf index edit` rewrites
them:

- `candidates.json`: the `version` of the format; `count`, `dim` and `dtype` of the vectors;
  `max_norm`, the largest norm of a vector; `encoder`, the encoder's fingerprint; `encoder_name`;
  and `texts`, the SHA-256 of all texts, each preceded by its length in bytes;
- `vectors.npy`: `[count, dim]` of float32, float16 or int8;
- `scales.npy` (only for int8): float32 `[count]`, the factor for each row of `vectors.npy`;
- `texts.npy`: uint8, the UTF-8 bytes of all texts, concatenated;
- `offsets.npy`: int64 `[count + 1]`, the positions in `texts.npy` where texts start and end;
- `sha256.json`: checksums of these files, which are checked when the cache is opened.

A search with FAISS adds files whose names start with `faiss-`, each with its checksum in a file of
its own (`convert_tf.search.index.FaissIndex`).

The id of a candidate is its position, starting at 0.
"""

import contextlib
import hashlib
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.encoding.text_batches import items_in_order
from convert_tf.ranking.protocol import are_texts
from convert_tf.storage.arrays import FolderFormat, GrowingArray
from convert_tf.storage.checksums import CHECKSUMS_FILE, check_files, record_checksums
from convert_tf.storage.folders import put_aside
from convert_tf.storage.json_text import whole_characters
from convert_tf.storage.progress import Progress

DTYPES = ("float32", "float16", "int8")
# An edit replaces the files within some milliseconds. An opening that fails may have met an edit.
_ATTEMPTS = 3
_BETWEEN_ATTEMPTS = 0.02  # seconds
_ARRAYS = ("vectors", "scales", "texts", "offsets")
FORMAT = FolderFormat(
    what="candidate cache",
    facts_file="candidates.json",
    other_files=(
        r"(vectors|scales|texts|offsets)\.npy|sha256\.json|faiss-[\w-]+\.(index|npy)(\.sha256)?"
    ),
    kinds={"count": int, "dim": int, "max_norm": float, "encoder": str, "texts": str},
    dtypes=DTYPES,
    remedy="Build it again with `convert-tf index build`.",
)
# `widened_float16` moves the bits of a float16 into a float32, whose exponent is then too small by
# 112.
_EXPONENT_OF_FLOAT16 = np.float32(2.0**112)
# The shift copies the sign into the three bits below it. This mask keeps all other bits.
_NO_SIGN_COPIES = np.int32(-0x70000001)


class CandidateCache:
    """A folder of encoded candidates, which is mapped into memory.

    Args:
      folder: a folder that `write_cache` wrote.

    Attributes:
      count, dim, dtype: the number, the dimension and the number format of the stored vectors.
      max_norm: the largest norm of a vector.
      encoder: the fingerprint of the encoder that computed the vectors.
      encoder_name: the name of the encoder in messages, or the fingerprint if it has no name.
      texts_hash: a checksum of the texts.

    Raises:
      ValueError: if the folder is not a cache, or is damaged.

    Example:
      cache = CandidateCache("cache/")
      cache.text(3), cache.vectors_at([3])
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        for attempt in itertools.count(1):
            try:
                facts = FORMAT.facts(folder)
                self._open(facts)
                if FORMAT.facts(folder) == facts:
                    return
            except (OSError, ValueError):
                if attempt >= _ATTEMPTS:
                    raise
            time.sleep(_BETWEEN_ATTEMPTS)

    def _open(self, facts: Mapping[str, Any]) -> None:
        """Map the files into memory, which must be those that the facts describe."""
        folder = self.folder
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
                f"wrote it. {put_aside(folder) or FORMAT.remedy}"
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
        """Raise `ValueError` if an encoder with another fingerprint encoded the cache."""
        if fingerprint != self.encoder:
            raise ValueError(
                f"The index {str(self.folder)!r} was encoded by {self.encoder_name}, not by "
                f"{name or fingerprint}. Pass the encoder and kind that the index was encoded "
                f"with, or encode the texts again: convert-tf index build --from {self.folder} "
                "--encoder NEW --output OTHER."
            )

    @property
    def kind(self) -> str:
        """The kind of the vectors: `"response"` or `"similarity"`."""
        return "similarity" if self.encoder.endswith("-similarity") else "response"

    def texts(self) -> Iterator[str]:
        """Yield the texts of all candidates."""
        return map(self.text, range(self.count))

    def stored(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the stored rows from `start` to `stop` and their scales, without copying them."""
        scales = None if self._scales is None else self._scales[start:stop]
        return self._vectors[start:stop], scales

    def stored_at(self, ids: np.ndarray | Sequence[int]) -> tuple[np.ndarray, np.ndarray | None]:
        """Return copies of the stored rows with these ids, and of their scales."""
        places = np.asarray(ids)
        return self._vectors[places], None if self._scales is None else self._scales[places]

    def vectors_at(self, ids: np.ndarray | Sequence[int]) -> np.ndarray:
        """Return the candidates' vectors as float32 `[len(ids), dim]`."""
        stored, scales = self.stored_at(ids)
        rows = stored.astype(np.float32)
        return rows if scales is None else rows * scales[:, None]

    def check_ids(self, ids: np.ndarray | Sequence[int]) -> None:
        """Raise `ValueError` if there is no candidate with one of these ids."""
        places = np.asarray(ids).ravel()
        if (wrong := places[(places < 0) | (places >= self.count)]).size:
            raise ValueError(
                f"There is no candidate {wrong[0]}: the cache has candidates 0 to {self.count - 1}."
            )

    def text(self, candidate_id: int) -> str:
        """Return the text of a candidate."""
        if not 0 <= candidate_id < self.count:  # faster than an array of one id
            self.check_ids([candidate_id])
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
    """Encode candidates and write them atomically to a folder.

    Texts are encoded and written one batch at a time, so little memory is needed.

    Args:
      folder: the folder to write. Missing parent folders are created.
      texts: the candidates, which are read once. Texts may be repeated. Halves of characters (lone
        surrogates) are replaced with U+FFFD.
      encode: function from texts to vectors, float `[len(texts), dim]`.
      fingerprint: a text that identifies the encoder. A search with another encoder raises an
        error.
      name: the name of the encoder in messages.
      dtype: number format of the stored vectors: `"float32"`, `"float16"`, or `"int8"` with a scale
        per row.
      batch_size: number of texts to encode together.
      overwrite: whether to replace an existing cache.

    Returns:
      The opened cache.

    Raises:
      ValueError: if there is no candidate; if `texts` is not a list, an iterator or a column of
        strings; if `dtype` is unknown; if a vector is missing, NaN,
        infinite or too large for `dtype`; or if the folder contains other files.

    Example:
      cache = write_cache("cache/", ["yes", "no"], encode, fingerprint="mine", dtype="int8")
    """
    if isinstance(texts, str | bytes):
        raise ValueError(f"texts must be a list of strings. Received: {texts!r:.200}.")
    if dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}. Received: {dtype!r}.")

    items = items_in_order(texts, what="texts")

    def strings() -> Iterator[str]:
        for position, text in enumerate(items):
            if not isinstance(text, str):
                raise ValueError(
                    f"texts must be strings. Received: {text!r} at position {position}. Remove or "
                    "replace it."
                )
            yield whole_characters(text)

    def rows() -> Iterator[_Rows]:
        iterator, dim = strings(), 0
        while batch := list(islice(iterator, batch_size)):
            stored, scales = _encoded(encode, batch, dtype, dim)
            dim = stored.shape[1]
            yield batch, stored, scales

    with FORMAT.output(folder, overwrite=overwrite).open() as place:
        _write(place, rows(), dtype, encoder=fingerprint, encoder_name=name)
    return CandidateCache(folder)


def edit_cache(
    folder: str | os.PathLike[str],
    encode: Callable[[Sequence[str]], np.ndarray],
    *,
    fingerprint: str,
    name: str = "",
    texts: Sequence[str] | None = None,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    batch_size: int = 1024,
) -> tuple[CandidateCache, int]:
    """Add and remove candidates in a cache. Only texts that are not yet in the cache are encoded.

    The folder keeps the old candidates until the new ones are complete. The result is the same as
    if the cache were written from the edited texts: candidates after a removed one get lower ids.
    If the candidates change, FAISS indexes are removed, and the next search builds them again.

    Args:
      folder: a folder that `write_cache` wrote.
      encode, fingerprint, name, batch_size: as in `write_cache`. The encoder must be the one that
        encoded the cache.
      texts: all candidates of the new cache, in order. None if `add` or `remove` is passed instead.
      add: texts to append. Texts that are already in the cache are not appended again.
      remove: texts to remove. Every copy of such a text is removed, before texts are added.

    Returns:
      A tuple of the opened cache and the number of candidates that were encoded.

    Raises:
      ValueError: if the folder is not a cache of this encoder, or another process is writing it; if
        a text to remove is not in the cache; if no candidate is left; or as in `write_cache`.

    Example:
      cache, encoded = edit_cache("cache/", encode, fingerprint="mine", add=["maybe"])
    """
    given = () if texts is None else texts
    for argument, value in {"texts": given, "add": add, "remove": remove}.items():
        if not are_texts(value):
            raise ValueError(f"{argument} must be a list of strings. Received: {value!r:.200}.")
    if texts is not None and (len(add) or len(remove)):
        raise ValueError("texts replaces all candidates. Pass either texts, or add and remove.")
    added, removed, given = ([*map(whole_characters, some)] for some in (add, remove, given))
    if not put_aside(folder):  # if it were put aside, `open` below would restore the files
        FORMAT.facts(folder)
    with FORMAT.output(folder, overwrite=True).open() as place:
        old = CandidateCache(folder)
        old.check_encoder(fingerprint, name)
        wanted = _edited(old, added, removed) if texts is None else given
        if not wanted:
            raise ValueError(
                f"The index {str(folder)!r} would be empty. Keep at least one candidate."
            )
        id_of: dict[str, int] = {}
        for number, text in enumerate(old.texts()):
            id_of.setdefault(text, number)
        if wanted == [*old.texts()]:
            for path in FORMAT.files(str(folder)):
                shutil.copy(path, place)
        else:
            rows = _merged_rows(old, wanted, id_of, encode, batch_size)
            _write(place, rows, old.dtype, encoder=fingerprint, encoder_name=name)
    return CandidateCache(folder), sum(text not in id_of for text in wanted)


# Texts, their stored vectors and the scales of the vectors.
_Rows = tuple[Sequence[str], np.ndarray, np.ndarray | None]


def _edited(cache: CandidateCache, add: Sequence[str], remove: Sequence[str]) -> list[str]:
    """Return the texts of a cache after some texts are removed and others are appended."""
    before = [*cache.texts()]
    removed = {*remove}
    if missing := removed.difference(before):
        first = next(text for text in remove if text in missing)
        raise ValueError(
            f"The index {str(cache.folder)!r} has no candidate {first!r} to remove. Write the text "
            "exactly as in the index, or do not remove it."
        )
    left = [text for text in before if text not in removed]
    new = dict.fromkeys(add).keys() - {*left}
    return left + [text for text in dict.fromkeys(add) if text in new]


def _merged_rows(
    cache: CandidateCache,
    texts: Sequence[str],
    id_of: Mapping[str, int],
    encode: Callable[[Sequence[str]], np.ndarray],
    batch_size: int,
) -> Iterator[_Rows]:
    """Yield the rows for texts. Rows in the cache are copied, and all other texts are encoded."""
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        ids = np.array([id_of.get(text, -1) for text in batch])
        stored, scales = cache.stored_at(ids)  # the rows of new texts are replaced below
        if new := np.flatnonzero(ids < 0).tolist():
            values, factors = _encoded(encode, [batch[i] for i in new], cache.dtype, cache.dim)
            stored[new] = values
            if scales is not None and factors is not None:
                scales[new] = factors
        yield batch, stored, scales


def _encoded(
    encode: Callable[[Sequence[str]], np.ndarray], batch: Sequence[str], dtype: str, dim: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Encode a batch, and convert the vectors for storage.

    The vectors must have `dim` dimensions, or any number of dimensions if `dim` is 0.
    """
    vectors = np.asarray(encode(batch))
    if vectors.shape != (len(batch), dim or vectors.shape[-1]):
        raise ValueError(
            f"encode must return one vector for each of {len(batch)} texts, and all vectors must "
            f"have the same length. Received: shape {vectors.shape}."
        )
    return stored_vectors(vectors, dtype)


def _write(place: Path, rows: Iterator[_Rows], dtype: str, **facts_of_encoder: str) -> None:
    """Write the files of a cache into a folder."""
    dtypes = {"vectors": dtype, "texts": "uint8", "offsets": "int64", "scales": "float32"}
    if dtype != "int8":
        del dtypes["scales"]
    digest, dim, max_norm = hashlib.sha256(), 0, 0.0
    with contextlib.ExitStack() as stack, Progress("candidates") as progress:
        arrays = {
            name: stack.enter_context(GrowingArray(place / f"{name}.npy", kind))
            for name, kind in dtypes.items()
        }
        arrays["offsets"].append(np.zeros(1, np.int64))
        for batch, stored, scales in rows:
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
        raise ValueError("There are no candidates: all texts are empty. Pass other texts.")
    facts = {
        "count": arrays["offsets"].size - 1,
        "dim": dim,
        "dtype": dtype,
        "max_norm": max_norm,
        **facts_of_encoder,
        "texts": digest.hexdigest(),
    }
    FORMAT.write_facts(place, facts)
    record_checksums(place, (FORMAT.facts_file, *(f"{name}.npy" for name in arrays)))


def stored_vectors(vectors: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Convert vectors for storage in a cache.

    Args:
      vectors: the vectors, float `[rows, dim]`.
      dtype: one of `DTYPES`.

    Returns:
      A tuple of the values, `[rows, dim]`, and the scales, float32 `[rows]`. The scales are None
      unless `dtype` is int8. The scale of a row maps its values to −127 … 127, so no value changes
      by more than half a scale.

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
    alternative = "" if dtype == "float32" else ", or --dtype=float32"
    raise ValueError(
        f"Some vectors are NaN, infinite or too large for {dtype}. Use another checkpoint"
        f"{alternative}."
    )


def widened_float16(values: np.ndarray) -> np.ndarray:
    """Return finite float16 values as float32.

    The bits are shifted as integers, which is six times as fast as numpy's conversion.
    """
    bits = values.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= _NO_SIGN_COPIES
    floats = bits.view(np.float32)
    floats *= _EXPONENT_OF_FLOAT16
    return floats
