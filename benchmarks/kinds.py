"""Compare the kinds of encodings of an encoder: intents, similar texts, opposites.

```
python benchmarks/kinds.py --encoder convert_small \
    --intents banking77.test.csv=5:banking77.train_5shot.csv,10:banking77.train_10shot.csv \
    --intents banking77.test.csv=30:banking77.train.csv,all:banking77.train.csv \
    --pairs stsb.dev.csv --pairs sick.valid.csv --triplets opposites.dev.tsv
```

Figures are percentages. Intents: accuracy on the file before `=` of logistic regression on vectors
of length 1, trained on a number of examples of each intent; the mean of `--draws` where a file has
more examples. A file that is tested on itself is tested without the texts that were drawn. Pairs:
Spearman correlation of cosines with people's scores (`sentence1`, `sentence2`, `score`). Triplets:
share of rows whose text is nearer to its paraphrase than to its opposite; then the false hits of a
cache: the share of opposites above the cosine that 90 % of paraphrases reach, and this cosine. A
file of triplets is a TSV without a header (text, paraphrase, opposite), or a table as for
`convert-tf tokenize --triplets`, with one figure for each source.
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

_ENCODER = flags.DEFINE_multi_string("encoder", [], "Names or folders.")
_VECTORS = flags.DEFINE_multi_string("vectors", [], "As of convert-tf evaluate, such as a BERT.")
_KINDS = flags.DEFINE_list("kinds", ["reduced", "sentence", "similarity"], "Kinds to compare.")
_INTENTS = flags.DEFINE_multi_string("intents", [], "TEST=NUMBER:FILE,NUMBER:FILE; all: every one.")
_PAIRS = flags.DEFINE_multi_string("pairs", [], "CSV files of scored pairs.")
_TRIPLETS = flags.DEFINE_multi_string("triplets", [], "Files of texts, paraphrases, opposites.")
_ROWS = flags.DEFINE_integer("rows", 500, "Triplets of each source at most, drawn at random.")
_FEWEST_ROWS = 50  # of a source
_KEPT = 0.9  # of the paraphrases
_DRAWS = flags.DEFINE_integer("draws", 3, "Draws of examples.")

Encode = Callable[[Sequence[str]], np.ndarray]


def accuracy(encode: Encode, test: str, number: str, path: str) -> float:
    """Return the accuracy on a file after training on a number of examples of each intent."""
    examples, tested = read_files([path]), read_files([test])
    draws = [examples]
    if number != "all":
        draws = [few_shot(examples, int(number), seed=seed) for seed in range(_DRAWS.value)]
    found = []
    for draw in draws:
        if found and sorted(draw.texts) == sorted(draws[0].texts):
            continue  # the file has no more examples
        head = LogisticRegression(C=LOGISTIC_C, max_iter=1000)
        head.fit(encode(draw.texts), draw.labels)
        drawn = {*draw.texts} if test == path else ()
        new = [i for i, text in enumerate(tested.texts) if text not in drawn]
        vectors = encode([tested.texts[i] for i in new])
        found.append(head.score(vectors, [tested.labels[i] for i in new]))
    return float(np.mean(found))


def correlation(encode: Encode, path: str) -> float:
    """Return the Spearman correlation of cosines with people's scores."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    first, second = (encode([row[name] for row in rows]) for name in ("sentence1", "sentence2"))
    scores = [float(row["score"]) for row in rows]
    return float(spearmanr((first * second).sum(axis=1), scores).statistic)


def triplets_of(path: str) -> dict[str, list[tuple[str, ...]]]:
    """Return texts, paraphrases and opposites by source."""
    if path.endswith(".tsv"):
        with open(path, encoding="utf-8", newline="") as file:
            rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            return {Path(path).name: [tuple(row) for row in rows]}
    by_source = collections.defaultdict(list)
    for triplet in read_triplets([path]):
        by_source[triplet.source or Path(path).name].append(triplet[:3])
    rng = random.Random(0)
    return {
        source: rng.sample(rows, min(len(rows), _ROWS.value))
        for source, rows in sorted(by_source.items())
        if len(rows) >= _FEWEST_ROWS
    }


def told_apart(encode: Encode, triplets: Sequence[tuple[str, ...]]) -> tuple[float, float, float]:
    """Return the share told apart, the share of false hits, and the cosine of the threshold."""
    texts = [*{text: None for triplet in triplets for text in triplet}]
    vectors = dict(zip(texts, encode(texts), strict=True))
    text, paraphrase, opposite = (
        np.stack([vectors[one] for one in column]) for column in zip(*triplets, strict=True)
    )
    right, wrong = (text * paraphrase).sum(axis=1), (text * opposite).sum(axis=1)
    threshold = float(np.quantile(right, 1 - _KEPT))
    return float((right > wrong).mean()), float((wrong >= threshold).mean()), threshold


def encodings() -> Iterator[tuple[str, Encode]]:
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
