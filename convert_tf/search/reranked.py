"""Rerank the best candidates of an index with another model."""

import copy
from collections.abc import Sequence

import numpy as np

from convert_tf.ranking.protocol import TextRanker, Turns, checked_contexts
from convert_tf.ranking.ranker import EncoderRanker
from convert_tf.search.cache import CandidateCache
from convert_tf.search.index import BestCandidates, CandidateIndex, checked_top_k


class RerankedIndex:
    """Reranks the best candidates of an index with another model.

    A new score is the sum of the logits of both models, so the probabilities of the two models are
    multiplied. In our trials, the sum was better than the second model alone
    (docs/lab/rankers.md). The logits of an encoder are 20 times its cosines, as in the training of
    the released encoders. The scores of a ranker are used as logits.

    Args:
      first: the index that finds the first `top_n` candidates.
      second: the model that scores these candidates again. A poly-encoder is passed as an index on
        a cache of the same texts, and a cross-encoder is passed as a ranker.
      top_n: number of candidates to rerank. If the `top_k` of a search is larger, `top_k`
        candidates are reranked.
      adds_first: whether to add the logits of `first`. Otherwise the scores are those of `second`.

    Raises:
      ValueError: if the caches of the two models have different texts, for example because one
        cache has been edited since; or if `top_n` is not positive.

    Example:
      index = RerankedIndex(CandidateIndex(cache, bi_encoder), cross_encoder, top_n=50)
    """

    def __init__(
        self,
        first: CandidateIndex,
        second: CandidateIndex | TextRanker,
        *,
        top_n: int = 100,
        adds_first: bool = True,
    ) -> None:
        if top_n < 1:
            raise ValueError(f"top_n must be at least 1. Received: top_n={top_n}.")
        self.first = first
        self.second = second
        self.top_n = top_n
        self.adds_first = adds_first
        _check_same_texts(first, second)

    @property
    def cache(self) -> CandidateCache:
        """The candidates."""
        return self.first.cache

    def search(self, contexts: Sequence[str | Turns], *, top_k: int = 10) -> BestCandidates:
        """Find the best candidates for each context with both models.

        For arguments, result and errors, see `CandidateIndex.search`.

        Raises:
          ValueError: also if the caches of the two models have different texts, or a score of the
            second model is NaN.
        """
        # An edit in another thread does not change these copies.
        first = copy.copy(self.first)
        second = copy.copy(self.second) if isinstance(self.second, CandidateIndex) else self.second
        _check_same_texts(first, second)
        contexts, k = checked_contexts(contexts), checked_top_k(top_k, first.cache)
        ids, first_scores = first.search(contexts, top_k=max(k, self.top_n))
        if isinstance(second, CandidateIndex):
            scores = second.score(contexts, ids)
        else:
            texts = [[first.cache.text(i) for i in row] for row in ids]
            scores = np.zeros(ids.shape, np.float32)
            if len(ids):
                scores[:] = second.candidate_scores(contexts, texts)
        if np.isnan(scores).any():
            raise ValueError("The second model returned NaN scores. Use another checkpoint.")
        if self.adds_first:
            scores = _logits(first, first_scores) + _logits(second, scores)
        return BestCandidates(ids, scores).best(k)


def _check_same_texts(first: CandidateIndex, second: CandidateIndex | TextRanker) -> None:
    """Raise an error if the caches of the two models have different texts."""
    if not isinstance(second, CandidateIndex):
        return
    if first.cache.texts_hash != second.cache.texts_hash:
        raise ValueError(
            f"The caches {str(first.cache.folder)!r} and {str(second.cache.folder)!r} have "
            "different texts. Build both from the same file, and make the same edits in both."
        )


def _logits(model: CandidateIndex | TextRanker, scores: np.ndarray) -> np.ndarray:
    """Return scores as logits, float32 `[B, n]`. The scores of a ranker are already logits."""
    if isinstance(model, CandidateIndex):
        return np.float32(model.encoder.logit_scale) * scores
    return np.float32(model.logit_scale) * scores if isinstance(model, EncoderRanker) else scores
