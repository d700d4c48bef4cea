"""Compare static vectors with the encoder that they were fitted to.

```
pip install model2vec
convert-tf export --encoder convert_small --format static --texts texts.txt --output static
python benchmarks/static_vectors.py --encoder convert_small --static static --pairs stsb.dev.csv \
    --intents banking77.train_10shot.csv=banking77.test.csv
```

For each file of --pairs, the script prints the Spearman correlation, × 100, of cosines with human
scores. For each value of --intents, it prints the accuracy of `IntentClassifier` in percent, with
neither the word model nor intent names, and the CPU milliseconds to encode one test text.
"""

import csv
import time
from collections.abc import Callable, Sequence

import numpy as np
from absl import app, flags
from model2vec import StaticModel
from scipy.stats import spearmanr

from convert_tf import IntentClassifier, SentenceEncoder
from convert_tf.numerics.vectors import unit_rows

_ENCODER = flags.DEFINE_string("encoder", None, "Released name or folder.", required=True)
_STATIC = flags.DEFINE_multi_string("static", [], "Folder from convert-tf export --format static.")
_PAIRS = flags.DEFINE_multi_string("pairs", [], "CSV file: sentence1, sentence2, score.")
_INTENTS = flags.DEFINE_multi_string("intents", [], "TRAIN=TEST, two CSV files: text, label.")


def table(path: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def report(name: str, encode: Callable[[Sequence[str]], np.ndarray]) -> None:
    """Print the figures of an encoder."""
    figures = []
    for path in _PAIRS.value:
        rows = table(path)
        first, second = (unit_rows(encode([row[f"sentence{i}"] for row in rows])) for i in (1, 2))
        scores = [float(row["score"]) for row in rows]
        figures.append(f"{path} {100 * spearmanr((first * second).sum(1), scores)[0]:.1f}")
    for names in _INTENTS.value:
        train, test = (table(path) for path in names.split("="))
        classifier = IntentClassifier(encode, lexical=None, names=None, random_state=0)
        classifier.fit([row["text"] for row in train], [row["label"] for row in train])
        texts = [row["text"] for row in test]
        right = classifier.predict(texts) == np.array([row["label"] for row in test])
        start = time.process_time()
        encode(texts)
        spent = 1000 * (time.process_time() - start) / len(texts)
        figures.append(f"{names} {100 * right.mean():.1f}, {spent:.3f} ms")
    print(f"{name}: {'; '.join(figures)}", flush=True)


def main(argv: list[str]) -> None:
    del argv
    report(_ENCODER.value, SentenceEncoder(_ENCODER.value).encode_similarity)
    for folder in _STATIC.value:
        report(folder, StaticModel.from_pretrained(folder).encode)


if __name__ == "__main__":
    app.run(main)
