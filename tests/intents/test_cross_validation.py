"""Cross-validated outputs, and the parameters fitted to them."""

import math

import numpy as np
import pytest
from support.intent_examples import LABELS, OUTSIDE, TEXTS, WordEncoder

from convert_tf.intents import cross_validation as cv
from convert_tf.intents.decision import SingleIntent
from convert_tf.intents.encodings import IntentEncodings
from convert_tf.intents.examples import OUTSIDE as NONE
from convert_tf.intents.examples import IntentExamples, examples_of
from convert_tf.intents.head import softmax

LOGISTIC = {"head": "logistic", "logistic_c": 10.0, "lexical": "auto", "seed": 0}


@pytest.fixture
def examples():
    encode = IntentEncodings(WordEncoder())
    texts, labels = [*TEXTS, *OUTSIDE], [*LABELS, *["oos"] * len(OUTSIDE)]
    return examples_of(texts, labels, None, encode, "oos")[0]


def _answers(number=400, intents=5, seed=0, **changes):
    """Return outputs whose head has half of the true logits, and whose word model is noise."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (number, intents))
    labels = np.array([rng.choice(intents, p=row) for row in softmax(logits)])
    head = cv.log_of(softmax(logits / 2))
    answers = cv.Outputs(
        labels, head, cv.log_of(softmax(rng.normal(0, 2, head.shape))), np.zeros(number)
    )
    return answers._replace(**changes)


def test_each_example_is_answered_once_by_what_was_not_trained_on_it(examples):
    folds = cv.frozen_folds(examples, seed=0)
    held = sum(fold.is_held.astype(int) for fold in folds)
    assert held.tolist() == examples.is_inside.astype(int).tolist()
    found = cv.held_out_outputs(LOGISTIC, examples, None, folds)
    assert sorted(found.labels.tolist()) == sorted(examples.labels.tolist())
    first = folds[0].is_held
    parts = cv.train_parts(LOGISTIC, examples.rows(~first))
    expected = cv.outputs_of(parts, *examples.rows(first)[:3])
    for own, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(own[: first.sum()], theirs, atol=1e-5)


def test_a_fold_is_encoded_as_it_says(examples):
    fold = cv.frozen_folds(examples, seed=0)[0]
    blank = fold._replace(encodings=np.zeros_like(fold.encodings))
    found = cv.held_out_outputs({**LOGISTIC, "lexical": None}, examples, None, [blank])
    assert np.ptp(found.head[found.labels != NONE], axis=0).max() < 1e-6
    assert found.lexical is None


def test_nothing_is_held_out_of_single_examples(examples):
    single = examples.rows(np.isin(np.arange(len(examples.texts)), [0, 4, 8]))
    folds = cv.frozen_folds(single, seed=0)
    assert cv.held_out_outputs(LOGISTIC, single, None, folds) is None


def test_of_many_examples_one_part_is_enough(examples):
    def sizes(number, folds):
        labels, is_name = np.arange(number) % 2, np.zeros(number, bool)
        texts = [*map(str, range(number))]
        own = examples._replace(texts=texts, labels=labels, is_name=is_name)
        return [part.sum() for part in cv.held_parts(own, seed=0, folds=folds)]

    assert sizes(4000, 5) == [800]
    assert sizes(4000, 4) == [1000]
    assert sizes(30, 3) == [10] * 3


@pytest.mark.parametrize(
    ("gained", "lost", "is_clear"),
    [(0, 0, False), (1, 0, False), (2, 0, True), (5, 2, True), (4, 2, False), (2, 4, False)],
)
def test_a_lead_is_clear_beyond_its_standard_error(gained, lost, is_clear):
    own = np.arange(20) < 10
    others = own.copy()
    others[10 : 10 + gained], others[:lost] = True, False
    assert cv.are_clearly_more(others, own) == is_clear


def test_names_are_trained_on_and_never_held_out(examples):
    encode = IntentEncodings(WordEncoder())
    examples = examples.rows(examples.is_inside)
    named = examples.with_names(["greet", "7", "reset"], encode, left_out=None)
    assert named.texts == [*TEXTS, "greet", "reset"]
    assert named.labels[-2:].tolist() == [0, 2]
    only = examples.with_names(["greet", "order", "hello_there"], encode, left_out="greet")
    assert only.texts == [*TEXTS, "order"]  # "hello there" is an example already
    assert encode(named.texts).tolist() == named.encodings.tolist()
    parts, plain = (cv.held_parts(named, seed=0), cv.held_parts(examples, seed=0))
    for part, own in zip(parts, plain, strict=True):
        assert part.tolist() == [*own, False, False]


def test_the_temperature_is_found():
    found = cv.fit_mixture(_answers(lexical=None))
    assert found.weight == 0
    assert found.temperature == pytest.approx(0.5, rel=0.2)


def test_the_weight_is_where_the_right_intents_are_most_probable():
    answers = _answers()
    assert cv.fit_mixture(answers).weight <= 0.1
    turned = answers._replace(head=answers.lexical, lexical=answers.head)
    assert cv.fit_mixture(turned).weight >= 0.5


def test_examples_out_of_scope_fit_no_weight():
    answers = _answers()
    outside = cv.Outputs(np.full(400, NONE), answers.lexical, answers.head, np.zeros(400))
    more = cv.Outputs(*map(np.concatenate, zip(answers, outside, strict=True)))
    assert cv.fit_mixture(more) == cv.fit_mixture(answers)
    assert cv.fit_mixture(outside) == cv.Mixture()


def test_a_mixture_is_the_formula():
    answers = _answers(6)
    found = answers.probabilities(cv.Mixture(0.3, 2.0))
    naive = np.exp(0.7 * answers.head + 0.3 * answers.lexical) ** 0.5
    np.testing.assert_allclose(found, naive / naive.sum(axis=1, keepdims=True), rtol=1e-5)
    alone = answers._replace(lexical=None)
    np.testing.assert_allclose(alone.probabilities(cv.Mixture()), np.exp(answers.head))


def test_parts_do_not_depend_on_the_order_of_the_examples(examples):
    order = np.random.default_rng(0).permutation(len(examples.texts))
    texts = np.array(examples.texts)
    parts = cv.held_parts(examples, seed=0)
    shuffled = type(examples)(texts[order].tolist(), *(values[order] for values in examples[1:]))
    other = cv.held_parts(shuffled, seed=0)
    assert [{*texts[part]} for part in parts] == [{*texts[order][part]} for part in other]


def test_copies_of_an_example_are_held_out_together(examples):
    """Copies may differ in case, white space and invisible characters."""
    number, parts = len(examples.texts), cv.held_parts(examples, seed=0)
    copies = [f" {text.upper()}\u200b" for text in examples.texts]
    twice = examples.followed_by(examples._replace(texts=copies))
    for part, own in zip(cv.held_parts(twice, seed=0), parts, strict=True):
        assert part[:number].tolist() == part[number:].tolist() == own.tolist()
    # An intent with copies of only one text has no example to spare.
    single = twice.rows(np.isin(np.arange(2 * number) % number, [0, 4, 5, 8]))
    held = np.any(cv.held_parts(single, seed=0), axis=0)
    assert held.tolist() == [False, True, True, False] * 2


def test_scores_of_scope_are_of_the_mixture():
    answers, mixture = _answers(8, nearest=np.arange(8) / 8), cv.Mixture(0.2, 1.5)
    answers.labels[5:] = NONE
    best = answers.probabilities(mixture)
    decision = SingleIntent(np.arange(5), out_of_scope="confidence")
    scores = cv.scope_scores_of(answers, mixture, decision)
    np.testing.assert_allclose(scores.scores, best.max(axis=1))
    assert scores.predicted.tolist() == best.argmax(axis=1).tolist()
    assert scores.is_right.tolist() == (best.argmax(axis=1) == answers.labels).tolist()
    assert scores.is_in.tolist() == [True] * 5 + [False] * 3
    decision = SingleIntent(np.arange(5), out_of_scope="distance")
    assert (cv.scope_scores_of(answers, mixture, decision).scores == answers.nearest).all()
    decision = SingleIntent(np.arange(5), out_of_scope="both")
    both = cv.scope_scores_of(answers, mixture, decision).scores
    for score, row, cosine in zip(both, best, answers.nearest, strict=True):
        entropy = -sum(share * math.log(share) for share in map(float, row))
        assert score == pytest.approx(5 * cosine - math.log(entropy), rel=1e-4)
    sure = answers._replace(head=np.where(np.eye(5)[np.zeros(8, int)] > 0, 0, -99.0), lexical=None)
    assert np.isfinite(cv.scope_scores_of(sure, cv.Mixture(), decision).scores).all()


@pytest.fixture(scope="module")
def points():
    """Eight examples of ten intents, with encodings that separate the intents well."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 8)
    vectors = np.eye(12)[labels] + 0.15 * rng.normal(size=(80, 12))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts = [f"text {number}" for number in range(80)]
    is_name = np.zeros(80, bool)
    return IntentExamples(texts, vectors.astype(np.float32), labels, is_name, np.ones(80))


