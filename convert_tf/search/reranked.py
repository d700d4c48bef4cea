"""Search in two steps: an index finds candidates, and a slower model ranks the best again."""

from collections.abc import Sequence

import numpy as np

from convert_tf.ranking.protocol import TextRanker, Turns, checked_contexts
from convert_tf.search.faiss import FaissIndex
from convert_tf.search.index import CandidateIndex
from convert_tf.search.scoring import BestCandidates, checked_top_k


class RerankedIndex:
    """Ranks the best candidates of an index again with another model.

    Args:
      first: finds `top_n` candidates.
      second: scores them: an index of a cache of the same texts, for a poly-encoder, or a ranker of
        texts, for a cross-encoder.
      top_n: number of candidates to rank again, or `top_k` if that is larger.

    Raises:
      ValueError: if the caches have different texts, or `top_n` is not positive.

    Example:
      index = RerankedIndex(CandidateIndex(cache, bi_encoder), cross_encoder, top_n=50)
    """

    def __init__(
        self,
        first: CandidateIndex | FaissIndex,
        second: CandidateIndex | TextRanker,
        *,
        top_n: int = 100,
    ):
        if isinstance(second, CandidateIndex) and second.cache.texts_hash != first.cache.texts_hash:
            raise ValueError(
                f"The caches {str(first.cache.folder)!r} and {str(second.cache.folder)!r} hold "
                "different texts. Build both from the same file."
            )
        if top_n < 1:
            raise ValueError(f"top_n must be at least 1. Received: top_n={top_n}.")
        self.cache = first.cache
        self.first = first
        self.second = second
        self.top_n = top_n

    def search(self, contexts: Sequence[str | Turns], *, top_k: int = 10) -> BestCandidates:
        """Find the best candidates of each context by the second model. See `CandidateIndex`.

        If the first index found fewer candidates, ids are −1 and scores −∞ at the end.
        """
        contexts, k = checked_contexts(contexts), checked_top_k(top_k, self.cache)
        ids = self.first.search(contexts, top_k=max(k, self.top_n)).ids
        is_found = ids >= 0
        if isinstance(self.second, CandidateIndex):
            scores = self.second.score(contexts, np.maximum(ids, 0))
        else:
            texts = [[self.cache.text(i) for i in row[row >= 0]] for row in ids]
            scores = np.zeros(ids.shape, np.float32)
            if len(ids):
                scores[is_found] = np.concatenate(self.second.candidate_scores(contexts, texts))
        return BestCandidates(ids, np.where(is_found, scores, -np.inf)).best(k)
