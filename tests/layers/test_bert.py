import numpy as np
import pytest
from support import naive, naive_bert
from support.layer_checks import check_layer
from support.model_cases import fill_weights

from convert_tf.layers.bert import BertAttention, BertBlock, BertEmbedding


def _x() -> np.ndarray:
    return np.random.RandomState(0).standard_normal((2, 5, 6)).astype("float32")


MASK = np.array([[True] * 5, [True, True, True, False, False]])


def test_layers():
    ids = np.array([[1, 2, 3], [3, 0, 0]], "int32")
    check_layer(
        BertEmbedding,
        {"num_rows": 5, "dim": 6, "max_positions": 3, "num_segments": 2},
        {"rows": ids, "segment_ids": np.array([[0, 0, 1], [0, 1, 1]], "int32")},
        (2, 3, 6),
    )
    for layer_class, sizes in ((BertAttention, {}), (BertBlock, {"feed_forward_dim": 10})):
        check_layer(layer_class, {"num_heads": 2, **sizes}, {"x": _x(), "mask": MASK}, (2, 5, 6))


@pytest.mark.parametrize(
    ("layer_class", "sizes"), [(BertAttention, {}), (BertBlock, {"feed_forward_dim": 10})]
)
def test_blocks_keep_their_shape_and_drop(layer_class, sizes):
    layer = layer_class(2, dropout=0.5, **sizes)
    layer(_x(), MASK)
    fill_weights(layer.variables)
    result = layer(_x(), MASK)
    assert result.shape == (2, 5, 6)
    dropped = np.asarray(layer(_x(), MASK, training=True))
    assert np.abs(dropped - np.asarray(result)).max() > 1e-3


def test_a_block_parity_with_loop():
    block = BertBlock(2, feed_forward_dim=10, name="block")
    block.build((None, None, 6))
    fill_weights(block.variables)
    arrays = naive.arrays(block, root="block")
    weights = {}
    for part, name in (
        ("attention/output", "attention.output.dense"),
        ("hidden", "intermediate.dense"),
        ("output", "output.dense"),
    ):
        weights[f"0.{name}.weight"] = arrays[f"{part}_kernel"].T
        weights[f"0.{name}.bias"] = arrays[f"{part}_bias"]
    for i, name in enumerate(("query", "key", "value")):
        part = slice(6 * i, 6 * (i + 1))
        weights[f"0.attention.self.{name}.weight"] = arrays["attention/kernel"][:, part].T
        weights[f"0.attention.self.{name}.bias"] = arrays["attention/bias"][part]
    for part, name in (("attention_norm", "attention.output"), ("feed_forward_norm", "output")):
        weights[f"0.{name}.LayerNorm.weight"] = arrays[f"{part}/gamma"]
        weights[f"0.{name}.LayerNorm.bias"] = arrays[f"{part}/beta"]
    result = np.asarray(block(_x(), MASK))
    for row, mask, encoded in zip(_x(), MASK, result, strict=True):
        expected = naive_bert.block(row[mask].astype("float64"), weights, "0", 2)
        np.testing.assert_allclose(encoded[mask], expected, atol=3e-6)
    assert block.attention_norm.epsilon == block.feed_forward_norm.epsilon == 1e-12


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_block_in_16_bits_is_close_to_float32(policy):
    outputs = []
    for dtype in ("float32", policy):
        block = BertBlock(2, feed_forward_dim=10, dtype=dtype, name="block")
        block.build((None, None, 6))
        fill_weights(block.variables)
        outputs.append(np.asarray(block(_x(), MASK)).astype("float32"))
        assert {v.dtype for v in block.trainable_variables} == {"float32"}
    np.testing.assert_allclose(outputs[0], outputs[1], atol=0.1)


def test_masked_keys_are_never_read():
    """Changing masked tokens does not affect real tokens; without a mask it does."""
    block = BertBlock(2, feed_forward_dim=10, name="block")
    block.build((None, None, 6))
    fill_weights(block.variables)
    other = _x()
    other[1, 3:] = 50.0
    before, after = (np.asarray(block(x, MASK)) for x in (_x(), other))
    np.testing.assert_array_equal(before[0], after[0])
    np.testing.assert_allclose(before[1, :3], after[1, :3], atol=1e-6)
    everything = np.ones_like(MASK)
    assert np.abs(
        np.asarray(block(_x(), everything))[1, :3] - np.asarray(block(other, everything))[1, :3]
    ).max() > 1e-3  # fmt: skip
