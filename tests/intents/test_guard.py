"""Required minimums of an evaluation, and the comparison with an earlier classifier."""

import json
import math

import numpy as np
import pytest
from support.intent_examples import LABELS, TEXTS, WordEncoder

from convert_tf import IntentClassifier, MultiIntentClassifier
from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.guard import (
    MEASURES,
    check_evaluation,
    compared,
    earlier_evaluation,
    parsed_minimum,
)
from convert_tf.intents.report import evaluate_classifier


def evaluation(num_gained, num_lost):
    """Return an evaluation, and an earlier one of the same hundred texts."""
    report = {"accuracy": 0.8, "wrong": [*range(num_lost), 90]}
    return report, {"accuracy": 0.8, "wrong": [*range(50, 50 + num_gained), 90]}


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (3, 0), (0, 4), (0, 5), (5, 14), (9, 9)])
def test_the_p_value_is_that_of_fair_coins(gained, lost):
    found = compared(*evaluation(gained, lost))
    number = gained + lost
    expected = sum(math.comb(number, heads) for heads in range(lost, number + 1)) / 2**number
    assert (found["gained"], found["lost"]) == (gained, lost)
    assert found["p_value"] == pytest.approx(expected)


def test_a_classifier_that_is_worse_by_chance_passes():
    for lost, gained, passes in ((4, 0, True), (5, 0, False), (0, 9, True), (14, 9, True)):
        report, earlier = evaluation(gained, lost)
        report["against"] = {"name": "old", **compared(report, earlier)}
        if passes:
            check_evaluation(report, {})
        else:
            with pytest.raises(
                ValueError, match="worse than old: 5 correct answers are lost and 0 gained"
            ):
                check_evaluation(report, {})


def test_minimums():
    report = {"accuracy": 0.9, "macro_f1": 0.7999, "out_of_scope": {"recall": 0.5}}
    check_evaluation(report, {"accuracy": 0.9, "out_of_scope_recall": 0.5})
    with pytest.raises(ValueError, match=r"macro_f1 is 0\.7999, below 0\.8; out_of_sc\S* is 0\.5,"):
        check_evaluation(report, {"accuracy": 0.9, "macro_f1": 0.8, "out_of_scope_recall": 0.6})
    with pytest.raises(ValueError, match=r"not measure micro_f1\. It measures accuracy, macro_f1,"):
        check_evaluation(report, {"micro_f1": 0.1})
    rounded = {"macro_f1": float(np.mean([0.94, 0.95, 0.96]))}
    assert rounded["macro_f1"] < 0.95, "The mean is below 0.95 by a rounding error."
    check_evaluation(rounded, {"macro_f1": 0.95})
    assert parsed_minimum("macro_f1=0.85") == ("macro_f1", 0.85)
    for wrong in ("accuracy", "accuracy=", "accuracy=90", "accuracy=nan", "accuracy=0.9=1"):
        with pytest.raises(ValueError, match="a number from 0 to 1, such as accuracy="):
            parsed_minimum(wrong)
    with pytest.raises(ValueError, match=rf"no measure 'f1'.* are {', '.join(MEASURES)}"):
        parsed_minimum("f1=0.9")
    assert "calibration_error" not in MEASURES, "A lower value is better."


def test_an_evaluation_that_counts_untrained_intents_otherwise_is_refused(tmp_path):
    data = LabelledTexts(TEXTS, ["unheard", *LABELS[1:]])
    one = IntentClassifier(WordEncoder(), names=None, lexical=None).fit(TEXTS, LABELS)
    path = tmp_path / "evaluation.json"
    for written in ("wrong", "out_of_scope"):
        path.write_text(json.dumps(evaluate_classifier(one, data, untrained=written)))
        for untrained in ("wrong", "out_of_scope"):
            if untrained == written:
                report = earlier_evaluation(path, data, untrained=untrained)
                assert report["untrained"] == {"unheard": 1}
            else:
                with pytest.raises(ValueError, match=f"was written with --untrained {untrained}"):
                    earlier_evaluation(path, data, untrained=untrained)


def test_texts_that_are_answered_wrong_are_in_the_report():
    labels = ["reset", *LABELS[1:-1], "greet"]
    one = IntentClassifier(WordEncoder(), names=None, lexical=None).fit(TEXTS, LABELS)
    report = evaluate_classifier(one, LabelledTexts(TEXTS, labels))
    answers = one.predict(TEXTS)
    assert report["wrong"] == np.flatnonzero(answers != np.array(labels)).tolist() == [0, 11]
    several = MultiIntentClassifier(WordEncoder(), lexical=None).fit(TEXTS, [[x] for x in LABELS])
    other = evaluate_classifier(several, LabelledTexts(TEXTS, labels))
    wrong = [place for place, text in enumerate(TEXTS)
             if {*several.predict([text])[0]} != {labels[place]}]  # fmt: skip
    assert other["wrong"] == wrong and {0, 11} <= {*wrong}
    assert len(other["errors"]) == len(wrong)
    with pytest.raises(ValueError, match="Compare two classifiers of the same kind"):
        compared(report, other)
