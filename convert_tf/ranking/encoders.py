"""Rankers that score candidates by the dot product of context and candidate encodings."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.released import model_path
from convert_tf.data.candidates import extra_context, joined_context, last_turn
from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.encoding.signatures import signature_name
from convert_tf.ranking.protocol import TextRanker, Turns, pool_of_lists, runs_of_lists

# Kinds of the encodings of contexts and of responses.
KINDS = ("context", "response")


class EncoderRanker(TextRanker):
    """Rank by the dot product of an encoder's encodings.

    Encoders that read history get the last turn and the earlier turns. Others get the last turn
    only.

    Args:
      encoder: the encoder.
      name: name of the row in a report.
      kinds: kinds of the encodings of contexts and of candidates, as in `SentenceEncoder.encode`.
      joins_turns: whether encoders that do not read history get all turns, joined.

    Attributes:
      settings: facts for the row of a report, JSON values by name.

    Example:
      ranker = EncoderRanker(SentenceEncoder("convert_small"))
      ranker.scores([("hello", "how are you?")], ["fine", "a fish"])  # [1, 2]
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        name: str = "",
        *,
        kinds: tuple[str, str] = KINDS,
        joins_turns: bool = False,
    ):
        self.name = name
        self.settings: dict[str, Any] = {}
        self._encoder = encoder
        self._context_kind, self._candidate_kind = kinds
        self._read = joined_context if joins_turns else last_turn

    def encode_contexts(self, contexts: Sequence[Turns]) -> np.ndarray:
        """Encode contexts: float32 `[len(contexts), dim]`."""
        encoder = self._encoder
        is_context = signature_name(self._context_kind) == "encode_context"
        if is_context and encoder.reads_history:
            newest = [last_turn(turns) for turns in contexts]
            numbered = encoder.numbers_turns
            earlier = [extra_context(turns, numbered=numbered) for turns in contexts]
            return encoder.encode_contexts(newest, earlier)
        return encoder.encode(list(map(self._read, contexts)), kind=self._context_kind)

    def encode_candidates(self, texts: Sequence[str]) -> np.ndarray:
        """Encode candidates: float32 `[len(texts), dim]`."""
        return self._encoder.encode(texts, kind=self._candidate_kind)

    def candidate_scores(
        self, contexts: Sequence[Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        context_vectors = self.encode_contexts(contexts)
        texts, places = pool_of_lists(candidate_lists)
        vectors = self.encode_candidates(texts)
        return [
            row
            for run in runs_of_lists(places)
            for row in context_vectors[run] @ vectors[places[run.start]].T
        ]


def open_encoder(model: str | os.PathLike[str], *, keeps_newest: bool = False) -> SentenceEncoder:
    """Open a model for an evaluation. All but ONNX files compute in float32 on every machine.

    Args:
      model: a module, the name of a released one, an `.onnx` file, or the folder of a run.
      keeps_newest: whether a run cuts long contexts at their start.

    Raises:
      ValueError: if the model cannot be opened.
    """
    path = model_path(model)
    kind = kind_of(path)
    if kind is Kind.DUAL_ENCODER:
        from convert_tf.encoding.backends.checkpoint import CheckpointBackend

        return SentenceEncoder(CheckpointBackend(path, keeps_newest=keeps_newest))
    return SentenceEncoder(path, compute_dtype="auto" if kind.runs_onnx else "float32")
