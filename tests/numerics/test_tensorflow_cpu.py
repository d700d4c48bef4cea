import functools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import naive

from convert_tf.numerics.tensorflow_cpu import (
    dense_gradient,
    drop,
    feed_forward,
    in_one_pass,
    layer_norm,
)

RNG = np.random.RandomState(0)


def _feed_forward_arguments() -> list[np.ndarray]:
    shapes = ((5, 4), (4, 6), (6,), (6, 3), (3,))
    return [RNG.standard_normal(shape) for shape in shapes]


def _naive_feed_forward(x, hidden_kernel, hidden_bias, output_kernel, output_bias) -> np.ndarray:
    before = x @ hidden_kernel + hidden_bias
    hidden = np.array([[v / (1 + math.exp(-v)) for v in row] for row in before])
    return hidden @ output_kernel + output_bias


@pytest.mark.parametrize("is_compiled", [False, True])
def test_feed_forward_parity_with_loop(is_compiled):
    arguments = _feed_forward_arguments()
    tensors = (tf.constant(a, tf.float32) for a in arguments)
    result = feed_forward(*tensors, is_compiled=is_compiled)
    np.testing.assert_allclose(result, _naive_feed_forward(*arguments), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"is_compiled": True}])
def test_nothing_is_compiled_unless_asked_for(options):
    @tf.function
    def calling(*tensors):
        return feed_forward(*tensors, **options)

    tensors = [tf.constant(a, tf.float32) for a in _feed_forward_arguments()]
    functions = calling.get_concrete_function(*tensors).graph.as_graph_def().library.function
    is_compiled = any(function.attr["_XlaMustCompile"].b for function in functions)
    assert is_compiled == bool(options)


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-4), ("bfloat16", 0.1)])
def test_gradients_of_feed_forward_are_differences_of_its_results(dtype, tolerance, is_compiled):
    """Gradients are compared with differences of 1e-6 in a naive loop in float64."""
    arguments = _feed_forward_arguments()
    tensors = [tf.constant(a, dtype) for a in arguments]
    function = functools.partial(feed_forward, is_compiled=is_compiled)
    _check_gradients(function, tensors, _naive_feed_forward, arguments, tolerance)


def test_large_numbers_stay_finite_in_16_bits():
    """For ±200, silu is 200 and 0, and its slope is 1 and 0."""
    x, ones = tf.constant([[200.0], [-200.0]], tf.bfloat16), tf.ones([1, 1], tf.bfloat16)
    zeros = tf.zeros([1], tf.bfloat16)
    with tf.GradientTape() as tape:
        tape.watch(x)
        result = feed_forward(x, ones, zeros, ones, zeros, is_compiled=True)
    np.testing.assert_array_equal(tf.cast(result, tf.float32), [[200.0], [0.0]])
    gradient = tape.gradient(result, x)
    np.testing.assert_array_equal(tf.cast(gradient, tf.float32), [[1.0], [0.0]])


def _check_gradients(function, tensors, naive_function, arguments, tolerance: float) -> None:
    """Compare gradients with differences of 1e-6, within `tolerance` of the largest gradient."""
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        result = function(*tensors)
    upstream = RNG.standard_normal(result.shape)
    found = tape.gradient(result, tensors, tf.constant(upstream, result.dtype))
    for which, gradient in enumerate(found):
        assert gradient.dtype == tensors[which].dtype
        expected = np.zeros(arguments[which].shape)
        for place in np.ndindex(expected.shape):
            ends = []
            for shift in (1e-6, -1e-6):
                moved = [a.copy() for a in arguments]
                moved[which][place] += shift
                ends.append(np.sum(naive_function(*moved) * upstream))
            expected[place] = (ends[0] - ends[1]) / 2e-6
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            tf.cast(gradient, tf.float32), expected, atol=tolerance * scale, rtol=0
        )


def _naive_layer_norm(x, gamma, beta) -> np.ndarray:
    rows = [naive.layer_norm(row, gamma, beta, 1e-3) for row in x.reshape(-1, x.shape[-1])]
    return np.array(rows).reshape(x.shape)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-4), ("bfloat16", 0.03)])
