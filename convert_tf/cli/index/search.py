r"""Find the best candidates for a query.

```
convert-tf index search --cache cache/ --queries "how do I reset my password?" --top_k 5
convert-tf index search --candidates candidates.txt --queries "how do I reset my password?"
```

All candidates are scored, or with `--faiss` those that FAISS finds. `--encoder` must be the encoder
that built the cache. Without a cache, the texts of `--candidates` or `--data` are encoded for this
search only. With `--rerank_checkpoint` a ranker scores the first `--top_n` candidates again.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from convert_tf.cli.flags import (
    NEEDED,
    Define,
    UsageError,
    check_read,
    define_encoder,
    define_search_kind,
)
from convert_tf.storage.lines import filled_lines

if TYPE_CHECKING:
    from convert_tf.search.cache import CandidateCache
    from convert_tf.search.encoders import CandidateEncoder


def define_flags(define: Define) -> None:
    define_encoder(define)
    define_search_kind(define)
    define("cache", None, "Folder written by convert-tf index build.")
    define("candidates", None, "Text file with one candidate per line, instead of --cache.")
    define(
        "data", None, "Folder of records whose responses are the candidates, instead of --cache."
    )
    define("split", "test", "Split of --data: train, dev or test.")
    define(
        "max_candidates",
        20_000,
        "Largest number of texts of --candidates or --data.",
        lower_bound=1,
    )
    define("queries", NEEDED, "A query.", repeats=True)
    define("top_k", 5, "Number of candidates to show for each query.", lower_bound=1)
    define(
        "faiss",
        None,
        "Kind of FAISS index to search instead of scoring all candidates. It is written into the "
        "cache. Needs the extra [faiss].",
        choices=["flat", "ivf", "hnsw"],
    )
    define(
        "rerank_checkpoint", None, "Run or module of a ranker that scores the first --top_n again."
    )
    define(
        "rerank_cache",
        None,
        "Cache of the same candidates built with --rerank_checkpoint. Without it, their texts are "
        "encoded in each search.",
    )
    define(
        "top_n", 100, "Number of candidates that --rerank_checkpoint scores again.", lower_bound=1
    )


def run(values: Any) -> None:
    _check(values)
    from convert_tf.ranking.ranker import open_ranker
    from convert_tf.search.cache import CandidateCache
    from convert_tf.search.encoders import load_encoder
    from convert_tf.search.faiss import FaissIndex
    from convert_tf.search.index import CandidateIndex
    from convert_tf.search.reranked import RerankedIndex

    encoder = load_encoder(values.encoder, kind=values.kind)
    with _cache(values, encoder) as cache:
        index: Any = CandidateIndex(cache, encoder)
        if values.faiss:
            index = FaissIndex(cache, encoder, kind=values.faiss)
        if values.rerank_checkpoint:
            second: Any
            if values.rerank_cache:
                encoder = load_encoder(values.rerank_checkpoint)
                second = CandidateIndex(CandidateCache(values.rerank_cache), encoder)
            else:
                second = open_ranker(values.rerank_checkpoint)
            index = RerankedIndex(index, second, top_n=values.top_n)
        contexts = [(query,) for query in values.queries]
        found = index.search(contexts, top_k=values.top_k)
        for query, ids, scores in zip(values.queries, *found, strict=True):
            print(query)
            for candidate_id, score in zip(ids, scores, strict=True):
                if candidate_id >= 0:
                    text = " ".join(cache.text(candidate_id).split())
                    print(f"  {score:8.3f}  {candidate_id:8d}  {text}")


def _check(values: Any) -> None:
    """Check that the flags go together and that no query is empty."""
    if empty := [query for query in values.queries if not query.strip()]:
        raise UsageError(f"A query is empty: {empty[0]!r}. Remove it from --queries.")
    sources = ("cache", "candidates", "data")
    given = [f"--{name}" for name in sources if values[name].value is not None]
    if len(given) != 1:
        raise UsageError(
            "Pass one of --cache, --candidates and --data. Received: "
            f"{' and '.join(given) or 'none'}."
        )
    check_read(
        values,
        {
            "with --cache": () if values.cache is None else ("max_candidates",),
            "without --data": () if values.data is not None else ("split",),
            "without --rerank_checkpoint": ()
            if values.rerank_checkpoint
            else ("top_n", "rerank_cache"),
        },
    )


@contextlib.contextmanager
def _cache(values: Any, encoder: "CandidateEncoder") -> Iterator["CandidateCache"]:
    """Yield the cache of the candidates: `--cache`, or a temporary one."""
    from convert_tf.search.cache import CandidateCache
    from convert_tf.search.writing import write_cache

    if values.cache is not None:
        yield CandidateCache(values.cache)
        return
    if values.candidates is not None:
        texts = list(islice(filled_lines(values.candidates), values.max_candidates))
    else:
        from convert_tf.data.records import read_turns

        records = read_turns(values.data, values.split, max_examples=values.max_candidates)
        texts = [record.response for record in records]
    with tempfile.TemporaryDirectory() as folder:
        yield write_cache(
            f"{folder}/cache",
            dict.fromkeys(texts),
            encoder.encode_candidates,
            fingerprint=encoder.fingerprint,
        )
