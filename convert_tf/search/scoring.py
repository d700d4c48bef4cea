"""Score cached candidates for encoded contexts in numpy, and find the best.

There are two passes. The first scores all candidates in float32, in chunks. The second scores those
in float64 that may be among the best, given the largest rounding error. So results depend neither
on the size of chunks nor on other contexts, and equal candidates have equal scores.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from convert_tf.encoding.text_batches import is_count
from convert_tf.search.cache import CandidateCache, widened_float16

# Chunks of candidates with their scores stay in the processor's caches.
BUFFER_BYTES = 4 * 2**20
# e^60 times any number of vectors is finite in float32, and e^−60 is not zero.
_SAFE_LOGIT = 60.0
# Relative error bound of a dot product of d numbers, divided by √d. For d ≤ 1,024 it covers d/2
# roundings, the largest possible error. For larger d it is 16 times that of independent roundings.
_ROUNDING = 16 * float(np.finfo(np.float32).eps)
_MAX_KEPT = 65_536  # candidates of one context to keep before they are scored exactly


class BestCandidates(NamedTuple):
    """Candidates of each context, best first.

    Attributes:
      ids: int64 `[B, k]`; of equal scores the lower id comes first.
      scores: float32 `[B, k]`.
    """

    ids: np.ndarray
    scores: np.ndarray

    def best(self, k: int) -> "BestCandidates":
        """Return the first `k` of candidates that may be in any order."""
        order = np.lexsort((self.ids, -self.scores), axis=-1)[:, :k]
        return BestCandidates(*(np.take_along_axis(each, order, axis=1) for each in self))

    @staticmethod
    def of_blocks(blocks: Sequence["BestCandidates"], k: int) -> "BestCandidates":
        """Concatenate the results of blocks of contexts: `[contexts, k]`."""
        return BestCandidates(
            np.concatenate([np.zeros((0, k), np.int64), *(block.ids for block in blocks)]),
            np.concatenate([np.zeros((0, k), np.float32), *(block.scores for block in blocks)]),
        )


def checked_top_k(top_k: int, cache: CandidateCache) -> int:
    """Return the number of candidates to find, at most that of the cache.

    Raises:
      ValueError: if `top_k` is not a positive whole number.
    """
    if not is_count(top_k):
        raise ValueError(f"top_k must be a whole number of at least 1. Received: top_k={top_k!r}.")
    return min(top_k, cache.count)


def attended_scores(products: np.ndarray) -> np.ndarray:
    """Compute the scores of a poly-encoder from its dot products.

    The score is Σ_m softmax_m(s) s_m over the last axis. For a single context vector, this is the
    dot product. See `convert_tf.models.heads.poly_scores`.

    Args:
      products: dot products s, float `[…, M]`.

    Returns:
      `[…]`.

    Reference: arXiv 1905.01969 §4.4.
    """
    exponentials = np.exp(products - products.max(axis=-1, keepdims=True))
    return (exponentials * products).sum(-1) / exponentials.sum(-1)


def real_vectors(vectors: np.ndarray, mask: np.ndarray | None) -> list[np.ndarray]:
    """Return the vectors of each context without masked ones.

    Args:
      vectors: float `[B, M, dim]`.
      mask: bool `[B, M]`, true for real vectors; None if all are.

    Returns:
      For each context float32 `[its M, dim]`. A context without vectors gets one vector of zeros.

    Raises:
      ValueError: if a real vector is NaN or infinite.
    """
    vectors = np.asarray(vectors, np.float32)
    is_real = np.ones(vectors.shape[:2], bool) if mask is None else np.asarray(mask, bool)
    own = [
        row[real] if real.any() else np.zeros_like(row[:1])
        for row, real in zip(vectors, is_real, strict=True)
    ]
    if not all(np.isfinite(each).all() for each in own):
        raise ValueError(
            "The encoder returned NaN or infinite context vectors. Use another checkpoint."
        )
    return own


def exact_scores(cache: CandidateCache, ids: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Score some candidates for one context in float64.

    Args:
      cache: the candidates.
      ids: int64 `[n]`.
      vectors: vectors of the context, float32 `[M, dim]`.

    Returns:
      float32 `[n]`.
    """
    wide = vectors.astype(np.float64).T
    rows = max(1, _MAX_KEPT * 8 // (cache.dim + len(vectors)))
    scores = [
        attended_scores(cache.vectors_at(ids[i : i + rows]).astype(np.float64) @ wide)
        for i in range(0, len(ids), rows)
    ]
    return np.concatenate([np.zeros(0), *scores]).astype(np.float32)


class _ChunkScorer:
    """Score chunks of candidates for some contexts.

    The attention of a candidate over the context vectors needs only its dot products with them
    (`attended_scores`). So a chunk needs one matrix product `[rows, dim] × [dim, all vectors]` and
    a softmax in place.

    Args:
      cache: the candidates.
      contexts: vectors of each context, float32 `[its M, dim]`.

    Attributes:
      rows: number of candidates in a chunk.
    """

    def __init__(self, cache: CandidateCache, contexts: Sequence[np.ndarray]):
        self._cache = cache
        self._sizes = np.array([len(vectors) for vectors in contexts])
        self._starts = np.cumsum(self._sizes) - self._sizes
        vectors = np.concatenate(contexts)
        # BLAS is fastest if the vectors are the columns of a row-major matrix.
        self._columns = np.ascontiguousarray(vectors.T)
        self._is_single = len(vectors) == len(contexts)
        self._membership = np.repeat(np.eye(len(contexts), dtype=np.float32), self._sizes, axis=0)
        bounds = np.linalg.norm(vectors.astype(np.float64), axis=1) * cache.max_norm
        self._bounds = np.maximum.reduceat(bounds, self._starts)
        # A chunk as floats, its dot products and their exponentials, all of 4 bytes a number.
        self.rows = max(1, BUFFER_BYTES // (4 * (cache.dim + 3 * len(vectors))))

    def error_bounds(self) -> np.ndarray:
        """Return the largest difference between a score and the exact score: float64 `[B]`.

        An error ε of the dot products changes the score Σ_m p_m s_m by at most ε (1 + Σ_m p_m
        |s_m − score|). That sum is at most twice the entropy of p, so less than 2 ln M.
        """
        rounding = _ROUNDING * np.sqrt(self._cache.dim)
        return rounding * self._bounds * (2 + 2 * np.log(self._sizes))

    def scores(self, start: int, stop: int) -> np.ndarray:
        """Score candidates: float32 `[stop - start, B]`."""
        stored, scales = self._cache.stored(start, stop)
        is_half = stored.dtype == np.float16
        floats = widened_float16(stored) if is_half else stored.astype(np.float32, copy=False)
        products = floats @ self._columns
        if scales is not None:
            products *= scales[:, None]
        if self._is_single:
            return products
        largest = None
        if self._bounds.max() > _SAFE_LOGIT:
            largest = np.maximum.reduceat(products, self._starts, axis=1)
            products -= np.repeat(largest, self._sizes, axis=1)
        exponentials = np.exp(products)
        totals = exponentials @ self._membership
        exponentials *= products
        scores = exponentials @ self._membership
        scores /= totals
        return scores if largest is None else scores + largest


class _Best:
    """Candidates that may be among the best `k` of one context."""

    def __init__(self, cache: CandidateCache, vectors: np.ndarray, *, k: int, error: float):
        self._cache = cache
        self._vectors = vectors
        self._k = k
        self._slack = 2 * error
        self._ids = np.zeros(0, np.int64)
        self._scores = np.zeros(0, np.float32)
        self.cut = -np.inf  # below it no candidate can be among the best

    def add(self, ids: np.ndarray, scores: np.ndarray) -> None:
        """Add candidates whose ids are larger than all earlier ones."""
        self._ids = np.concatenate([self._ids, ids])
        self._scores = np.concatenate([self._scores, scores])
        if len(self._ids) <= self._k:
            return
        place = len(self._ids) - self._k
        self.cut = np.partition(self._scores, place)[place] - self._slack
        is_kept = self._scores >= self.cut
        self._ids, self._scores = self._ids[is_kept], self._scores[is_kept]
        if len(self._ids) > self._k + _MAX_KEPT:
            self._ids, self._scores = self.best()

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and exact scores of the best candidates."""
        scores = exact_scores(self._cache, self._ids, self._vectors)
        order = np.lexsort((self._ids, -scores))[: self._k]
        return self._ids[order], scores[order]


def best_candidates(
    cache: CandidateCache, contexts: Sequence[np.ndarray], *, k: int
) -> BestCandidates:
    """Find the candidates with the highest scores.

    Args:
      cache: the candidates.
      contexts: vectors of each context, float32 `[its M, dim]`.
      k: number of candidates to find, at most `cache.count`.

    Returns:
      Ids and scores, `[len(contexts), k]`.
    """
    scorer = _ChunkScorer(cache, contexts)
    errors = scorer.error_bounds()
    best = [
        _Best(cache, vectors, k=k, error=float(error))
        for vectors, error in zip(contexts, errors, strict=True)
    ]
    cuts = np.full(len(contexts), -np.inf)
    for start in range(0, cache.count, scorer.rows):
        stop = min(start + scorer.rows, cache.count)
        scores = scorer.scores(start, stop)
        is_kept = scores >= cuts
        for number in np.flatnonzero(is_kept.any(axis=0)):
            places = np.flatnonzero(is_kept[:, number])
            best[number].add(start + places, scores[places, number])
            cuts[number] = best[number].cut
    found = [each.best() for each in best]
    return BestCandidates(np.stack([ids for ids, _ in found]), np.stack([s for _, s in found]))
