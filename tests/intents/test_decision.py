"""Answers from probabilities, in NumPy and TensorFlow, compared with loops over texts."""

import itertools
import math

import numpy as np
import pytest

from convert_tf.intents.decision import SeveralIntents, SingleIntent
from convert_tf.intents.serving import several_intents, single_intent

CLASSES = np.array(["a", "b", "c", "d"])
RNG = np.random.default_rng(0)
PROBABILITIES = RNG.dirichlet(np.full(4, 0.5), 200).astype(np.float32)
NEAREST = RNG.uniform(0, 1, 200).astype(np.float32)


def naive_answer(decision, probabilities, nearest):
    """Return the intent of one text, or "none" if the text is rejected."""
    order = sorted(range(4), key=lambda intent: -probabilities[intent])
    lead = probabilities[order[0]] - probabilities[order[1]]
    if decision.threshold is not None:
        limits = decision.thresholds
        limit = decision.threshold if limits is None else limits[order[0]]
        best = probabilities[order[0]]
        entropy = -sum(share * math.log(share) for share in map(float, probabilities) if share)
        both = decision.cosine_weight * nearest - math.log(max(entropy, 1e-5))
        scores = {"confidence": best, "distance": nearest, "both": both}
        score = scores[decision.out_of_scope]
        if score < limit:
            return "none"
    return "none" if lead < decision.min_margin else CLASSES[order[0]]


@pytest.mark.parametrize(
    ("kind", "threshold", "by_intent", "min_margin"),
    [
        (None, None, False, 0.0),
        (None, None, False, 0.3),
        *itertools.product(["confidence", "distance", "both"], [0.6], [False, True], [0.0, 0.3]),
    ],
)
def test_one_intent(kind, threshold, by_intent, min_margin):
    thresholds = np.array([0.5, 0.6, 0.7, 0.8]) if by_intent else None
    if kind == "both":
        threshold, thresholds = 7 * threshold, None if thresholds is None else 7 * thresholds
    decision = SingleIntent(CLASSES, threshold, thresholds, kind, min_margin, False, "none", 7.0)
    answers = decision.answers(PROBABILITIES, NEAREST)
    expected = [naive_answer(decision, *row) for row in zip(PROBABILITIES, NEAREST, strict=True)]
    assert answers.tolist() == expected
    assert ("none" in expected) == (kind is not None or min_margin > 0)
    assert {*expected} >= {*CLASSES}
    intents, confidence = single_intent(decision, PROBABILITIES, NEAREST)
    assert [intent.decode() for intent in intents.numpy()] == expected
    expected = [1 - row.max() if answer == "none" else row.max()
                for row, answer in zip(PROBABILITIES, answers, strict=True)]  # fmt: skip
    said = [decision.confidence(*row) for row in zip(PROBABILITIES, answers, strict=True)]
    np.testing.assert_allclose(said, expected, rtol=1e-6)
    np.testing.assert_allclose(confidence, expected, rtol=1e-5, atol=1e-7)


def test_rejected_texts_get_a_sure_upper_level():
    probabilities = np.array(
        [
            [0.4, 0.4, 0.1, 0.1],  # a is certain
            [0.7, 0.1, 0.1, 0.1],  # a/x is answered
            [0.3, 0.2, 0.4, 0.1],  # a is more probable than b/z, but too uncertain
            [0.1, 0.1, 0.1, 0.7],  # rejected by the threshold of c, which has no levels
            [0.35, 0.3, 0.35, 0.0],  # a is certain, but b is close
        ]
    )
    labels, limits = np.array(["a/x", "a/y", "b/z", "c"]), np.array([0.6, 0.6, 0.6, 0.8])

    def answers(min_margin, kind="confidence", factor=1, nearest=0.0):
        decision = SingleIntent(labels, 0.6 * factor, limits * factor, kind, min_margin, True)
        found = decision.answers(probabilities, np.full(5, nearest)).tolist()
        said = [decision.confidence(*row) for row in zip(probabilities, found, strict=True)]
        sums = {"a": probabilities[:, :2].sum(1), "oos": 1 - probabilities.max(1)}
        expected = [sums.get(x, probabilities.max(1))[i] for i, x in enumerate(found)]
        np.testing.assert_allclose(said, expected)
        return found

    assert answers(0.31) == ["a", "a/x", "oos", "oos", "oos"]
    assert answers(0.0) == ["a", "a/x", "oos", "oos", "a"]
    # With a threshold on another scale, sums of probabilities are not compared with it.
    assert answers(0.31, "both", 100, nearest=99.0) == ["a", "a/x", "oos", "c", "oos"]
    assert answers(0.31, "both", 100) == ["oos"] * 5


@pytest.mark.parametrize("kind", ["distance", "both"])
def test_texts_far_from_every_intent_get_no_upper_level(kind):
    labels = np.array(["a/x", "a/y", "b/z", "c"])
    probabilities = np.array([[0.5, 0.5, 0.0, 0.0]] * 2 + [[0.9, 0.1, 0.0, 0.0]])
    nearest = np.array([0.1, 0.9, 0.9])
    # With "both", the logarithm of the entropy of two equal probabilities is subtracted.
    threshold = 0.5 if kind == "distance" else 0.5 - math.log(math.log(2))
    decision = SingleIntent(labels, threshold, None, kind, 0.3, True, cosine_weight=1.0)
    assert decision.answers(probabilities, nearest).tolist() == ["oos", "a", "a/x"]


