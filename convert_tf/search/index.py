"""Find the best candidates in a cache, by scoring all of them or with FAISS.

Exact search has two passes. The first pass scores all candidates in float32, in chunks. The second
pass uses float64. It scores only the candidates that may be among the best, given the largest
possible rounding error of the first pass. Results therefore depend neither on the size of chunks
nor on other contexts, and equal candidates have equal scores.

FAISS needs the extra `[faiss]`. FAISS indexes keep all vectors in memory, as float32.
"""

import copy
import hashlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from convert_tf.encoding.text_batches import is_count
from convert_tf.extras import needs
from convert_tf.ranking.protocol import Turns, checked_contexts
from convert_tf.search.cache import FORMAT, CandidateCache, edit_cache, widened_float16
from convert_tf.search.encoders import CandidateEncoder
from convert_tf.storage.checksums import check_file, checksum, write_checksum
from convert_tf.storage.files import only_writer, whole_file, writing

FAISS_KINDS = ("flat", "ivf", "hnsw")
_CONTEXTS_AT_ONCE = 32  # number of contexts to encode together
_VECTORS_AT_ONCE = 512  # number of context vectors to multiply by each chunk of candidates
_ROWS_AT_ONCE = 16_384  # number of rows to add to a FAISS index together
_TRAINING_ROWS_PER_LIST = 64  # for ivf, which has 4 √candidates lists
_PROBES = 16  # number of ivf lists to search
_LINKS = 32  # number of links per candidate in hnsw
_SEARCH_WIDTH = 128  # number of candidates that hnsw keeps during a search
_SPARE_GROUPS = 32  # FAISS ranks in float32, so a few more are fetched and ranked exactly
# Size in bytes of a chunk of candidates with its scores, which fits into a processor's caches.
BUFFER_BYTES = 4 * 2**20
# In float32, a sum of e^60 over all vectors of a context is finite, and e^−60 is not zero.
_SAFE_LOGIT = 60.0
# Bound on the relative error of a dot product of d numbers, divided by √d. For d ≤ 1,024, the bound
# covers d/2 roundings, which is the largest possible error. For larger d, it is 16 times the error
# that independent roundings would cause.
_ROUNDING = 16 * float(np.finfo(np.float32).eps)
_MAX_KEPT = 65_536  # number of candidates per context to keep before they are scored exactly


class BestCandidates(NamedTuple):
    """The best candidates for each context, the best first.

    Attributes:
      ids: int64 `[B, k]`, the ids of the candidates. If scores are equal, the lower id comes first.
      scores: float32 `[B, k]`, the scores of these candidates.
    """

    ids: np.ndarray
    scores: np.ndarray

    def best(self, k: int) -> "BestCandidates":
        """Return the best `k` of these candidates, which need not be sorted."""
        order = np.lexsort((self.ids, -self.scores), axis=-1)[:, :k]
        return BestCandidates(*(np.take_along_axis(array, order, axis=1) for array in self))


class _State(NamedTuple):
    """All that an edit changes in an index.

    An edit replaces the state in one step, so that other threads never see a half-edited index.

    Attributes:
      cache: the candidates.
      members: for FAISS, the ids of the candidates, sorted by group, int64 `[candidates]`.
      starts: for FAISS, the position in `members` where each group starts, and the number of
        candidates, int64 `[groups + 1]`.
      groups: the FAISS index, with one vector per group.
    """

    cache: CandidateCache
    members: np.ndarray = np.zeros(0, np.int64)
    starts: np.ndarray = np.zeros(1, np.int64)
    groups: Any = None


