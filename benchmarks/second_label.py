"""Compare two ways to choose thresholds for texts with several intents.

```
python benchmarks/second_label.py --encoder convert_small --examples 500 \
    --utterances requests_labelled.jsonl.zst --sources frames,woz2,multiwoz_user
```

With `one`, all intents have the same threshold. With `two`, the most probable intent has one
threshold and the other intents have another. Labels of several intents are joined by "+". Intents
with fewer than five examples are left out.

The script trains a classifier for each source, and chooses the thresholds on held-out examples. The
columns are percentages of the test texts: micro F1, the share of texts whose intents are all
correct, and this share among texts with one and with two intents.
"""

import collections
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from absl import app, flags
from sklearn.metrics import f1_score

from convert_tf import MultiIntentClassifier, SentenceEncoder
from convert_tf.data.utterances import UtteranceFiles
from convert_tf.intents.cross_validation import Fold, held_out_outputs
from convert_tf.intents.encodings import IntentEncodings
from convert_tf.intents.examples import IntentExamples
from convert_tf.intents.multi import split_labels, truth_of
from convert_tf.storage.messages import aligned

_ENCODER = flags.DEFINE_string("encoder", "convert_small", "Released name, folder or .onnx file.")
_UTTERANCES = flags.DEFINE_list("utterances", None, "Files of labelled texts.", required=True)
_SOURCES = flags.DEFINE_list("sources", None, "Sources in these files.", required=True)
_EXAMPLES = flags.DEFINE_integer("examples", 500, "Examples to train on, per source.")
_TESTED = flags.DEFINE_integer("tested", 1_200, "Maximum number of test texts per source.")
_THRESHOLDS = np.arange(5, 100, 5) / 100
_LEAST, _FOLDS = 5, 3


def answered(probabilities: np.ndarray, first: float, second: float) -> np.ndarray:
    """Return which intents are answered, bool `[n, intents]`.

    Args:
      probabilities: float `[n, intents]`.
      first: threshold of the most probable intent.
      second: threshold of all other intents.
    """
    ranks = (-probabilities).argsort(axis=1).argsort(axis=1)
    return probabilities >= np.where(ranks == 0, first, second)


def micro_f1(answers: np.ndarray, truth: np.ndarray) -> float:
    """Return the micro F1 of answers."""
    return float(f1_score(truth, answers, average="micro", zero_division=0))


def all_right(answers: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of texts whose intents are all correct."""
    return float((answers == truth).all(axis=1).mean())


def measure(source: str, encodings: IntentEncodings) -> list[list[str]]:
    """Return the table's rows for a source."""
    labels: dict[str, str] = {}
    for row in UtteranceFiles(_UTTERANCES.value):
        if row.source == source and row.text.strip():
            labels.setdefault(row.text, str(row.label or ""))
    texts = np.random.default_rng(0).permutation(np.array([*labels], object)).tolist()
    number = _EXAMPLES.value
    sets = dict(zip(labels, split_labels(labels.values(), "+"), strict=True))
    counts = collections.Counter(name for text in texts[:number] for name in sets[text])
    large = {name for name, count in counts.items() if count >= _LEAST}
    examples = [text for text in texts[:number] if {*sets[text]} <= large]
    asked = [text for text in texts[number:] if {*sets[text]} <= large][: _TESTED.value]
    classifier = MultiIntentClassifier(encodings).fit(examples, [sets[text] for text in examples])
    truth, expected = (
        truth_of([sets[text] for text in some], classifier.classes_) for some in (examples, asked)
    )
    options = {"head": "logistic", "logistic_c": classifier.logistic_c, "lexical": "auto"}
    parts = np.random.default_rng(0).permutation(len(examples)) % _FOLDS
    vectors = classifier.encode(examples)
    is_name, weights = np.zeros(len(examples), bool), np.ones(len(examples))
    held = held_out_outputs(
        options,
        IntentExamples(examples, vectors, truth, is_name, weights),
        None,
        [Fold(parts == part, vectors) for part in range(_FOLDS)],
    )
    assert held is not None
    known = held.probabilities(classifier.mixture_)
    tested = classifier.predict_proba(asked)
    sizes = expected.sum(axis=1)
    pairs = [*product(_THRESHOLDS, _THRESHOLDS)]
    equal = [(one, one) for one in _THRESHOLDS]
    goals: list[tuple[str, Callable[..., float]]] = [("F1", micro_f1), ("all right", all_right)]
    rows = []
    for (goal, score), (how, tried) in product(goals, [("one", equal), ("two", pairs)]):
        best = max(tried, key=lambda pair: score(answered(known, *pair), held.labels))
        answers = answered(tested, *best)
        shares: list[Any] = [micro_f1(answers, expected), all_right(answers, expected)]
        shares += [all_right(answers[sizes == n], expected[sizes == n]) for n in (1, 2)]
        name = f"{how}, by {goal}: {best[0]:.2f}, {best[1]:.2f}"
        rows.append([source, name, *(f"{100 * share:.1f}" for share in shares)])
        print(*rows[-1], flush=True)
    return rows


def main(argv: list[str]) -> None:
    del argv
    encodings = IntentEncodings(SentenceEncoder(_ENCODER.value), kind="similarity")
    rows = [row for source in _SOURCES.value for row in measure(source, encodings)]
    head = ["source", "thresholds", "F1", "all right", "with one", "with two"]
    print(aligned([[head, *rows]]))


if __name__ == "__main__":
    app.run(main)
