"""Vectors at length 1, in plain numpy."""

import numpy as np


def unit_rows(vectors: np.ndarray, dim: int | None = None) -> np.ndarray:
    """The first numbers of each vector, at length 1; zeros stay zeros.

    Args:
      vectors: float `[..., numbers]`.
      dim: how many of them; None for all.

    Returns:
      float `[..., dim]`.
    """
    cut = vectors[..., :dim]
    return cut / np.maximum(np.linalg.norm(cut, axis=-1, keepdims=True), 1e-12)
