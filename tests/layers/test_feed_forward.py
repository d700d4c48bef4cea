import numpy as np
import pytest
from support import naive
from support.layer_checks import check_layer
from support.model_cases import fill_weights

from convert_tf.layers.block import FeedForward, fast_gelu


def test_fast_gelu_parity_with_its_formula():
    x = np.concatenate([np.linspace(-12, 12, 97), [-80.0, 80.0]]).astype("float32")
    np.testing.assert_allclose(
        np.asarray(fast_gelu(x)), [naive.gelu(float(v)) for v in x], rtol=1e-6, atol=1e-6
    )


def test_feed_forward_parity_with_loop():
    layer = FeedForward(10, name="ff")
    layer.build((None, None, 6))
    fill_weights(layer.variables)
    x = np.random.RandomState(0).standard_normal((2, 3, 6)).astype("float32")
    weights = naive.arrays(layer, root="ff")
    expected = [[naive.feed_forward(token, weights) for token in row] for row in x]
    np.testing.assert_allclose(np.asarray(layer(x)), expected, atol=2e-6)


@pytest.mark.parametrize(
    ("policy", "tolerance"), [("mixed_bfloat16", 0.04), ("mixed_float16", 5e-3)]
)
def test_feed_forward_in_16_bits(policy, tolerance):
    """Folding 1.702 into the weights costs one more rounding: 2⁻⁸ and 2⁻¹¹ of values up to ~3."""
    x = np.random.RandomState(0).standard_normal((2, 3, 6)).astype("float32")
    results = []
    for dtype in ("float32", policy):
        layer = FeedForward(10, dtype=dtype, name="ff")
        layer.build((None, None, 6))
        fill_weights(layer.variables)
        results.append(np.asarray(layer(x), dtype="float32"))
    np.testing.assert_allclose(results[1], results[0], atol=tolerance)


def test_layer_habits():
    x = np.random.RandomState(0).standard_normal((2, 3, 6)).astype("float32")
    check_layer(FeedForward, {"hidden_dim": 10}, {"x": x}, (2, 3, 6))