def test_every_intent_is_left_out_once(points):
    order = np.random.default_rng(1).permutation(80)
    shuffled = IntentExamples(
        [points.texts[place] for place in order], *(values[order] for values in points[1:])
    )
    options = {**LOGISTIC, "lexical": None}
    answers = cv.left_out_outputs(options, points, seed=0)
    assert [len(one.head[0]) for one in answers] == [7, 7, 8, 8]
    for one in answers:
        is_out = one.labels == NONE
        assert is_out.sum() == 8 * (10 - len(one.head[0]))  # all examples of the intents left out
        assert np.bincount(one.labels[~is_out]).tolist() == [2] * len(one.head[0])  # a quarter
        assert (one.head[~is_out].argmax(axis=1) == one.labels[~is_out]).mean() > 0.9
        assert one.nearest[is_out].max() < one.nearest[~is_out].mean()
    for one, other in zip(answers, cv.left_out_outputs(options, shuffled, seed=0), strict=True):
        assert sorted(one.nearest) == pytest.approx(sorted(other.nearest), abs=1e-5)
    few = points.rows(points.labels < 7)
    assert cv.left_out_outputs(options, few, seed=0) == []


@pytest.mark.parametrize(("scale", "expected"), [(1.0, 2.0), (0.02, 50.0), (0.0, 0.0)])
def test_the_weight_of_the_cosine_is_the_smallest_good_one(scale, expected):
    rng = np.random.default_rng(0)
    answers = _answers(120, lexical=None)
    answers.labels[60:] = NONE
    is_in = answers.labels != NONE
    nearest = scale * (is_in + rng.normal(0, 0.5, 120))
    answers = answers._replace(nearest=nearest)
    probabilities = np.exp(answers.head)
    areas = {}
    for weight in cv.COSINE_WEIGHTS:
        scores = [
            weight * cosine - math.log(-sum(share * math.log(share) for share in row))
            for cosine, row in zip(nearest, probabilities, strict=True)
        ]
        is_higher = [a > b for a in scores[:60] for b in scores[60:]]
        areas[weight] = np.mean(is_higher)
    good = [weight for weight, area in areas.items() if area >= max(areas.values()) - 0.005]
    assert cv.fit_cosine([answers], cv.Mixture()) == good[0] == expected


