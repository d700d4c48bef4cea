"""Compare labels chosen by `intent suggest` with labels of random messages.

```
python benchmarks/labels.py --encoder convert_small --train train.csv --test test.csv
```

The first --start messages are chosen without a classifier. In each round, the labels of --budget
more messages are added, and the classifier is trained again: logistic regression on the vectors,
without the word model. Labels are looked up in --train. The script prints the accuracy of each
round. It stops early if fewer than --budget messages are left.
"""

import warnings

import numpy as np
from absl import app, flags

from convert_tf import IntentClassifier
from convert_tf.intents.data import read_labelled
from convert_tf.intents.encodings import IntentEncodings, encodes
from convert_tf.intents.suggest import suggest_messages

_ENCODER = flags.DEFINE_string("encoder", "convert_small", "A released name or an .onnx file.")
_TRAIN = flags.DEFINE_string("train", None, "Messages and their labels.", required=True)
_TEST = flags.DEFINE_string("test", None, "Messages to test on.", required=True)
_START = flags.DEFINE_integer("start", 200, "Labels to begin with.")
_BUDGET = flags.DEFINE_integer("budget", 100, "Labels per round.")
_ROUNDS = flags.DEFINE_integer("rounds", 8, "Number of rounds.")


def main(argv: list[str]) -> None:
    del argv
    warnings.filterwarnings("ignore", "Intents with one example")
    kind = "similarity" if encodes(_ENCODER.value, "similarity") else "sentence"
    encode = IntentEncodings(_ENCODER.value, kind=kind)
    label_of = dict(zip(*read_labelled(_TRAIN.value), strict=True))
    test = read_labelled(_TEST.value)
    rng = np.random.default_rng(0)
    for name in ("chance", "suggest"):
        start = suggest_messages([*label_of], encode, budget=_START.value)
        labelled = rng.permutation([*label_of])[: _START.value].tolist()
        labelled = start if name == "suggest" else labelled
        for number in range(_ROUNDS.value + 1):
            labels = [label_of[text] for text in labelled]
            classifier = IntentClassifier(encode, "logistic", names=None, lexical=None)
            accuracy = classifier.fit(labelled, labels).score(*test)
            print(f"{name:10}{len(labelled):6,} labels: {accuracy:.1%}", flush=True)
            left = sorted({*label_of} - {*labelled})
            if number == _ROUNDS.value or len(left) < _BUDGET.value:
                break
            if name == "suggest":
                labelled += suggest_messages(left, classifier=classifier, budget=_BUDGET.value)
            else:
                labelled += rng.permutation(left)[: _BUDGET.value].tolist()


if __name__ == "__main__":
    app.run(main)
