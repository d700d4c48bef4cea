"""Search cached candidates with FAISS, for encoders with one vector per context.

FAISS is the extra `[faiss]`. Its indexes hold all vectors in memory, as float32.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from convert_tf.extras import needs
from convert_tf.ranking.protocol import Turns, checked_contexts
from convert_tf.search.cache import CandidateCache
from convert_tf.search.encoders import CandidateEncoder
from convert_tf.search.scoring import BestCandidates, checked_top_k, exact_scores
from convert_tf.storage.checksums import check_files, record_checksums
from convert_tf.storage.files import whole_file

KINDS = ("flat", "ivf", "hnsw")
_ROWS_AT_ONCE = 16_384
_TRAINING_ROWS_PER_LIST = 64  # of ivf, which has 4 √candidates lists
_PROBES = 16  # lists of ivf to search
_LINKS = 32  # links of each candidate in hnsw
_SEARCH_WIDTH = 128  # candidates that hnsw keeps during a search
_CONTEXTS_AT_ONCE = 32


class FaissIndex:
    """Approximate search (exact for `flat`), with the interface of `CandidateIndex`.

    The index is built on first use and stored in the cache's folder. Scores are those of
    `CandidateIndex`. `ivf` and `hnsw` may miss candidates, and may find fewer than requested.

    Args:
      cache: the candidates.
      encoder: the encoder of the cache.
      kind: `"flat"`, `"ivf"` (lists by k-means) or `"hnsw"` (a graph of neighbours).

    Raises:
      ImportError: if FAISS is not installed.
      ValueError: if the cache belongs to another encoder, or `kind` is unknown.

    Example:
      index = FaissIndex(CandidateCache("cache/"), encoder, kind="hnsw")
      ids, scores = index.search([("how are you?",)], top_k=5)
    """

    def __init__(self, cache: CandidateCache, encoder: CandidateEncoder, *, kind: str = "flat"):
        cache.check_encoder(encoder.fingerprint)
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}. Received: {kind!r}.")
        with needs("faiss", "Search with FAISS"):
            import faiss
        self.cache = cache
        self.encoder = encoder
        self.kind = kind
        self._faiss = faiss
        self._index = self._load_or_make()
        if kind == "ivf":
            self._index.nprobe = _PROBES

    def search(self, contexts: Sequence[str | Turns], *, top_k: int = 10) -> BestCandidates:
        """Find the best candidates with the index. See `CandidateIndex.search`.

        Returns:
          `[len(contexts), min(top_k, candidates)]`. If fewer are found, ids are −1 and scores −∞ at
          the end.

        Raises:
          ValueError: if `top_k` is not positive, or a context has several vectors.
        """
        contexts, k = checked_contexts(contexts), checked_top_k(top_k, self.cache)
        if self.kind == "hnsw":
            self._index.hnsw.efSearch = max(_SEARCH_WIDTH, k)
        found = [
            self._search(contexts[start : start + _CONTEXTS_AT_ONCE], k)
            for start in range(0, len(contexts), _CONTEXTS_AT_ONCE)
        ]
        return BestCandidates.of_blocks(found, k)

    def _search(self, contexts: Sequence[Turns], k: int) -> BestCandidates:
        vectors, _ = self.encoder.encode_contexts(contexts)
        if vectors.shape[1] != 1:
            raise ValueError(
                f"FAISS needs one vector for each context. Received: an encoder with "
                f"{vectors.shape[1]}. Find candidates with a bi-encoder, and rerank them with this "
                "one (RerankedIndex)."
            )
        vectors = np.ascontiguousarray(vectors, np.float32)
        _, ids = self._index.search(vectors[:, 0], k)
        scores = np.full(ids.shape, -np.inf, np.float32)
        for row, found, own in zip(scores, ids, vectors, strict=True):
            row[found >= 0] = exact_scores(self.cache, found[found >= 0], own)
        return BestCandidates(ids, scores).best(k)

    def _load_or_make(self) -> Any:
        # The index is a file of the cache, so that a new cache replaces it.
        lists = min(int(4 * math.sqrt(self.cache.count)), self.cache.count)
        options = {"ivf": f"-{lists}", "hnsw": f"-{_LINKS}"}.get(self.kind, "")
        path = Path(self.cache.folder) / f"faiss-{self.kind}{options}.index"
        if path.is_file():
            try:
                check_files(path.parent, path.name)
                return self._faiss.read_index(str(path))
            except (RuntimeError, ValueError) as error:
                raise ValueError(
                    f"The FAISS index {path} is damaged ({error}). Delete the file; the next "
                    "search builds it again."
                ) from error
        index = self._make(lists)
        with whole_file(path) as temporary:
            try:
                self._faiss.write_index(index, temporary)
            except RuntimeError as error:
                raise OSError(f"{path} could not be written: {error}") from error
        record_checksums(path.parent, [path.name])
        return index

    def _make(self, lists: int) -> Any:
        faiss = self._faiss
        descriptions = {"flat": "Flat", "ivf": f"IVF{lists},Flat", "hnsw": f"HNSW{_LINKS}"}
        index = faiss.index_factory(
            self.cache.dim, descriptions[self.kind], faiss.METRIC_INNER_PRODUCT
        )
        if not index.is_trained:
            rows = min(self.cache.count, _TRAINING_ROWS_PER_LIST * lists)
            places = np.linspace(0, self.cache.count - 1, rows).astype(np.int64)
            index.train(self.cache.vectors_at(places))
        for start in range(0, self.cache.count, _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, self.cache.count)
            index.add(self.cache.vectors_at(np.arange(start, stop)))
        return index
