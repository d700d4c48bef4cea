"""Measure how `convert-tf translate` lowers recall@10 among 100,000 candidates.

```
python benchmarks/translation.py --pairs pairs.csv --encoder convert_small --to convert
```

`--pairs` is a table of contexts and responses. The responses of the first `--candidates` pairs are
the store, and the contexts of the first `--queries` pairs are the queries. A query is a hit if the
response of its pair is among the ten nearest candidates. A candidate with an equal score counts as
nearer.

The rows are the old encoder, the new encoder on candidates that are all encoded again, and the new
encoder on translated vectors. `same ten` is the share of the ten nearest translated candidates that
are also among the ten nearest if all candidates are encoded again. The map is fitted to the texts
that convert_tf ships, or to the responses of later pairs; `--fit` gives their number.
"""

import numpy as np
from absl import app, flags

from convert_tf import SentenceEncoder
from convert_tf.corpora.dialogues import COLUMNS
from convert_tf.readers.columns import names_of_pair
from convert_tf.readers.files import TableFile
from convert_tf.readers.tables import read_rows
from convert_tf.search.translation import fit_translation, shipped_texts

_PAIRS = flags.DEFINE_string("pairs", None, "Table of contexts and responses.", required=True)
_ENCODER = flags.DEFINE_string("encoder", "convert_small", "Old encoder, which encoded the store.")
_TO = flags.DEFINE_string("to", "convert", "New encoder.")
_CANDIDATES = flags.DEFINE_integer("candidates", 100_000, "Number of candidates.")
_QUERIES = flags.DEFINE_integer("queries", 1_000, "Number of queries.")
_FIT = flags.DEFINE_list("fit", ["1000", "10000"], "Numbers of your own texts to fit the map to.")

TOP = 10


def read_pairs(path: str, number: int) -> tuple[list[str], list[str]]:
    """Return the contexts and responses of the first pairs with different responses.

    Args:
      path: the table.
      number: number of pairs.

    Raises:
      ValueError: if the table has fewer pairs.
    """
    pairs: dict[str, str] = {}
    for row in read_rows(TableFile(path), COLUMNS):
        context, response = names_of_pair(row)
        pairs.setdefault(row[response].strip(), row[context].strip())
        if len(pairs) == number:
            return [*pairs.values()], [*pairs]
    raise ValueError(f"{path} has {len(pairs):,} pairs with different responses, not {number:,}.")


def scores_of(queries: np.ndarray, store: np.ndarray) -> tuple[float, np.ndarray]:
    """Return recall@10, and the ten nearest candidates of each query."""
    hits, nearest = 0, []
    for start in range(0, len(queries), 100):
        scores = queries[start : start + 100] @ store.T
        places = np.arange(len(scores))
        own = scores[places, start + places]
        hits += int(((scores >= own[:, None]).sum(axis=1) <= TOP).sum())
        nearest.append(np.argpartition(-scores, TOP, axis=1)[:, :TOP])
    return hits / len(queries), np.concatenate(nearest)


def main(argv: list[str]) -> None:
    del argv
    sizes = [*map(int, _FIT.value)]
    number = _CANDIDATES.value
    contexts, responses = read_pairs(_PAIRS.value, number + max(sizes, default=0))
    contexts = contexts[: _QUERIES.value]
    shipped = [*shipped_texts()]
    queries, vectors, of_shipped = [], [], []
    for path in (_ENCODER.value, _TO.value):
        encoder = SentenceEncoder(path)
        queries.append(encoder.encode_contexts(contexts))
        vectors.append(encoder.encode_responses(responses))
        of_shipped.append(encoder.encode_responses(shipped))
    old, new = (rows[:number] for rows in vectors)
    recall, _ = scores_of(queries[0], old)
    print(f"{_ENCODER.value}: recall@{TOP} {recall:.1%}")
    recall, best = scores_of(queries[1], new)
    print(f"{_TO.value}, all encoded again: recall@{TOP} {recall:.1%}")
    fits = {f"{len(shipped):,} shipped texts": of_shipped}
    for size in sizes:
        fits[f"{size:,} texts of the same kind"] = [
            rows[number : number + size] for rows in vectors
        ]
    for name, (before, after) in fits.items():
        translate = fit_translation(before, after)
        translated = translate(old)
        recall, nearest = scores_of(queries[1], translated)
        same = np.mean(
            [len({*a} & {*b}) / TOP for a, b in zip(nearest.tolist(), best.tolist(), strict=True)]
        )
        cosine = (translated * new).sum(axis=1).mean()
        print(
            f"translated, fitted on {name}: recall@{TOP} {recall:.1%}, same ten {same:.1%}, "
            f"cosine {cosine:.3f}, on held-out texts {translate.cosine:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    app.run(main)
