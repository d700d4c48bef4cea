r"""Shows the responses that an encoder finds nearest to some contexts, or the texts most like them.

```
convert-tf nearest --data data/ --queries "how do I reset my password?" --top_k 3
```

`--kind=similarity` compares candidates with the queries as texts of one kind: for duplicates, and
for questions like a question.
"""

from itertools import islice
from typing import Any

from convert_tf.cli.flags import (
    NEEDED,
    Define,
    UsageError,
    check_queries,
    check_read,
    define_encoder,
)
from convert_tf.ranking.encoders import SEARCH_SIGNATURES, open_encoder
from convert_tf.storage.lines import filled_lines


def define_flags(define: Define) -> None:
    define_encoder(define)
    define("queries", NEEDED, "A context.", repeats=True)
    define(
        "kind",
        "response",
        "response: what suits a query as an answer; similarity: what is like it.",
        choices=[*SEARCH_SIGNATURES],
    )
    define("data", None, "Folder of records, whose responses are the candidates.")
    define("split", "test", "Which records: train, dev or test.")
    define("candidates", None, "Text file, one candidate a line; instead of --data.")
    define("max_candidates", 20_000, "Read at most this many.", lower_bound=1)
    define("top_k", 3, "Responses shown for each query.", lower_bound=1)


def run(values: Any) -> None:
    check_queries(values)
    if (values.data is None) == (values.candidates is None):
        raise UsageError("Candidates come from --data or from --candidates: pass one of them.")
    if values.candidates is not None:
        check_read(values, {"with --candidates": ("split",)})
        candidates = list(islice(filled_lines(values.candidates), values.max_candidates))
    else:
        from convert_tf.data.record_examples import read_pairs

        _, responses = read_pairs(values.data, values.split, max_examples=values.max_candidates)
        candidates = [response.decode("utf-8", "replace") for response in responses]
    encoder = open_encoder(values.encoder, signature=SEARCH_SIGNATURES[values.kind])
    found: Any = encoder.rank(values.queries, list(dict.fromkeys(candidates)), top_k=values.top_k)
    for query, results in zip(values.queries, found, strict=True):
        print(query)
        for text, cosine in results:
            print(f"  {cosine:6.3f}  {' '.join(text.split())}")
