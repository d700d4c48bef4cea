"""Compare an encoder's kinds of encodings on intents, similar texts and opposites.

```
python benchmarks/kinds.py --encoder convert_small \
    --intents banking77.test.csv=5:banking77.train_5shot.csv,10:banking77.train_10shot.csv \
    --intents banking77.test.csv=30:banking77.train.csv,all:banking77.train.csv \
    --pairs stsb.dev.csv --pairs sick.valid.csv --triplets opposites.dev.tsv
```

All figures except cosines are × 100.

- Intents: the accuracy of logistic regression on vectors of length 1. It is trained on the given
  number of examples per intent and tested on the file before `=`. If a file has more examples, the
  figure is the mean over `--draws` random draws. If a file is tested on itself, the drawn texts are
  left out of the test.
- Pairs: the Spearman correlation of cosines with human scores. The columns are `sentence1`,
  `sentence2` and `score`.
- Triplets: the share of rows whose text is nearer to its paraphrase than to its opposite. The next
  figure is for a cache whose cosine threshold is reached by 90 % of the paraphrases. Its false hits
  are the share of opposites that reach this threshold, which is printed too. A file of triplets is
  either a TSV file without a header (text, paraphrase, opposite) or a table as for
  `convert-tf tokenize --triplets`. For a table, the figures are printed for each source that
  has 40 rows or more.
"""

import collections
import csv
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from absl import app, flags
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression

from convert_tf import SentenceEncoder
from convert_tf.data.triplets import read_triplets
from convert_tf.intents.data import few_shot, read_files
from convert_tf.intents.encodings import IntentEncodings
from convert_tf.intents.head import LOGISTIC_C
from convert_tf.ranking.ranker import open_vectors

_ENCODER = flags.DEFINE_multi_string("encoder", [], "Released names or folders.")
_VECTORS = flags.DEFINE_multi_string(
    "vectors", [], "Other encoder, as for convert-tf evaluate --vectors."
)
_KINDS = flags.DEFINE_list("kinds", ["reduced", "sentence", "similarity"], "Kinds to compare.")
_INTENTS = flags.DEFINE_multi_string("intents", [], "TEST=NUMBER:FILE,NUMBER:FILE or all:FILE.")
_PAIRS = flags.DEFINE_multi_string("pairs", [], "CSV file of scored pairs.")
_TRIPLETS = flags.DEFINE_multi_string("triplets", [], "File of texts, paraphrases, opposites.")
_ROWS = flags.DEFINE_integer("rows", 500, "Maximum number of triplets per source.")
_FEWEST_ROWS = 40  # sources with fewer are left out
_KEPT = 0.9  # share of paraphrases above the threshold
_DRAWS = flags.DEFINE_integer("draws", 3, "Number of draws of examples.")

Encode = Callable[[Sequence[str]], np.ndarray]


def accuracy(encode: Encode, test: str, number: str, path: str) -> float:
    """Return the accuracy of logistic regression, as the mean over draws.

    Args:
      encode: returns vectors of length 1.
      test: file to test on.
      number: examples per intent, or `"all"`.
      path: file to draw examples from.
    """
    examples, tested = read_files([path]), read_files([test])
    draws = [examples]
    if number != "all":
        draws = [few_shot(examples, int(number), seed=seed) for seed in range(_DRAWS.value)]
    found = []
    for draw in draws:
        if found and sorted(draw.texts) == sorted(draws[0].texts):
            continue  # the file has no other examples
        head = LogisticRegression(C=LOGISTIC_C, max_iter=1000)
        head.fit(encode(draw.texts), draw.labels)
        drawn = {*draw.texts} if test == path else ()
        new = [i for i, text in enumerate(tested.texts) if text not in drawn]
        vectors = encode([tested.texts[i] for i in new])
        found.append(head.score(vectors, [tested.labels[i] for i in new]))
    return float(np.mean(found))


def correlation(encode: Encode, path: str) -> float:
    """Return the Spearman correlation of cosines with human scores."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = [*csv.DictReader(file)]
    first, second = (encode([row[name] for row in rows]) for name in ("sentence1", "sentence2"))
    scores = [float(row["score"]) for row in rows]
    return float(spearmanr((first * second).sum(axis=1), scores).statistic)


def triplets_of(path: str) -> dict[str, list[tuple[str, ...]]]:
    """Return triplets of text, paraphrase and opposite by source."""
    if path.endswith(".tsv"):
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            return {Path(path).name: [tuple(row) for row in rows]}
    by_source = collections.defaultdict(list)
    for triplet in read_triplets([path]):
        by_source[triplet.source or Path(path).name].append(triplet[:3])
    return {
        source: random.Random(source).sample(rows, min(len(rows), _ROWS.value))
        for source, rows in sorted(by_source.items())
        if len(rows) >= _FEWEST_ROWS
    }


def told_apart(encode: Encode, triplets: Sequence[tuple[str, ...]]) -> tuple[float, float, float]:
    """Return the share of correct triplets, the share of false hits, and their cosine threshold."""
    texts = [*{text: None for triplet in triplets for text in triplet}]
    vectors = dict(zip(texts, encode(texts), strict=True))
    text, paraphrase, opposite = (
        np.stack([vectors[one] for one in column]) for column in zip(*triplets, strict=True)
    )
    right, wrong = (text * paraphrase).sum(axis=1), (text * opposite).sum(axis=1)
    threshold = float(np.quantile(right, 1 - _KEPT))
    return float((right > wrong).mean()), float((wrong >= threshold).mean()), threshold


def encodings() -> Iterator[tuple[str, Encode]]:
    """Yield each encoder and kind: its name, and a function that encodes texts."""
    for name in _ENCODER.value:
        encoder = SentenceEncoder(name)
        for kind in _KINDS.value:
            yield f"{name} {kind}", IntentEncodings(encoder, kind=kind)
    for name in _VECTORS.value:
        other, (kind, _) = open_vectors(name)
        yield name, IntentEncodings(functools.partial(other.encode, kind=kind))


def main(argv: list[str]) -> None:
    del argv
    for name, encode in encodings():
        for test, _, files in (given.partition("=") for given in _INTENTS.value):
            for number, _, path in (given.partition(":") for given in files.split(",")):
                share = accuracy(encode, test, number, path)
                what = f"{Path(test).name}, {number} examples"
                print(f"{name}: {what} {100 * share:.1f}", flush=True)
        for path in _PAIRS.value:
            print(f"{name}: {Path(path).name} {100 * correlation(encode, path):.1f}", flush=True)
        for path in _TRIPLETS.value:
            for source, triplets in triplets_of(path).items():
                share, hits, cosine = told_apart(encode, triplets)
                print(
                    f"{name}: {source} {100 * share:.1f}, false hits {100 * hits:.1f} "
                    f"(cosine {cosine:.2f}, {len(triplets)} triplets)",
                    flush=True,
                )


if __name__ == "__main__":
    app.run(main)
