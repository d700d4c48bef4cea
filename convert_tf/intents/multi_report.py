"""How good a classifier of several intents is: F1 over all, of each intent, and its errors."""

from typing import Any

import numpy as np

from convert_tf.intents.multi import LabelSet, MultiIntentClassifier, truth_of
from convert_tf.intents.report import f1_of, intent_rows, worst_lines

_ERRORS = 10


def evaluate_multi(
    classifier: MultiIntentClassifier, texts: list[str], sets: list[LabelSet]
) -> dict[str, Any]:
    """Scores a classifier on texts with their intents.

    Args:
      classifier: fitted.
      texts: at least one.
      sets: the intents of each, of those that were trained.

    Returns:
      `examples`; `micro_f1`, of all decisions together; `macro_f1`, the mean over the intents that
      the texts have; `exact_match`, the share of texts whose intents are all right and no others;
      `threshold`; `intents`, the worst F1 first, each with `examples`, `precision`, `recall` and
      `f1`; `errors`, each with `text`, `missed` and `wrong`.

    Raises:
      ValueError: there is no text, or it has an intent that was not trained.
    """
    known = {*classifier.classes_.tolist()}
    unseen = sorted({label for own in sets for label in own} - known)
    if unseen or not texts:
        raise ValueError(
            "Texts are evaluated whose intents were trained. Received: "
            f"{', '.join(map(repr, unseen[:5])) or 'no text'}. Train on examples of them, or "
            "leave them out."
        )
    truth = truth_of(sets, classifier.classes_)
    answers = [tuple(own) for own in classifier.predict(texts)]
    found = truth_of(answers, classifier.classes_)
    right, there, said = (each.sum(axis=0) for each in (truth & found, truth, found))
    rows = intent_rows([*map(str, classifier.classes_)], right, there, said)
    errors = [
        {"text": text, "missed": sorted({*own} - {*answer}), "wrong": sorted({*answer} - {*own})}
        for text, own, answer in zip(texts, sets, answers, strict=True)
        if {*own} != {*answer}
    ]
    return {
        "examples": len(texts),
        "micro_f1": float(f1_of(right.sum(), there.sum(), said.sum())),
        "macro_f1": float(np.mean([row["f1"] for row in rows])) if rows else None,
        "exact_match": 1 - len(errors) / len(texts),
        "threshold": classifier.threshold_,
        "intents": rows,
        "errors": errors,
    }


def multi_report_text(report: dict[str, Any]) -> str:
    """The report for a terminal."""
    macro = "" if report["macro_f1"] is None else f", macro F1 {report['macro_f1']:.2%}"
    lines = [
        f"micro F1 {report['micro_f1']:.2%}{macro}, all intents of a text right "
        f"{report['exact_match']:.2%}, {report['examples']:,} examples",
        "",
        *worst_lines(report["intents"]),
    ]
    if report["errors"]:
        lines += ["", "some errors: missed, wrong"]
    for row in report["errors"][:_ERRORS]:
        missed, wrong = (", ".join(row[name]) or "–" for name in ("missed", "wrong"))
        lines += [f"  {' '.join(row['text'].split())}", f"      {missed}; {wrong}"]
    return "\n".join(lines)
