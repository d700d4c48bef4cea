import numpy as np
import pytest
from support import naive
from support.layer_checks import check_layer
from support.model_cases import fill_weights

from convert_tf.layers.side_network import SideNetwork, l2_normalize


def _reduced(dim: int = 8) -> np.ndarray:
    return np.random.RandomState(0).standard_normal((3, dim)).astype("float32")


@pytest.mark.parametrize("use_skip", [True, False])
@pytest.mark.parametrize(("num_layers", "input_dim"), [(0, 8), (1, 8), (3, 8), (3, 5)])
def test_parity_with_loop(num_layers, input_dim, use_skip):
    """With an input of another width there is no skip around the first hidden layer."""
    layer = SideNetwork(num_layers, 8, encoding_dim=4, use_skip=use_skip, name="side")
    layer.build((None, input_dim))
    fill_weights(layer.variables)
    weights = naive.arrays(layer, root="side")
    expected = [
        naive.side_network(r, weights, num_layers=num_layers, use_skip=use_skip)
        for r in _reduced(input_dim)
    ]
    np.testing.assert_allclose(np.asarray(layer(_reduced(input_dim))), expected, atol=2e-6)


def test_kernels_start_orthogonal():
    layer = SideNetwork(2, 8, encoding_dim=4)
    layer.build((None, 8))
    for variable in layer.variables:
        if variable.path.endswith("kernel"):
            kernel = np.asarray(variable)
            np.testing.assert_allclose(
                kernel.T @ kernel, np.eye(kernel.shape[1]), atol=1e-5, err_msg=variable.path
            )


def test_l2_normalize_parity_with_loop():
    x = _reduced(6) * [[1e-3], [1.0], [1e4]]
    result = np.asarray(l2_normalize(x.astype("float32")))
    np.testing.assert_allclose(result, [naive.l2_normalize(v) for v in x], atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_l2_normalize_is_computed_in_float32(dtype):
    """300² overflows float16; 1/√6 needs more digits than bfloat16 has."""
    from keras import ops

    result = l2_normalize(ops.full((1, 6), 300.0, dtype))
    assert result.dtype == "float32"
    np.testing.assert_allclose(np.asarray(result), 1 / np.sqrt(6), rtol=1e-6)


def test_l2_normalize_of_zeros_is_zero_with_a_finite_gradient():
    import tensorflow as tf

    x = tf.Variable(np.zeros((1, 4), "float32"))
    with tf.GradientTape() as tape:
        y = l2_normalize(x)
        total = tf.reduce_sum(y)
    np.testing.assert_array_equal(y, 0.0)
    assert np.isfinite(tape.gradient(total, x)).all()


def test_layer_habits():
    check_layer(
        SideNetwork,
        {"num_layers": 2, "hidden_dim": 8, "encoding_dim": 4, "use_skip": False},
        {"reduced": _reduced()},
        (3, 4),
    )
