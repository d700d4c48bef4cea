"""Encoders as rankers: by the dot products of what they make of contexts and responses."""

import os
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.released import model_path
from convert_tf.data.candidates import extra_context, joined_context, last_turn
from convert_tf.encoding.backends.protocol import Backend, open_backend
from convert_tf.encoding.sentence_encoder import SIMILARITY_REMEDY, SentenceEncoder, Texts
from convert_tf.encoding.text_batches import Columns
from convert_tf.ranking.protocol import EncodingRanker, Turns

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


# By what candidates are found: as responses to a context, or as texts like it.
SEARCH_SIGNATURES = {"response": None, "similarity": "encode_similarity"}


class TextEncoder(Protocol):
    """Encodes the two sides of a conversation.

    Attributes:
      reads_history: whether contexts have a second text, the turns before (`extra_context`).
      numbers_turns: whether these turns are numbered.
    """

    reads_history: bool
    numbers_turns: bool

    def encode_contexts(self, texts: Texts, extra_contexts: Texts | None = None) -> np.ndarray:
        """float32 `[len(texts), dim]`."""
        ...

    def encode_responses(self, texts: Texts) -> np.ndarray:
        """float32 `[len(texts), dim]`."""
        ...


def encoder_ranker(name: str, encoder: TextEncoder, *, joins_turns: bool = False) -> EncodingRanker:
    """Ranks by the dot product of an encoder's encodings.

    An encoder that reads history gets the last turn and the turns before it; any other the last
    turn alone.

    Args:
      name: of its row.
      encoder: what encodes.
      joins_turns: whether an encoder of one text gets all turns, joined.
    """

    def encode_contexts(contexts: Sequence[Turns]) -> np.ndarray:
        if encoder.reads_history:
            newest = [last_turn(turns) for turns in contexts]
            numbered = encoder.numbers_turns
            earlier = [extra_context(turns, numbered=numbered) for turns in contexts]
            return encoder.encode_contexts(newest, earlier)
        read = joined_context if joins_turns else last_turn
        return encoder.encode_contexts([read(turns) for turns in contexts])

    return EncodingRanker(name, encode_contexts, encoder.encode_responses)


def open_encoder(
    folder: str | os.PathLike[str],
    *,
    precision: str = "float32",
    signature: str | None = None,
    keeps_newest: bool = False,
) -> SentenceEncoder:
    """The encoder of a model as it is measured: of a module in float32, whatever this machine is
    faster in.

    Args:
      folder: a module, its name, an `.onnx` file, or a model directory.
      precision: policy of a checkpoint's computations; any other model has its own.
      signature: encodes contexts and responses alike; None for `encode_context` and
        `encode_response`.
      keeps_newest: whether contexts that are too long for a checkpoint lose tokens at their start.

    Raises:
      ValueError: the folder is none of these, a damaged one, or one without the signatures.
    """
    path = model_path(folder)
    backend: Backend
    kind = kind_of(path)
    if kind is Kind.DUAL_ENCODER:
        from convert_tf.encoding.backends.checkpoint import CheckpointBackend

        backend = CheckpointBackend(path, precision=precision, keeps_newest=keeps_newest)
    else:
        backend = open_backend(path, compute_dtype="auto" if kind is Kind.ONNX else "float32")
    if signature == "encode_similarity" and signature not in backend.outputs:
        raise ValueError(
            f"{path!r} does not have the signature {signature}, which compares texts. "
            f"{SIMILARITY_REMEDY}"
        )
    needed = {"encode_context", "encode_response"} if signature is None else {signature}
    if missing := sorted(needed - {*backend.outputs}):
        raise ValueError(
            f"{path!r} cannot encode contexts and responses: it is without {', '.join(missing)}. "
            "Pass a module that convert-tf export wrote, or a signature it has "
            f"({', '.join(sorted(backend.outputs)) or 'it has none'})."
        )
    return SentenceEncoder(backend if signature is None else _OneSignature(backend, signature))


class _OneSignature:
    """A backend whose contexts and responses are encoded alike."""

    outputs = ("encode_context", "encode_response")

    def __init__(self, backend: Backend, signature: str):
        self._backend = backend
        self._signature = signature
        self.reads_history = backend.reads_history and signature == "encode_context"
        self.numbers_turns = getattr(backend, "numbers_turns", False)

    def run(self, output: str, columns: Columns) -> np.ndarray:
        return self._backend.run(self._signature, columns)
