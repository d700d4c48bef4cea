"""A linear map from the vectors of one encoder to the vectors of another.

If you replace an encoder, use the map to convert stored vectors whose texts are no longer
available. If the texts are available, encode them again instead.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from convert_tf.corpora.sample import sample_texts
from convert_tf.numerics.vectors import unit_rows

SHIPPED_TEXTS = 1_000
LEAST_TEXTS = 20
# Penalties to try, as factors of the mean squared singular value.
_PENALTIES = tuple(10.0**power for power in range(-6, 3))


class Translation(NamedTuple):
    """An affine map between two spaces of vectors.

    Attributes:
      mean: float64 `[old_dim]`, the mean of the old vectors, which is subtracted first.
      kernel: float64 `[old_dim, new_dim]`, the matrix of the linear part.
      bias: float64 `[new_dim]`, the vector that is added to the product with `kernel`.
      has_unit_length: whether translated vectors are scaled to length 1.
      cosine: the mean cosine between the translated vector of a text and the new encoder's vector,
        for texts that were left out of the fit.
    """

    mean: np.ndarray
    kernel: np.ndarray
    bias: np.ndarray
    has_unit_length: bool
    cosine: float

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Translate vectors: float `[texts, old_dim]` → float32 `[texts, new_dim]`.

        Zero vectors, such as the similarity vectors of empty texts, stay zero.
        """
        translated = (vectors.astype(np.float64) - self.mean) @ self.kernel + self.bias
        rows = np.where(vectors.any(axis=-1, keepdims=True), translated, 0).astype(np.float32)
        return unit_rows(rows) if self.has_unit_length else rows


def fit_translation(old: np.ndarray, new: np.ndarray) -> Translation:
    """Fit the map from one encoder's vectors to another's by ridge regression.

    The penalty with the lowest leave-one-out error is chosen. In ridge regression, this error can
    be computed without further fits. For each row, it is the residual divided by 1 − h, where h is
    the weight of the row in its own prediction.

    Args:
      old: the old encoder's vectors for some texts, float `[texts, old_dim]`. Texts with a zero
        vector from either encoder are left out of the fit.
      new: the new encoder's vectors for the same texts, float `[texts, new_dim]`.

    Raises:
      ValueError: if there are fewer than `LEAST_TEXTS` texts without a zero vector, the numbers of
        old and new vectors differ, or all old vectors are equal.

    Example:
      translate = fit_translation(old_encoder.encode(texts), new_encoder.encode(texts))
      store = translate(store)
    """
    if len(old) != len(new):
        raise ValueError(
            "A translation needs the vectors of the same texts from both encoders. Received: "
            f"{len(old)} old and {len(new)} new vectors. Pass the vectors of the same texts."
        )
    is_fitted = old.any(axis=1) & new.any(axis=1)
    old, new = old[is_fitted], new[is_fitted]
    if len(old) < LEAST_TEXTS:
        raise ValueError(
            f"A translation needs the vectors of at least {LEAST_TEXTS} texts from both encoders. "
            f"Received: {len(old)} and {len(new)} vectors that are not zero. Pass more texts."
        )
    wide, target = old.astype(np.float64), new.astype(np.float64)
    mean, bias = wide.mean(axis=0), target.mean(axis=0)
    # Without this check, equal numbers in a column could differ from their mean, due to rounding.
    centred = np.where(np.ptp(wide, axis=0) > 0, wide - mean, 0)
    left, scales, right = np.linalg.svd(centred, full_matrices=False)
    products = left.T @ (target - bias)
    best_error, best_penalty, best_rows = np.inf, None, target
    for penalty in np.mean(scales**2) * np.array(_PENALTIES):
        with np.errstate(invalid="ignore"):  # 0 / 0 if all scales are 0
            shrunk = scales**2 / (scales**2 + penalty)
        weights = np.minimum(((left * shrunk) * left).sum(axis=1) + 1 / len(old), 1 - 1e-9)
        fitted = (left * shrunk) @ products + bias
        residuals = (target - fitted) / (1 - weights)[:, None]
        if (error := float((residuals**2).sum())) < best_error:
            best_error, best_penalty, best_rows = error, penalty, target - residuals
    if best_penalty is None:
        raise ValueError("All texts have the same vector. Pass other texts.")
    kernel = (right.T * (scales / (scales**2 + best_penalty))) @ products
    lengths = np.linalg.norm(target, axis=1)
    is_unit = bool((np.abs(lengths - 1) < 1e-3).all())
    cosines = (unit_rows(best_rows) * unit_rows(target)).sum(axis=1)
    return Translation(mean, kernel, bias, is_unit, float(cosines.mean()))


def shipped_texts() -> Iterator[str]:
    """Yield the generated texts that a translation is fitted on by default."""
    return islice(sample_texts(), SHIPPED_TEXTS)
