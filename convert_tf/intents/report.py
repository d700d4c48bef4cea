"""How good an intent classifier is: accuracy, macro F1, its worst intents and its confusions."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from convert_tf.figures import SMALLEST, picture
from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.heldout import calibration_error
from convert_tf.storage.messages import shortened

NONE = "(out of scope)"
_EXAMPLES = 3
_WORST = 10
_MAX_TEXT = 90  # characters

Report = dict[str, Any]


class Answering(Protocol):
    """What is evaluated: an `IntentClassifier`, or an `IntentFile`."""

    classes_: np.ndarray
    out_of_scope_label: Any
    threshold_: float | None

    def predict(self, texts: list[str]) -> np.ndarray:
        """Answers, `[texts]`."""
        ...

    def predict_proba(self, texts: list[str]) -> np.ndarray:
        """Probabilities, `[texts, classes]`."""
        ...


def evaluate_classifier(classifier: Answering, data: LabelledTexts) -> Report:
    """Scores a classifier on labelled texts.

    Args:
      classifier: fitted.
      data: texts whose labels are intents of the classifier, or its `out_of_scope_label`.

    Returns:
      `examples`, `accuracy` (of texts in scope; a rejection is an error) and `macro_f1`, the mean
      over the intents that the texts have; `calibration_error`, the expected one of the highest
      probability on texts in scope; `out_of_scope`, with `examples` and `recall` where there
      are such texts; `intents`, the worst F1 first, each with `examples`, `precision`, `recall` and
      `f1`; `confusions`, the commonest first, each with `intent`, `predicted`, `number` and
      `texts`; `labels` and `matrix`, the counts by true (rows) and predicted label.

    Raises:
      ValueError: there is no text, or it has an intent that was not trained.
    """
    outside = str(classifier.out_of_scope_label)
    known = [str(label) for label in classifier.classes_ if str(label) != outside]
    true = [NONE if label == outside else label for label in map(str, data.labels)]
    unseen = {label: true.count(label) for label in sorted(set(true) - {*known, NONE})}
    if unseen:
        listed = ", ".join(f"{label!r} ({number})" for label, number in [*unseen.items()][:5])
        raise ValueError(
            "Texts are evaluated whose intents were trained. Received: "
            f"{listed}{f' and {len(unseen) - 5} more' if len(unseen) > 5 else ''}. Train on "
            f"examples of them, leave them out, or label them {outside!r} (out of scope)."
        )
    if not true:
        raise ValueError("There must be a text to evaluate. Received: none.")
    answers = map(str, classifier.predict(data.texts))
    predicted = [NONE if answer == outside else answer for answer in answers]
    labels = [*known, NONE]
    place = {label: index for index, label in enumerate(labels)}
    matrix = np.zeros((len(labels), len(labels)), int)
    np.add.at(matrix, ([place[t] for t in true], [place[p] for p in predicted]), 1)
    there, said = (matrix.sum(axis=axis)[:-1] for axis in (1, 0))
    intents = intent_rows(known, np.diag(matrix)[:-1], there, said)
    in_scope = matrix[:-1].sum()
    report: Report = {
        "examples": int(in_scope),
        "accuracy": float(np.trace(matrix[:-1]) / in_scope) if in_scope else None,
        "macro_f1": float(np.mean([row["f1"] for row in intents])) if intents else None,
        "calibration_error": _calibration_error(classifier, data, true),
        "threshold": classifier.threshold_,
    }
    if matrix[-1].any():
        recall = float(matrix[-1, -1] / matrix[-1].sum())
        report["out_of_scope"] = {"examples": int(matrix[-1].sum()), "recall": recall}
    report["intents"] = intents
    report["confusions"] = _confusions(data.texts, true, predicted)
    report |= {"labels": labels, "matrix": matrix.tolist()}
    return report


def _calibration_error(
    classifier: Answering, data: LabelledTexts, true: Sequence[str]
) -> float | None:
    places = [place for place, label in enumerate(true) if label != NONE]
    if not places:
        return None
    probabilities = classifier.predict_proba([data.texts[place] for place in places])
    best = [str(label) for label in classifier.classes_[probabilities.argmax(axis=1)]]
    is_right = np.array([true[place] == own for place, own in zip(places, best, strict=True)])
    return calibration_error(probabilities.max(axis=1), is_right)


def intent_rows(
    names: Sequence[str], right: np.ndarray, there: np.ndarray, said: np.ndarray
) -> list[dict[str, Any]]:
    """How each intent that has examples is answered, the worst F1 first.

    Args:
      names: of the intents.
      right, there, said: int `[intents]`: right answers, examples and answers.
    """
    scores = f1_of(right, there, said)
    rows = [
        {
            "intent": name,
            "examples": int(there[i]),
            "precision": float(right[i] / max(said[i], 1)),
            "recall": float(right[i] / there[i]),
            "f1": float(scores[i]),
        }
        for i, name in enumerate(names)
        if there[i]
    ]
    return sorted(rows, key=lambda row: row["f1"])


def f1_of(right: Any, there: Any, said: Any) -> Any:
    """2 · right / (there + said); 0 where both are 0."""
    return 2 * right / np.maximum(there + said, 1)


def _confusions(
    texts: Sequence[str], true: Sequence[str], predicted: Sequence[str]
) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], list[str]] = {}
    for text, intent, other in zip(texts, true, predicted, strict=True):
        if intent != other:
            found.setdefault((intent, other), []).append(text)
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    return [
        {"intent": a, "predicted": b, "number": len(own), "texts": own[:_EXAMPLES]}
        for (a, b), own in ordered
    ]


def report_text(report: Report) -> str:
    """The report for a terminal."""
    lines = []
    if report["accuracy"] is not None:
        lines.append(
            f"accuracy {report['accuracy']:.2%}, macro F1 {report['macro_f1']:.2%}, "
            f"{report['examples']:,} examples in scope; confidence is off by "
            f"{report['calibration_error']:.2%} (expected calibration error)"
        )
    if "out_of_scope" in report:
        outside = report["out_of_scope"]
        lines.append(
            f"out-of-scope recall {outside['recall']:.2%}, {outside['examples']:,} examples"
        )
    lines += ["", *worst_lines(report["intents"])]
    # Rejections, which a threshold trades for recall, would hide what looks alike.
    confused = [
        row for row in report["confusions"] if NONE not in (row["intent"], row["predicted"])
    ]
    if confused:
        lines += ["", "most confused"]
    for row in confused[:_WORST]:
        lines.append(f"{row['number']:4} × {row['intent']} → {row['predicted']}")
        lines += [f"         {shortened(text, _MAX_TEXT)}" for text in row["texts"]]
    return "\n".join(lines)


def worst_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Some of the rows of `intent_rows`, for a terminal."""
    lines = ["worst intents: F1, precision, recall, examples"]
    for row in rows[:_WORST]:
        shares = "".join(f"{row[name]:9.2%}" for name in ("f1", "precision", "recall"))
        lines.append(f"{shares}{row['examples']:6}  {row['intent']}")
    return lines