def test_the_calibration_error_is_that_of_the_bins():
    rng = np.random.default_rng(0)
    confidence, is_right = rng.random(300), rng.random(300) < 0.6
    naive = 0
    for low in np.arange(15) / 15:
        own = (confidence >= low) & (confidence < low + 1 / 15)
        if own.any():
            naive += own.mean() * abs(is_right[own].mean() - confidence[own].mean())
    assert cv.calibration_error(confidence, is_right) == pytest.approx(naive)
    assert cv.calibration_error(np.ones(4), np.array([1, 1, 0, 0], bool)) == pytest.approx(0.5)
    assert cv.calibration_error(np.zeros(0), np.zeros(0, bool)) == 0


def _scores(inside=60, outside=40, intents=3):
    rng = np.random.default_rng(0)
    is_in = np.arange(inside + outside) < inside
    return cv.ScopeScores(
        rng.normal(is_in, 1),
        rng.integers(0, intents, len(is_in)),
        is_in & (rng.random(len(is_in)) < 0.8),
        is_in,
    )


def _gain(scores, thresholds):
    """Return in-scope accuracy plus out-of-scope recall with one threshold per intent."""
    is_kept = scores.scores >= thresholds[scores.predicted]
    is_right = scores.is_right & is_kept
    return np.mean(is_right[scores.is_in]) + np.mean(~is_kept[~scores.is_in])


