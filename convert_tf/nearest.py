"""Shows the responses that a module finds nearest to some contexts.

```
python -m convert_tf.nearest --module hub_modules/convert/1 --data data/ \
    --queries "how do I reset my password?" --top_k 3
```
"""

import os
import sys
from collections.abc import Sequence

import numpy as np
from absl import app, flags

from convert_tf.text_encoders import ModuleEncoder


def read_candidates(path: str | os.PathLike) -> list[str]:
    """The lines of a UTF-8 file, without empty ones.

    Raises:
      ValueError: it cannot be read, or is no UTF-8 text.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"Candidates are the lines of a UTF-8 file. Received: {os.fspath(path)!r} ({error}). "
            "Pass another --candidates, or --data."
        ) from error
    return [line for line in lines if line]


def nearest_responses(
    encoder: ModuleEncoder, queries: Sequence[str], candidates: Sequence[str], *, top_k: int = 3
) -> list[list[tuple[str, float]]]:
    """For each query the candidates with the highest cosine, best first.

    Args:
      encoder: which encodes queries as contexts and candidates as responses.
      queries: texts.
      candidates: texts; those that are there more than once count once.
      top_k: how many of them are returned for each query.

    Returns:
      For each query, `(candidate, cosine)` pairs.

    Raises:
      ValueError: there is no candidate, or `top_k` is not positive.
    """
    unique = list(dict.fromkeys(candidates))
    if not unique or top_k < 1:
        raise ValueError(
            "There must be a candidate, and top_k must be at least 1. "
            f"Received: {len(unique)} candidates, top_k {top_k}."
        )
    cosines = encoder.encode_contexts(queries) @ encoder.encode_responses(unique).T
    best = np.argsort(-cosines, axis=1, kind="stable")[:, :top_k]
    return [
        [(unique[i], float(row[i])) for i in order]
        for row, order in zip(cosines, best, strict=True)
    ]


def _define_flags() -> None:
    flags.DEFINE_string("module", None, "Module that export.py wrote.", required=True)
    flags.DEFINE_multi_string("queries", None, "A context; repeatable.", required=True)
    flags.DEFINE_string("data", None, "Folder of records, whose responses are the candidates.")
    flags.DEFINE_string("split", "test", "Which records: train, dev or test.")
    flags.DEFINE_string("candidates", None, "Text file, one candidate a line; instead of --data.")
    flags.DEFINE_integer("max_candidates", 20_000, "Read at most this many.", lower_bound=1)
    flags.DEFINE_integer("top_k", 3, "Responses shown for each query.", lower_bound=1)


def _run(argv: Sequence[str]) -> None:
    values = flags.FLAGS
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments {argv[1:]}: repeat --queries for each context.")
    if (values.data is None) == (values.candidates is None):
        raise app.UsageError("Candidates come from --data or from --candidates: pass one of them.")
    try:
        if values.candidates is not None:
            candidates = read_candidates(values.candidates)[: values.max_candidates]
        else:
            from convert_tf.data.pipeline import read_pairs

            _, responses = read_pairs(values.data, values.split, max_examples=values.max_candidates)
            candidates = [response.decode("utf-8", "replace") for response in responses]
        found = nearest_responses(
            ModuleEncoder(values.module), values.queries, candidates, top_k=values.top_k
        )
    except (ValueError, OSError) as error:
        sys.exit(f"nearest: {' '.join(str(error).split())}")
    for query, results in zip(values.queries, found, strict=True):
        print(query)
        for text, cosine in results:
            print(f"  {cosine:6.3f}  {' '.join(text.split())}")


if __name__ == "__main__":
    _define_flags()
    app.run(_run)
