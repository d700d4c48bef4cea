"""Exact search: score all candidates of a cache."""

from collections.abc import Iterator, Sequence

import numpy as np

from convert_tf.ranking.protocol import Turns, checked_contexts
from convert_tf.search.cache import CandidateCache
from convert_tf.search.encoders import CandidateEncoder
from convert_tf.search.scoring import (
    BestCandidates,
    best_candidates,
    checked_top_k,
    exact_scores,
    real_vectors,
)

_CONTEXTS_AT_ONCE = 32  # that are encoded together
_VECTORS_AT_ONCE = 512  # of several contexts, that each chunk of candidates is multiplied with


class CandidateIndex:
    """Exact search: scores all candidates of a cache, in chunks.

    The results equal those of scoring each candidate in float64 and rounding to float32. The best
    comes first, and of equal scores the lower id. They do not depend on chunks or other contexts.
    float16 and int8 caches hold rounded vectors, which are searched.

    Masking: masked context vectors are not read. A context without vectors scores 0.

    Args:
      cache: the candidates.
      encoder: the encoder of the cache.

    Raises:
      ValueError: if the cache belongs to another encoder.

    Example:
      index = CandidateIndex(CandidateCache("cache/"), encoder)
      ids, scores = index.search([("how are you?",)], top_k=5)
      texts = [index.cache.text(i) for i in ids[0]]

    Reference: arXiv 1905.01969 §4.2, §4.4.
    """

    def __init__(self, cache: CandidateCache, encoder: CandidateEncoder):
        cache.check_encoder(encoder.fingerprint)
        self.cache = cache
        self.encoder = encoder

    def search(self, contexts: Sequence[str | Turns], *, top_k: int = 10) -> BestCandidates:
        """Find the best candidates of each context.

        Args:
          contexts: for each context its turns, the oldest first; or a text, which is one turn.
          top_k: number of candidates.

        Returns:
          ids int64 and scores float32, `[len(contexts), min(top_k, candidates)]`.

        Raises:
          ValueError: if `top_k` is not positive, or a context is neither.
        """
        contexts, k = checked_contexts(contexts), checked_top_k(top_k, self.cache)
        found = [best_candidates(self.cache, block, k=k) for block in self._blocks(contexts)]
        return BestCandidates.of_blocks(found, k)

    def score(self, contexts: Sequence[Turns], ids: np.ndarray) -> np.ndarray:
        """Score given candidates: int64 `[B, n]` → float32 `[B, n]`."""
        vectors = (own for block in self._blocks(contexts) for own in block)
        scores = [exact_scores(self.cache, own, v) for own, v in zip(ids, vectors, strict=True)]
        return np.array(scores, np.float32).reshape(ids.shape)

    def _blocks(self, contexts: Sequence[Turns]) -> Iterator[list[np.ndarray]]:
        """Yield the vectors of contexts that are scored together."""
        block: list[np.ndarray] = []
        for start in range(0, len(contexts), _CONTEXTS_AT_ONCE):
            encoded = self.encoder.encode_contexts(contexts[start : start + _CONTEXTS_AT_ONCE])
            for vectors in real_vectors(*encoded):
                if block and sum(map(len, block)) + len(vectors) > _VECTORS_AT_ONCE:
                    yield block
                    block = []
                block.append(vectors)
        if block:
            yield block
