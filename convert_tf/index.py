"""Search among cached candidates: all of them are scored, or those that FAISS finds.

```
python -m convert_tf.index build --module hub_modules/convert/1 --input candidates.txt \
    --output cache/ --dtype int8
python -m convert_tf.index search --module hub_modules/convert/1 --cache cache/ \
    --queries "how do I reset my password?" --top_k 5
```

`--checkpoint` takes the place of `--module` for a dual encoder or a bi- or poly-encoder that
train.py wrote. `--rerank_checkpoint`, of any head, scores the first `--top_n` anew.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from absl import app, flags

from convert_tf.candidate_cache import DTYPES, CandidateCache
from convert_tf.candidate_scoring import (
    BestCandidates,
    best_candidates,
    exact_scores,
    real_vectors,
)
from convert_tf.candidate_writer import read_candidate_lines, write_cache
from convert_tf.text_ranker import Turns

# Chunks of candidates with their scores that stay in the processor's caches.
BUFFER_BYTES = 4 * 2**20
_CONTEXTS_AT_ONCE = 32  # that are encoded together
_VECTORS_AT_ONCE = 512  # of several contexts, that each chunk of candidates is multiplied with


class CandidateEncoder(Protocol):
    """What encodes the contexts and the candidates of an index.

    A score is the dot product of a context's vector and a candidate's; with several context vectors
    it is the poly-encoder's (`convert_tf.candidate_scoring.attended_scores`). Factors of the scores
    are part of the context vectors.

    Attributes:
      fingerprint: differs between encoders whose candidate vectors differ.
    """

    fingerprint: str

    def encode_candidates(self, texts: Sequence[str]) -> np.ndarray:
        """float32 `[len(texts), dim]`."""
        ...

    def encode_contexts(self, contexts: Sequence[Turns]) -> tuple[np.ndarray, np.ndarray | None]:
        """Vectors float32 `[B, M, dim]` and which are real, bool `[B, M]`; None if all are."""
        ...


class Index(Protocol):
    """What finds the best candidates of a cache."""

    cache: CandidateCache

    def search(self, contexts: Sequence[Turns], *, top_k: int = 10) -> BestCandidates:
        """The best candidates of each context."""
        ...


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
        self,
        cache: CandidateCache,
        encoder: CandidateEncoder,
        *,
        buffer_bytes: int = BUFFER_BYTES,
    ):
        cache.check_encoder(encoder.fingerprint)
        if buffer_bytes < 1:
            raise ValueError(f"Buffers have a size. Received: buffer_bytes={buffer_bytes}.")
        self.cache = cache
        self.encoder = encoder
        self.buffer_bytes = buffer_bytes

    def search(self, contexts: Sequence[Turns], *, top_k: int = 10) -> BestCandidates:
        """The best candidates of each context.

        Args:
          contexts: of each its turns, the oldest first.
          top_k: how many candidates; all where there are fewer.

        Returns:
          ids int64 and scores float32, `[len(contexts), min(top_k, candidates)]`.

        Raises:
          ValueError: `top_k` is not positive.
        """
        k = checked_top_k(top_k, self.cache)
        found = [
            best_candidates(self.cache, block, k=k, buffer_bytes=self.buffer_bytes)
            for block in self._blocks(contexts)
        ]
        return joined(found, k)

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


def checked_top_k(top_k: int, cache: CandidateCache) -> int:
    """How many candidates of a cache can be returned.

    Raises:
      ValueError: `top_k` is not positive.
    """
    if top_k < 1:
        raise ValueError(f"A candidate or more is returned. Received: top_k={top_k}.")
    return min(top_k, cache.count)


def joined(found: Sequence[BestCandidates], k: int) -> BestCandidates:
    """The results of blocks of contexts as one, `[contexts, k]`."""
    return BestCandidates(
        np.concatenate([np.zeros((0, k), np.int64), *(each.ids for each in found)]),
        np.concatenate([np.zeros((0, k), np.float32), *(each.scores for each in found)]),
    )


def _define_flags() -> None:
    flags.DEFINE_string("module", None, "Module that export.py wrote; this or --checkpoint.")
    flags.DEFINE_string("checkpoint", None, "Folder that train.py wrote; this or --module.")
    flags.DEFINE_string("input", None, "build: text file, compressed or not; a candidate a line.")
    flags.DEFINE_string("output", None, "build: folder of the cache.")
    flags.DEFINE_enum("dtype", "float32", DTYPES, "build: how vectors are stored.")
    flags.DEFINE_integer("batch_size", 1024, "build: texts encoded together.", lower_bound=1)
    flags.DEFINE_bool("overwrite", False, "build: whether a cache of that name is replaced.")
    flags.DEFINE_string("cache", None, "search: folder that build wrote.")
    flags.DEFINE_multi_string("queries", None, "search: a context; repeatable.")
    flags.DEFINE_integer("top_k", 5, "search: candidates shown for each query.", lower_bound=1)
    flags.DEFINE_enum(
        "faiss", None, ["flat", "ivf", "hnsw"], "search: find candidates with FAISS, in this kind "
        "of index; extra [faiss]. The index is kept in the cache."
    )  # fmt: skip
    flags.DEFINE_string("rerank_checkpoint", None, "search: checkpoint of any head that ranks the "
                        "first --top_n anew.")  # fmt: skip
    flags.DEFINE_string("rerank_cache", None, "search: that checkpoint's own cache of the same "
                        "candidates; without it their texts are encoded.")  # fmt: skip
    flags.DEFINE_integer("top_n", 100, "search: candidates ranked anew.", lower_bound=1)


def _build() -> None:
    from convert_tf.index_encoders import load_encoder

    values = flags.FLAGS
    encoder = load_encoder(checkpoint=values.checkpoint, module=values.module)
    cache = write_cache(
        values.output,
        read_candidate_lines(values.input),
        encoder.encode_candidates,
        fingerprint=encoder.fingerprint,
        dtype=values.dtype,
        batch_size=values.batch_size,
        overwrite=values.overwrite,
    )
    print(f"wrote {values.output}: {cache.count:,} candidates, {cache.dim} × {cache.dtype}")


def _search() -> None:
    from convert_tf.index_encoders import load_encoder, load_text_ranker
    from convert_tf.reranked_index import RerankedIndex

    values = flags.FLAGS
    encoder = load_encoder(checkpoint=values.checkpoint, module=values.module)
    cache = CandidateCache(values.cache)
    index: Index
    if values.faiss is None:
        index = CandidateIndex(cache, encoder)
    else:
        from convert_tf.faiss_index import FaissIndex

        index = FaissIndex(cache, encoder, kind=values.faiss)
    if values.rerank_cache is not None:
        second = load_encoder(checkpoint=values.rerank_checkpoint)
        index = RerankedIndex(
            index, CandidateIndex(CandidateCache(values.rerank_cache), second), top_n=values.top_n
        )
    elif values.rerank_checkpoint is not None:
        ranker = load_text_ranker(values.rerank_checkpoint)
        index = RerankedIndex(index, ranker, top_n=values.top_n)
    contexts = [(query,) for query in values.queries]
    found = index.search(contexts, top_k=values.top_k)
    for query, ids, scores in zip(values.queries, *found, strict=True):
        print(query)
        for candidate_id, score in zip(ids, scores, strict=True):
            if candidate_id >= 0:
                text = " ".join(cache.text(candidate_id).split())
                print(f"  {score:8.3f}  {candidate_id:8d}  {text}")


_COMMANDS = {"build": (_build, ("input", "output")), "search": (_search, ("cache", "queries"))}


def _run(argv: Sequence[str]) -> None:
    values = flags.FLAGS
    if len(argv) != 2 or argv[1] not in _COMMANDS:
        raise app.UsageError(f"One command, build or search. Received: {argv[1:]}.")
    command, needed = _COMMANDS[argv[1]]
    missing = [f"--{name}" for name in needed if not values[name].value]
    if missing:
        raise app.UsageError(f"{argv[1]} needs {' and '.join(missing)}.")
    if (values.checkpoint is None) == (values.module is None):
        raise app.UsageError("The encoder is a --checkpoint or a --module: pass one of them.")
    if values.rerank_cache is not None and values.rerank_checkpoint is None:
        raise app.UsageError("--rerank_cache goes with the --rerank_checkpoint that made it.")
    try:
        command()
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"index: {' '.join(str(error).split())}")


if __name__ == "__main__":
    _define_flags()
    app.run(_run)
