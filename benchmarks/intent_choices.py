"""Compare the choices that `IntentClassifier` makes by cross-validation with fixed choices.

```
python benchmarks/intent_choices.py --encoder convert_small.onnx --shots 3,5,10 \
    --utterances small_intent_sets.jsonl.zst,requests_labelled.jsonl.zst
```

Each line of a file has `source`, `text` and `label`. Each source with enough intents is a data set.
A few examples of each intent are drawn for training, and other texts are used for testing.

For each data set the table shows accuracy in percent. There is a column for each kind of encoding
with each fixed weight of the word model. The column `by itself` is `IntentClassifier`, which uses
held-out examples to choose the kind, the weight, and whether to use intent names. The column
`in hindsight` is the best fixed choice on the test texts, which no rule can know beforehand. The
last rows are means, and mean differences from `IntentClassifier` ± their standard errors.
"""

import collections
from pathlib import Path

import numpy as np
from absl import app, flags

from convert_tf import IntentClassifier, SentenceEncoder
from convert_tf.data.utterances import UtteranceFiles
from convert_tf.intents.cross_validation import Mixture, outputs_of, train_parts
from convert_tf.intents.encodings import IntentEncodings
from convert_tf.intents.examples import examples_of
from convert_tf.storage.messages import aligned

_ENCODER = flags.DEFINE_string("encoder", "convert_small", "Released name, folder or .onnx file.")
_UTTERANCES = flags.DEFINE_list("utterances", None, "Files of labelled texts.", required=True)
_HEAD = flags.DEFINE_string("head", "logistic", "Head: logistic, or network (20 times slower).")
_SHOTS = flags.DEFINE_list("shots", ["10"], "Examples per intent.")
_INTENTS = flags.DEFINE_integer("intents", 64, "Maximum number of intents per set.")
_TEST = flags.DEFINE_integer("test", 800, "Approximate number of test texts per set.")
_LEAST_INTENTS, _LEAST_TEXTS = 6, 15  # minimum intents per set, and texts per intent
_WEIGHTS = (0.0, 0.2, 0.4)
_OWN, _BEST = "by itself", "in hindsight"

Labelled = tuple[list[str], list[str]]


def read_sets(paths: list[str]) -> dict[str, dict[str, list[str]]]:
    """Return the texts of each intent, by set and intent. A set is a source of a file."""
    found: dict[str, dict[str, dict[str, None]]] = collections.defaultdict(dict)
    for path in paths:
        for row in UtteranceFiles([path]):
            if row.label and row.text.strip():
                name = f"{Path(path).name.split('.')[0]}: {row.source}"
                found[name].setdefault(str(row.label), {})[row.text] = None
    sets = {
        name: {label: [*texts] for label, texts in intents.items() if len(texts) >= _LEAST_TEXTS}
        for name, intents in found.items()
    }
    return {name: intents for name, intents in sets.items() if len(intents) >= _LEAST_INTENTS}


def split(intents: dict[str, list[str]], shots: int) -> tuple[Labelled, Labelled]:
    """Draw training examples and test texts with their labels.

    Args:
      intents: texts by intent.
      shots: training examples per intent.
    """
    rng = np.random.default_rng(0)
    labels = sorted(intents)
    if len(labels) > _INTENTS.value:
        labels = sorted(rng.choice(labels, _INTENTS.value, replace=False).tolist())
    tested = max(_TEST.value // len(labels), 5)
    train: Labelled = ([], [])
    test: Labelled = ([], [])
    for label in labels:
        texts = rng.permutation(np.array(intents[label], object)).tolist()
        for part, own in ((train, texts[:shots]), (test, texts[shots:][-tested:])):
            part[0].extend(own)
            part[1].extend([label] * len(own))
    return train, test


def accuracies(kinds: list[IntentEncodings], train: Labelled, test: Labelled) -> dict[str, float]:
    """Return the accuracy in percent for each kind of encoding and weight of the word model."""
    found = {}
    for encode in kinds:
        model = IntentClassifier(None, _HEAD.value)
        examples, classes = examples_of(*train, None, encode, None)
        options = {**model.get_params(deep=False), "seed": 0}
        parts = train_parts(options, examples)
        places = np.searchsorted(classes, test[1])
        answers = outputs_of(parts, test[0], encode(test[0]), places)
        for weight in _WEIGHTS:
            best = Mixture(weight).logits(answers.head, answers.lexical).argmax(axis=1)
            found[f"{encode.kind} {weight}"] = 100 * float((best == places).mean())
    return found


def main(argv: list[str]) -> None:
    encoder = SentenceEncoder(_ENCODER.value)
    kinds = [IntentEncodings(encoder, kind=kind) for kind in ("sentence", "similarity")]
    sets = read_sets(_UTTERANCES.value)
    tables = []
    for shots in map(int, _SHOTS.value):
        rows = {}
        for name, intents in sets.items():
            train, test = split(intents, shots)
            row = accuracies(kinds, train, test)
            best = max(row.values())
            own = IntentClassifier(encoder, _HEAD.value).fit(*train)
            row |= {_OWN: 100 * float(own.score(*test)), _BEST: best}
            rows[name] = row
            print(name, {choice: round(value, 1) for choice, value in row.items()}, flush=True)
        columns = [*next(iter(rows.values()))]
        lines = [[f"{shots} examples", *columns]]
        lines += [[name, *(f"{row[one]:.1f}" for one in columns)] for name, row in rows.items()]
        values = np.array([[row[one] for one in columns] for row in rows.values()])
        differences = values - values[:, [columns.index(_OWN)]]
        errors = differences.std(axis=0, ddof=1) / np.sqrt(len(values))
        lines.append([f"mean of {len(rows)}", *(f"{one:.1f}" for one in values.mean(axis=0))])
        shown = zip(differences.mean(axis=0), errors, strict=True)
        lines.append(["difference", *(f"{mean:+.1f} ± {error:.1f}" for mean, error in shown)])
        tables.append(lines)
    print(aligned(tables))


if __name__ == "__main__":
    app.run(main)
