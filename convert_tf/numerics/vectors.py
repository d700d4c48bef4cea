"""Functions that scale and compare vectors with numpy, and the scale of sentence encodings."""

import numpy as np

# Before scaling, a sentence encoding is r plus a vector whose norm is on average 1.5 times that of
# r.
ADDED_LENGTH = 1.5
SENTENCE_SCALE = 1 / (1 + ADDED_LENGTH)  # brings the norm of sentence encodings close to that of r
_ROWS_AT_ONCE = 16_384  # number of rows to convert to float64 together


def unit_rows(vectors: np.ndarray, dim: int | None = None) -> np.ndarray:
    """Scale vectors to length 1. Zero vectors stay zero.

    Args:
      vectors: vectors to scale, float `[..., width]`.
      dim: number of columns to keep, starting with the first, or None for all.

    Returns:
      The scaled vectors, `[..., dim]`, in the dtype of float inputs.
    """
    vectors = vectors[..., :dim]
    if vectors.dtype == np.float16:  # squares may be too large or too small for float16
        return unit_rows(vectors.astype(np.float32)).astype(np.float16)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def dot_products(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the dot products of rows: float32 `[rows, other_rows]`.

    The products are computed in float64. In float32, the products with equal rows may differ in the
    last bits, which would change the order of equal responses. `others` may have millions of rows,
    so they are converted to float64 in parts.

    Args:
      vectors: float `[rows, dim]`.
      others: float `[other_rows, dim]`.
    """
    wide = vectors.astype(np.float64)
    products = np.empty((len(vectors), len(others)), np.float32)
    for start in range(0, len(others), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        products[:, rows] = wide @ others[rows].astype(np.float64).T
    return products
