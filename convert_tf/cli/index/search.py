r"""Finds the best of many candidates for a context: all are scored, or those that FAISS finds.

```
convert-tf index search --cache cache/ --queries "how do I reset my password?" --top_k 5
```

`--encoder` is the one that the cache was built with. `--rerank_checkpoint`, of any head, scores the
first `--top_n` anew.
"""

from typing import Any

from convert_tf.cli.flags import (
    NEEDED,
    Define,
    UsageError,
    check_queries,
    check_read,
    define_encoder,
    define_search_kind,
)


def define_flags(define: Define) -> None:
    define_encoder(define)
    define_search_kind(define)
    define("cache", NEEDED, "Folder that convert-tf index build wrote.")
    define("queries", NEEDED, "A context.", repeats=True)
    define("top_k", 5, "Candidates shown for each query.", lower_bound=1)
    define(
        "faiss",
        None,
        "Find candidates with FAISS, in this kind of index; extra [faiss]. The index is kept in "
        "the cache.",
        choices=["flat", "ivf", "hnsw"],
    )
    define("rerank_checkpoint", None, "Checkpoint of any head that ranks the first --top_n anew.")
    define(
        "rerank_cache",
        None,
        "That checkpoint's own cache of the same candidates; without it their texts are encoded.",
    )
    define("top_n", 100, "Candidates ranked anew.", lower_bound=1)


def run(values: Any) -> None:
    check_queries(values)
    if values.rerank_checkpoint is None:
        if values.rerank_cache is not None:
            raise UsageError("--rerank_cache goes with the --rerank_checkpoint that made it.")
        check_read(values, {"without --rerank_checkpoint": ("top_n",)})
    from convert_tf.ranking.ranker import open_ranker
    from convert_tf.search.cache import CandidateCache
    from convert_tf.search.encoders import load_encoder
    from convert_tf.search.index import CandidateIndex
    from convert_tf.search.protocol import Index
    from convert_tf.search.reranked import RerankedIndex

    encoder = load_encoder(values.encoder, kind=values.kind)
    cache = CandidateCache(values.cache)
    index: Index
    if values.faiss is None:
        index = CandidateIndex(cache, encoder)
    else:
        from convert_tf.search.faiss import FaissIndex

        index = FaissIndex(cache, encoder, kind=values.faiss)
    if values.rerank_cache is not None:
        second = load_encoder(values.rerank_checkpoint)
        index = RerankedIndex(
            index, CandidateIndex(CandidateCache(values.rerank_cache), second), top_n=values.top_n
        )
    elif values.rerank_checkpoint is not None:
        ranker = open_ranker(values.rerank_checkpoint)
        index = RerankedIndex(index, ranker, top_n=values.top_n)
    contexts = [(query,) for query in values.queries]
    found = index.search(contexts, top_k=values.top_k)
    for query, ids, scores in zip(values.queries, *found, strict=True):
        print(query)
        for candidate_id, score in zip(ids, scores, strict=True):
            if candidate_id >= 0:
                text = " ".join(cache.text(candidate_id).split())
                print(f"  {score:8.3f}  {candidate_id:8d}  {text}")