def test_layer_norm_and_its_gradients_parity_with_loop(dtype, tolerance):
    """Inputs have a large mean, which would reveal a loss of precision when it is subtracted."""
    arguments = [RNG.standard_normal((2, 3, 5)) + 4, *RNG.standard_normal((2, 5))]
    arguments[0] = np.asarray(tf.cast(tf.constant(arguments[0], dtype), tf.float64))
    tensors = [
        tf.constant(arguments[0], dtype),
        *(tf.constant(a, tf.float32) for a in arguments[1:]),
    ]
    result = layer_norm(*tensors, 1e-3)
    assert result.dtype == dtype
    np.testing.assert_allclose(
        tf.cast(result, tf.float32), _naive_layer_norm(*arguments), atol=tolerance
    )
    _check_gradients(
        lambda *a: layer_norm(*a, 1e-3), tensors, _naive_layer_norm, arguments, tolerance
    )


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.999])
def test_dropout_keeps_its_share_and_the_mean(rate):
    x = tf.fill((300, 400), 2.0)
    result = np.asarray(drop(x, rate, tf.constant([1, 2])))
    kept = result != 0
    assert abs(kept.mean() - (1 - rate)) < 4 * math.sqrt(rate * (1 - rate) / kept.size) + 2**-16
    np.testing.assert_allclose(result[kept], 2 / (1 - rate), rtol=2e-2 if rate > 0.9 else 1e-4)
    # Neighbouring values come from the same 32 random bits.
    both = np.mean(kept[:, ::2] & kept[:, 1::2])
    assert abs(both - (1 - rate) ** 2) < 0.01


@pytest.mark.parametrize(("rate", "dropped"), [(1e-9, 2**-16), (1 - 1e-9, 1 - 2**-16)])
def test_the_lowest_and_highest_rates_are_of_16_bits(rate, dropped):
    """At the lowest rate some values are dropped, and at the highest some are kept."""
    result = np.asarray(drop(tf.ones((2000, 2000)), rate, tf.constant([1, 2])))
    assert abs(np.mean(result == 0) - dropped) < 5 * math.sqrt(2**-16 / result.size)
    np.testing.assert_allclose(result[result != 0], 1 / (1 - dropped), rtol=1e-6)


def test_dropout_is_of_its_seed_and_drops_the_gradient():
    x = tf.ones((6, 64), tf.bfloat16)
    with tf.GradientTape() as tape:
        tape.watch(x)
        first = drop(x, 0.3, tf.constant([1, 2]))
    np.testing.assert_array_equal(tape.gradient(first, x), first)
    np.testing.assert_array_equal(drop(x, 0.3, tf.constant([1, 2])), first)
    assert np.any(drop(x, 0.3, tf.constant([1, 3])) != first)


@pytest.mark.parametrize("max_norm", [0.0, 0.5, 100.0])
def test_a_dense_gradient_is_the_sum_of_its_slices(max_norm):
    indices = np.array([3, 0, 3, 2, 3])
    values = RNG.standard_normal((5, 2)).astype("float32")
    expected = np.zeros((6, 2), "float32")
    for index, value in zip(indices, values, strict=True):
        expected[index] += value
    if max_norm:
        expected *= min(1.0, max_norm / np.linalg.norm(expected))
    slices = tf.IndexedSlices(tf.constant(values), tf.constant(indices), tf.constant([6, 2]))
    np.testing.assert_allclose(dense_gradient(slices, max_norm=max_norm), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda base: base(keras.optimizers.Adam)(0.02),
        lambda base: base(keras.optimizers.AdamW)(0.02, weight_decay=0.1),
        lambda base: base(keras.optimizers.Adamax)(0.02),
        lambda base: base(keras.optimizers.Adadelta)(0.5, rho=0.9),
    ],
    ids=["adam", "adamw", "adamax", "adadelta"],
)
def test_optimizers_in_one_pass_do_what_keras_does(make):
    ends = []
    for base in (lambda c: c, in_one_pass):
        variables = [keras.Variable(np.ones((3, 2), "float32") * i, name=f"v{i}") for i in (1, 2)]
        optimizer = make(base)
        optimizer.build(variables)
        rng = np.random.RandomState(1)
        for _ in range(5):
            gradients = [tf.constant(rng.standard_normal((3, 2)), tf.float32) for _ in variables]
            optimizer.apply(gradients, variables)
        ends.append([np.asarray(v) for v in (*variables, *optimizer.variables)])
    for ours, theirs in zip(*ends, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-7)
    assert np.abs(ends[0][0] - 1).max() > 1e-3
