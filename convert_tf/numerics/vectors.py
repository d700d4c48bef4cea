"""Normalisation of vectors, in numpy."""

import numpy as np


def unit_rows(vectors: np.ndarray, dim: int | None = None) -> np.ndarray:
    """Scale vectors to length 1. Zeros stay zeros.

    Args:
      vectors: float `[..., width]`.
      dim: number of columns to keep, the first ones; None for all.

    Returns:
      float `[..., dim]`.
    """
    vectors = vectors[..., :dim]
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
