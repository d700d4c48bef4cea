import numpy as np
import pytest
from support import naive
from support.layer_checks import check_layer
from support.model_cases import fill_weights

from convert_tf.layers.block import TransformerBlock

ARGUMENTS = {"attention_dim": 4, "max_distance": 2, "feed_forward_dim": 10}


def _x() -> np.ndarray:
    return np.random.RandomState(0).standard_normal((2, 5, 6)).astype("float32")


def _built(**arguments) -> TransformerBlock:
    block = TransformerBlock(**{**ARGUMENTS, **arguments}, name="block")
    block.build((None, None, 6))
    fill_weights(block.variables)
    return block


@pytest.mark.parametrize("num_heads", [1, 2])
def test_parity_with_loop(num_heads):
    """Attention, add, norm, feed-forward, add, norm: any other order gives other numbers."""
    block = _built(num_heads=num_heads)
    weights = naive.arrays(block, root="block")
    expected = [
        naive.block(x, weights, attention_dim=4, max_distance=2, num_heads=num_heads) for x in _x()
    ]
    np.testing.assert_allclose(np.asarray(block(_x())), expected, atol=3e-6)


def test_dropout_is_after_self_attention_and_in_training_only():
    """Without feed-forward, a block's input passes the dropout untouched by the skip connection."""
    block = _built(dropout=0.99)
    x = _x()
    np.testing.assert_allclose(np.asarray(block(x)), np.asarray(_built()(x)), atol=1e-6)
    dropped = np.asarray(block(x, training=True))
    assert not np.allclose(dropped, np.asarray(block(x)))
    weights = naive.arrays(block, root="block")
    norm = naive.below(weights, "attention_norm")
    last = naive.below(weights, "feed_forward_norm")
    # Nearly all attended values are dropped: most tokens see norm(x + 0) alone.
    close = 0
    for row, result in zip(x.reshape(-1, 6), dropped.reshape(-1, 6), strict=True):
        middle = naive.layer_norm(row, norm["gamma"], norm["beta"])
        forward = naive.feed_forward(middle, naive.below(weights, "feed_forward"))
        expected = naive.layer_norm(middle + forward, last["gamma"], last["beta"])
        close += np.allclose(expected, result, atol=1e-5)
    assert close >= 7  # of 10 tokens; each is untouched with probability 0.99^6 = 0.94


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_layer_norm_is_computed_in_float32(policy):
    """Inputs of ±300 have squares of 90,000, beyond float16; the norm of ±300 is ±1."""
    block = TransformerBlock(**ARGUMENTS, dtype=policy)
    block.build((None, None, 6))
    for variable in block.trainable_variables:
        variable.assign(np.ones(variable.shape) if "gamma" in variable.path else variable * 0.0)
    x = np.tile([300.0, -300.0, 300.0, -300.0, 300.0, -300.0], (1, 1, 1)).astype("float32")
    result = np.asarray(block(x), dtype="float32")
    np.testing.assert_allclose(result, x / 300.0, atol=1e-2)


def test_layer_habits():
    check_layer(
        TransformerBlock,
        {**ARGUMENTS, "num_heads": 2, "dropout": 0.0},
        {"x": _x(), "attention_mask": np.ones((2, 5, 5), bool)},
        (2, 5, 6),
    )
