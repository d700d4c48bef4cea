"""Thresholds, against a search over all of them."""

import numpy as np
import pytest

from convert_tf.intents.scope import ScopeScores, fit_intent_thresholds, fit_threshold


def _scores(inside=60, outside=40, intents=3):
    rng = np.random.default_rng(0)
    is_in = np.arange(inside + outside) < inside
    return ScopeScores(
        rng.normal(is_in, 1),
        rng.integers(0, intents, len(is_in)),
        is_in & (rng.random(len(is_in)) < 0.8),
        is_in,
    )


def _gain(scores, thresholds):
    """In-scope accuracy and out-of-scope recall with a threshold for each intent."""
    is_kept = scores.scores >= thresholds[scores.predicted]
    is_right = scores.is_right & is_kept
    return np.mean(is_right[scores.is_in]) + np.mean(~is_kept[~scores.is_in])


def test_the_threshold_is_the_best_of_all():
    scores = _scores()
    tried = [_gain(scores, np.full(3, one)) for one in [*scores.scores, np.inf]]
    found = np.full(3, fit_threshold(scores))
    assert _gain(scores, found) == pytest.approx(max(tried))


def test_without_examples_out_of_scope_one_in_twenty_is_rejected():
    assert fit_threshold(_scores(101, 0)._replace(scores=np.arange(101.0))) == pytest.approx(5)


def test_intents_with_examples_enough_have_thresholds_of_their_own():
    scores = _scores(600, 400)
    # The first intent is answered with much more confidence than the others, in scope or not.
    scores.scores[scores.predicted == 0] += 5
    threshold = fit_threshold(scores)
    found = fit_intent_thresholds(scores, threshold, 4)
    assert found[0] > 4 > 3 > max(found[1:3])
    assert found[3] == threshold, "No example was answered with it."
    assert _gain(scores, found) > _gain(scores, np.full(4, threshold)) + 0.1


def test_few_examples_of_an_intent_change_nothing():
    scores = _scores(600, 400)
    scores.predicted[:] = 1
    scores.predicted[590:609] = 0
    assert fit_intent_thresholds(scores, 0.3, 2)[0] == 0.3


def test_a_share_of_each_intent_is_rejected():
    scores = _scores(2000, 0)
    scores.scores[scores.predicted == 0] += 5
    found = fit_intent_thresholds(scores, fit_threshold(scores), 3)
    for intent in range(3):
        own = scores.scores[scores.predicted == intent]
        # A few examples of all intents count with its own.
        assert np.mean(own < found[intent]) == pytest.approx(0.05, abs=0.02)