def test_a_trained_label_of_texts_out_of_scope_is_not_replaced_by_an_upper_level():
    decision = SingleIntent(np.array(["a/x", "a/y", "oos"]), min_margin=0.05, upper_levels=True)
    probabilities = np.array([[0.3, 0.3, 0.4], [0.31, 0.3, 0.39], [0.4, 0.38, 0.22]])
    assert decision.answers(probabilities, np.zeros(3)).tolist() == ["oos", "oos", "a"]


def test_an_upper_level_may_be_an_intent_itself():
    labels = np.array(["faq", "faq/hours", "faq/prices", "greet"])
    probabilities = np.array(
        [
            [0.05, 0.48, 0.45, 0.02],  # the level is certain
            [0.4, 0.3, 0.25, 0.05],  # its own intent is the most probable, but not enough
            [0.7, 0.1, 0.1, 0.1],  # answered with the intent
            [0.2, 0.2, 0.1, 0.5],  # nothing is certain
        ]
    )
    decision = SingleIntent(labels, 0.6, None, "confidence", upper_levels=True)
    answers = decision.answers(probabilities, np.zeros(4))
    assert answers.tolist() == ["faq", "faq", "faq", "oos"]
    said = [decision.confidence(*row) for row in zip(probabilities, answers, strict=True)]
    np.testing.assert_allclose(said, [0.98, 0.95, 0.7, 0.5])
    # A text whose probabilities are too close is answered with a level too.
    close = SingleIntent(labels, min_margin=0.2, upper_levels=True)
    answers = close.answers(probabilities[1:3], np.zeros(2))
    assert answers.tolist() == ["faq", "faq"]
    said = [close.confidence(*row) for row in zip(probabilities[1:3], answers, strict=True)]
    np.testing.assert_allclose(said, [0.95, 0.7])


def test_several_intents():
    decision = SeveralIntents(CLASSES, 0.4, "+")
    answers = decision.answers(PROBABILITIES, NEAREST)
    expected = [
        tuple(label for label, share in zip(CLASSES, row, strict=True) if share >= 0.4)
        for row in PROBABILITIES
    ]
    assert answers.tolist() == expected
    assert {*map(len, expected)} == {0, 1, 2}
    joined, confidence = several_intents(decision, PROBABILITIES)
    assert [text.decode() for text in joined.numpy()] == [*map(decision.as_text, answers)]
    lowest = [
        min((row[label == CLASSES][0] for label in intents), default=1 - row.max())
        for row, intents in zip(PROBABILITIES, expected, strict=True)
    ]
    said = [decision.confidence(*row) for row in zip(PROBABILITIES, answers, strict=True)]
    np.testing.assert_allclose(said, lowest, rtol=1e-6)
    np.testing.assert_allclose(confidence, lowest, rtol=1e-6)
    leads = [min(abs(share - 0.4) for share in row) for row in PROBABILITIES]
    np.testing.assert_allclose(decision.leads(PROBABILITIES), leads, rtol=1e-5)


def test_a_score_equal_to_the_threshold_is_enough():
    half = np.array([[0.5, 0.25, 0.125, 0.125]])
    certain = {"threshold": 0.5, "out_of_scope": "confidence", "min_margin": 0.25}
    assert SingleIntent(CLASSES, **certain).answers(half, np.zeros(1)).tolist() == ["a"]
    assert SeveralIntents(CLASSES, 0.25).answers(half, np.zeros(1)).tolist() == [("a", "b")]
    labels = np.array(["a/x", "a/y", "b/z", "c"])
    quarters = np.array([[0.25, 0.25, 0.25, 0.25]])
    by_level = SingleIntent(labels, upper_levels=True, **certain)
    assert by_level.answers(quarters, np.zeros(1)).tolist() == ["a"]


def test_defaults_of_one_intent():
    decision = SingleIntent(np.array(["a/x", "a/y", "b"]), 0.6, out_of_scope="confidence")
    answers = decision.answers(np.array([[0.4, 0.5, 0.1]]), np.zeros(1))
    assert answers.tolist() == ["oos"]  # no upper level is answered
    probabilities, nearest = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0.3, 0.3])
    scores = SingleIntent(np.array(["a", "b"]), out_of_scope="both").scores(probabilities, nearest)
    np.testing.assert_allclose(scores, 1.5 - np.log([1e-5, np.log(2)]))


@pytest.mark.parametrize(
    ("labels", "rejected", "kind"),
    [
        (["a/x", "b"], "oos", "U"),
        (["a/x", "b"], None, "O"),
        ([1, 2], "oos", "O"),
        ([1, 2], -1, "i"),
        ([0.5, 2.0], -1.0, "f"),
        ([1, 2], -1.5, "O"),
    ],
)
@pytest.mark.parametrize("upper_levels", [False, True])
def test_kinds_of_labels_stay(labels, rejected, kind, upper_levels):
    decision = SingleIntent(
        np.array(labels), 0.9, None, "confidence", upper_levels=upper_levels,
        out_of_scope_label=rejected,
    )  # fmt: skip
    answers = decision.answers(np.array([[0.05, 0.95], [0.6, 0.4]]), np.zeros(2))
    assert answers.dtype.kind == kind
    assert answers.tolist() == [labels[1], rejected]


def test_probabilities_of_several_intents_are_sigmoids():
    logits = np.array([[-1000.0, -2.0, 0.0], [0.5, 3.0, 1000.0]])
    with np.errstate(over="ignore"):
        expected = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(SeveralIntents.probabilities(logits), expected, atol=1e-15)
    assert SeveralIntents.has_several
    assert not SingleIntent.has_several


def test_decisions_are_compared_by_identity():
    decision = SingleIntent(CLASSES)
    assert decision == decision
    assert decision != SingleIntent(CLASSES)  # arrays have no single truth value
