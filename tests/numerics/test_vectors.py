import tracemalloc

import numpy as np

from convert_tf.numerics import vectors
from convert_tf.numerics.vectors import SENTENCE_SCALE, dot_products, unit_rows


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


def test_dot_products_of_all_rows(monkeypatch):
    monkeypatch.setattr(vectors, "_ROWS_AT_ONCE", 4)
    rows, others = np.arange(6.0, dtype=np.float32).reshape(2, 3), np.eye(3, dtype=np.float32)
    others = np.vstack([others, 2 * others, 3 * others, others[:1]])
    products = dot_products(rows, others)
    assert products.dtype == np.float32
    expected = [[0, 1, 2, 0, 2, 4, 0, 3, 6, 0], [3, 4, 5, 6, 8, 10, 9, 12, 15, 3]]
    np.testing.assert_array_equal(products, expected)
    assert dot_products(rows, others[:0]).shape == (2, 0)


def test_dot_products_convert_few_rows_at_once():
    others = np.zeros((200_000, 64), np.float32)  # 102 MB in float64
    tracemalloc.start()
    dot_products(others[:1], others)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20e6