class CandidateIndex:
    """Exact search, which scores all candidates of a cache.

    The results are the same as if each score were computed in float64 and rounded to float32. The
    best candidate comes first. If scores are equal, the lower id comes first. Results do not depend
    on the size of chunks or on other contexts. A float16 or int8 cache contains rounded vectors,
    and the scores are those of the rounded vectors.

    Masking: masked context vectors are not read. For a context without vectors, all scores are 0.

    Args:
      cache: the candidates.
      encoder: the encoder that encoded the cache.

    Raises:
      ValueError: if the cache belongs to another encoder.

    Example:
      index = CandidateIndex(CandidateCache("cache/"), encoder)
      ids, scores = index.search([("how are you?",)], top_k=5)
      texts = [index.cache.text(i) for i in ids[0]]
      index.edit(add=["I am well."], remove=["I am ill."])

    Reference: arXiv 1905.01969 §4.2, §4.4.
    """

    def __init__(self, cache: CandidateCache, encoder: CandidateEncoder) -> None:
        cache.check_encoder(encoder.fingerprint, encoder.name)
        self._state = _State(cache)
        self.encoder = encoder

    @property
    def cache(self) -> CandidateCache:
        """The candidates."""
        return self._state.cache

    def search(self, contexts: Sequence[str | Turns], *, top_k: int = 10) -> BestCandidates:
        """Find the best candidates for each context.

        If another thread edits the index during the search, the old candidates are searched.

        Args:
          contexts: the contexts. Each is a text, or a sequence of turns, the oldest first.
          top_k: maximum number of candidates per context.

        Returns:
          The ids of the candidates, int64, and the scores, float32, both `[len(contexts),
          min(top_k, candidates)]`.

        Raises:
          ValueError: if `top_k` is not positive, or a context is neither a text nor a sequence of
            turns.
        """
        fixed = copy.copy(self)  # an edit in another thread does not change the copy
        k = checked_top_k(top_k, fixed.cache)
        best = [fixed._best(block, k) for block in fixed._blocks(checked_contexts(contexts))]
        return BestCandidates(
            np.concatenate([np.zeros((0, k), np.int64), *(block.ids for block in best)]),
            np.concatenate([np.zeros((0, k), np.float32), *(block.scores for block in best)]),
        )

    def score(self, contexts: Sequence[str | Turns], ids: np.ndarray) -> np.ndarray:
        """Return the scores of the candidates with these ids: int64 `[B, n]` → float32 `[B, n]`.

        The contexts are as in `search`.

        Raises:
          ValueError: if there is no candidate with one of these ids, or a context is neither a text
            nor a sequence of turns.
        """
        cache = self.cache  # an edit in another thread may replace it
        cache.check_ids(ids)
        vectors = (v for block in self._blocks(checked_contexts(contexts)) for v in block)
        scores = [exact_scores(cache, row, v) for row, v in zip(ids, vectors, strict=True)]
        return np.array(scores, np.float32).reshape(ids.shape)

    def edit(
        self,
        texts: Sequence[str] | None = None,
        *,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
    ) -> int:
        """Add and remove candidates, in this index and in the cache's folder.

        Only texts that are not yet in the index are encoded. A candidate's id is its position, so
        candidates after a removed one get lower ids.

        Other threads can search the index during an edit. A thread that looks up candidates by
        their ids after a search should first make a copy with `copy.copy(index)`, and use the copy
        for both. An edit of the index does not change the copy.

        Args:
          texts: all candidates of the new index, in order. None if `add` or `remove` is passed
            instead.
          add: texts to append. Texts that are already in the index are not appended again.
          remove: texts to remove. Every copy of such a text is removed, before texts are added.

        Returns:
          The number of candidates that were encoded.

        Raises:
          ValueError: if a text to remove is not in the index, or no candidate would be left.
        """
        cache, encoded = edit_cache(
            self.cache.folder,
            self.encoder.encode_candidates,
            fingerprint=self.encoder.fingerprint,
            name=self.encoder.name,
            texts=texts,
            add=add,
            remove=remove,
        )
        self._state = _State(cache)
        return encoded

    def _best(self, contexts: Sequence[np.ndarray], k: int) -> BestCandidates:
        return best_candidates(self.cache, contexts, k=k)

    def _blocks(self, contexts: Sequence[Turns]) -> Iterator[list[np.ndarray]]:
        """Yield the vectors of contexts, in groups of contexts that are scored together."""
        block: list[np.ndarray] = []
        for start in range(0, len(contexts), _CONTEXTS_AT_ONCE):
            encoded = self.encoder.encode_contexts(contexts[start : start + _CONTEXTS_AT_ONCE])
            for vectors in _real_vectors(*encoded):
                if block and sum(map(len, block)) + len(vectors) > _VECTORS_AT_ONCE:
                    yield block
                    block = []
                block.append(vectors)
        if block:
            yield block


