"""Exact search: all candidates of a cache are scored."""

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

# Chunks of candidates with their scores that stay in the processor's caches.
BUFFER_BYTES = 4 * 2**20
_CONTEXTS_AT_ONCE = 32  # that are encoded together
_VECTORS_AT_ONCE = 512  # of several contexts, that each chunk of candidates is multiplied with


class CandidateIndex:
    """Exact search: scores all candidates of a cache, in chunks.

    Results are those of scoring each candidate in float64 and rounding to float32, best first, the
    lower id first among equals: they do not depend on the chunks or the other contexts. float16 and
    int8 caches are searched as what they hold, rounded vectors.

    Masking: context vectors that the encoder masks are never read; a context without any scores 0.

    Args:
      cache: the candidates.
      encoder: of which the cache is.
      buffer_bytes: what chunks of candidates and their scores may hold of memory. The encoded
        contexts come on top, and for each 12 bytes per candidate that can be among its best.

    Raises:
      ValueError: the cache is of another encoder.

    Example:
      index = CandidateIndex(CandidateCache("cache/"), encoder)
      ids, scores = index.search([("how are you?",)], top_k=5)
      texts = [index.cache.text(i) for i in ids[0]]

    Reference: arXiv 1905.01969 §4.2, §4.4.
    """

    def __init__(
        self, cache: CandidateCache, encoder: CandidateEncoder, *, buffer_bytes: int = BUFFER_BYTES
    ):
        cache.check_encoder(encoder.fingerprint)
        if buffer_bytes < 1:
            raise ValueError(
                f"buffer_bytes must be at least 1. Received: buffer_bytes={buffer_bytes}."
            )
        self.cache = cache
        self.encoder = encoder
        self.buffer_bytes = buffer_bytes

    def search(self, contexts: Sequence[str | Turns], *, top_k: int = 10) -> BestCandidates:
        """The best candidates of each context.

        Args:
          contexts: of each its turns, the oldest first; or a text, which is one turn.
          top_k: how many candidates; all where there are fewer.

        Returns:
          ids int64 and scores float32, `[len(contexts), min(top_k, candidates)]`.

        Raises:
          ValueError: `top_k` is not positive, or a context is neither.
        """
        contexts, k = checked_contexts(contexts), checked_top_k(top_k, self.cache)
        found = [
            best_candidates(self.cache, block, k=k, buffer_bytes=self.buffer_bytes)
            for block in self._blocks(contexts)
        ]
        return BestCandidates.of_blocks(found, k)

    def score(self, contexts: Sequence[Turns], ids: np.ndarray) -> np.ndarray:
        """Scores of given candidates: int64 `[B, n]` → float32 `[B, n]`."""
        vectors = (own for block in self._blocks(contexts) for own in block)
        scores = [exact_scores(self.cache, own, v) for own, v in zip(ids, vectors, strict=True)]
        return np.array(scores, np.float32).reshape(ids.shape)

    def _blocks(self, contexts: Sequence[Turns]) -> Iterator[list[np.ndarray]]:
        """Vectors of contexts that are scored together, context by context."""
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
