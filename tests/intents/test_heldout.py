"""Answers to examples that were not trained on, and what is fitted on them."""

import numpy as np
import pytest
from support.intent_examples import LABELS, OUTSIDE, TEXTS, WordEncoder

from convert_tf.intents.encodings import IntentEncodings
from convert_tf.intents.examples import OUTSIDE as NONE
from convert_tf.intents.examples import examples_of
from convert_tf.intents.head import softmax
from convert_tf.intents.heldout import (
    Answers,
    Mixture,
    answers_of,
    are_clearly_more,
    calibration_error,
    fit_mixture,
    frozen_folds,
    held_parts,
    judged_answers,
    log_of,
    scope_scores_of,
    train_parts,
)

LOGISTIC = {"head": "logistic", "logistic_c": 10.0, "seed": 0}


@pytest.fixture
def examples():
    encode = IntentEncodings(WordEncoder())
    texts, labels = [*TEXTS, *OUTSIDE], [*LABELS, *["oos"] * len(OUTSIDE)]
    return examples_of(texts, labels, None, encode, "oos")[0]


def _answers(number=400, intents=5, seed=0, **changes):
    """The head is right at twice the sureness that it says; words are noise."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (number, intents))
    labels = np.array([rng.choice(intents, p=row) for row in softmax(logits)])
    head = log_of(softmax(logits / 2))
    answers = Answers(labels, head, log_of(softmax(rng.normal(0, 2, head.shape))), np.zeros(number))
    return answers._replace(**changes)


def test_each_example_is_answered_once_by_what_was_not_trained_on_it(examples):
    folds = frozen_folds(examples, seed=0)
    held = sum(fold.is_held.astype(int) for fold in folds)
    assert held.tolist() == examples.is_inside.astype(int).tolist()
    found = judged_answers(LOGISTIC, examples, None, folds, has_lexical=True)
    assert sorted(found.labels.tolist()) == sorted(examples.labels.tolist())
    first = folds[0].is_held
    parts = train_parts(LOGISTIC, examples.rows(~first), has_lexical=True)
    expected = answers_of(parts, *examples.rows(first)[:3])
    for own, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(own[: first.sum()], theirs, atol=1e-5)


def test_a_fold_is_encoded_as_it_says(examples):
    fold = frozen_folds(examples, seed=0)[0]
    blank = fold._replace(encodings=np.zeros_like(fold.encodings))
    found = judged_answers(LOGISTIC, examples, None, [blank], has_lexical=False)
    assert np.ptp(found.head[found.labels != NONE], axis=0).max() < 1e-6
    assert found.lexical is None


def test_nothing_is_held_out_of_single_examples(examples):
    single = examples.rows(np.isin(np.arange(len(examples.texts)), [0, 4, 8]))
    folds = frozen_folds(single, seed=0)
    assert judged_answers(LOGISTIC, single, None, folds, has_lexical=False) is None


def test_of_many_examples_one_part_is_enough(examples):
    def sizes(number, folds):
        labels, is_name = np.arange(number) % 2, np.zeros(number, bool)
        own = examples._replace(texts=[""] * number, labels=labels, is_name=is_name)
        return [part.sum() for part in held_parts(own, seed=0, folds=folds)]

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
    assert are_clearly_more(others, own) == is_clear


def test_names_are_trained_on_and_never_held_out(examples):
    encode = IntentEncodings(WordEncoder())
    examples = examples.rows(examples.is_inside)
    named = examples.with_names(["greet", "7", "reset"], encode, left_out=None)
    assert named.texts == [*TEXTS, "greet", "reset"]
    assert named.labels[-2:].tolist() == [0, 2]
    only = examples.with_names(["greet", "order", "hello_there"], encode, left_out="greet")
    assert only.texts == [*TEXTS, "order"]  # "hello there" is an example
    assert encode(named.texts).tolist() == named.encodings.tolist()
    parts, plain = held_parts(named, seed=0), held_parts(examples, seed=0)
    for part, own in zip(parts, plain, strict=True):
        assert part.tolist() == [*own, False, False]


def test_the_temperature_is_found():
    found = fit_mixture(_answers(lexical=None))
    assert found.weight == 0
    assert found.temperature == pytest.approx(0.5, rel=0.2)


def test_the_weight_is_where_the_right_intents_are_most_probable():
    answers = _answers()
    assert fit_mixture(answers).weight <= 0.1
    turned = answers._replace(head=answers.lexical, lexical=answers.head)
    assert fit_mixture(turned).weight >= 0.5


def test_examples_out_of_scope_fit_no_weight():
    answers = _answers()
    more = answers._replace(
        labels=np.concatenate([answers.labels, np.full(400, NONE)]),
        head=np.concatenate([answers.head, answers.lexical]),
        lexical=np.concatenate([answers.lexical, answers.head]),
        nearest=np.zeros(800),
    )
    assert fit_mixture(more) == fit_mixture(answers)
    assert fit_mixture(answers._replace(labels=np.full(400, NONE))) == Mixture()


def test_a_mixture_is_the_formula():
    answers = _answers(6)
    found = answers.probabilities(Mixture(0.3, 2.0))
    naive = np.exp(0.7 * answers.head + 0.3 * answers.lexical) ** 0.5
    np.testing.assert_allclose(found, naive / naive.sum(axis=1, keepdims=True), rtol=1e-5)
    alone = answers._replace(lexical=None)
    np.testing.assert_allclose(alone.probabilities(Mixture()), np.exp(answers.head))


def test_scores_of_scope_are_of_the_mixture():
    answers = _answers(8, nearest=np.arange(8) / 8)
    answers.labels[5:] = NONE
    mixture = Mixture(0.2, 1.5)
    best = answers.probabilities(mixture)
    scores = scope_scores_of(answers, mixture, "confidence")
    np.testing.assert_allclose(scores.scores, best.max(axis=1))
    assert scores.predicted.tolist() == best.argmax(axis=1).tolist()
    assert scores.is_right.tolist() == (best.argmax(axis=1) == answers.labels).tolist()
    assert scores.is_in.tolist() == [True] * 5 + [False] * 3
    by_distance = scope_scores_of(answers, mixture, "distance")
    assert by_distance.scores.tolist() == answers.nearest.tolist()


def test_the_calibration_error_is_that_of_the_bins():
    rng = np.random.default_rng(0)
    confidence, is_right = rng.random(300), rng.random(300) < 0.6
    naive = 0
    for low in np.arange(15) / 15:
        own = (confidence >= low) & (confidence < low + 1 / 15)
        if own.any():
            naive += own.mean() * abs(is_right[own].mean() - confidence[own].mean())
    assert calibration_error(confidence, is_right) == pytest.approx(naive)
    assert calibration_error(np.ones(4), np.array([1, 1, 0, 0], bool)) == pytest.approx(0.5)
    assert calibration_error(np.zeros(0), np.zeros(0, bool)) == 0
