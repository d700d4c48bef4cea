"""Measure out-of-scope detection without out-of-scope training examples, for each rule.

```
python benchmarks/scope.py --train clinc150.train.csv --test clinc150.test.csv \
    --outside clinc150.oos_test.csv --encoder hub_modules/convert/2
```

The script draws some of the intents and a few examples of each. It tests on the test texts of these
intents and on equally many out-of-scope texts. It prints the in-scope accuracy, where a rejected
text counts as an error, and the share of out-of-scope texts that are rejected.
"""

import numpy as np
from absl import app, flags

from convert_tf import IntentClassifier, SentenceEncoder
from convert_tf.intents.data import LabelledTexts, few_shot, read_labelled
from convert_tf.intents.decision import KINDS

_TRAIN = flags.DEFINE_string("train", None, "CSV file of texts and labels.", required=True)
_TEST = flags.DEFINE_string("test", None, "CSV file of texts and labels.", required=True)
_OUTSIDE = flags.DEFINE_string("outside", None, "CSV file of out-of-scope texts.", required=True)
_ENCODER = flags.DEFINE_string("encoder", None, "Folder of a module.", required=True)
_CASES = flags.DEFINE_list(
    "cases", ["3x4", "3x10", "10x10", "30x10"], "Intents and examples per intent, as 3x4."
)
_DRAWS = flags.DEFINE_integer("draws", 12, "Draws per case; the mean is printed.")
_HEAD = flags.DEFINE_string("head", "logistic", "Head of the classifier.")


def of_intents(data: LabelledTexts, intents: set[str]) -> LabelledTexts:
    """Return the texts of some intents."""
    places = [i for i, label in enumerate(data.labels) if label in intents]
    return LabelledTexts([data.texts[i] for i in places], [data.labels[i] for i in places])


def main(argv: list[str]) -> None:
    del argv
    train, test, outside = (
        read_labelled(path) for path in (_TRAIN.value, _TEST.value, _OUTSIDE.value)
    )
    texts = list(dict.fromkeys([*train.texts, *test.texts, *outside.texts]))
    vectors = dict(zip(texts, SentenceEncoder(_ENCODER.value).encode(texts), strict=True))

    def look_up(wanted: list[str]) -> np.ndarray:
        return np.stack([vectors[text] for text in wanted])

    for case in _CASES.value:
        intents, shots = map(int, case.split("x"))
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for seed in range(_DRAWS.value):
            rng = np.random.default_rng(seed)
            chosen = {str(one) for one in rng.choice(sorted({*train.labels}), intents, False)}
            few = few_shot(of_intents(train, chosen), shots, seed=seed)
            asked = of_intents(test, chosen)
            number = min(len(asked.texts), len(outside.texts))
            others = [outside.texts[i] for i in rng.choice(len(outside.texts), number, False)]
            for kind, shares in found.items():
                classifier = IntentClassifier(
                    look_up, head=_HEAD.value, out_of_scope=kind, lexical=None, names=None
                ).fit(*few)
                right = np.mean(classifier.predict(asked.texts) == np.array(asked.labels))
                rejected = np.mean(classifier.predict(others) == classifier.out_of_scope_label)
                shares.append((float(right), float(rejected)))
        for kind, shares in found.items():
            accuracy, recall = 100 * np.mean(shares, axis=0)
            print(
                f"{intents} intents, {shots} examples per intent, {kind}: "
                f"in scope {accuracy:.1f} %, rejected {recall:.1f} %",
                flush=True,
            )


if __name__ == "__main__":
    app.run(main)
