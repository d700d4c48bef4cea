import numpy as np
import pytest
from support.layer_checks import check_layer
from support.model_cases import fill_weights
from support.naive import arrays
from support.naive import attention as naive_attention

from convert_tf.layers.attention import RelativeSelfAttention, attention_weights

TOKENS, DIM = 7, 6


def _x(rows: int = 2, tokens: int = TOKENS, dim: int = DIM, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).standard_normal((rows, tokens, dim)).astype("float32")


def _built(max_distance: int = 2, **arguments) -> RelativeSelfAttention:
    layer = RelativeSelfAttention(4, max_distance, name="attention", **arguments)
    layer.build((None, None, DIM))
    fill_weights(layer.variables)
    return layer


CASES = {
    "one head": {},
    "no bias": {"use_relative_bias": False},
    "three heads": {"num_heads": 3},
    "two heads, no bias": {"num_heads": 2, "use_relative_bias": False},
}


@pytest.mark.parametrize("max_distance", [1, 3, 20])
@pytest.mark.parametrize("arguments", CASES.values(), ids=CASES.keys())
def test_parity_with_loop(arguments, max_distance):
    layer = _built(max_distance, **arguments)
    x = _x()
    expected = [
        naive_attention(
            row,
            arrays(layer, root="attention"),
            attention_dim=4,
            max_distance=max_distance,
            num_heads=arguments.get("num_heads", 1),
        )
        for row in x
    ]
    np.testing.assert_allclose(np.asarray(layer(x)), expected, atol=2e-6)


@pytest.mark.parametrize("num_heads", [1, 2])
def test_parity_with_loop_under_a_mask(num_heads):
    """An asymmetric mask: a mask on the wrong axis gives other numbers."""
    layer = _built(3, num_heads=num_heads)
    x = _x()
    mask = np.random.RandomState(1).rand(2, TOKENS, TOKENS) < 0.5
    mask |= np.eye(TOKENS, dtype=bool)
    expected = [
        naive_attention(
            row,
            arrays(layer, root="attention"),
            attention_dim=4,
            max_distance=3,
            num_heads=num_heads,
            allowed=lambda i, j, own=own: own[i, j],
        )
        for row, own in zip(x, mask, strict=True)
    ]
    np.testing.assert_allclose(np.asarray(layer(x, attention_mask=mask)), expected, atol=2e-6)


def test_a_window_of_the_whole_length_is_full_attention():
    """The bias table grows with the window; its common middle is what both may read."""
    x = _x()
    narrow, wide = _built(TOKENS - 1), _built(30)
    wide.query_key_kernel.assign(narrow.query_key_kernel)
    bias = np.asarray(wide.relative_bias).copy()
    bias[:, 30 - (TOKENS - 1) : 30 + TOKENS] = np.asarray(narrow.relative_bias)
    wide.relative_bias.assign(bias)
    np.testing.assert_allclose(np.asarray(narrow(x)), np.asarray(wide(x)), atol=1e-6)
    smaller = _built(TOKENS - 2)
    smaller.query_key_kernel.assign(narrow.query_key_kernel)
    smaller.relative_bias.assign(np.asarray(narrow.relative_bias)[:, 1:-1])
    difference = np.abs(np.asarray(smaller(x)) - np.asarray(narrow(x))).max(axis=(0, 2))
    assert (difference[[0, -1]] > 1e-4).all()  # only the two ends saw one token more
    np.testing.assert_allclose(difference[1:-1], 0.0, atol=1e-6)


def test_weights_sum_to_one_and_masked_ones_are_zero():
    scores = np.random.RandomState(0).standard_normal((2, 5, 5)).astype("float32") * 1000
    mask = np.tril(np.ones((5, 5), bool))
    weights = np.asarray(attention_weights(scores, mask))
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-6)
    assert (weights[:, ~mask] == 0.0).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_softmax_is_computed_in_float32(dtype):
    """300 equal keys: 1/300 needs more digits than either 16-bit format has."""
    from keras import ops

    weights = attention_weights(ops.zeros((1, 300), dtype), np.ones((1, 300), bool))
    assert weights.dtype == "float32"
    np.testing.assert_allclose(np.asarray(weights), 1 / 300, rtol=1e-6)


def test_width_must_be_a_multiple_of_the_heads():
    layer = RelativeSelfAttention(4, 2, num_heads=4)
    with pytest.raises(ValueError, match=r"input \(6\) is not a multiple of num_heads \(4\)"):
        layer.build((None, None, 6))


@pytest.mark.parametrize("arguments", CASES.values(), ids=CASES.keys())
def test_layer_habits(arguments):
    check_layer(
        RelativeSelfAttention,
        {"attention_dim": 4, "max_distance": 2, **arguments},
        {"x": _x(), "attention_mask": np.ones((2, TOKENS, TOKENS), bool)},
        (2, TOKENS, DIM),
    )
