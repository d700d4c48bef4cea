"""Labels with levels, as `faq/opening_hours`."""

import numpy as np
import pytest
from support.intent_examples import LABELS, TEXTS, WordEncoder

from convert_tf import IntentClassifier
from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.report import evaluate_classifier, report_text
from convert_tf.intents.scope import with_upper_levels

LEVELS = [{"greet": "chat", "reset": "shop/reset", "order": "shop/order"}[x] for x in LABELS]


def test_rejected_texts_get_a_sure_upper_level():
    labels = np.array(["a/x", "a/y", "b/z", "c"])
    probabilities = np.array(
        [
            [0.4, 0.4, 0.1, 0.1],  # a is sure
            [0.7, 0.1, 0.1, 0.1],  # answered
            [0.3, 0.2, 0.4, 0.1],  # a is likelier than b/z, but not sure
            [0.1, 0.1, 0.1, 0.7],  # rejected for another reason, and c has no levels
            [0.35, 0.3, 0.35, 0.0],  # sure, but b is near
        ]
    )
    answers = np.array(["oos", "a/x", "oos", "oos", "oos"])
    found = with_upper_levels(answers, probabilities, labels, "oos", 0.6, 0.31)
    assert found.tolist() == ["a", "a/x", "oos", "oos", "oos"]
    near = with_upper_levels(answers, probabilities, labels, "oos", 0.6, 0.0)
    assert near.tolist() == ["a", "a/x", "oos", "oos", "a"]


@pytest.mark.parametrize(
    "options", [{"out_of_scope": "confidence", "threshold": 0.7}, {"min_margin": 0.5}]
)
def test_a_classifier_stops_at_the_upper_level(options, tmp_path):
    between = "reset my order password please"
    plain = IntentClassifier(WordEncoder(), "logistic", names=None, lexical=None, **options)
    assert plain.fit(TEXTS, LEVELS).predict([between]).tolist() == ["oos"]
    levels = IntentClassifier(
        WordEncoder(), "logistic", names=None, lexical=None, upper_levels=True, **options
    ).fit(TEXTS, LEVELS)
    assert levels.predict([between, "hello hello there friend"]).tolist() == ["shop", "chat"]
    levels.save(tmp_path / "model")
    again = IntentClassifier.load(tmp_path / "model", encoder=WordEncoder())
    assert again.predict([between]).tolist() == ["shop"]


def test_both_levels_are_evaluated():
    classifier = IntentClassifier(
        WordEncoder(), "logistic", names=None, lexical=None, out_of_scope="confidence",
        threshold=0.7, upper_levels=True,
    ).fit(TEXTS, LEVELS)  # fmt: skip
    texts = [*TEXTS, "reset my order password please", "good morning, where is my order"]
    labels = [*LEVELS, "shop/reset", "shop/order"]
    predicted = classifier.predict(texts)
    report = evaluate_classifier(classifier, LabelledTexts(texts, labels))
    assert report["accuracy"] == np.mean(predicted == labels) < report["upper_accuracy"]
    upper = [[label.split("/")[0] for label in own] for own in (predicted, labels)]
    assert report["upper_accuracy"] == np.mean([a == b for a, b in zip(*upper, strict=True)])
    assert "accuracy of upper levels" in report_text(report)
    assert "upper_accuracy" not in evaluate_classifier(
        IntentClassifier(WordEncoder(), "logistic").fit(TEXTS, LABELS), LabelledTexts(TEXTS, LABELS)
    )


def test_upper_levels_need_something_that_rejects():
    with pytest.raises(ValueError, match="upper_levels needs probabilities"):
        IntentClassifier(WordEncoder(), out_of_scope="distance", upper_levels=True).fit(
            TEXTS, LEVELS
        )
