"""`Ranker`, a trained ranker of texts; and any model as what ranks texts."""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.encoding.text_batches import is_count
from convert_tf.ranking.encoders import EncoderRanker, open_encoder
from convert_tf.ranking.protocol import TextRanker, Turns, checked_candidates, checked_contexts

if TYPE_CHECKING:
    from convert_tf.ranking.checkpoint import TrainedRanker
    from convert_tf.ranking.module import ExportedRanker


class Ranker:
    """A trained bi-, poly- or cross-encoder that ranks texts; a `TextRanker`.

    A context is a text or its turns, the oldest first, which are joined; where that is longer than
    the ranker reads, the oldest tokens are left out. A score depends on its context and its
    candidate alone.

    Args:
      folder: of a run of `convert-tf train --head`, or of the module of one.
      precision: policy of a run's computations; a module has its own.

    Attributes:
      name: the folder.
      settings: what a report says of the row.

    Raises:
      ValueError: the folder holds no ranker, or a damaged one.

    Example:
      ranker = Ranker("runs/poly")
      best = ranker.rank(["hello", "how are you?"], ["fine", "a fish"], top_k=1)
    """

    def __init__(self, folder: str | os.PathLike[str], *, precision: str = "float32"):
        self._ranker = _trained_or_exported(os.fspath(folder), precision)
        self.name = self._ranker.name
        self.settings = self._ranker.settings

    def rank(
        self, context: str | Turns, candidates: Sequence[str], *, top_k: int | None = None
    ) -> list[tuple[str, float]]:
        """The candidates that suit a context best.

        Args:
          context: a text, or its turns, the oldest first.
          candidates: texts.
          top_k: how many are returned; None for all.

        Returns:
          `(candidate, score)` pairs, best first, equal ones in the order given.

        Raises:
          ValueError: there is no candidate, `top_k` is no positive whole number, or what is given
            is no text.
        """
        candidates = checked_candidates(candidates)
        if len(candidates) == 0 or (top_k is not None and not is_count(top_k)):
            raise ValueError(
                "Pass at least one candidate, and a top_k of at least 1 or None for all. "
                f"Received: {len(candidates)} candidates, top_k={top_k!r}."
            )
        scores = self.scores([context], candidates)[0]
        best = np.argsort(-scores, kind="stable")[:top_k]
        return [(candidates[i], float(scores[i])) for i in best]

    def scores(self, contexts: Sequence[str | Turns], candidates: Sequence[str]) -> np.ndarray:
        """Every candidate for every context: float32 `[len(contexts), len(candidates)]`.

        Raises:
          ValueError: contexts are no texts or turns, or candidates are no list of texts.
        """
        turns, texts = checked_contexts(contexts), checked_candidates(candidates)
        if not turns or not texts:
            return np.zeros((len(turns), len(texts)), np.float32)
        return self._ranker.scores(turns, texts)

    def candidate_scores(
        self, contexts: Sequence[str | Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        """Each context's own candidates: for context i, float32 `[len(candidate_lists[i])]`.

        Raises:
          ValueError: as of `scores`, or there is not one list of candidates for each context.
        """
        turns = checked_contexts(contexts)
        if isinstance(candidate_lists, str | bytes) or not isinstance(candidate_lists, Iterable):
            raise ValueError(
                "candidate_lists must have a list of strings for each context. Received: "
                f"{candidate_lists!r}. Pass [candidates]."
            )
        lists: list[Sequence[str]] = []
        previous: Any = None
        for candidates in candidate_lists:  # one list that contexts share stays one, checked once
            is_shared = lists and candidates is previous
            lists.append(lists[-1] if is_shared else checked_candidates(candidates))
            previous = candidates
        if len(lists) != len(turns):
            raise ValueError(
                "candidate_lists must have a list of strings for each context. Received: "
                f"{len(lists)} for {len(turns)} contexts. Pass [] where a context has none."
            )
        scores = [np.zeros(0, np.float32) for _ in lists]
        filled = [i for i, candidates in enumerate(lists) if candidates]
        if filled:
            found = self._ranker.candidate_scores(
                [turns[i] for i in filled], [lists[i] for i in filled]
            )
            for i, own in zip(filled, found, strict=True):
                scores[i] = own
        return scores


def _trained_or_exported(path: str, precision: str) -> "TrainedRanker | ExportedRanker":
    if kind_of(path) is Kind.RANKER:
        from convert_tf.ranking.checkpoint import TrainedRanker

        return TrainedRanker(path, precision=precision)
    if precision != "float32":
        raise ValueError(
            f"precision={precision!r} has no effect on the module {path!r}, which computes in its "
            "own precision. Omit it, or pass the folder of a run."
        )
    from convert_tf.ranking.module import ExportedRanker

    return ExportedRanker(path)


def open_ranker(
    folder: str | os.PathLike[str], *, precision: str = "float32", joins_turns: bool = False
) -> TextRanker:
    """What ranks texts with a model of any kind: a ranker, or an encoder by its dot products.

    Args:
      folder: a run's folder, a module or an `.onnx` file.
      precision: policy of a checkpoint's computations; any other model has its own.
      joins_turns: whether an encoder of one text reads all turns, joined; rankers always do.

    Raises:
      ValueError: the folder is none of these, or a damaged one.
    """
    path, kind = os.fspath(folder), kind_of(folder)
    if kind in (Kind.RANKER, Kind.RANKER_MODULE):
        return Ranker(path, precision=precision if kind is Kind.RANKER else "float32")
    encoder = open_encoder(path, precision=precision, keeps_newest=joins_turns)
    ranker = EncoderRanker(encoder, path, joins_turns=joins_turns)
    is_trained = kind is Kind.DUAL_ENCODER
    ranker.settings = (
        {"checkpoint": path, "precision": precision} if is_trained else {"module": path}
    )
    return ranker
