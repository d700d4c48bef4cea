"""Out-of-scope detection without out-of-scope examples: by confidence or by distance.

```
python benchmarks/scope.py --train clinc150.train.csv --test clinc150.test.csv \
    --outside clinc150.oos_test.csv --encoder hub_modules/convert/2
```

Draws some of the intents and a few examples of each, and tests on the texts of these intents and
on as many of those without: in-scope accuracy, where a rejected text is an error, and the share
of the others that is rejected.
"""

import numpy as np
from absl import app, flags

from convert_tf import IntentClassifier, SentenceEncoder
from convert_tf.intents.data import LabelledTexts, few_shot, read_labelled
from convert_tf.intents.decision import KINDS

_TRAIN = flags.DEFINE_string("train", None, "CSV of texts and labels.", required=True)
_TEST = flags.DEFINE_string("test", None, "CSV of texts and labels.", required=True)
_OUTSIDE = flags.DEFINE_string("outside", None, "CSV of texts of no intent.", required=True)
_ENCODER = flags.DEFINE_string("encoder", None, "Folder of a module.", required=True)
_CASES = flags.DEFINE_list(
    "cases", ["3x4", "3x10", "10x10", "30x10"], "Numbers of intents and of examples of each."
)
_DRAWS = flags.DEFINE_integer("draws", 12, "Draws of each case, of which the mean is printed.")
_HEAD = flags.DEFINE_string("head", "logistic", "The classifier's head.")


def of_intents(data: LabelledTexts, intents: set[str]) -> LabelledTexts:
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
                f"{intents} intents, {shots} examples of each, {kind}: "
                f"in scope {accuracy:.1f} %, rejected {recall:.1f} %",
                flush=True,
            )


if __name__ == "__main__":
    app.run(main)
