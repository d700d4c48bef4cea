"""Initializers that give the same weights on every backend of Keras.

Keras's initializers use the random generator of the backend, so TensorFlow and JAX give different
numbers for the same seed. These use numpy's `RandomState`, whose numbers never change.
"""

import math
import random
from typing import Any

import keras
import numpy as np
from keras import ops
from threadpoolctl import threadpool_limits


def set_seed(seed: int) -> None:
    """Set the seed of initial weights and dropout."""
    if keras.backend.backend() == "tensorflow":
        keras.utils.set_random_seed(seed)
    else:  # Keras's function would import TensorFlow
        random.seed(seed)
        np.random.seed(seed)


class _NumpyInitializer(keras.initializers.Initializer):
    """Base class of the initializers. The seed is from Python's `random`, as in Keras."""

    def __init__(self) -> None:
        self._seed = random.randint(1, 10**9)

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        values = self._draw(np.random.RandomState(self._seed), tuple(shape))
        return ops.convert_to_tensor(
            values.astype("float32"), dtype=dtype or keras.backend.floatx()
        )

    def _draw(self, rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        raise NotImplementedError


class TruncatedNormal(_NumpyInitializer):
    """Normal numbers; those beyond two standard deviations are drawn again."""

    def __init__(self, stddev: float):
        super().__init__()
        self.stddev = stddev

    def _draw(self, rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        values = rng.standard_normal(shape)
        while (is_outside := np.abs(values) > 2.0).any():
            values[is_outside] = rng.standard_normal(int(is_outside.sum()))
        return self.stddev * values


class GlorotUniform(_NumpyInitializer):
    """Matrix of uniform numbers with the variance `gain²` × 2 / (inputs + outputs)."""

    def __init__(self, gain: float = 1.0):
        super().__init__()
        self.gain = gain

    def _draw(self, rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        limit = self.gain * math.sqrt(6.0 / (shape[-2] + shape[-1]))
        return rng.uniform(-limit, limit, shape)


class Orthogonal(_NumpyInitializer):
    """Random matrix with orthonormal rows or columns, whichever are fewer."""

    def _draw(self, rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        rows, columns = shape
        # On a busy machine, OpenBLAS with two threads takes a hundred times as long as with one.
        with threadpool_limits(1, user_api="blas"):
            q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
        q *= np.sign(np.diag(r))
        return q if rows >= columns else q.T
