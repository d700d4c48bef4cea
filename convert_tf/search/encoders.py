"""What encodes for an index: an exported module, or a checkpoint with any head but cross."""

import os
from collections.abc import Sequence

import numpy as np

from convert_tf.checkpoints.kinds import Kind, files_that_count, kind_of
from convert_tf.checkpoints.released import model_path
from convert_tf.ranking.encoders import SEARCH_SIGNATURES, encoder_ranker, open_encoder
from convert_tf.ranking.protocol import EncodingRanker, Turns
from convert_tf.search.protocol import CandidateEncoder
from convert_tf.storage.checksums import fingerprint

_FINGERPRINT_LENGTH = 16


class DualIndexEncoder:
    """An encoder with one vector for a context, such as a module or a dual encoder.

    Args:
      ranker: what encodes.
      fingerprint: of its weights.
    """

    def __init__(self, ranker: EncodingRanker, *, fingerprint: str):
        self.fingerprint = fingerprint
        self._ranker = ranker

    def encode_candidates(self, texts: Sequence[str]) -> np.ndarray:
        """float32 `[len(texts), dim]`."""
        return self._ranker.encode_candidates(texts)

    def encode_contexts(self, contexts: Sequence[Turns]) -> tuple[np.ndarray, None]:
        """float32 `[B, 1, dim]`, all real."""
        return self._ranker.encode_contexts(contexts)[:, None], None


class RankerIndexEncoder:
    """A ranker with a bi or poly head.

    The head's factor of the dot products goes into the context vectors, so that its scores, and the
    weights of its attention, are those of plain dot products.

    Args:
      folder: a ranker's model directory.
      fingerprint: of its weights.

    Raises:
      ValueError: a cross-encoder, which encodes no candidate.
    """

    def __init__(self, folder: str | os.PathLike[str], *, fingerprint: str):
        from convert_tf.ranking.checkpoint import TrainedRanker

        self.fingerprint = fingerprint
        self._ranker = TrainedRanker(folder)
        if self._ranker.model.is_joint:
            raise ValueError(
                f"{os.fspath(folder)!r} is a cross-encoder, which reads candidates with the "
                "context and cannot encode them alone. Build the cache with a dual encoder, or a "
                "bi or poly head, and pass this one as --rerank_checkpoint."
            )
        head = self._ranker.model.head
        self._factor = np.float32(head.scale * np.exp(np.asarray(head.log_scale)))

    def encode_candidates(self, texts: Sequence[str]) -> np.ndarray:
        """float32 `[len(texts), dim]`."""
        return self._ranker.encode_candidates(texts)

    def encode_contexts(self, contexts: Sequence[Turns]) -> tuple[np.ndarray, np.ndarray]:
        """float32 `[B, M, dim]` and which of them are real."""
        vectors, mask = self._ranker.encode_contexts(contexts)
        return np.asarray(vectors, np.float32) * self._factor, np.asarray(mask)


def load_encoder(model: str | os.PathLike[str], *, kind: str = "response") -> CandidateEncoder:
    """The encoder in a folder.

    Args:
      model: folder of a dual encoder's run, or of a ranker's with a bi or poly head; a module, its
        name or an `.onnx` file.
      kind: `"response"`: candidates are answers to contexts; `"similarity"`: texts like them.

    Raises:
      ValueError: it is none of these, or a damaged one, or does not encode so.
    """
    path = model_path(model)
    names = ((file.name, file) for file in files_that_count(path))
    own = fingerprint(names)[:_FINGERPRINT_LENGTH]
    if kind not in SEARCH_SIGNATURES:
        raise ValueError(f"kind must be one of {', '.join(SEARCH_SIGNATURES)}. Received: {kind!r}.")
    signature = SEARCH_SIGNATURES[kind]
    if kind_of(path) is Kind.RANKER:
        if signature is not None:
            raise ValueError(
                f"kind='similarity' needs a dual encoder, and {path!r} is a ranker. Pass the "
                "folder or module of a dual encoder."
            )
        return RankerIndexEncoder(path, fingerprint=own)
    encoder = open_encoder(path, signature=signature)
    own += "" if signature is None else f"-{kind}"  # its candidates have other vectors
    return DualIndexEncoder(encoder_ranker(path, encoder), fingerprint=own)