def test_the_threshold_is_the_best_of_all():
    scores = _scores()
    tried = [_gain(scores, np.full(3, one)) for one in [*scores.scores, np.inf]]
    found = np.full(3, cv.fit_threshold(scores))
    assert _gain(scores, found) == pytest.approx(max(tried))


def test_one_threshold_is_above_all_scores():
    """In float32, a small constant added to a score of 32 or more is lost."""
    scores = np.array([40, 45, 50], np.float32)
    is_in = np.array([True, True, False])
    scores = cv.ScopeScores(scores, np.array([0, 1, 0]), np.zeros(3, bool), is_in)
    assert cv.fit_threshold(scores) > 50, "Without a correct answer, all texts are rejected."


def test_without_examples_out_of_scope_one_in_twenty_is_rejected():
    assert cv.fit_threshold(_scores(101, 0)._replace(scores=np.arange(101.0))) == pytest.approx(5)


def test_a_wanted_share_is_rejected_with_and_without_examples_out_of_scope():
    inside = _scores(101, 0)._replace(scores=np.arange(101.0))
    assert cv.fit_threshold(inside, 0.2) == pytest.approx(20)
    scores = _scores(2000, 1000)
    scores.scores[scores.predicted == 0] += 5
    is_in = scores.is_in
    found = cv.fit_intent_thresholds(scores, cv.fit_threshold(scores, 0.2), 3, 0.2)
    for intent in range(3):
        own = scores.scores[is_in & (scores.predicted == intent)]
        assert np.mean(own < found[intent]) == pytest.approx(0.2, abs=0.03)


def test_intents_with_examples_enough_have_thresholds_of_their_own():
    scores = _scores(600, 400)
    # The first intent has much higher scores than the others, in scope and out of scope.
    scores.scores[scores.predicted == 0] += 5
    threshold = cv.fit_threshold(scores)
    found = cv.fit_intent_thresholds(scores, threshold, 4)
    assert found[0] > 4 > 3 > max(found[1:3])
    assert found[3] == threshold, "Intent 3 was never predicted, so it keeps the common threshold."
    assert _gain(scores, found) > _gain(scores, np.full(4, threshold)) + 0.1


def test_few_examples_of_an_intent_change_nothing():
    scores = _scores(600, 400)
    scores.predicted[:] = 1
    scores.predicted[590:609] = 0
    assert cv.fit_intent_thresholds(scores, 0.3, 2)[0] == 0.3


def test_a_share_of_each_intent_is_rejected():
    scores = _scores(2000, 0)
    scores.scores[scores.predicted == 0] += 5
    found = cv.fit_intent_thresholds(scores, cv.fit_threshold(scores), 3)
    for intent in range(3):
        own = scores.scores[scores.predicted == intent]
        # The threshold is smoothed with a few examples of all intents.
        assert np.mean(own < found[intent]) == pytest.approx(0.05, abs=0.02)
