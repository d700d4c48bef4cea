"""Check what `IntentClassifier` chooses by itself, on many sets of intents.

```
python benchmarks/intent_choices.py --encoder convert_small.onnx --shots 3,5,10 \
    --utterances small_intent_sets.jsonl.zst,requests_labelled.jsonl.zst
```

Files have lines with `source`, `text` and `label`. Each source with enough intents is a set: a few
examples of each intent are drawn, the others are tested. For each set the table has the accuracy in
percent of both kinds of encodings with fixed weights of words, that of `IntentClassifier`, which
chooses kind, weight and names of intents by held-out examples, and that of the best fixed choice in
hindsight, which no rule can reach. The last rows are means, and the mean difference to
`IntentClassifier` with its standard error.
"""

import collections
from pathlib import Path

import numpy as np
from absl import app, flags

from convert_tf import IntentClassifier, SentenceEncoder
from convert_tf.data.utterances import read_utterances
from convert_tf.intents.cross_validation import Mixture, outputs_of, train_parts
from convert_tf.intents.encodings import IntentEncodings
from convert_tf.intents.examples import examples_of
from convert_tf.storage.messages import aligned

_ENCODER = flags.DEFINE_string("encoder", "convert_small", "Released name, folder or .onnx file.")
_UTTERANCES = flags.DEFINE_list("utterances", None, "Files of labelled texts.", required=True)
_HEAD = flags.DEFINE_string("head", "logistic", "Head: logistic, or network (20 times slower).")
_SHOTS = flags.DEFINE_list("shots", ["10"], "Examples of each intent.")
_INTENTS = flags.DEFINE_integer("intents", 64, "Intents of a set, at most.")
_TEST = flags.DEFINE_integer("test", 800, "Test texts of a set, about.")
_LEAST_INTENTS, _LEAST_TEXTS = 6, 15  # of a set, and of each of its intents
_WEIGHTS = (0.0, 0.2, 0.4)
_OWN, _BEST = "by itself", "in hindsight"

Labelled = tuple[list[str], list[str]]


def read_sets(paths: list[str]) -> dict[str, dict[str, list[str]]]:
    """Return the texts of each intent, by file and source."""
    found: dict[str, dict[str, dict[str, None]]] = collections.defaultdict(dict)
    for path in paths:
        for row in read_utterances([path]):
            if row.label and row.text.strip():
                name = f"{Path(path).name.split('.')[0]}: {row.source}"
                found[name].setdefault(str(row.label), {})[row.text] = None
    sets = {
        name: {label: [*texts] for label, texts in intents.items() if len(texts) >= _LEAST_TEXTS}
        for name, intents in found.items()
    }
    return {name: intents for name, intents in sets.items() if len(intents) >= _LEAST_INTENTS}


def split(intents: dict[str, list[str]], shots: int) -> tuple[Labelled, Labelled]:
    """Draw training examples and test texts, each with its label."""
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
    """Return the accuracy of each choice in percent."""
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
