import numpy as np

from convert_tf.numerics.vectors import SENTENCE_SCALE, unit_rows


def test_rows_get_length_1_and_zeros_stay_zeros():
    rows = unit_rows(np.array([[[3.0, 4.0, 12.0], [0.0, 0.0, 0.0]]], np.float32))
    np.testing.assert_allclose(rows, [[[3 / 13, 4 / 13, 12 / 13], [0, 0, 0]]], rtol=1e-6)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(unit_rows(np.array([[3.0, 4.0, 12.0]]), 2), [[0.6, 0.8]])


def test_a_sentence_is_scaled_by_the_length_that_is_added():
    assert SENTENCE_SCALE == 0.4
