"""Rerank the best candidates of an index with another model."""

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
        self._check_same_texts()

    @property
    def cache(self) -> CandidateCache:
        """The candidates."""
        return self.first.cache

    def search(self, contexts: Sequence[str | Turns], *, top_k: int = 10) -> BestCandidates:
        """Find the best candidates for each context with both models.

        For arguments, result and errors, see `CandidateIndex.search`.
        """
        self._check_same_texts()
        contexts, k = checked_contexts(contexts), checked_top_k(top_k, self.cache)
        ids, first_scores = self.first.search(contexts, top_k=max(k, self.top_n))
        if isinstance(self.second, CandidateIndex):
            scores = self.second.score(contexts, ids)
        else:
            texts = [[self.cache.text(i) for i in row] for row in ids]
            scores = np.zeros(ids.shape, np.float32)
            if len(ids):
                scores[:] = self.second.candidate_scores(contexts, texts)
        if self.adds_first:
            scores = _logits(self.first, first_scores) + _logits(self.second, scores)
        return BestCandidates(ids, scores).best(k)

    def _check_same_texts(self) -> None:
        """Raise an error if the caches of the two models have different texts."""
        first, second = self.cache, self.second
        if isinstance(second, CandidateIndex) and second.cache.texts_hash != first.texts_hash:
            raise ValueError(
                f"The caches {str(first.folder)!r} and {str(second.cache.folder)!r} have "
                "different texts. Build both from the same file, and make the same edits in both."
            )


def _logits(model: CandidateIndex | TextRanker, scores: np.ndarray) -> np.ndarray:
    """Return scores as logits, float32 `[B, n]`. The scores of a ranker are already logits."""
    if isinstance(model, CandidateIndex):
        return np.float32(model.encoder.logit_scale) * scores
    return np.float32(model.logit_scale) * scores if isinstance(model, EncoderRanker) else scores
