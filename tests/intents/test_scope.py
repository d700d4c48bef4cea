"""Thresholds, against a search over all of them."""

import numpy as np
import pytest

from convert_tf.intents.scope import ScopeScores, fit_intent_thresholds, fit_threshold


def _scores(inside=60, outside=40, intents=3, seed=0):
    rng = np.random.default_rng(seed)
    return ScopeScores(
        rng.normal(1, 1, inside), rng.random(inside) < 0.8, rng.normal(0, 1, outside),
        rng.integers(0, intents, inside), rng.integers(0, intents, outside),
    )  # fmt: skip


def _gain(scores, thresholds):
    """In-scope accuracy and out-of-scope recall with a threshold for each intent."""
    kept = scores.in_scope >= thresholds[scores.predicted]
    rejected = scores.out_of_scope < thresholds[scores.predicted_outside]
    return np.mean(scores.is_right & kept) + np.mean(rejected)


def test_the_threshold_is_the_best_of_all():
    scores = _scores()
    found = fit_threshold(scores, rejected_share=0.5)
    tried = [_gain(scores, np.full(3, one)) for one in np.linspace(-4, 5, 9001)]
    assert _gain(scores, np.full(3, found)) == pytest.approx(max(tried))


def test_without_examples_out_of_scope_a_share_is_rejected():
    scores = _scores(101, 0)._replace(in_scope=np.arange(101.0))
    assert fit_threshold(scores, rejected_share=0.05) == pytest.approx(5)
    assert fit_threshold(scores, rejected_share=0.2) == pytest.approx(20)
    with pytest.raises(ValueError, match="examples in scope"):
        fit_threshold(_scores(0, 0), rejected_share=0.05)


def test_intents_with_examples_enough_have_thresholds_of_their_own():
    scores = _scores(600, 400)
    # The first intent is answered with much more confidence than the others, in scope or not.
    scores.in_scope[scores.predicted == 0] += 5
    scores.out_of_scope[scores.predicted_outside == 0] += 5
    threshold = fit_threshold(scores, rejected_share=0.05)
    found = fit_intent_thresholds(scores, threshold, 4, rejected_share=0.05)
    assert found[0] > 4 > 3 > max(found[1:3])
    assert found[3] == threshold, "No example was answered with it."
    assert _gain(scores, found) > _gain(scores, np.full(4, threshold)) + 0.1


def test_few_examples_of_an_intent_change_nothing():
    scores = _scores(600, 400)
    scores.predicted[:], scores.predicted_outside[:] = 1, 1
    scores.predicted[:10], scores.predicted_outside[:9] = 0, 0
    found = fit_intent_thresholds(scores, 0.3, 2, rejected_share=0.05)
    assert found[0] == 0.3


def test_a_share_of_each_intent_is_rejected():
    scores = _scores(2000, 0)
    scores.in_scope[scores.predicted == 0] += 5
    threshold = fit_threshold(scores, rejected_share=0.1)
    found = fit_intent_thresholds(scores, threshold, 3, rejected_share=0.1)
    for intent in range(3):
        own = scores.in_scope[scores.predicted == intent]
        # A few examples of all intents count with its own.
        assert np.mean(own < found[intent]) == pytest.approx(0.1, abs=0.03)
