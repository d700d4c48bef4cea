"""Measure how much accuracy an encoder's 8-bit `.onnx` file loses against the 32-bit file.

```
python benchmarks/eight_bits.py --encoder hub_modules/convert_small/3 --data data/ \
    --similarity stsb.dev.csv,sick.valid.csv
```

The script exports a 32-bit and an 8-bit file. For each file of --similarity it prints Spearman's
correlation, × 100, of the cosines of `encode` with human scores. For the test examples in --data it
prints R100@1, and the difference with its standard error. For each kind of encoding it prints
1 − cosine, × 1,000, between the vectors of the two exports, as the mean over the texts.
"""

import csv
import tempfile
from pathlib import Path

import numpy as np
from absl import app, flags
from scipy.stats import spearmanr

from convert_tf import SentenceEncoder
from convert_tf.data.records import read_turns
from convert_tf.export.onnx.writing import export_onnx
from convert_tf.numerics.vectors import unit_rows

_ENCODER = flags.DEFINE_string("encoder", None, "Folder of a module or run.", required=True)
_DATA = flags.DEFINE_string("data", None, "Folder of records.", required=True)
_SIMILARITY = flags.DEFINE_list("similarity", [], "CSV files of text pairs and their scores.")
_EXAMPLES = flags.DEFINE_integer(
    "max_examples", 10_000, "Rank the first N examples, in blocks of 100."
)

_BLOCK = 100


def hits_of(contexts: np.ndarray, responses: np.ndarray) -> np.ndarray:
    """Return whether the correct response ranks first in its block: bool `[examples]`."""
    shape = (-1, _BLOCK, contexts.shape[1])
    scores = np.einsum("bid,bjd->bij", contexts.reshape(shape), responses.reshape(shape))
    right = np.diagonal(scores, axis1=1, axis2=2)[..., None]
    return (scores >= right).sum(axis=2).ravel() == 1


def correlation(encoder: SentenceEncoder, path: str) -> float:
    """Return Spearman's correlation, × 100, of the cosines of `encode` with human scores."""
    with open(path, encoding="utf-8", newline="") as file:
        columns = zip(*map(dict.values, csv.DictReader(file)), strict=True)
    first, second, scores = columns
    one, other = (unit_rows(encoder.encode(list(texts))) for texts in (first, second))
    cosines = np.sum(one * other, axis=1)
    return 100 * float(spearmanr(cosines, np.array(scores, float)).statistic)


def main(argv: list[str]) -> None:
    del argv
    records = [*read_turns(_DATA.value, "test", max_examples=_EXAMPLES.value)]
    records = records[: len(records) // _BLOCK * _BLOCK]
    contexts = [record.turns[-1] for record in records]
    responses = [record.response for record in records]
    vectors, hits = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for bits in (32, 8):
            file = Path(folder, f"{bits}.onnx")
            encoder = SentenceEncoder(export_onnx(_ENCODER.value, file, network_bits=bits))
            shown = [f"{correlation(encoder, path):.2f}" for path in _SIMILARITY.value]
            vectors[bits] = {
                "reduced": encoder.encode_reduced(contexts),
                "sentence": encoder.encode(contexts),
                "context": encoder.encode_contexts(contexts),
                "response": encoder.encode_responses(responses),
            }
            hits[bits] = hits_of(vectors[bits]["context"], vectors[bits]["response"])
            megabytes = file.stat().st_size / 1e6
            print(
                f"{bits:2} bits, {megabytes:.1f} MB  R100@1 {100 * hits[bits].mean():.2f}  "
                f"similarity {', '.join(shown)}",
                flush=True,
            )
    change = 100 * (hits[8].astype(float) - hits[32])
    error = change.std() / np.sqrt(len(change))
    print(f"R100@1 changes by {change.mean():+.2f} ± {error:.2f}")
    for kind, exact in vectors[32].items():
        cosines = np.sum(unit_rows(exact) * unit_rows(vectors[8][kind]), axis=1)
        print(f"1 − cosine × 1,000, {kind}: {1000 * (1 - cosines.mean()):.2f}")


if __name__ == "__main__":
    app.run(main)
