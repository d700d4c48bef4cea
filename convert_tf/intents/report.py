"""Evaluate an intent classifier: accuracy, F1, worst intents, confusions and coverage."""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix, f1_score, precision_recall_fscore_support

from convert_tf.config.base import check
from convert_tf.figures import SMALLEST, literal, picture
from convert_tf.intents.cross_validation import calibration_error
from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.decision import LEVELS, upper_level
from convert_tf.intents.examples import check_equally_many, checked_texts, listed_labels, plain
from convert_tf.intents.multi import split_labels, truth_of
from convert_tf.intents.options import UNTRAINED
from convert_tf.storage.checksums import checksum
from convert_tf.storage.messages import listed, shortened

_NONE = "(out of scope)"
_EXAMPLES, _SHOWN = 3, 10
_MAX_TEXT = 90  # maximum number of characters of a text in a printed line
# The printed name of each score in a report.
SCORES = {
    "accuracy": "accuracy",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "exact_match": "all intents of a text correct",
    "upper_accuracy": "accuracy of upper levels",
    "calibration_error": "expected calibration error of the confidence",
}
_SHARES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)  # the shares of answered texts in the coverage rows

Report = dict[str, Any]


def evaluate_classifier(
    classifier: Any,
    data: LabelledTexts,
    *,
    precision: float | None = None,
    untrained: str = UNTRAINED[0],
) -> Report:
    """Score a classifier on labelled texts.

    Args:
      classifier: a fitted `IntentClassifier`, `MultiIntentClassifier` or `IntentFile`.
      data: texts whose labels are intents or the classifier's `out_of_scope_label`. Several labels
        of a text are joined with the classifier's `label_separator`.
      precision: required share of correct answers among the answered texts; see
        `threshold_for_precision`.
      untrained: `"wrong"` counts every answer to a text with an untrained intent as an error;
        `"out_of_scope"` counts such texts as out of scope.

    Returns:
      A dict with
      - `examples`: the number of texts in scope;
      - `macro_f1`: the mean F1 over the intents that occur in the texts;
      - `threshold`: the classifier's threshold;
      - `untrained`: the number of texts for each untrained intent. Upper levels of trained intents
        do not count as untrained if the classifier answers with them;
      - `intents`: the scores of each intent, the worst F1 first, as dicts with `intent`,
        `examples`, `precision`, `recall` and `f1`;
      - `data_sha256`: a checksum of the texts and labels;
      - `wrong`: the positions of the texts with wrong answers, starting at 0.

      If each text has one intent, the dict also has
      - `untrained_as`: the argument `untrained`;
      - `accuracy`: the accuracy on in-scope texts. A rejection is an error;
      - `calibration_error`: the expected calibration error of the highest probability on in-scope
        texts;
      - `coverage`: the accuracy by the share of answered texts; see `coverage_rows`;
      - `confusions`: the confused pairs, the most frequent first, as dicts with `intent`,
        `predicted`, `number` and `texts`;
      - `labels`, `matrix`: the labels, and the counts by true label (rows) and predicted label;
      - `out_of_scope`: the number of `examples` and the `recall` (only with out-of-scope texts);
      - `upper_accuracy`: the accuracy of the upper levels (only for labels such as
        `faq/opening_hours`);
      - `precision_threshold`: the required `precision` and the row from `threshold_for_precision`
        (only if `precision` is given).

      If texts may have several intents, the dict also has
      - `micro_f1`: the micro-averaged F1;
      - `exact_match`: the share of texts with exactly the correct intents;
      - `errors`: texts with wrong answers, as dicts with `text`, `missed` and `wrong`.

    Raises:
      ValueError: if there are no texts, a text is empty, the numbers of texts and labels differ, or
        `untrained` is unknown.
    """
    check(untrained in UNTRAINED, f"untrained must be {' or '.join(UNTRAINED)}.", untrained)
    data = LabelledTexts(checked_texts(data.texts), [*map(plain, listed_labels(data.labels))])
    check_equally_many(*data)
    if not data.texts:
        raise ValueError("There is no text to evaluate. Pass labelled texts.")
    if classifier.decision.has_several:
        return _evaluate_multi(classifier, data)
    outside = str(classifier.decision.out_of_scope_label)
    trained = [str(label) for label in classifier.classes_ if str(label) != outside]
    # A classifier with upper levels answers with them too.
    uppers = map(upper_level, trained) if classifier.decision.upper_levels else ()
    unseen = _counted([*map(str, data.labels)], {*trained, outside, *uppers})
    is_none = {outside, *(unseen if untrained == "out_of_scope" else ())}
    true = _with_none(data.labels, is_none)
    predicted = _with_none(classifier.predict(data.texts), {outside})
    # Answers may also be upper levels, which are not among the trained labels.
    labels = [*trained, *sorted({*predicted, *true} - {*trained, _NONE}), _NONE]
    matrix = confusion_matrix(true, predicted, labels=labels)
    intents = _intent_rows(true, predicted, labels[:-1])
    probabilities = classifier.predict_proba(data.texts)
    confidence = probabilities.max(axis=1)
    best = classifier.classes_[probabilities.argmax(axis=1)].astype(str)
    is_right, is_in = best == np.array(true), np.array(true) != _NONE
    num_inside, num_outside = int(is_in.sum()), int((~is_in).sum())
    in_scope = confidence[is_in], is_right[is_in]
    # The out-of-scope label does not count as an answer, even if it was trained.
    answered = confidence[best != outside], is_right[best != outside]
    report: Report = {
        "examples": num_inside,
        "accuracy": float(np.trace(matrix[:-1]) / num_inside) if num_inside else None,
        "macro_f1": float(np.mean([row["f1"] for row in intents])) if intents else None,
        "calibration_error": calibration_error(*in_scope) if num_inside else None,
        "threshold": classifier.threshold_,
        "untrained": unseen,
        "untrained_as": untrained,
        "coverage": coverage_rows(*answered, total=len(data.texts)),
    }
    if num_inside and any(LEVELS in label for label in trained):
        report["upper_accuracy"] = _upper_accuracy(true, predicted)
    if precision is not None:
        row = threshold_for_precision(*answered, precision, total=len(data.texts))
        report["precision_threshold"] = {"precision": precision, **(row or {})}
    if num_outside:
        recall = matrix[-1, -1] / num_outside
        report["out_of_scope"] = {"examples": num_outside, "recall": float(recall)}
    return report | {
        "intents": intents,
        "confusions": _confusions(data.texts, true, predicted),
        "labels": labels,
        "matrix": matrix.tolist(),
        "data_sha256": data_checksum(data),
        "wrong": np.flatnonzero(np.array(true) != np.array(predicted)).tolist(),
    }


