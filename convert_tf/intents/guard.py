"""Check an evaluation against minimums, and compare a classifier with an earlier one.

Two classifiers are compared by McNemar's exact test. The test counts the texts that one classifier
answers correctly and the other incorrectly. If both classifiers are equally good, each answers
about half of these texts correctly.

Reference: McNemar, "Note on the sampling error of the difference between correlated proportions or
percentages", 1947.
"""

import contextlib
import math
import os
from collections.abc import Mapping
from typing import Any

from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.folder import MissingEncoderError
from convert_tf.intents.report import SCORES, Report, data_checksum, evaluate_classifier
from convert_tf.storage.json_text import json_file
from convert_tf.storage.messages import listed

_RECALL = "out_of_scope_recall"
# The calibration error is left out: a minimum makes no sense for it, because lower is better.
MEASURES = (*(name for name in SCORES if name != "calibration_error"), _RECALL)
_SIGNIFICANCE = 0.05  # maximum risk of rejecting an equally good classifier (one-sided test)
_ROUNDING = 1e-9  # a mean of scores may be below its exact value by a rounding error


def parsed_minimum(text: str) -> tuple[str, float]:
    """Parse a minimum such as `accuracy=0.9`.

    Returns:
      The name of the measure, one of `MEASURES`, and its minimum from 0 to 1.

    Raises:
      ValueError: if the text does not name a measure and a minimum from 0 to 1.
    """
    name, _, number = text.partition("=")
    if name not in MEASURES:
        raise ValueError(
            f"There is no measure {name!r} in --at_least {text}. The measures are "
            f"{', '.join(MEASURES)}."
        )
    try:
        minimum = float(number)
    except ValueError:
        minimum = math.nan
    if not 0 <= minimum <= 1:
        raise ValueError(f"--at_least {text} needs a number from 0 to 1, such as {name}=0.9.")
    return name, minimum


def earlier_evaluation(
    path: str | os.PathLike[str], data: LabelledTexts, *, untrained: str, encoder: Any = None
) -> Report:
    """Return the evaluation of an earlier classifier on the same texts.

    Args:
      path: the classifier, or the `evaluation.json` that `convert-tf intent evaluate` wrote.
      data: the labelled texts.
      untrained: see `evaluate_classifier`.
      encoder: the encoder or encoders to use if those of the classifier are not at their recorded
        paths. If None, there is an error in this case.

    Raises:
      ValueError: if the file is not an evaluation, or was made with other texts or another
        `untrained`; or if the classifier has no encoder.
    """
    name = os.fspath(path)
    if not name.endswith(".json"):
        return evaluate_classifier(_earlier_classifier(name, encoder), data, untrained=untrained)
    report = json_file(name)
    wrong = report.get("wrong") if isinstance(report, dict) else None
    if not isinstance(wrong, list) or not all(type(place) is int for place in wrong):
        raise ValueError(
            f"{name} does not say which texts were answered incorrectly. Pass an evaluation.json "
            "that this version of intent evaluate wrote, or the classifier."
        )
    if report.get("data_sha256") != data_checksum(data):
        raise ValueError(
            f"{name} evaluates different texts from --data. Pass the same files in the same "
            "order, or the classifier."
        )
    has_several = "exact_match" in report  # if so, untrained intents are always errors
    if not has_several and report.get("untrained") and report.get("untrained_as") != untrained:
        raise ValueError(
            f"{name} does not say that it was written with --untrained {untrained}. Evaluate the "
            "earlier classifier again with this option, or pass the classifier."
        )
    return report


def _earlier_classifier(name: str, encoder: Any) -> Any:
    """Open a classifier; `encoder` is used if its encoder is not at the recorded path."""
    from convert_tf.intents.loading import load_classifier

    try:
        return load_classifier(name)
    except MissingEncoderError as error:
        with contextlib.suppress(ValueError):
            if encoder:
                return load_classifier(name, encoder=encoder)
        raise ValueError(
            f"{error} If --model has another encoder, pass the evaluation.json of {name!r} instead."
        ) from error


def compared(report: Report, earlier: Report) -> dict[str, Any]:
    """Compare two evaluations of the same texts.

    Returns:
      A dict with
      - `gained`: the number of texts that only the classifier of `report` answers correctly;
      - `lost`: the number of texts that only the earlier classifier answers correctly;
      - `p_value`: the probability of losing at least this many texts if gains and losses are
        equally likely.

    Raises:
      ValueError: if one classifier gives several intents per text and the other gives one.
    """
    from scipy.stats import binom

    if ("exact_match" in report) != ("exact_match" in earlier):
        raise ValueError(
            "One classifier gives several intents per text, and the other gives one. Compare two "
            "classifiers of the same kind."
        )
    wrong, wrong_before = {*report["wrong"]}, {*earlier["wrong"]}
    gained, lost = len(wrong_before - wrong), len(wrong - wrong_before)
    p_value = float(binom.sf(lost - 1, gained + lost, 0.5))
    return {"gained": gained, "lost": lost, "p_value": p_value}


def check_evaluation(report: Report, at_least: Mapping[str, float]) -> None:
    """Raise an error if a classifier misses a minimum, or is worse than the earlier classifier.

    Args:
      report: the result of `evaluate_classifier`. It may also have the entry `against`: a dict with
        the `name` of the earlier classifier and the result of `compared`.
      at_least: the minimum of each measure, by name.

    Raises:
      ValueError: if a measure is missing or below its minimum, or significantly more texts are lost
        than gained (p < 0.05).
    """
    recall = report.get("out_of_scope", {}).get("recall")
    values = {**report, _RECALL: recall}
    measured = [name for name in MEASURES if values.get(name) is not None]
    if missing := [name for name in at_least if name not in measured]:
        raise ValueError(
            f"This evaluation does not measure {listed(missing)}. It measures {listed(measured)}."
        )
    reasons = [
        f"{name} is {values[name]:.6g}, below {minimum:g}"
        for name, minimum in at_least.items()
        if values[name] < minimum - _ROUNDING
    ]
    against = report.get("against")
    if against is not None and against["p_value"] < _SIGNIFICANCE:
        reasons.append(
            f"worse than {against['name']}: {against['lost']:,} correct answers are lost and "
            f"{against['gained']:,} gained, p = {against['p_value']:.2g}"
        )
    if reasons:
        raise ValueError(f"The classifier does not pass: {'; '.join(reasons)}.")
