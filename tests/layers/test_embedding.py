import numpy as np
import pytest
from support import naive
from support.layer_checks import check_layer
from support.model_cases import fill_weights

from convert_tf.layers.embedding import SubwordEmbedding

NUM_IDS, DIM = 11, 6


def _built(**arguments) -> SubwordEmbedding:
    arguments = {"position_table_sizes": (5, 3), "bits": 32, **arguments}
    layer = SubwordEmbedding(NUM_IDS, DIM, name="embedding", **arguments)
    layer.build((None, None))
    fill_weights(layer.variables)
    return layer


def _ids(tokens: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).randint(0, NUM_IDS, (2, tokens)).astype("int32")


@pytest.mark.parametrize("bits", [8, 32])
def test_parity_with_loop(bits):
    """Over 15 positions, the product of the tables' sizes, and beyond."""
    layer = _built(bits=bits)
    ids = _ids(20)
    weights = naive.arrays(layer, root="embedding")
    expected = [naive.embed(row, weights, bits=bits) for row in ids]
    np.testing.assert_allclose(np.asarray(layer(ids)), expected, atol=3e-6)


def test_given_positions_are_used():
    layer = _built()
    ids = _ids(4)
    shifted = np.array([[0, 1, 0, 1]] * 2, "int32")
    result = np.asarray(layer(ids, shifted))
    np.testing.assert_allclose(result[:, :2], np.asarray(layer(ids[:, :2])), atol=1e-6)
    np.testing.assert_allclose(result[:, 2:], np.asarray(layer(ids[:, 2:])), atol=1e-6)


def test_the_padding_id_has_no_row_and_is_legal():
    layer = _built(bits=8)
    assert tuple(layer.table.shape) == (NUM_IDS, DIM)
    assert np.isfinite(np.asarray(layer(np.full((1, 3), NUM_IDS, "int32")))).all()


def test_the_initial_range_holds_every_initial_value():
    layer = SubwordEmbedding(500, 16)
    layer.build((None, None))
    table = np.asarray(layer.table)
    assert float(layer.quantizer_weights["range_min"]) <= table.min()
    assert float(layer.quantizer_weights["range_max"]) >= table.max()


def test_the_range_of_a_frozen_table_stays():
    layer = SubwordEmbedding(NUM_IDS, DIM, position_table_sizes=(5, 3))
    layer.build((None, None))
    layer.quantizer_weights["range_max"].assign(7.0)  # another than the table's
    layer.trainable = False
    frozen = np.asarray(layer(_ids(50), training=True))
    np.testing.assert_allclose(frozen, np.asarray(layer(_ids(50))), atol=1e-6)
    assert float(layer.quantizer_weights["range_max"]) == 7.0
    layer.trainable = True
    layer(_ids(50), training=True)
    assert float(layer.quantizer_weights["range_max"]) < 7.0


def test_dropout_is_in_training_only():
    layer = _built(dropout=0.5)
    ids = _ids(50)
    np.testing.assert_array_equal(np.asarray(layer(ids)), np.asarray(_built()(ids)))
    zeros = np.mean(np.asarray(layer(ids, training=True)) == 0.0)
    assert 0.4 < zeros < 0.6


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_sum_and_layer_norm_are_computed_in_float32(policy):
    """Values of ±200·√6 have squares beyond float16; only the result is rounded to 16 bits."""
    results = []
    for dtype in ("float32", policy):
        layer = _built(dtype=dtype)
        layer.table.assign(np.asarray(layer.table) * 1000.0)
        results.append(np.asarray(layer(_ids(6)), dtype="float32"))
    # One rounding: half of 2⁻⁷ (bfloat16) or 2⁻¹⁰ (float16) of a value below 4.
    np.testing.assert_allclose(
        results[1], results[0], rtol=2**-8 if policy == "mixed_bfloat16" else 2**-11, atol=1e-6
    )


@pytest.mark.parametrize("bits", [8, 32])
def test_layer_habits(bits):
    check_layer(
        SubwordEmbedding,
        {
            "num_ids": NUM_IDS,
            "dim": DIM,
            "position_table_sizes": (5, 3),
            "bits": bits,
            "quantizer_update_steps": 2,
            "dropout": 0.0,
        },
        {"token_ids": _ids(4)},
        (2, 4, DIM),
    )
