"""Measure how `discover`, `monitor` and the out-of-scope rules handle unknown intents.

```
python benchmarks/unknown_intents.py --encoder convert_small.onnx \
    --data banking77.test.csv,clinc150.test.csv --utterances small_intent_sets.jsonl.zst
```

Each --data file is a data set, and so is each source of an --utterances file with enough intents. A
quarter of the intents of a data set are hidden. A classifier is trained on ten examples of each of
the other intents, the known ones. All other texts are messages. The table shows these figures for
each data set and their means, in percent unless they are counts:

- accuracy and expected calibration error (ECE) on messages of known intents;
- for each rule of --out_of_scope: AUROC of its score for known against hidden intents, and the
  share of messages of hidden intents that are rejected if 5 % of those of known intents are;
- known rejected, hidden rejected: the share of either kind that the last rule rejects with its
  fitted thresholds;
- weight: the weight of the cosine in that rule; AUROC is also given for other weights;
- unsure: the share of messages of hidden and of known intents that `discover` groups;
- alarms: how often `monitor --since` reports a change in a week in which a tenth of the messages
  have hidden intents (new), and in a week of known intents only (same);
- found: the share of messages of hidden intents in a group whose most frequent intent is theirs;
  missed: the number of hidden intents without such a group; groups: the number of groups; NMI, ARI
  and ACC (accuracy) of the groups on unsure messages of hidden intents.

--nogroups leaves out the last three items, which take most of the time.
"""

import collections
import warnings
from typing import Any

import numpy as np
import sklearn
from absl import app, flags
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import (
    adjusted_rand_score,
    confusion_matrix,
    normalized_mutual_info_score,
    roc_auc_score,
)

from convert_tf import IntentClassifier, SentenceEncoder, discover_intents
from convert_tf.data.utterances import UtteranceFiles
from convert_tf.intents.cross_validation import calibration_error
from convert_tf.intents.data import read_labelled
from convert_tf.intents.decision import KINDS
from convert_tf.intents.messages import MIN_CONFIDENCE, unsure
from convert_tf.intents.monitor import monitor_messages
from convert_tf.storage.messages import aligned

_ENCODER = flags.DEFINE_string("encoder", "convert_small", "Released name, folder or .onnx file.")
_DATA = flags.DEFINE_list("data", [], "Files of labelled texts, one per data set.")
_UTTERANCES = flags.DEFINE_list("utterances", [], "Files of labelled texts with their sources.")
_SOURCES = flags.DEFINE_list("sources", [], "Sources of --utterances to use; all by default.")
_HEAD = flags.DEFINE_string("head", IntentClassifier(None).head, "Head of the classifier.")
_MESSAGES = flags.DEFINE_integer("messages", 1_076, "Maximum number of messages to group.")
_GROUPS = flags.DEFINE_bool("groups", True, "Measure discover and monitor too.")
_TESTED = flags.DEFINE_integer("tested", 10_000, "Maximum number of messages per set.")
_LEXICAL = flags.DEFINE_string("lexical", "auto", "Weight of the word model: auto or none.")
_WEEKS = flags.DEFINE_integer("weeks", 10, "Number of pairs of weeks.")
_SEEDS = flags.DEFINE_integer("seeds", 1, "Number of draws of intents.")
_SHOTS, _HIDDEN, _MOST_INTENTS = 10, 0.25, 64
_LEAST_INTENTS, _LEAST_TEXTS = 8, 20
_WEEK = 888
_WEIGHTS = (0, 5, 10, 20)  # of the cosine, besides the fitted one

Texts = dict[str, str]  # label by text


def read_sets() -> dict[str, Texts]:
    """Return the texts and labels of each data set, without intents that have too few texts."""
    found: dict[str, Texts] = collections.defaultdict(dict)
    for path in _DATA.value:
        found[path] = dict(zip(*read_labelled(path), strict=True))
    for path in _UTTERANCES.value:
        for row in UtteranceFiles([path]):
            if row.label and (not _SOURCES.value or row.source in _SOURCES.value):
                found[row.source].setdefault(row.text, str(row.label))
    sets = {}
    for name, texts in found.items():
        sizes = collections.Counter(texts.values())
        large = {label for label, size in sizes.items() if size >= _LEAST_TEXTS}
        if len(large) >= _LEAST_INTENTS:
            sets[name] = {text: label for text, label in texts.items() if label in large}
    return sets


def groups_of(classifier: Any, log: list[str], label_of: Texts, hidden: set[str]) -> list[float]:
    """Return found, missed, groups, NMI, ARI and accuracy, as defined at the top of this file."""
    report = discover_intents(log, classifier=classifier)
    seen, number_of = set(), {}
    right = 0
    for number, row in enumerate(report["groups"]):
        number_of |= dict.fromkeys(row["texts"], number)
        ((label, size),) = collections.Counter(map(label_of.get, row["texts"])).most_common(1)
        if label in hidden:
            seen.add(label)
            right += size
    texts = [text for text in log if label_of[text] in hidden]
    is_unsure = unsure(classifier, texts, MIN_CONFIDENCE)
    grouped = [text for text, is_kept in zip(texts, is_unsure, strict=True) if is_kept]
    labels, groups = (
        np.unique(values, return_inverse=True)[1]
        for values in (
            [label_of[text] for text in grouped],
            [number_of.get(t, -1) for t in grouped],
        )
    )
    counts = confusion_matrix(labels, groups)
    matched = counts[linear_sum_assignment(-counts)].sum() / len(grouped)
    scores = [normalized_mutual_info_score(labels, groups), adjusted_rand_score(labels, groups)]
    counted = [len(hidden) - len(seen), len(report["groups"])]
    return [100 * right / len(texts), *counted, *(100 * x for x in (*scores, matched))]


