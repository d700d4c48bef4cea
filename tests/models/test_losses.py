import math

import numpy as np
import pytest
from keras import ops
from support import naive

from convert_tf.models.losses import (
    annealed_scale,
    distinct_responses,
    intent_losses,
    opposite_losses,
    paraphrase_candidates,
    softmax_losses,
    taught_ranking_losses,
)


def _scores(k: int, seed: int = 0) -> np.ndarray:
    return (3 * np.random.RandomState(seed).standard_normal((k, k))).astype("float32")


# The last two rows have fewer candidates; the last one has only its label.
MASK = np.array([[True] * 4, [True] * 4, [True, False, True, True], [False, True, False, False]])


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2, 0.5])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_candidate": distinct_responses(*[np.array([0, 1, 0, 3])] * 2)},
        {"labels": np.array([2, 0, 3, 1]), "is_candidate": MASK},
    ],
    ids=["responses of the batch", "without equal ones", "given candidates"],
)
def test_parity_with_loop(options, label_smoothing):
    options = {name: np.array(value) for name, value in options.items()}
    expected = naive.loss(_scores(4), label_smoothing, **options)
    found = np.mean(softmax_losses(_scores(4), label_smoothing, **options))
    assert found == pytest.approx(expected, rel=1e-6)


def test_equal_responses_are_no_candidates():
    found = distinct_responses(np.array([0, 1, 0]), np.array([0, 1, 0, 1]))
    np.testing.assert_array_equal(found, [[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1]])


def test_smoothing_by_default_is_a_fifth():
    """Losses for equal scores and for one higher score, calculated by hand.

    If all scores are equal, each of K responses has probability 1/K, so the loss is log K for any
    smoothing. With K = 5, scores of log 4 on the diagonal and 0 elsewhere, p = 4/8 and each
    negative has 1/8, so the loss is
    −0.8·log(1/2) − 0.2·log(1/8) = 0.8·0.693147 + 0.2·2.079442 = 0.970406.
    """
    assert np.mean(softmax_losses(np.zeros((5, 5), "float32"))) == pytest.approx(math.log(5))
    scores = (math.log(4.0) * np.eye(5)).astype("float32")
    assert np.mean(softmax_losses(scores)) == pytest.approx(0.970406, abs=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_it_is_computed_in_float32(dtype):
    """log(300), the loss of 300 equal scores, needs more digits than 16 bits provide."""
    loss = ops.mean(softmax_losses(ops.zeros((300, 300), dtype)))
    assert loss.dtype == "float32"
    assert float(loss) == pytest.approx(math.log(300), rel=1e-5)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 1.0), (2_500, 6.25), (5_000, 11.5), (10_000, 22.0), (10_001, 22.0), (10**8, 22.0)],
)
def test_scale_rises_linearly_and_stays(step, expected):
    """The scale rises from 1 to 22 over 10,000 steps, by 0.0021 per step."""
    scale = annealed_scale(step, start=1.0, end=22.0, anneal_steps=10_000)
    assert float(scale) == pytest.approx(expected, rel=1e-6)
    assert float(annealed_scale(step, start=1.0, end=22.0, anneal_steps=0)) == 22.0


@pytest.mark.parametrize("groups", [None, [0, 1, 0, 3]], ids=["all", "masked"])
def test_taught_ranking_loss_is_the_cross_entropy_with_the_teachers_choice(groups):
    rng = np.random.default_rng(0)
    scores, taught = rng.standard_normal((2, 4, 4)).astype("float32") * 3
    masks = np.ones((4, 4), bool)
    if groups is not None:
        masks = np.array(distinct_responses(np.array(groups), np.array(groups)))
    expected = []
    for row, teacher, mask in zip(scores, taught, masks, strict=True):
        chosen = np.exp(teacher[mask]) / np.exp(teacher[mask]).sum()
        expected.append(-np.sum(chosen * (row[mask] - np.log(np.exp(row[mask]).sum()))))
    is_candidate = None if groups is None else masks
    found = taught_ranking_losses(scores, taught, is_candidate=is_candidate)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    entropy = taught_ranking_losses(taught, taught, is_candidate=is_candidate)
    assert np.all(np.array(entropy) < found)


def test_intent_losses_equal_a_loop():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((7, 5)).astype("float32")
    # two of a, one elsewhere with a's name, two of b, one alone, one without a label
    groups = np.array([0, 0, 10, 3, 3, 4, -1], "int32")
    names = np.array([0, 0, 0, 3, 3, 4, -1], "int32")
    losses, has_loss = intent_losses(vectors, groups, names, scale=7.0)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for i in range(7):
        positives = [j for j in range(7) if j != i and groups[j] == groups[i] and groups[i] >= 0]
        negatives = [
            j for j in range(7) if names[j] != names[i] and groups[i] >= 0 and groups[j] >= 0
        ]
        assert bool(has_loss[i]) == bool(positives)
        expected = 0.0
        for j in positives:
            total = sum(np.exp(7 * unit[i] @ unit[k]) for k in (*positives, *negatives))
            expected -= np.log(np.exp(7 * unit[i] @ unit[j]) / total) / len(positives)
        assert float(losses[i]) == pytest.approx(expected, abs=1e-4)


def naive_opposite_losses(anchors, paraphrases, opposites, scale, groups):
    unit = [[v / np.linalg.norm(v) for v in kind] for kind in (anchors, paraphrases, opposites)]
    losses = []
    for i, anchor in enumerate(unit[0]):
        scores, right = [], None
        for kind in (1, 2):
            for j, other in enumerate(unit[kind]):
                is_own = kind == 1 and i == j
                if not is_own and groups[kind][j] in (groups[0][i], groups[1][i]):
                    continue
                score = scale * float(anchor @ other)
                right = score if is_own else right
                scores.append(score)
        losses.append(np.log(np.sum(np.exp(scores))) - right)
    return losses


def test_opposite_losses_equal_a_loop():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((3, 5, 7)).astype(np.float32)
    # The second paraphrase equals the first one, and an opposite equals the fourth anchor.
    groups = np.array([[0, 1, 2, 3, 4], [5, 5, 6, 7, 8], [9, 10, 3, 11, 12]], np.int32)
    is_candidate = paraphrase_candidates(*groups)
    found = opposite_losses(*vectors, scale=4.0, is_candidate=is_candidate)
    np.testing.assert_allclose(found, naive_opposite_losses(*vectors, 4.0, groups), rtol=1e-5)
    everything = naive_opposite_losses(*vectors, 4.0, np.arange(15).reshape(3, 5))
    np.testing.assert_allclose(opposite_losses(*vectors, scale=4.0), everything, rtol=1e-5)
