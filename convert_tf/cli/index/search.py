r"""Find the best candidates for a context by scoring all of them, or those that FAISS finds.

```
convert-tf index search --cache cache/ --queries "how do I reset my password?" --top_k 5
convert-tf index search --candidates candidates.txt --queries "how do I reset my password?"
```

`--encoder` is the one that the cache was built with. Without a cache, `--candidates` or `--data`
are encoded for this search alone, equal texts once. `--rerank_checkpoint`, of any head, scores the
first `--top_n` anew.
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
    define("cache", None, "Folder that convert-tf index build wrote.")
    define("candidates", None, "Text file, one candidate a line; instead of --cache.")
    define("data", None, "Folder of records, whose responses are the candidates; instead of both.")
    define("split", "test", "Which records: train, dev or test.")
    define(
        "max_candidates", 20_000, "Read at most this many of --candidates or --data.", lower_bound=1
    )
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
    _check(values)
    from convert_tf.ranking.ranker import open_ranker
    from convert_tf.search.cache import CandidateCache
    from convert_tf.search.encoders import load_encoder
    from convert_tf.search.index import CandidateIndex
    from convert_tf.search.reranked import Index, RerankedIndex

    encoder = load_encoder(values.encoder, kind=values.kind)
    with _cache(values, encoder) as cache:
        index: Index
        if values.faiss is None:
            index = CandidateIndex(cache, encoder)
        else:
            from convert_tf.search.faiss import FaissIndex

            index = FaissIndex(cache, encoder, kind=values.faiss)
        if values.rerank_cache is not None:
            second = load_encoder(values.rerank_checkpoint)
            second_index = CandidateIndex(CandidateCache(values.rerank_cache), second)
            index = RerankedIndex(index, second_index, top_n=values.top_n)
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


def _check(values: Any) -> None:
    """Refuse flags that go together with others, and queries that ask for nothing."""
    if empty := [query for query in values.queries if not query.strip()]:
        raise UsageError(
            f"--queries must hold more than white space. Received: {empty[0]!r}. Leave it out, or "
            "ask for something."
        )
    sources = ("cache", "candidates", "data")
    given = [f"--{name}" for name in sources if values[name].value is not None]
    if len(given) != 1:
        raise UsageError(
            "Pass one of --cache, --candidates and --data. Received: "
            f"{' and '.join(given) or 'none'}."
        )
    if values.rerank_checkpoint is None and values.rerank_cache is not None:
        raise UsageError("--rerank_cache goes with the --rerank_checkpoint that made it.")
    check_read(
        values,
        {
            "with --cache": () if values.cache is None else ("max_candidates",),
            "without --data": () if values.data is not None else ("split",),
            "without --rerank_checkpoint": () if values.rerank_checkpoint else ("top_n",),
        },
    )


@contextlib.contextmanager
def _cache(values: Any, encoder: "CandidateEncoder") -> Iterator["CandidateCache"]:
    """The candidates: a cache that is there, or one for as long as the block runs."""
    from convert_tf.search.cache import CandidateCache
    from convert_tf.search.writing import write_cache

    if values.cache is not None:
        yield CandidateCache(values.cache)
        return
    if values.candidates is not None:
        texts = list(islice(filled_lines(values.candidates), values.max_candidates))
    else:
        from convert_tf.data.record_examples import read_turns

        records = read_turns(values.data, values.split, max_examples=values.max_candidates)
        texts = [record.response for record in records]
    with tempfile.TemporaryDirectory() as folder:
        yield write_cache(
            f"{folder}/cache",
            dict.fromkeys(texts),
            encoder.encode_candidates,
            fingerprint=encoder.fingerprint,
        )