@picture
def confusion_chart(report: Report) -> Any:
    """The confusion matrix, confused intents side by side.

    Right answers are blue, wrong ones red with their number, both by their share of the row.
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
    cell = 0.17  # inches, in which a number of two digits can be read
    margin = 0.5 + 0.064 * max(map(len, labels))
    figure = Figure(figsize=(size * cell + margin, size * cell + margin + 0.4))
    figure.set_layout_engine("none")  # the panel is placed here
    panel = figure.add_axes(
        (
            margin / (size * cell + margin + 0.1),
            0.2 / (size * cell + margin + 0.4),
            size * cell / (size * cell + margin + 0.1),
            size * cell / (size * cell + margin + 0.4),
        )
    )
    is_right = np.eye(size, dtype=bool)
    right = np.ma.masked_where(~is_right, shares)
    # Square roots, or single errors among many examples could not be seen.
    wrong = np.ma.masked_where(is_right | (counts == 0), np.sqrt(shares))
    panel.imshow(right, cmap="Blues", vmin=0, vmax=1.3)
    panel.imshow(wrong, cmap="Reds", vmin=-0.2, vmax=1)
    for row, column in zip(*np.nonzero(counts * ~is_right), strict=True):
        is_dark = shares[row, column] > 0.3
        panel.text(
            column, row, f"{int(counts[row, column])}", ha="center", va="center", fontsize=SMALLEST,
            color="white" if is_dark else "black",
        )  # fmt: skip
    panel.set_xticks(range(size), labels, rotation=90, fontsize=SMALLEST)
    panel.set_yticks(range(size), labels, fontsize=SMALLEST)
    panel.xaxis.tick_top()
    panel.xaxis.set_label_position("top")
    panel.set_xlabel("predicted")
    panel.set_ylabel("true")
    panel.set_xticks(np.arange(size + 1) - 0.5, minor=True)
    panel.set_yticks(np.arange(size + 1) - 0.5, minor=True)
    panel.grid(which="minor", color="#dddddd", linewidth=0.3)
    panel.tick_params(which="both", length=0)
    return figure


def _side_by_side(matrix: np.ndarray) -> np.ndarray:
    """An order of the labels in which those that are confused are neighbours."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    size = len(matrix)
    if size < 3:
        return np.arange(size)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    similarity = shares + shares.T
    distances = (2 - similarity)[np.triu_indices(size, 1)]
    return leaves_list(linkage(distances, method="average"))
