"""Measure how `--upper_levels` changes rejections and correct answers.

```
python benchmarks/levels.py --encoder convert_small --train clinc150.train_10shot.csv \
    --test clinc150.test.csv --outside clinc150.oos_test.csv --domains clinc150.domains.json
```

The domain of each intent is used as its upper level.
"""

import json
from pathlib import Path

import numpy as np
from absl import app, flags

from convert_tf import IntentClassifier
from convert_tf.intents.data import read_labelled

_ENCODER = flags.DEFINE_string("encoder", "convert_small", "Released name, folder or .onnx file.")
_TRAIN = flags.DEFINE_string("train", None, "Examples of the intents.", required=True)
_TEST = flags.DEFINE_string("test", None, "In-scope texts to test on.", required=True)
_OUTSIDE = flags.DEFINE_string("outside", None, "Out-of-scope texts to test on.", required=True)
_DOMAINS = flags.DEFINE_string("domains", None, "JSON file: intents by domain.", required=True)


def main(argv: list[str]) -> None:
    domains = json.loads(Path(_DOMAINS.value).read_text(encoding="utf-8"))
    levels = {own: f"{domain}/{own}" for domain, intents in domains.items() for own in intents}
    texts, labels = read_labelled(_TRAIN.value)
    tested, right = read_labelled(_TEST.value)
    outside, _ = read_labelled(_OUTSIDE.value)
    names = np.array([levels[label] for label in right])
    uppers = np.array([name.split("/")[0] for name in names])
    for has_levels in (False, True):
        model = IntentClassifier(
            _ENCODER.value, "logistic", out_of_scope="confidence", upper_levels=has_levels
        ).fit(texts, [levels[label] for label in labels])
        found = np.asarray(model.predict(tested), str)
        is_rejected = found == model.out_of_scope_label
        is_upper = ~is_rejected & (np.char.find(found, "/") < 0)
        is_right = np.char.partition(found, "/")[:, 0] == uppers
        shares = {
            "correct": (found == names).mean(),
            "upper level correct": is_right.mean(),
            "rejected": is_rejected.mean(),
            "answered with an upper level": is_upper.mean(),
            "of these, correct": is_right[is_upper].mean() if is_upper.any() else 1.0,
            "out of scope, rejected": (
                np.asarray(model.predict(outside), str) == model.out_of_scope_label
            ).mean(),
        }
        print(f"upper levels: {has_levels}")
        for name, share in shares.items():
            print(f"  {name:30}{share:7.1%}")


if __name__ == "__main__":
    app.run(main)
