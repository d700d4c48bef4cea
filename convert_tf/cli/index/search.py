r"""Find the best candidates for a query.

```
convert-tf index search --cache cache/ --queries "how do I reset my password?" --top_k 5
convert-tf index search --candidates candidates.txt --queries "how do I reset my password?"
```

All candidates are scored, or, with `--faiss`, only the candidates that FAISS finds. `--encoder`
must be the encoder that built the cache. Without a cache, the texts of `--candidates` or `--data`
are encoded for this search only. With `--rerank_checkpoint`, a ranker scores the first `--top_n`
candidates again.

Flags:
  cache: Folder written by convert-tf index build.
  candidates: Text file with one candidate per line, or a table, instead of --cache.
  data: Folder of records with the candidates, instead of --cache.
  split: Split of --data: train, dev or test.
  max_candidates: Maximum number of texts from --candidates or --data.
  queries: A query.
  top_k: Number of candidates to show for each query.
  faiss: Kind of FAISS index to search. The index is stored in the cache if possible. Needs the
    extra [faiss].
  rerank_checkpoint: Run, module or name of a ranker that scores the first --top_n candidates again.
  rerank_cache: Cache of the candidates for --rerank_checkpoint. By default, each search encodes the
    candidates again.
  top_n: Number of candidates that --rerank_checkpoint scores again.
  add_first: Rank by the sum of the logits from --encoder and --rerank_checkpoint, rather than by
    the logits from --rerank_checkpoint alone.
"""

import contextlib
import functools
import tempfile
from collections.abc import Iterator
from itertools import islice
from typing import Any

from convert_tf.cli.flags import (
    DEFAULT_ENCODER,
    NEEDED,
    Define,
    UsageError,
    check_read,
    define_encoder,
)
from convert_tf.ranking.ranker import open_ranker
from convert_tf.readers.columns import name_of_candidate
from convert_tf.readers.texts import Texts, filled_texts
from convert_tf.search.cache import CandidateCache, write_cache
from convert_tf.search.encoders import SEARCH_KINDS, CandidateEncoder, load_encoder
from convert_tf.search.index import FAISS_KINDS, CandidateIndex, FaissIndex
from convert_tf.search.reranked import RerankedIndex


def define_flags(define: Define) -> None:
    define_encoder(define, DEFAULT_ENCODER)
    define("kind", "response", choices=SEARCH_KINDS)
    define("cache", None)
    define("candidates", None)
    define("data", None)
    define("split", "test")
    define("max_candidates", 20_000, lower_bound=1)
    define("queries", NEEDED, repeats=True)
    define("top_k", 5, lower_bound=1)
    define("faiss", None, choices=FAISS_KINDS)
    define("rerank_checkpoint", None)
    define("rerank_cache", None)
    define("top_n", 100, lower_bound=1)
    define("add_first", True)


def run(values: Any) -> None:
    _check(values)
    encoder = load_encoder(values.encoder, kind=values.kind)
    with _cache(values, encoder) as cache:
        index: Any = CandidateIndex(cache, encoder)
        if values.faiss:
            index = FaissIndex(cache, encoder, kind=values.faiss)
        reranked = functools.partial(RerankedIndex, top_n=values.top_n, adds_first=values.add_first)
        if values.rerank_cache:
            encoder = load_encoder(values.rerank_checkpoint)
            second = CandidateIndex(CandidateCache(values.rerank_cache), encoder)
            index = reranked(index, second)
        elif values.rerank_checkpoint:
            index = reranked(index, open_ranker(values.rerank_checkpoint))
        best = index.search(values.queries, top_k=values.top_k)
        for query, ids, scores in zip(values.queries, *best, strict=True):
            print(query)
            for candidate_id, score in zip(ids, scores, strict=True):
                text = " ".join(cache.text(candidate_id).split())
                print(f"  {score:8.3f}  {candidate_id:8d}  {text}")


def _check(values: Any) -> None:
    """Check that the flags can be combined and that no query is empty."""
    if empty := [query for query in values.queries if not query.strip()]:
        raise UsageError(f"A query is empty: {empty[0]!r}. Remove it from --queries.")
    sources = ("cache", "candidates", "data")
    given = [f"--{name}" for name in sources if values[name].value is not None]
    if len(given) != 1:
        received = " and ".join(given) or "none"
        raise UsageError(f"Pass one of --cache, --candidates and --data. Received: {received}.")
    of_rerank = ("top_n", "rerank_cache", "add_first")
    unread: dict[str, tuple[str, ...]] = {
        "without --rerank_checkpoint": () if values.rerank_checkpoint else of_rerank,
        "with --cache": () if values.cache is None else ("max_candidates",),
        "without --data": ("split",) if values.data is None else (),
    }
    check_read(values, unread)


@contextlib.contextmanager
def _cache(values: Any, encoder: CandidateEncoder) -> Iterator[CandidateCache]:
    """Yield the cache of the candidates: `--cache`, or a temporary cache."""
    if values.cache is not None:
        yield CandidateCache(values.cache)
        return
    if values.candidates is not None:
        candidates = Texts(values.candidates, find=name_of_candidate)
        texts = list(islice(filled_texts(candidates), values.max_candidates))
    else:
        from convert_tf.data.records import read_turns

        records = read_turns(values.data, values.split, max_examples=values.max_candidates)
        texts = [record.response for record in records]
    with tempfile.TemporaryDirectory() as folder:
        yield write_cache(
            f"{folder}/cache",
            [*dict.fromkeys(texts)],
            encoder.encode_candidates,
            fingerprint=encoder.fingerprint,
            name=encoder.name,
        )
