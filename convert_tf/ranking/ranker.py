"""Rank texts with any model: `Ranker` is for trained rankers, `EncoderRanker` for encoders."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.released import model_path
from convert_tf.data.candidates import extra_context, joined_context, last_turn
from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.encoding.signatures import signature_name
from convert_tf.encoding.text_batches import is_count
from convert_tf.numerics.vectors import dot_products
from convert_tf.ranking.protocol import (
    TextRanker,
    Turns,
    checked_candidates,
    checked_contexts,
    checked_lists,
    pool_of_lists,
    runs_of_lists,
)

# Kinds of encodings for contexts and for responses.
KINDS = ("context", "response")


class EncoderRanker(TextRanker):
    """A ranker that scores by the dot product of an encoder's encodings.

    An encoder that reads earlier turns gets the last turn and the earlier turns. Other encoders get
    only the last turn.

    Args:
      encoder: encoder for contexts and candidates.
      name: name of the ranker's row in a report.
      kinds: kind of encoding for contexts, and kind for candidates, as in
        `SentenceEncoder.encode`.
      joins_turns: whether an encoder that does not read earlier turns gets all turns, joined into
        one text.

    Attributes:
      settings: facts for the ranker's row in a report, a dict of JSON values.
      logit_scale: factor that turns scores into logits. It equals the `--scale_end` that the
        released encoders were trained with.

    Example:
      ranker = EncoderRanker(SentenceEncoder("convert_small"))
      ranker.scores([("hello", "how are you?")], ["fine", "a fish"])  # [1, 2]
    """

    logit_scale = 20.0

    def __init__(
        self,
        encoder: SentenceEncoder,
        name: str = "",
        *,
        kinds: tuple[str, str] = KINDS,
        joins_turns: bool = False,
    ) -> None:
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
        """Score each context's own candidates: for context i, float32 `[len(candidate_lists[i])]`.

        Raises:
          ValueError: for the same reasons as in `scores`, or if there is not one list of candidates
            for each context.
        """
        turns, lists = checked_lists(contexts, candidate_lists)
        context_vectors = self.encode_contexts(turns)
        texts, places = pool_of_lists(lists)
        vectors = self.encode_candidates(texts)
        return [
            row
            for run in runs_of_lists(places)
            for row in dot_products(context_vectors[run], vectors[places[run.start]])
        ]


def open_encoder(model: str | os.PathLike[str], *, keeps_newest: bool = False) -> SentenceEncoder:
    """Open a model for evaluation. All models except ONNX files compute in float32.

    Args:
      model: module, name of a released model, `.onnx` file, or folder of a run.
      keeps_newest: whether an encoder in the folder of a run keeps the newest tokens of a long
        text, by cutting its start instead of its end.

    Raises:
      ValueError: if the model cannot be opened.
    """
    path = model_path(model)
    kind = kind_of(path)
    if kind is Kind.DUAL_ENCODER:
        from convert_tf.encoding.backends.checkpoint import CheckpointBackend

        return SentenceEncoder(CheckpointBackend(path, keeps_newest=keeps_newest))
    return SentenceEncoder(path, compute_dtype="auto" if kind.runs_onnx else "float32")


def open_vectors(
    model: str | os.PathLike[str], signature: str | None = None, *, keeps_newest: bool = False
) -> tuple[SentenceEncoder, tuple[str, str]]:
    """Open an encoder for the baselines SIM and MAP.

    Args:
      model: any encoder that `open_encoder` opens; another SavedModel with a signature from strings
        to vectors, such as the Universal Sentence Encoder; the folder of a Hugging Face BERT; or a
        run of `convert-tf pretrain`.
      signature: signature for both contexts and candidates, or `signature:output` for an output
        that is not named `default`. If None, separate signatures for contexts and responses are
        used, or the model's only signature.
      keeps_newest: see `open_encoder`.

    Returns:
      The encoder, and the kinds of encodings for contexts and for candidates.

    Raises:
      ValueError: if the model cannot be opened, does not have the signature, or has several
        signatures and `signature` is None.
    """
    path = model_path(model)
    kind = kind_of(path)
    if kind is Kind.ENCODER_MODULE:
        from convert_tf.encoding.backends.module import ModuleBackend

        encoder = SentenceEncoder(ModuleBackend(path))
    elif kind in (Kind.BERT, Kind.HUGGING_FACE):
        from convert_tf.encoding.backends.bert import BertBackend

        encoder = SentenceEncoder(BertBackend(path))
    else:
        encoder = open_encoder(path, keeps_newest=keeps_newest)
    outputs = encoder.outputs
    if signature is None:
        if {*map(signature_name, KINDS)} <= outputs:
            return encoder, KINDS
        if len(outputs) == 1:
            signature = min(outputs)
    if signature is None or signature_name(signature) not in outputs:
        raise ValueError(
            f"{os.fspath(model)!r} has these signatures from texts to vectors: "
            f"{', '.join(sorted(outputs)) or 'none'}. Received: {signature or 'no name'}. Pass one "
            "of them as --vector_signature."
        )
    return encoder, (signature, signature)


class Ranker(TextRanker):
    """A trained bi-, poly- or cross-encoder that ranks texts.

    A context is a text or a list of turns, the oldest first. The turns are joined. If a context is
    too long, its oldest tokens are dropped. A score depends only on the context and the candidate.

    Args:
      folder: a run of `convert-tf train --head`, its module, or the name of a released ranker.

    Attributes:
      name: the given path or name.
      settings: facts for the ranker's row in a report.

    Raises:
      ValueError: if the folder is not a ranker, or is damaged.

    Example:
      ranker = Ranker("convert_rerank_poly")
      best = ranker.rank(["hello", "how are you?"], ["fine", "a fish"], top_k=1)
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        path = model_path(folder)
        self._ranker: TextRanker
        if kind_of(path) is Kind.RANKER:
            from convert_tf.ranking.checkpoint import TrainedRanker

            self._ranker = TrainedRanker(path)
        else:
            from convert_tf.ranking.module import ExportedRanker

            self._ranker = ExportedRanker(path)
        self.name = self._ranker.name
        self.settings = self._ranker.settings

    def rank(
        self, context: str | Turns, candidates: Sequence[str], *, top_k: int | None = None
    ) -> list[tuple[str, float]]:
        """Return the best candidates for a context.

        Args:
          context: a text, or a list of turns, the oldest first.
          candidates: texts to rank.
          top_k: number of candidates to return, or None for all.

        Returns:
          A list of `(candidate, score)` pairs, the best first. Candidates with equal scores keep
          their order.

        Raises:
          ValueError: if there are no candidates, `top_k` is not a positive whole number, or the
            context or a candidate is not a text.
        """
        candidates = checked_candidates(candidates)
        if len(candidates) == 0 or (top_k is not None and not is_count(top_k)):
            raise ValueError(
                "Pass at least one candidate, and a top_k of at least 1, or None for all. "
                f"Received: {len(candidates)} candidates, top_k={top_k!r}."
            )
        scores = self.scores([context], candidates)[0]
        best = np.argsort(-scores, kind="stable")[:top_k]
        return [(candidates[i], float(scores[i])) for i in best]

    def scores(self, contexts: Sequence[str | Turns], candidates: Sequence[str]) -> np.ndarray:
        """Score every candidate for every context: float32 `[len(contexts), len(candidates)]`.

        Raises:
          ValueError: if a context is neither a text nor a list of turns, or `candidates` is not a
            list of texts.
        """
        turns, texts = checked_contexts(contexts), checked_candidates(candidates)
        rows = self.candidate_scores(turns, [texts] * len(turns))
        return np.array(rows, np.float32).reshape(len(turns), len(texts))

    def candidate_scores(
        self, contexts: Sequence[str | Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        """Score each context's own candidates: for context i, float32 `[len(candidate_lists[i])]`.

        Raises:
          ValueError: for the same reasons as in `scores`, or if there is not one list of candidates
            for each context.
        """
        turns, lists = checked_lists(contexts, candidate_lists)
        scores = [np.zeros(0, np.float32) for _ in lists]
        filled = [i for i, candidates in enumerate(lists) if candidates]
        if filled:
            rows = self._ranker.candidate_scores(
                [turns[i] for i in filled], [lists[i] for i in filled]
            )
            for i, row in zip(filled, rows, strict=True):
                scores[i] = row
        return scores


def open_ranker(folder: str | os.PathLike[str], *, joins_turns: bool = False) -> TextRanker:
    """Open any model as a ranker. Encoders rank by the dot products of their encodings.

    Args:
      folder: a run, a module, an `.onnx` file or the name of a released model.
      joins_turns: whether an encoder for single texts reads all turns, joined into one text.
        Rankers always read all turns.

    Raises:
      ValueError: if the folder is not a model, or is damaged.
    """
    path = model_path(folder)
    kind = kind_of(path)
    if kind in (Kind.RANKER, Kind.RANKER_MODULE):
        return Ranker(path)
    ranker = EncoderRanker(
        open_encoder(path, keeps_newest=joins_turns), path, joins_turns=joins_turns
    )
    ranker.settings["checkpoint" if kind is Kind.DUAL_ENCODER else "module"] = path
    return ranker