def faiss_key(cache: CandidateCache) -> str:
    """Return a checksum of the texts and the encoder, for the names of FAISS files."""
    return checksum([cache.texts_hash.encode(), cache.encoder.encode()])[:16]


class FaissIndex(CandidateIndex):
    """Search with FAISS, for encoders with one vector per context.

    The index is built on first use and stored in the cache's folder. A damaged file is replaced. If
    the folder cannot be written, or no longer contains this cache, the index stays in memory.

    Candidates with equal texts or vectors are indexed once, as a group. Otherwise they would fill
    the lists of `ivf` and the links of `hnsw`, and other candidates would not be found. A search
    returns all candidates of a group, as `CandidateIndex` does.

    Scores are the same as in `CandidateIndex`. `flat` finds the same candidates, unless the scores
    of more than 32 of them differ only by the rounding of float32. `ivf` and `hnsw` may miss
    candidates. If they find fewer candidates for a context than requested, this context is searched
    exactly.

    Args:
      cache: the candidates.
      encoder: the encoder that encoded the cache.
      kind: the kind of FAISS index: `"flat"`, `"ivf"` (lists by k-means) or `"hnsw"` (a graph of
        neighbours).

    Raises:
      ImportError: if FAISS is not installed.
      ValueError: if the cache belongs to another encoder, or `kind` is unknown. `search` raises it
        if a context has several vectors.

    Example:
      index = FaissIndex(CandidateCache("cache/"), encoder, kind="hnsw")
      ids, scores = index.search([("how are you?",)], top_k=5)
    """

    def __init__(
        self, cache: CandidateCache, encoder: CandidateEncoder, *, kind: str = "flat"
    ) -> None:
        super().__init__(cache, encoder)
        if kind not in FAISS_KINDS:
            raise ValueError(f"kind must be one of {', '.join(FAISS_KINDS)}. Received: {kind!r}.")
        with needs("faiss", "Search with FAISS"):
            import faiss
        self.kind = kind
        self._faiss = faiss
        self._open()

    def edit(
        self,
        texts: Sequence[str] | None = None,
        *,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
    ) -> int:
        """Add and remove candidates as `CandidateIndex.edit` does, and rebuild the FAISS index.

        If the FAISS index cannot be rebuilt, the folder contains the new candidates, but this
        object still searches the old ones.
        """
        edited = copy.copy(self)  # so that this index can still be searched
        encoded = super(FaissIndex, edited).edit(texts, add=add, remove=remove)
        edited._open()
        self._state = edited._state
        return encoded

    def _open(self) -> None:
        """Read the index from the cache's folder, or build it."""
        cache = self.cache
        groups = self._stored("faiss-groups.npy", np.load, lambda: _equal_candidates(cache), _save)
        members = np.argsort(groups, kind="stable")
        starts = np.searchsorted(groups[members], np.arange(groups.max() + 2))
        self._state = _State(cache, members, starts)
        index = self._load_or_make()
        if self.kind == "ivf":
            index.nprobe = _PROBES
        self._state = self._state._replace(groups=index)

    def _best(self, contexts: Sequence[np.ndarray], k: int) -> BestCandidates:
        if (most := max(map(len, contexts))) != 1:
            raise ValueError(
                f"FAISS needs one vector for each context. Received: an encoder with {most}. Find "
                "candidates with a bi-encoder, and rerank them with this encoder (RerankedIndex)."
            )
        cache, members, starts, index = self._state
        number = min(k + _SPARE_GROUPS, index.ntotal)
        if self.kind == "hnsw":
            index.hnsw.efSearch = max(_SEARCH_WIDTH, number)
        _, groups = index.search(np.concatenate(contexts), number)
        best = []
        for row, vectors in zip(groups, contexts, strict=True):
            ids = [members[slice(*starts[g : g + 2])] for g in row[row >= 0].tolist()]
            if sum(map(len, ids)) < k:
                best.append(super()._best([vectors], k))
                continue
            row_ids = np.concatenate(ids)[None]
            scores = exact_scores(cache, row_ids[0], vectors)[None]
            best.append(BestCandidates(row_ids, scores).best(k))
        return BestCandidates(*map(np.concatenate, zip(*best, strict=True)))

    def _load_or_make(self) -> Any:
        count = len(self._state.starts) - 1
        lists = min(int(4 * math.sqrt(count)), count)
        options = {"ivf": f"-{lists}", "hnsw": f"-{_LINKS}"}.get(self.kind, "")

        def read(path: str) -> Any:
            index = self._faiss.read_index(path)
            # In indexes from earlier versions, the number of vectors differs from that of groups.
            return index if index.ntotal == count else None

        def write(index: Any, path: str) -> None:
            try:
                self._faiss.write_index(index, path)
            except RuntimeError as error:
                raise OSError(str(error)) from error

        name = f"faiss-{self.kind}{options}.index"
        return self._stored(name, read, lambda: self._make(lists), write)

    def _stored(
        self,
        name: str,
        read: Callable[[str], Any],
        make: Callable[[], Any],
        write: Callable[[Any, str], None],
    ) -> Any:
        """Read a file from the cache's folder. If it is missing or damaged, make and write it.

        The file's name contains a checksum of the texts and the encoder. Another process may have
        replaced or edited the folder since this cache was opened, and this object must not read
        the files of the new cache. A search must not write `sha256.json`, because an edit may have
        replaced it in the meantime.
        """
        name = name.replace("faiss-", f"faiss-{faiss_key(self.cache)}-", 1)
        path = self.cache.folder / name
        is_missing = not path.is_file()
        if not is_missing:
            try:
                check_file(path)
                if (value := read(str(path))) is not None:
                    return value
            except (OSError, EOFError, RuntimeError, ValueError) as error:
                if path.is_file():  # otherwise an edit has removed it
                    print(f"note: {name} is built again: {error}", file=sys.stderr)
        value = make()
        try:
            if self._is_current():
                with only_writer(path):
                    # Another search may have written the file while this one built its value.
                    if not (is_missing and path.is_file()):
                        _write_with_checksum(path, lambda place: write(value, place))
        except OSError as error:
            blocked, reason = str(error.filename or path), error.strerror or error
            print(
                f"note: {name} stays in memory: cannot write {blocked!r}: {reason}.",
                file=sys.stderr,
            )
        except ValueError:  # another search is writing the file
            pass
        return value

    def _is_current(self) -> bool:
        """Return whether the folder still contains this cache, and not that of a later edit."""
        try:
            facts = FORMAT.facts(self.cache.folder)
        except ValueError:  # an edit is replacing the files
            return False
        return (facts["texts"], facts["encoder"]) == (self.cache.texts_hash, self.cache.encoder)

    def _make(self, lists: int) -> Any:
        faiss = self._faiss
        cache, members, starts, _ = self._state
        firsts = members[starts[:-1]]
        kinds = {"flat": "Flat", "ivf": f"IVF{lists},Flat", "hnsw": f"HNSW{_LINKS}"}
        index = faiss.index_factory(cache.dim, kinds[self.kind], faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            index.cp.min_points_per_centroid = 1  # otherwise FAISS warns about too few vectors
            rows = min(len(firsts), _TRAINING_ROWS_PER_LIST * lists)
            sample = firsts[np.linspace(0, len(firsts) - 1, rows).astype(np.int64)]
            index.train(cache.vectors_at(sample))
        for start in range(0, len(firsts), _ROWS_AT_ONCE):
            index.add(cache.vectors_at(firsts[start : start + _ROWS_AT_ONCE]))
        return index


def _equal_candidates(cache: CandidateCache) -> np.ndarray:
    """Group candidates with equal texts, or with equal vectors.

    Vectors of equal texts may differ in the last bits if they were encoded in different batches. If
    a candidate's text is in one group and its vector is in another, the candidate is added to the
    group of the text.

    Returns:
      The number of each candidate's group, int64 `[candidates]`. Groups are numbered in the order
      of their first candidates.
    """
    groups: dict[bytes, int] = {}  # number of the group, by the checksum of a text or a vector
    group_of = np.zeros(cache.count, np.int64)
    count = 0
    for start in range(0, cache.count, _ROWS_AT_ONCE):
        rows = cache.vectors_at(range(start, min(start + _ROWS_AT_ONCE, cache.count)))
        for i, row in enumerate(rows, start):
            text = hashlib.blake2b(b"text" + cache.text(i).encode(), digest_size=16).digest()
            vector = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
            group = groups.get(text, groups.get(vector, count))
            groups[text] = groups[vector] = group_of[i] = group
            count += group == count
    return group_of


def _write_with_checksum(path: Path, write: Callable[[str], None]) -> None:
    with whole_file(path) as temporary:
        with writing(path):
            write(temporary)
        # The checksum is written before the file gets its name. Otherwise, if it could not be
        # written, later damage would go unnoticed.
        write_checksum(path, temporary)


def _save(array: np.ndarray, path: str) -> None:
    with open(path, "wb") as file:
        np.save(file, array)


def checked_top_k(top_k: int, cache: CandidateCache) -> int:
    """Return `top_k`, or the number of candidates if that is smaller.

    Raises:
      ValueError: if `top_k` is not a whole number of at least 1.
    """
    if not is_count(top_k):
        raise ValueError(f"top_k must be a whole number of at least 1. Received: top_k={top_k!r}.")
    return min(top_k, cache.count)


def _attended_scores(products: np.ndarray) -> np.ndarray:
    """Compute a poly-encoder's scores from its dot products.

    The score is Σ_m softmax_m(s) s_m over the last axis. If there is a single context vector, the
    score is the dot product. See `convert_tf.models.heads.poly_scores`.

    Args:
      products: the dot products s of a candidate with the M context vectors, float `[…, M]`.

    Returns:
      The scores, `[…]`.

    Reference: arXiv 1905.01969 §4.4.
    """
    exponentials = np.exp(products - products.max(axis=-1, keepdims=True))
    return (exponentials * products).sum(-1) / exponentials.sum(-1)


def _real_vectors(vectors: np.ndarray, mask: np.ndarray | None) -> list[np.ndarray]:
    """Return the vectors of each context, without masked vectors.

    Args:
      vectors: context vectors, float `[B, M, dim]`.
      mask: bool `[B, M]`, true for real vectors; None if all vectors are real.

    Returns:
      An array of vectors for each context, float32 `[vectors, dim]`. A context without vectors gets
      one vector of zeros.

    Raises:
      ValueError: if a real vector is NaN or infinite.
    """
    vectors = np.asarray(vectors, np.float32)
    is_real = np.ones(vectors.shape[:2], bool) if mask is None else np.asarray(mask, bool)
    unmasked = [
        row[real] if real.any() else np.zeros_like(row[:1])
        for row, real in zip(vectors, is_real, strict=True)
    ]
    if not all(np.isfinite(rows).all() for rows in unmasked):
        raise ValueError(
            "The encoder returned NaN or infinite context vectors. Use another checkpoint."
        )
    return unmasked


def exact_scores(cache: CandidateCache, ids: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Score some candidates for one context in float64.

    Args:
      cache: the candidates.
      ids: the ids of the candidates to score, int64 `[n]`.
      vectors: the vectors of the context, float32 `[M, dim]`.

    Returns:
      The scores, float32 `[n]`.
    """
    wide = vectors.astype(np.float64).T
    rows = max(1, _MAX_KEPT * 8 // (cache.dim + len(vectors)))
    scores = [
        _attended_scores(cache.vectors_at(ids[i : i + rows]).astype(np.float64) @ wide)
        for i in range(0, len(ids), rows)
    ]
    return np.concatenate([np.zeros(0), *scores]).astype(np.float32)


class _ChunkScorer:
    """Scores chunks of candidates for some contexts.

    A candidate's attention over the context vectors needs only the dot products of its vector with
    these vectors (`_attended_scores`). A chunk therefore needs one matrix product `[rows, dim] ×
    [dim, all vectors]` and a softmax in place.

    Args:
      cache: the candidates.
      contexts: the vectors of each context, float32 `[vectors, dim]`.

    Attributes:
      rows: number of candidates per chunk.
    """

    def __init__(self, cache: CandidateCache, contexts: Sequence[np.ndarray]) -> None:
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
        # Memory per candidate: its vector as floats, its dot products and their exponentials, with
        # 4 bytes per number.
        self.rows = max(1, BUFFER_BYTES // (4 * (cache.dim + 3 * len(vectors))))

    def error_bounds(self) -> np.ndarray:
        """Return the largest possible error of `scores` for each context: float64 `[B]`.

        An error ε in the dot products s changes the score Σ_m p_m s_m, with p = softmax(s), by at
        most ε (1 + Σ_m p_m |s_m − score|). The sum in this bound is at most twice the entropy of p,
        so at most 2 ln M.
        """
        rounding = _ROUNDING * np.sqrt(self._cache.dim)
        return rounding * self._bounds * (2 + 2 * np.log(self._sizes))

    def scores(self, start: int, stop: int) -> np.ndarray:
        """Score the candidates from `start` to `stop`: float32 `[stop - start, B]`."""
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


def best_candidates(
    cache: CandidateCache, contexts: Sequence[np.ndarray], *, k: int
) -> BestCandidates:
    """Find the candidates with the highest scores.

    Args:
      cache: the candidates.
      contexts: the vectors of each context, float32 `[vectors, dim]`.
      k: number of candidates to find, at most `cache.count`.

    Returns:
      The ids and the scores of the candidates, both `[len(contexts), k]`.
    """

    def exact(number: int, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores = exact_scores(cache, ids, contexts[number])
        order = np.lexsort((ids, -scores))[:k]
        return ids[order], scores[order]

    scorer = _ChunkScorer(cache, contexts)
    slack = 2 * scorer.error_bounds()
    cuts = np.full(len(contexts), -np.inf)  # candidates with lower scores cannot be among the best
    # For each context, the candidates that may be among the best.
    ids, scores = [np.zeros(0, np.int64)] * len(cuts), [np.zeros(0, np.float32)] * len(cuts)
    for start in range(0, cache.count, scorer.rows):
        of_chunk = scorer.scores(start, min(start + scorer.rows, cache.count))
        is_kept = of_chunk >= cuts
        for i in np.flatnonzero(is_kept.any(axis=0)).tolist():
            places = np.flatnonzero(is_kept[:, i])
            ids[i] = np.concatenate([ids[i], start + places])
            scores[i] = np.concatenate([scores[i], of_chunk[places, i]])
            if (place := len(ids[i]) - k) <= 0:
                continue
            cuts[i] = np.partition(scores[i], place)[place] - slack[i]
            is_best = scores[i] >= cuts[i]
            ids[i], scores[i] = ids[i][is_best], scores[i][is_best]
            if len(ids[i]) > k + _MAX_KEPT:
                ids[i], scores[i] = exact(i, ids[i])
    best = [exact(i, some) for i, some in enumerate(ids)]
    best_ids, best_scores = zip(*best, strict=True)
    return BestCandidates(np.stack(best_ids), np.stack(best_scores))
