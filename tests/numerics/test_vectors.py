import numpy as np

from convert_tf.numerics.vectors import SENTENCE_SCALE, unit_rows


def test_rows_get_length_1_and_zeros_stay_zeros():
    rows = unit_rows(np.array([[[3.0, 4.0, 12.0], [0.0, 0.0, 0.0]]], np.float32))
    np.testing.assert_allclose(rows, [[[3 / 13, 4 / 13, 12 / 13], [0, 0, 0]]], rtol=1e-6)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(unit_rows(np.array([[3.0, 4.0, 12.0]]), 2), [[0.6, 0.8]])


def test_squares_of_float16_neither_overflow_nor_vanish():
    rows = np.array([[0, 0], [240, 320], [3e-6, 4e-6]], np.float16)
    scaled = unit_rows(rows)
    assert scaled.dtype == np.float16
    np.testing.assert_allclose(scaled[:2], [[0, 0], [0.6, 0.8]], atol=5e-4)
    np.testing.assert_allclose(np.linalg.norm(scaled[2].astype(np.float32)), 1, atol=1e-3)


def test_a_sentence_is_scaled_by_the_length_that_is_added():
    assert SENTENCE_SCALE == 0.4
