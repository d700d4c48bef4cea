"""`Ranker`, a trained ranker of texts, and a function that opens any model as a ranker."""

import os
from collections.abc import Sequence

import numpy as np

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.encoding.text_batches import is_count
from convert_tf.ranking.encoders import EncoderRanker, open_encoder
from convert_tf.ranking.protocol import (
    TextRanker,
    Turns,
    checked_candidates,
    checked_contexts,
    runs_of_lists,
)


class Ranker(TextRanker):
    """A trained bi-, poly- or cross-encoder that ranks texts.

    A context is a text or a list of turns, the oldest first. Turns are joined. If a context is too
    long, its oldest tokens are dropped. A score only depends on its context and its candidate.

    Args:
      folder: a run of `convert-tf train --head`, or its module.

    Attributes:
      name: the folder.
      settings: facts for the row of a report.

    Raises:
      ValueError: if the folder is not a ranker, or is damaged.

    Example:
      ranker = Ranker("runs/poly")
      best = ranker.rank(["hello", "how are you?"], ["fine", "a fish"], top_k=1)
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self._ranker = _trained_or_exported(os.fspath(folder))
        self.name = self._ranker.name
        self.settings = self._ranker.settings

    def rank(
        self, context: str | Turns, candidates: Sequence[str], *, top_k: int | None = None
    ) -> list[tuple[str, float]]:
        """Return the best candidates for a context.

        Args:
          context: a text, or its turns, the oldest first.
          candidates: texts.
          top_k: number of candidates to return; None for all.

        Returns:
          `(candidate, score)` pairs, the best first; equal ones stay in their order.

        Raises:
          ValueError: if there is no candidate, `top_k` is not a positive whole number, or an
            argument is not a text.
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
        """Score every candidate for every context: float32 `[len(contexts), len(candidates)]`.

        Raises:
          ValueError: if contexts are not texts or turns, or candidates are not a list of texts.
        """
        turns, texts = checked_contexts(contexts), checked_candidates(candidates)
        rows = self.candidate_scores(turns, [texts] * len(turns))
        return np.array(rows, np.float32).reshape(len(turns), len(texts))

    def candidate_scores(
        self, contexts: Sequence[str | Turns], candidate_lists: Sequence[Sequence[str]]
    ) -> list[np.ndarray]:
        """Score each context's own candidates: for context i, float32 `[len(candidate_lists[i])]`.

        Raises:
          ValueError: as for `scores`, or if there is not one list of candidates for each context.
        """
        turns, given = checked_contexts(contexts), list(candidate_lists)
        if len(given) != len(turns):
            raise ValueError(
                "candidate_lists must have a list of strings for each context. Received: "
                f"{len(given)} for {len(turns)} contexts. Pass [] where a context has none."
            )
        lists: list[Sequence[str]] = []
        for run in runs_of_lists(given):  # a list that contexts share is checked once
            lists += [checked_candidates(given[run.start])] * (run.stop - run.start)
        scores = [np.zeros(0, np.float32) for _ in lists]
        filled = [i for i, candidates in enumerate(lists) if candidates]
        if filled:
            found = self._ranker.candidate_scores(
                [turns[i] for i in filled], [lists[i] for i in filled]
            )
            for i, own in zip(filled, found, strict=True):
                scores[i] = own
        return scores


def _trained_or_exported(path: str) -> TextRanker:
    if kind_of(path) is Kind.RANKER:
        from convert_tf.ranking.checkpoint import TrainedRanker

        return TrainedRanker(path)
    from convert_tf.ranking.module import ExportedRanker

    return ExportedRanker(path)


def open_ranker(folder: str | os.PathLike[str], *, joins_turns: bool = False) -> TextRanker:
    """Open any model as a ranker. Encoders rank by dot products.

    Args:
      folder: a run, a module or an `.onnx` file.
      joins_turns: whether an encoder of single texts reads all turns, joined; rankers always do.

    Raises:
      ValueError: if the folder is not a model, or is damaged.
    """
    path, kind = os.fspath(folder), kind_of(folder)
    if kind in (Kind.RANKER, Kind.RANKER_MODULE):
        return Ranker(path)
    ranker = EncoderRanker(
        open_encoder(path, keeps_newest=joins_turns), path, joins_turns=joins_turns
    )
    ranker.settings["checkpoint" if kind is Kind.DUAL_ENCODER else "module"] = path
    return ranker
