"""Encode texts for intent classifiers with one or several encoders. No text is encoded twice."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from convert_tf.checkpoints.identity import EncoderIdentity, identity_of
from convert_tf.checkpoints.released import model_path
from convert_tf.config.base import check
from convert_tf.encoding.cache import EncodingCache
from convert_tf.numerics.vectors import unit_rows

MAX_TEXTS = 50_000  # number of texts whose encodings are kept in memory
PROBES = ("where is my order?", "Please cancel the meeting at 10 tomorrow, thanks!")


# Methods of encoders, by the kind of encodings that they return.
KINDS_OF_ENCODING = {
    "sentence": "encode",
    "reduced": "encode_reduced",
    "similarity": "encode_similarity",
}
ANY_KIND = "auto"  # chooses the kind that gives more correct answers


def encode_function(encoder: Any, kind: str = "sentence") -> Callable[[list[str]], Any]:
    """Return the function that turns texts into vectors.

    Args:
      encoder: a module's folder, an `.onnx` file or a run's folder; an object with `encode`, such
        as a `SentenceEncoder`; or a function from texts to vectors.
      kind: the kind of vectors, one of `KINDS_OF_ENCODING`.

    Raises:
      ValueError: if the encoder is none of these, or has no encodings of that kind.
    """
    kinds = [*KINDS_OF_ENCODING]
    check(kind in kinds, f"kind must be one of {', '.join(kinds)}.", kind)
    method = KINDS_OF_ENCODING[kind]
    encoder = _loaded(encoder)
    encode = getattr(encoder, method, encoder if kind == "sentence" else None)
    if not callable(encode):
        raise ValueError(
            f"{encoder!r} is not an encoder for kind={kind!r}. Pass a module's path, an object "
            f"with {method}(texts), a function from texts to vectors (for kind='sentence'), or a "
            "list of these."
        )
    return encode  # type: ignore[no-any-return]


def _loaded(encoder: Any) -> Any:
    if not isinstance(encoder, str | os.PathLike):
        return encoder
    from convert_tf.encoding.sentence_encoder import SentenceEncoder

    return SentenceEncoder(encoder)


def encodes(encoder: Any, kind: str) -> bool:
    """Return whether an encoder, or every encoder in a list, has encodings of a kind."""
    return all(
        kind in loaded.kinds
        if hasattr(loaded, "kinds")
        else hasattr(loaded, KINDS_OF_ENCODING[kind])
        for loaded in map(_loaded, encoders_of(encoder))
    )


def different_kinds(encoder: Any) -> list[str]:
    """Return the kinds whose encodings differ, for one encoder or a list of encoders.

    Without similarity vectors, an encoder's `sentence` and `reduced` encodings are the same.
    """
    first, *others = KINDS_OF_ENCODING
    if not encodes(encoder, "similarity"):
        return [first]
    return [first, *(kind for kind in others if encodes(encoder, kind))]


def encoders_of(encoder: Any) -> list[Any]:
    """Return one or several encoders as a list, with names of released modules replaced by paths.

    Raises:
      ValueError: if the list is empty.
    """
    encoders = list(encoder) if isinstance(encoder, list | tuple) else [encoder]
    if not encoders:
        raise ValueError("encoder is an empty list. Pass an encoder.")
    return [model_path(one) if isinstance(one, str | os.PathLike) else one for one in encoders]


def encoder_paths(encoder: Any) -> list[Any]:
    """Return `encoders_of(encoder)`, with each `SentenceEncoder` replaced by its path, if any."""
    from convert_tf.encoding.sentence_encoder import SentenceEncoder

    return [
        (getattr(one, "path", None) or one) if isinstance(one, SentenceEncoder) else one
        for one in encoders_of(encoder)
    ]


def identities_of(encoder: Any) -> list[EncoderIdentity]:
    """Return the identities of one or several encoders; `[]` if an encoder has no path."""
    paths = encoder_paths(encoder)
    if not all(isinstance(path, str | os.PathLike) for path in paths):
        return []
    return [*map(identity_of, paths)]


class IntentEncodings:
    """Encodes texts with one or several encoders, and keeps the encodings in memory.

    The vectors of each encoder are scaled to length 1 and then concatenated. The vector of a text
    without tokens consists of zeros, and is not scaled.

    Args:
      encoder: an encoder as in `encode_function`, or a list of encoders.
      kind: see `encode_function`.
      max_texts: maximum number of texts whose encodings are kept. The encodings that were used most
        recently are kept.

    Example:
      vectors = IntentEncodings(["hub_modules/convert/2", use])(["where is my card?"])

    Reference: arXiv 2003.04807 §2 (USE + ConveRT).
    """

    def __init__(self, encoder: Any, *, kind: str = "sentence", max_texts: int = MAX_TEXTS) -> None:
        self.kind = kind
        # Names of released modules are only looked up when texts are encoded.
        self._encoders = list(encoder) if isinstance(encoder, list | tuple) else [encoder]
        self._functions: list[Callable[[list[str]], Any]] = []
        self._lock = threading.Lock()
        self._kept = EncodingCache(self._encode, size=max_texts)
        self._of_kinds = {kind: self}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Encode texts.

        Returns:
          float32 `[len(texts), dim]`.

        Raises:
          ValueError: if an encoder did not return a finite vector for each text.
        """
        # An empty result must have the width of an encoding, so a probe is encoded.
        return self._kept(list(texts)) if len(texts) else self._kept(PROBES)[:0]

    def _encode(self, texts: list[str]) -> np.ndarray:
        with self._lock:  # encoders may not be thread-safe
            if not self._functions:
                self._functions = [encode_function(one, self.kind) for one in self.encoders]
            parts = [_unit_vectors(encode(texts), texts) for encode in self._functions]
        return np.concatenate(parts, 1)

    @property
    def encoders(self) -> list[Any]:
        """The encoders, which are loaded on first use."""
        # The list is changed in place, because the objects for other kinds share it.
        self._encoders[:] = map(_loaded, encoders_of(self._encoders))
        return self._encoders

    def of_kind(self, kind: str) -> "IntentEncodings":
        """Return an object that computes encodings of another kind with the same encoders."""
        if kind not in self._of_kinds:
            other = self._of_kinds[kind] = IntentEncodings(self._encoders, kind=kind)
            other._encoders, other._lock = self._encoders, self._lock
            other._of_kinds = self._of_kinds
        return self._of_kinds[kind]


def _unit_vectors(vectors: Any, texts: Sequence[str]) -> np.ndarray:
    rows = np.asarray(vectors, np.float32)
    if rows.ndim != 2 or len(rows) != len(texts):
        raise ValueError(
            f"The encoder returned an array of shape {rows.shape} for {len(texts)} texts. It must "
            "return an array of shape [texts, dim]."
        )
    is_finite = np.isfinite(rows).all(axis=1)
    if not is_finite.all():
        raise ValueError(
            "The encoder returned numbers that are not finite for "
            f"{texts[int(np.argmin(is_finite))]!r}. Check the encoder."
        )
    return unit_rows(rows)