def _with_none(labels: Iterable[Any], out_of_scope: Collection[str]) -> list[str]:
    """Return the labels as strings, with `_NONE` instead of each label that is out of scope."""
    return [_NONE if label in out_of_scope else label for label in map(str, labels)]


def _upper_accuracy(true: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the share of in-scope texts whose upper level is answered correctly."""
    pairs = [pair for pair in zip(true, predicted, strict=True) if pair[0] != _NONE]
    return float(np.mean([upper_level(label) == upper_level(answer) for label, answer in pairs]))


def data_checksum(data: LabelledTexts) -> str:
    """Return a checksum of the texts and labels, which depends on their order."""
    rows = ([text, str(label)] for text, label in zip(*data, strict=True))
    return checksum(json.dumps(row).encode() for row in rows)


def _counted(labels: Sequence[str], known: set[str]) -> dict[str, int]:
    """Count all labels that are not in `known`, in alphabetical order."""
    return {label: labels.count(label) for label in sorted({*labels} - known)}


def coverage_rows(
    confidence: np.ndarray, is_right: np.ndarray, *, total: int | None = None
) -> list[dict[str, float]]:
    """Return the risk-coverage curve: the accuracy if only confident answers are given.

    Args:
      confidence: float `[n]`, the highest probability of each text whose best intent is not the
        out-of-scope label.
      is_right: bool `[n]`, whether each answer is correct; False for texts out of scope.
      total: number of all texts; `n` by default.

    Returns:
      A list of rows; empty if there are no texts. Each row is a dict with
      - `threshold`: the minimum confidence of an answered text, rounded down to as few decimals as
        possible, but at least three, so that no further texts are answered;
      - `answered`: the share of texts that are answered;
      - `accuracy`: the share of correct answers to these texts.
    """
    order = np.sort(confidence)[::-1]
    places = [max(round(share * len(order)), 1) - 1 for share in _SHARES if len(order)]
    total = len(order) if total is None else total
    return [_answered_from(float(order[place]), confidence, is_right, total) for place in places]


def threshold_for_precision(
    confidence: np.ndarray, is_right: np.ndarray, precision: float, *, total: int | None = None
) -> dict[str, float] | None:
    """Return the threshold that answers the most texts while keeping at least this precision.

    Args:
      confidence, is_right, total: see `coverage_rows`.
      precision: required share of correct answers.

    Returns:
      A row as in `coverage_rows`; None if no threshold reaches the precision.
    """
    values, places = np.unique(-confidence, return_inverse=True)
    answered = np.cumsum(np.bincount(places))
    right = np.cumsum(np.bincount(places, is_right))
    is_enough = np.flatnonzero(right / answered >= precision)
    if not len(is_enough):
        return None
    total = len(confidence) if total is None else total
    return _answered_from(float(-values[is_enough[-1]]), confidence, is_right, total)


def _answered_from(
    threshold: float, confidence: np.ndarray, is_right: np.ndarray, total: int
) -> dict[str, float]:
    is_answered = confidence >= threshold
    return {
        "threshold": _rounded_down(threshold, confidence),
        "answered": float(is_answered.sum() / total),
        "accuracy": float(is_right[is_answered].mean()),
    }


def _rounded_down(threshold: float, confidence: np.ndarray) -> float:
    """Round a threshold down to as few decimals as possible without answering further texts."""
    number = np.sum(confidence >= threshold)
    for decimals in range(3, 17):
        lower = math.floor(threshold * 10**decimals) / 10**decimals
        if lower <= threshold and np.sum(confidence >= lower) == number:
            return lower
    return threshold


def _evaluate_multi(classifier: Any, data: LabelledTexts) -> Report:
    sets = split_labels(data.labels, classifier.decision.label_separator)
    trained = classifier.classes_.tolist()
    unseen = _counted([label for labels in sets for label in labels], {*trained})
    names = [*trained, *unseen]
    answers = classifier.predict(data.texts)
    truth, predicted = truth_of(sets, np.array(names)), truth_of(answers, np.array(names))
    rows = _intent_rows(truth, predicted, names)
    wrong = np.flatnonzero((truth != predicted).any(axis=1)).tolist()
    errors = [
        {
            "text": data.texts[place],
            "missed": sorted({*sets[place]} - {*answers[place]}),
            "wrong": sorted({*answers[place]} - {*sets[place]}),
        }
        for place in wrong
    ]
    return {
        "examples": len(data.texts),
        "micro_f1": float(f1_score(truth, predicted, average="micro", zero_division=0)),
        "macro_f1": float(np.mean([row["f1"] for row in rows])) if rows else None,
        "exact_match": (len(data.texts) - len(wrong)) / len(data.texts),
        "threshold": classifier.threshold_,
        "untrained": unseen,
        "intents": rows,
        "errors": errors,
        "data_sha256": data_checksum(data),
        "wrong": wrong,
    }


def _intent_rows(true: Any, predicted: Any, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the scores for each intent that has examples, the worst F1 first.

    Args:
      true, predicted: labels `[n]`; or bool `[n, intents]`, in the order of `names`.
      names: names of the intents.
    """
    labels = names if isinstance(true, list) else None
    scores = precision_recall_fscore_support(true, predicted, labels=labels, zero_division=0)
    rows = [
        {"intent": name, "examples": int(number), "precision": p, "recall": r, "f1": f1}
        for name, p, r, f1, number in zip(names, *map(np.ndarray.tolist, scores), strict=True)
        if number
    ]
    return sorted(rows, key=lambda row: row["f1"])


def _confusions(
    texts: Sequence[str], true: Sequence[str], predicted: Sequence[str]
) -> list[dict[str, Any]]:
    by_pair: dict[tuple[str, str], list[str]] = {}
    for text, intent, other in zip(texts, true, predicted, strict=True):
        if intent != other:
            by_pair.setdefault((intent, other), []).append(text)
    return [
        {"intent": a, "predicted": b, "number": len(examples), "texts": examples[:_EXAMPLES]}
        for (a, b), examples in sorted(by_pair.items(), key=lambda item: -len(item[1]))
    ]


def report_text(report: Report) -> str:
    """Format the result of `evaluate_classifier` for a terminal."""
    known = [name for name in SCORES if report.get(name) is not None]
    scores = [f"{SCORES[name]} {report[name]:.2%}" for name in known]
    counted = "in-scope examples" if report.get("out_of_scope") else "examples"
    lines = [", ".join([*scores, f"{report['examples']:,} {counted}"])] if scores else []
    if untrained := report["untrained"]:
        names = listed([f"{label} ({number:,})" for label, number in untrained.items()])
        lines.append(f"intents that the model was not trained on: {names}")
    if outside := report.get("out_of_scope"):
        lines += [f"out-of-scope recall {outside['recall']:.2%}, {outside['examples']:,} examples"]
    if against := report.get("against"):
        lines.append(
            f"compared with {against['name']}: {against['gained']:,} correct answers gained, "
            f"{against['lost']:,} lost, p = {against['p_value']:.2g}"
        )
    if "coverage" in report:  # texts with one intent
        lines += ["", "answering only confident texts: share answered, accuracy, threshold"]
        lines += map(_coverage_line, report["coverage"])
    if wanted := report.get("precision_threshold"):
        precision = f"{wanted['precision']:.0%}"
        if "threshold" in wanted:
            lines += [f"for a precision of {precision}:", _coverage_line(wanted)]
        else:
            lines.append(f"no threshold reaches a precision of {precision}")
    lines += ["", "worst intents: F1, precision, recall, examples"]
    for row in report["intents"][:_SHOWN]:
        shares = "".join(f"{row[name]:9.2%}" for name in ("f1", "precision", "recall"))
        lines.append(f"{shares}{row['examples']:6}  {row['intent']}")
    if errors := report.get("errors"):  # texts with several intents
        lines += ["", "some errors: missed, wrong"]
        for row in errors[:_SHOWN]:
            missed, wrong = (", ".join(row[name]) or "–" for name in ("missed", "wrong"))
            lines += [f"  {shortened(row['text'], _MAX_TEXT)}", f"      {missed}; {wrong}"]
    # Rejections are left out. They depend on the threshold and would hide which intents look alike.
    pairs = report.get("confusions", ())
    confused = [row for row in pairs if _NONE not in (row["intent"], row["predicted"])]
    if confused:
        lines += ["", "most confused"]
    for row in confused[:_SHOWN]:
        lines.append(f"{row['number']:4} × {row['intent']} → {row['predicted']}")
        lines += [f"         {shortened(text, _MAX_TEXT)}" for text in row["texts"]]
    return "\n".join(lines)


def _coverage_line(row: Mapping[str, float]) -> str:
    # With fewer digits, the printed threshold would answer other texts.
    threshold = np.format_float_positional(row["threshold"], min_digits=3)
    return f"{row['answered']:9.1%}{row['accuracy']:9.1%}    {threshold}"


@picture
def confusion_chart(report: Report) -> Any:
    """Draw the confusion matrix, with confused intents next to each other.

    Cells for correct answers are blue. Cells for wrong answers are red and show a number. The
    larger the share of a cell in its row, the darker the cell.
    """
    from matplotlib.figure import Figure

    matrix = np.array(report["matrix"], float)
    used = np.flatnonzero(matrix.sum(axis=0) + matrix.sum(axis=1))
    inside = used[used < len(matrix) - 1]
    order = inside[_side_by_side(matrix[np.ix_(inside, inside)])]
    order = np.concatenate([order, used[used == len(matrix) - 1]])  # out of scope comes last
    counts, labels = matrix[np.ix_(order, order)], [report["labels"][i] for i in order]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = len(labels)
    side = 0.2 * size + 0.07 * max(map(len, labels)) + 0.6  # inches, for numbers of two digits
    figure = Figure(figsize=(side, side))
    panel = figure.add_subplot()
    is_right = np.eye(size, dtype=bool)
    right = np.ma.masked_where(~is_right, shares)
    # Without square roots, single errors among many examples would be invisible.
    wrong = np.ma.masked_where(is_right | (counts == 0), np.sqrt(shares))
    panel.imshow(right, cmap="Blues", vmin=0, vmax=1.3)
    panel.imshow(wrong, cmap="Reds", vmin=-0.2, vmax=1)
    for row, column in zip(*np.nonzero(counts * ~is_right), strict=True):
        is_dark = shares[row, column] > 0.3
        panel.text(
            column, row, f"{int(counts[row, column])}", ha="center", va="center", fontsize=SMALLEST,
            color="white" if is_dark else "black",
        )  # fmt: skip
    shown = [*map(literal, labels)]
    panel.set_xticks(range(size), shown, rotation=90, fontsize=SMALLEST)
    panel.set_yticks(range(size), shown, fontsize=SMALLEST)
    panel.xaxis.tick_top()
    panel.xaxis.set_label_position("top")
    panel.set(xlabel="predicted", ylabel="true")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_ticks(np.arange(size + 1) - 0.5, minor=True)
    panel.grid(which="minor", color="#dddddd", linewidth=0.3)
    panel.tick_params(which="both", length=0)
    return figure


def _side_by_side(matrix: np.ndarray) -> np.ndarray:
    """Return an order of the labels that puts confused labels next to each other."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    size = len(matrix)
    if size < 3:
        return np.arange(size)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    similarity = shares + shares.T
    distances = (2 - similarity)[np.triu_indices(size, 1)]
    return leaves_list(linkage(distances, method="average"))
