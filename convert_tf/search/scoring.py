"""Scores of cached candidates for encoded contexts, in numpy, and the best of them.

Two passes: all candidates are scored in float32, chunk by chunk, and those that can be among the
best, given what rounding may have done, once more in float64. What is found then depends neither on
the sizes of chunks nor on the other contexts, and equal candidates have equal scores.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from convert_tf.encoding.text_batches import is_count
from convert_tf.search.cache import CandidateCache, widen_float16

# Below e^60 times any number of vectors is no infinity in float32, nor is e^−60 zero.
_SAFE_LOGIT = 60.0
# Times √d: no less than d/2 roundings, the most that a dot product of d ≤ 1,024 numbers can be off
# by; with more numbers still 16 times the √d that independent roundings add up to.
_ROUNDING = 16 * float(np.finfo(np.float32).eps)
_MAX_KEPT = 65_536  # candidates that are held for one context before their ranks are settled


class BestCandidates(NamedTuple):
    """Candidates of each context, best first.

    Attributes:
      ids: int64 `[B, k]`; of equal scores the lower id comes first.
      scores: float32 `[B, k]`.
    """

    ids: np.ndarray
    scores: np.ndarray

    def best(self, k: int) -> "BestCandidates":
        """The first `k` of candidates in any order."""
        order = np.lexsort((self.ids, -self.scores), axis=-1)[:, :k]
        return BestCandidates(*(np.take_along_axis(each, order, axis=1) for each in self))

    @staticmethod
    def of_blocks(blocks: Sequence["BestCandidates"], k: int) -> "BestCandidates":
        """The results of blocks of contexts as one, `[contexts, k]`."""
        return BestCandidates(
            np.concatenate([np.zeros((0, k), np.int64), *(block.ids for block in blocks)]),
            np.concatenate([np.zeros((0, k), np.float32), *(block.scores for block in blocks)]),
        )


def checked_top_k(top_k: int, cache: CandidateCache) -> int:
    """How many candidates of a cache can be returned.

    Raises:
      ValueError: `top_k` is no positive whole number.
    """
    if not is_count(top_k):
        raise ValueError(f"top_k must be a whole number of at least 1. Received: top_k={top_k!r}.")
    return min(top_k, cache.count)


def attended_scores(products: np.ndarray) -> np.ndarray:
    """Σ_m softmax_m(s) s_m over the last axis: a poly-encoder's score from its dot products.

    With one vector the score is its dot product. See `convert_tf.models.heads.poly_scores`.

    Args:
      products: float `[…, M]`.

    Returns:
      `[…]`.

    Reference: arXiv 1905.01969 §4.4.
    """
    exponentials = np.exp(products - products.max(axis=-1, keepdims=True))
    return (exponentials * products).sum(-1) / exponentials.sum(-1)


def real_vectors(vectors: np.ndarray, mask: np.ndarray | None) -> list[np.ndarray]:
    """Each context's own vectors.

    Args:
      vectors: float `[B, M, dim]`.
      mask: bool `[B, M]`; None where all are real.

    Returns:
      For each context float32 `[M of it, dim]`; one of zeros where it has none.

    Raises:
      ValueError: a vector that is real is no number.
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
    """Scores of some candidates for one context, computed in float64.

    Args:
      cache: the candidates.
      ids: int64 `[n]`.
      vectors: float32 `[M, dim]` of the context.

    Returns:
      float32 `[n]`.
    """
    wide = vectors.astype(np.float64).T
    rows = max(1, _MAX_KEPT * 8 // (cache.dim + len(vectors)))
    scores = [
        attended_scores(cache.vectors_at(ids[i : i + rows]).astype(np.float64) @ wide)
        for i in range(0, len(ids), rows)
    ]
    return _checked(cache, np.concatenate([np.zeros(0), *scores]).astype(np.float32))


def _checked(cache: CandidateCache, scores: np.ndarray) -> np.ndarray:
    """The scores; NaN would be above and below all others, and its candidate vanish."""
    if np.isnan(scores).any():
        raise ValueError(
            f"Candidates in {str(cache.folder)!r} have NaN or infinite vectors. Build the cache "
            "again with `convert-tf index build`."
        )
    return scores


class _ChunkScorer:
    """Scores of chunks of candidates for some contexts, in buffers that are used again.

    The candidate's attention over the context vectors needs no more than its dot products with
    them (`attended_scores`), so a chunk costs one matrix product `[rows, dim] × [dim, all vectors]`
    and a softmax in place.

    Args:
      cache: the candidates.
      contexts: vectors of each context, float32 `[M of it, dim]`.
      buffer_bytes: what the buffers may hold together; at least one candidate is scored at a time.
    """

    def __init__(self, cache: CandidateCache, contexts: Sequence[np.ndarray], buffer_bytes: int):
        self._cache = cache
        sizes = np.array([len(vectors) for vectors in contexts])
        self._starts = np.cumsum(sizes) - sizes
        self._sizes = sizes
        vectors = np.concatenate(contexts)
        # BLAS is fastest with the vectors as columns of a row-major matrix.
        self._columns = np.ascontiguousarray(vectors.T)
        width, count = len(vectors), len(contexts)
        self._is_single = width == count
        self._membership = np.repeat(np.eye(count, dtype=np.float32), sizes, axis=0)
        bounds = np.linalg.norm(vectors.astype(np.float64), axis=1) * cache.max_norm
        self._bounds = np.maximum.reduceat(bounds, self._starts)
        is_copied = cache.dtype != "float32"
        row_bytes = 4 * (is_copied * cache.dim + width)
        if not self._is_single:
            row_bytes += 4 * (width + 2 * count)
        self.rows = min(max(1, buffer_bytes // row_bytes), cache.count)
        self._floats = np.empty((self.rows if is_copied else 0, cache.dim), np.float32)
        self._products = np.empty((self.rows, width), np.float32)
        self._exponentials = np.empty((0 if self._is_single else self.rows, width), np.float32)

    def error_bounds(self) -> np.ndarray:
        """float64 `[B]`: how far a score may be from the exact one.

        An error ε of the dot products moves the score Σ_m p_m s_m by at most ε (1 + Σ_m p_m
        |s_m − score|), and that sum is at most twice the entropy of p, so below 2 ln M.
        """
        rounding = _ROUNDING * np.sqrt(self._columns.shape[0])
        entropies = 2 * np.log(self._sizes)
        return rounding * self._bounds * (2 + entropies)

    def scores(self, start: int, stop: int) -> np.ndarray:
        """float32 `[stop - start, B]`; at most `rows` candidates, valid until the next call."""
        stored, scales = self._cache.stored(start, stop)
        products = self._products[: stop - start]
        np.matmul(self._as_floats(stored), self._columns, out=products)
        if scales is not None:
            products *= scales[:, None]
        if self._is_single:
            return products
        largest = None
        if self._bounds.max() > _SAFE_LOGIT:
            largest = np.maximum.reduceat(products, self._starts, axis=1)
            products -= np.repeat(largest, self._sizes, axis=1)
        exponentials = np.exp(products, out=self._exponentials[: stop - start])
        totals = exponentials @ self._membership
        exponentials *= products
        scores = exponentials @ self._membership
        scores /= totals
        return scores if largest is None else scores + largest

    def _as_floats(self, stored: np.ndarray) -> np.ndarray:
        if stored.dtype == np.float32:
            return stored
        floats = self._floats[: len(stored)]
        if stored.dtype == np.float16:
            widen_float16(stored, floats)
        else:
            np.copyto(floats, stored)
        return floats


class _Best:
    """The candidates of one context that can be among its best `k`."""

    def __init__(self, cache: CandidateCache, vectors: np.ndarray, *, k: int, error: float):
        self._cache = cache
        self._vectors = vectors
        self._k = k
        self._slack = 2 * error
        self._ids = np.zeros(0, np.int64)
        self._scores = np.zeros(0, np.float32)
        self.cut = -np.inf  # below it no candidate can be among the best

    def add(self, ids: np.ndarray, scores: np.ndarray) -> None:
        """Takes candidates whose ids are above all earlier ones."""
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
        """Ids and exact scores of the best."""
        scores = exact_scores(self._cache, self._ids, self._vectors)
        order = np.lexsort((self._ids, -scores))[: self._k]
        return self._ids[order], scores[order]


def best_candidates(
    cache: CandidateCache, contexts: Sequence[np.ndarray], *, k: int, buffer_bytes: int
) -> BestCandidates:
    """The candidates with the highest scores, out of all.

    Args:
      cache: the candidates.
      contexts: vectors of each context, float32 `[M of it, dim]`.
      k: how many; at most `cache.count`.
      buffer_bytes: size of the buffers that chunks of candidates are scored in.

    Returns:
      `[len(contexts), k]` ids and scores.
    """
    scorer = _ChunkScorer(cache, contexts, buffer_bytes)
    errors = scorer.error_bounds()
    best = [
        _Best(cache, vectors, k=k, error=float(error))
        for vectors, error in zip(contexts, errors, strict=True)
    ]
    cuts = np.full(len(contexts), -np.inf)
    for start in range(0, cache.count, scorer.rows):
        stop = min(start + scorer.rows, cache.count)
        scores = _checked(cache, scorer.scores(start, stop))
        is_kept = scores >= cuts
        for number in np.flatnonzero(is_kept.any(axis=0)):
            places = np.flatnonzero(is_kept[:, number])
            best[number].add(start + places, scores[places, number])
            cuts[number] = best[number].cut
    found = [each.best() for each in best]
    return BestCandidates(np.stack([ids for ids, _ in found]), np.stack([s for _, s in found]))
