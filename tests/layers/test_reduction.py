import numpy as np
import pytest
from support import naive
from support.layer_checks import check_layer
from support.model_cases import fill_weights

from convert_tf.layers.reduction import SqrtNReduction
from convert_tf.models.encoder import segments_of

DIM = 5


def _built(num_heads: int = 2) -> SqrtNReduction:
    layer = SqrtNReduction(num_heads, 3, name="reduction")
    layer.build((None, None, DIM))
    fill_weights(layer.variables)
    return layer


def _reduce(layer, x, segment_lengths) -> np.ndarray:
    lengths = np.asarray(segment_lengths, "int32")
    segment_ids, _, mask = segments_of(lengths, x.shape[1])
    return np.asarray(layer(x, segment_ids, lengths, mask))


def _x(rows: int, tokens: int, seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).standard_normal((rows, tokens, DIM)).astype("float32")


@pytest.mark.parametrize("num_heads", [1, 2, 3])
@pytest.mark.parametrize("length", [1, 2, 8])
def test_parity_with_loop(num_heads, length):
    """The fused weights equal attending first and summing then (footnote 4)."""
    layer = _built(num_heads)
    x = _x(2, length)
    expected = [
        naive.sqrt_n_reduction(
            row, np.asarray(layer.query_key_kernel), num_heads=num_heads, attention_dim=3
        )
        for row in x
    ]
    reduced = _reduce(layer, x, [[length]] * 2)[:, 0]
    np.testing.assert_allclose(reduced, expected, atol=3e-6)


@pytest.mark.parametrize(
    "segment_lengths",
    [[[3, 4, 2]], [[9, 0, 0]], [[0, 4, 3]], [[2, 0, 5]], [[1, 1, 0]], [[0, 0, 0]], [[3, 3, 3]]],
    ids=str,
)
def test_parity_with_loop_in_packed_rows(segment_lengths):
    """Each text of a row is reduced as if it were alone; an empty one gives zeros."""
    layer = _built()
    x = _x(1, 9)
    reduced = _reduce(layer, x, segment_lengths)[0]
    start = 0
    for segment, length in enumerate(segment_lengths[0]):
        expected = naive.sqrt_n_reduction(
            x[0, start : start + length],
            np.asarray(layer.query_key_kernel),
            num_heads=2,
            attention_dim=3,
        )
        np.testing.assert_allclose(reduced[segment], expected, atol=3e-6)
        start += length


def test_padded_queries_are_left_out_whatever_they_may_read():
    layer = _built()
    x = _x(1, 6)
    lengths = np.array([[4]], "int32")
    segment_ids, _, _ = segments_of(lengths, 6)
    keys_only = np.array([[[True] * 4 + [False] * 2] * 6])  # padding, too, may read the text
    reduced = np.asarray(layer(x, segment_ids, lengths, keys_only))
    np.testing.assert_allclose(reduced, _reduce(layer, x[:, :4], [[4]]), atol=1e-6)


def test_layer_habits():
    lengths = np.array([[3, 2], [4, 0]], "int32")
    segment_ids, _, mask = segments_of(lengths, 6)
    check_layer(
        SqrtNReduction,
        {"num_heads": 2, "attention_dim": 3},
        {
            "x": _x(2, 6),
            "segment_ids": np.asarray(segment_ids),
            "segment_lengths": lengths,
            "attention_mask": np.asarray(mask),
        },
        (2, 2, 2 * DIM),
    )
