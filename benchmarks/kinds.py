"""Compare the kinds of encodings of an encoder: intents, similar texts, opposites.

```
python benchmarks/kinds.py --encoder convert_small \
    --intents banking77.test.csv=5:banking77.train_5shot.csv,10:banking77.train_10shot.csv \
    --intents banking77.test.csv=30:banking77.train.csv,all:banking77.train.csv \
    --pairs stsb.dev.csv --pairs sick.valid.csv --triplets opposites.dev.tsv
```

Figures are percentages. Intents: accuracy on the file before `=` of logistic regression on vectors
of length 1, trained on a number of examples of each intent; the mean of `--draws` where a file has
more examples. Pairs: Spearman correlation of cosines with people's scores (`sentence1`,
`sentence2`, `score`). Triplets: share of rows whose text is nearer to its paraphrase, the second
column, than to its opposite, the third.
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from absl import app, flags
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression

from convert_tf import SentenceEncoder
from convert_tf.intents.data import few_shot, read_files
from convert_tf.intents.encodings import IntentEncodings
from convert_tf.intents.head import LOGISTIC_C

_ENCODER = flags.DEFINE_multi_string("encoder", None, "Names or folders.", required=True)
_KINDS = flags.DEFINE_list("kinds", ["reduced", "sentence", "similarity"], "Kinds to compare.")
_INTENTS = flags.DEFINE_multi_string("intents", [], "TEST=NUMBER:FILE,NUMBER:FILE; all: every one.")
_PAIRS = flags.DEFINE_multi_string("pairs", [], "CSV files of scored pairs.")
_TRIPLETS = flags.DEFINE_multi_string("triplets", [], "TSV files: text, paraphrase, opposite.")
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
        found.append(head.score(encode(tested.texts), tested.labels))
    return float(np.mean(found))


def correlation(encode: Encode, path: str) -> float:
    """Return the Spearman correlation of cosines with people's scores."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    first, second = (encode([row[name] for row in rows]) for name in ("sentence1", "sentence2"))
    scores = [float(row["score"]) for row in rows]
    return float(spearmanr((first * second).sum(axis=1), scores).statistic)


def told_apart(encode: Encode, path: str) -> float:
    """Return the share of texts that are nearer to their paraphrases than to their opposites."""
    with open(path, encoding="utf-8", newline="") as file:
        columns = zip(*csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE), strict=True)
    text, paraphrase, opposite = (encode([*column]) for column in columns)
    return float(((text * (paraphrase - opposite)).sum(axis=1) > 0).mean())


def main(argv: list[str]) -> None:
    del argv
    for name in _ENCODER.value:
        encoder = SentenceEncoder(name)
        for kind in _KINDS.value:
            encode = IntentEncodings(encoder, kind=kind)
            for test, _, files in (given.partition("=") for given in _INTENTS.value):
                for number, _, path in (given.partition(":") for given in files.split(",")):
                    share = accuracy(encode, test, number, path)
                    what = f"{Path(test).name}, {number} examples"
                    print(f"{name} {kind}: {what} {100 * share:.1f}", flush=True)
            for score, paths in ((correlation, _PAIRS.value), (told_apart, _TRIPLETS.value)):
                for path in paths:
                    figure = 100 * score(encode, path)
                    print(f"{name} {kind}: {Path(path).name} {figure:.1f}", flush=True)


if __name__ == "__main__":
    app.run(main)
