"""What encodes for an index: an exported module, or a checkpoint with any head but cross."""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from convert_tf import checkpoint as checkpoints
from convert_tf.index import CandidateEncoder
from convert_tf.ranker_checkpoint import is_ranker
from convert_tf.text_ranker import EncodingRanker, TextRanker, Turns

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
        from convert_tf.ranker_texts import RankerTexts

        self.fingerprint = fingerprint
        self._texts = RankerTexts(folder)
        if self._texts.ranker.is_joint:
            raise ValueError(
                "Candidates are encoded by a dual encoder, or a bi or poly head. Received: "
                f"{os.fspath(folder)!r}, a cross-encoder, which reads them with the context. Build "
                "the cache with another one and pass this one as --rerank_checkpoint."
            )
        head = self._texts.ranker.head
        self._factor = np.float32(head.scale * np.exp(np.asarray(head.log_scale)))

    def encode_candidates(self, texts: Sequence[str]) -> np.ndarray:
        """float32 `[len(texts), dim]`."""
        return self._texts.encode_candidates(texts)

    def encode_contexts(self, contexts: Sequence[Turns]) -> tuple[np.ndarray, np.ndarray]:
        """float32 `[B, M, dim]` and which of them are real."""
        vectors, mask = self._texts.encode_contexts(contexts)
        return np.asarray(vectors, np.float32) * self._factor, np.asarray(mask)


def load_encoder(
    *, checkpoint: str | os.PathLike[str] | None = None, module: str | None = None
) -> CandidateEncoder:
    """The encoder in a folder.

    Args:
      checkpoint: a model directory of a dual encoder, or of a ranker with a bi or poly head.
      module: an exported module; this or `checkpoint`.

    Raises:
      ValueError: the folder is none of these, or a damaged one.
    """
    from convert_tf.text_encoders import CheckpointEncoder, ModuleEncoder, encoder_ranker

    if (checkpoint is None) == (module is None):
        raise ValueError(
            "Either a checkpoint or a module encodes. Received: "
            f"{'neither' if module is None else 'both'}. Name one of them."
        )
    if module is not None:
        modules_encoder = ModuleEncoder(module)
        ranker = encoder_ranker(module, modules_encoder)
        return DualIndexEncoder(ranker, fingerprint=_fingerprint(module, _module_files))
    assert checkpoint is not None
    if is_ranker(checkpoint):
        return RankerIndexEncoder(checkpoint, fingerprint=_fingerprint(checkpoint, _model_files))
    ranker = encoder_ranker(os.fspath(checkpoint), CheckpointEncoder(checkpoint))
    return DualIndexEncoder(ranker, fingerprint=_fingerprint(checkpoint, _model_files))


def load_text_ranker(checkpoint: str | os.PathLike[str]) -> TextRanker:
    """What ranks texts anew: the model of a checkpoint, with any head.

    Raises:
      CheckpointError: the folder is incomplete or damaged.
    """
    from convert_tf.ranker_texts import RankerTexts
    from convert_tf.text_encoders import CheckpointEncoder, encoder_ranker

    if is_ranker(checkpoint):
        return RankerTexts(checkpoint)
    return encoder_ranker(os.fspath(checkpoint), CheckpointEncoder(checkpoint))


def _model_files(folder: Path) -> list[Path]:
    if checkpoints.is_module(folder):
        return _module_files(folder)
    vocabularies = checkpoints.VOCABULARY_FILES.values()
    names = [checkpoints.CONFIG_FILE, checkpoints.WEIGHTS_FILE, *vocabularies]
    return [folder / name for name in names if (folder / name).is_file()]


def _module_files(folder: Path) -> list[Path]:
    if folder.is_file():  # an .onnx file
        return [folder]
    # The graph names no weights, and its bytes may differ between writings of one model.
    return sorted([*folder.glob("variables/*"), *folder.glob("assets/*")])


def _fingerprint(
    folder: str | os.PathLike[str], list_files: Callable[[Path], Sequence[Path]]
) -> str:
    """Differs where a file's bytes do."""
    digest = hashlib.sha256()
    for path in list_files(Path(folder)):
        digest.update(f"{path.name}:{path.stat().st_size}:".encode())
        with open(path, "rb") as file:
            while piece := file.read(2**20):
                digest.update(piece)
    return digest.hexdigest()[:_FINGERPRINT_LENGTH]
