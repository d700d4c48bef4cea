"""Encodings for intents: of one encoder or several, each text encoded once."""

import hashlib
import io
import os
import threading
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.files import write_file
from convert_tf.intent_head import of_unit_length

MAX_TEXTS = 50_000  # whose encodings are kept
PROBES = ("where is my order?", "Please cancel the meeting at 10 tomorrow, thanks!")
PROBE_TOLERANCE = 0.02  # per value of vectors of length 1; bfloat16 differs by less


def encode_function(encoder: Any) -> Callable[[list[str]], Any]:
    """What turns texts into vectors.

    Args:
      encoder: a module's folder or an `.onnx` file, an object with `encode`, such as a
        `SentenceEncoder`, or a callable.

    Raises:
      ValueError: it is none of these.
    """
    if isinstance(encoder, str | os.PathLike):
        from convert_tf.client import SentenceEncoder

        return SentenceEncoder(encoder).encode
    if callable(getattr(encoder, "encode", None)):
        return encoder.encode
    if callable(encoder):
        return encoder
    raise ValueError(
        "An encoder is a module's path, an object with encode(texts), a callable texts → vectors, "
        f"or a list of these. Received: {encoder!r}."
    )


def encoders_of(encoder: Any) -> list[Any]:
    """One encoder as a list of it, several as they are.

    Raises:
      ValueError: there is none.
    """
    found = list(encoder) if isinstance(encoder, list | tuple) else [encoder]
    if not found:
        raise ValueError("There must be an encoder. Received: an empty list.")
    return found


class IntentEncodings:
    """Concatenated encodings of texts, each part of length 1, kept in memory.

    An all-zero vector, as of a text without tokens, stays zero.

    Args:
      encoder: see `encode_function`; a list is concatenated.

    Example:
      vectors = IntentEncodings(["hub_modules/convert/1", use])(["where is my card?"])

    Reference: arXiv 2003.04807 §2 (USE + ConveRT).
    """

    def __init__(self, encoder: Any):
        self._encoders = encoders_of(encoder)
        self._functions: list[Callable[[list[str]], Any]] = []
        self._rows: dict[str, np.ndarray] = {}
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Encodes texts.

        Returns:
          float32 `[len(texts), dim]`.

        Raises:
          ValueError: an encoder returned something else than a finite vector for each text.
        """
        with self._lock:
            # A call without texts still says how wide an encoding is.
            missing = [text for text in dict.fromkeys(texts or PROBES) if text not in self._rows]
            if missing:
                self._rows.update(zip(missing, self._encode(missing), strict=True))
            dim = len(next(iter(self._rows.values())))
            rows = [self._rows[text] for text in texts]
            while len(self._rows) > MAX_TEXTS:
                del self._rows[next(iter(self._rows))]
        return np.stack(rows) if rows else np.zeros((0, dim), np.float32)

    def _encode(self, texts: list[str]) -> np.ndarray:
        if not self._functions:
            self._functions = [encode_function(encoder) for encoder in self._encoders]
        return np.concatenate(
            [_unit_vectors(encode(texts), texts) for encode in self._functions], 1
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes all that is kept to an `.npz` file."""
        vectors = np.stack(list(self._rows.values()))
        file = io.BytesIO()
        np.savez(file, texts=np.array(list(self._rows)), vectors=vectors)
        write_file(path, file.getvalue())

    def read(self, path: str | os.PathLike[str]) -> None:
        """Adds what `write` wrote: of the same encoder.

        Raises:
          ValueError: the file is damaged.
        """
        try:
            with np.load(path) as file:
                self._rows.update(zip(file["texts"].tolist(), file["vectors"], strict=True))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise ValueError(
                "Encodings are kept in a file that the benchmark wrote. Received: "
                f"{os.fspath(path)!r} ({error}). Remove it."
            ) from error


def _unit_vectors(vectors: Any, texts: Sequence[str]) -> np.ndarray:
    found = np.asarray(vectors, np.float32)
    if found.ndim != 2 or len(found) != len(texts):
        raise ValueError(
            "An encoder returns a vector for each text. Received: an array of shape "
            f"{found.shape} for {len(texts)} texts. Return [texts, dim]."
        )
    if not np.isfinite(found).all():
        place = int(np.argmin(np.isfinite(found).all(axis=1)))
        raise ValueError(
            f"Encodings are finite numbers. Received: others for {texts[place]!r}. Check the "
            "encoder."
        )
    return of_unit_length(found)


def fingerprint(path: str | os.PathLike[str]) -> str:
    """Differs where the weights or the vocabulary of a module, or an `.onnx` file, do."""
    root = Path(path)
    digest = hashlib.sha256()
    # The graph's bytes may differ between writings of one model.
    names = ("variables/*", "assets/*")
    files = [root] if root.is_file() else sorted(x for name in names for x in root.glob(name))
    for file in files:
        name = "" if file == root else file.relative_to(root).as_posix()
        digest.update(f"{name}:{file.stat().st_size}:".encode())
        with open(file, "rb") as opened:
            while piece := opened.read(2**20):
                digest.update(piece)
    return digest.hexdigest()