def alarms(classifier: Any, known: list[str], new: list[str], rng: Any) -> list[float]:
    """Return how often `monitor` reports a change, in percent.

    Args:
      classifier: the classifier.
      known: messages of known intents.
      new: messages of hidden intents.
      rng: draws the weeks.

    Returns:
      The share of weeks with hidden intents, and the share of weeks without.
    """
    size = min(_WEEK, len(known) // 2)
    number = min(size // 10, len(new))
    raised: list[list[bool]] = [[], []]
    for _ in range(_WEEKS.value):
        order = rng.permutation(np.array(known, object)).tolist()
        first, second = order[:size], order[size : 2 * size]
        others = rng.permutation(np.array(new, object)).tolist()[:number]
        since = monitor_messages(first, classifier)
        for changed, week in zip(raised, (second[number:] + others, second), strict=True):
            report = monitor_messages(week, classifier, since=since)
            changed.append(bool(report["changes"]))
    return [100 * float(np.mean(changed)) for changed in raised]


def measure(encoder: Any, texts: Texts, head: str, seed: int) -> dict[str, float]:
    """Return the figures of a data set by column."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(sorted({*texts.values()}))[:_MOST_INTENTS].tolist()
    hidden = {*labels[: round(_HIDDEN * len(labels))]}
    examples: tuple[list[str], list[str]] = ([], [])
    log = []
    counts: collections.Counter[str] = collections.Counter()
    for text in rng.permutation(np.array([*texts], object)).tolist():
        label = texts[text]
        if label not in hidden and label in labels and counts[label] < _SHOTS:
            counts[label] += 1
            examples[0].append(text)
            examples[1].append(label)
        elif label in labels:
            log.append(text)
    log = log[: _TESTED.value]
    lexical = None if _LEXICAL.value == "none" else _LEXICAL.value
    rule = KINDS[-1]
    classifier = IntentClassifier(encoder, head, lexical=lexical, out_of_scope=rule).fit(*examples)
    known, new = ([t for t in log if (texts[t] in hidden) == is_new] for is_new in (False, True))
    probabilities = classifier.predict_proba(known)
    confidence = probabilities.max(axis=1)
    is_right = classifier.classes_[probabilities.argmax(axis=1)] == [texts[text] for text in known]
    row = {
        "accuracy": 100 * float(is_right.mean()),
        "ECE": 100 * calibration_error(confidence, is_right),
    }
    rejected = [100 * float((classifier.predict(asked) == "oos").mean()) for asked in (known, new)]
    is_known = np.arange(len(log)) < len(known)
    for kind in KINDS:
        classifier.out_of_scope = kind
        scores, others = classifier.scope_scores(known), classifier.scope_scores(new)
        row[f"AUROC {kind}"] = 100 * roc_auc_score(is_known, np.concatenate([scores, others]))
        row[f"rejected {kind}"] = 100 * float((others < np.quantile(scores, 0.05)).mean())
    row |= dict(zip(("known rejected", "hidden rejected"), rejected, strict=True))
    mixture = classifier.mixture_
    row["weight"] = mixture.cosine
    for weight in _WEIGHTS:
        classifier.mixture_ = mixture._replace(cosine=weight)
        asked = np.concatenate([classifier.scope_scores(known), classifier.scope_scores(new)])
        row[f"AUROC weight {weight}"] = 100 * roc_auc_score(is_known, asked)
    classifier.mixture_ = mixture
    if not _GROUPS.value:
        return row
    classifier = sklearn.clone(classifier).set_params(out_of_scope=None).fit(*examples)
    new_confidence = classifier.predict_proba(new).max(axis=1)
    found, missed, groups, *scores = groups_of(classifier, log[: _MESSAGES.value], texts, hidden)
    raised, false = alarms(classifier, known, new, rng)
    return row | {
        "unsure hidden": 100 * float((new_confidence < MIN_CONFIDENCE).mean()),
        "unsure known": 100 * float((confidence < MIN_CONFIDENCE).mean()),
        "alarms new": raised,
        "alarms same": false,
        "found": found,
        "missed": missed,
        "groups": groups,
        **dict(zip(("NMI", "ARI", "ACC"), scores, strict=True)),
    }


def main(argv: list[str]) -> None:
    del argv
    warnings.filterwarnings("ignore")
    encoder = SentenceEncoder(_ENCODER.value)
    rows = []
    for name, texts in read_sets().items():
        found = [measure(encoder, texts, _HEAD.value, seed) for seed in range(_SEEDS.value)]
        row = {column: float(np.mean([one[column] for one in found])) for column in found[0]}
        print(name, {column: round(value, 1) for column, value in row.items()}, flush=True)
        rows.append((name, row))
    columns = [*rows[0][1]]
    rows.append(("mean", {column: np.mean([row[column] for _, row in rows]) for column in columns}))
    lines = [[name, *(f"{row[column]:.1f}" for column in columns)] for name, row in rows]
    print(aligned([[["set", *columns], *lines]]))


if __name__ == "__main__":
    app.run(main)
