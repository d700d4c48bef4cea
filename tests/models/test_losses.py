import math

import numpy as np
import pytest
from keras import ops
from support import naive

from convert_tf.models.losses import annealed_scale, distinct_responses, softmax_losses


def _scores(k: int, seed: int = 0) -> np.ndarray:
    return (3 * np.random.RandomState(seed).standard_normal((k, k))).astype("float32")


# The last two rows have fewer candidates, the last one its label alone.
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
    """Equal scores: every response has probability 1/K, so the loss is log K for any smoothing.

    One score of log 4 on the diagonal of K = 5 (others 0): p = 4/8, each negative 1/8, so
    −0.8·log(1/2) − 0.2·log(1/8) = 0.8·0.693147 + 0.2·2.079442 = 0.970406.
    """
    assert np.mean(softmax_losses(np.zeros((5, 5), "float32"))) == pytest.approx(math.log(5))
    scores = (math.log(4.0) * np.eye(5)).astype("float32")
    assert np.mean(softmax_losses(scores)) == pytest.approx(0.970406, abs=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_it_is_computed_in_float32(dtype):
    """Of 300 equal scores, log(300) needs more digits than 16 bits have."""
    loss = ops.mean(softmax_losses(ops.zeros((300, 300), dtype)))
    assert loss.dtype == "float32"
    assert float(loss) == pytest.approx(math.log(300), rel=1e-5)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 1.0), (2_500, 6.25), (5_000, 11.5), (10_000, 22.0), (10_001, 22.0), (10**8, 22.0)],
)
def test_scale_rises_linearly_and_stays(step, expected):
    """From 1 to 22 over 10,000 steps: 0.0021 a step."""
    scale = annealed_scale(step, start=1.0, end=22.0, anneal_steps=10_000)
    assert float(scale) == pytest.approx(expected, rel=1e-6)
    assert float(annealed_scale(step, start=1.0, end=22.0, anneal_steps=0)) == 22.0
