"""Scale vectors to length 1 with numpy, and the scale of sentence encodings."""

import numpy as np

# Before scaling, a sentence encoding is r plus a vector whose norm is on average 1.5 times that of
# r.
ADDED_LENGTH = 1.5
SENTENCE_SCALE = 1 / (1 + ADDED_LENGTH)  # brings the norm of sentence encodings close to that of r


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
