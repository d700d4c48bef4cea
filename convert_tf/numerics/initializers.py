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
    """Base class of the initializers.

    Args:
      seed: not negative. None takes a seed from Python's `random`, as Keras does.
    """

    def __init__(self, seed: int | None = None):
        self._given_seed = seed
        self.seed = random.randint(1, 10**9) if seed is None else seed

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        values = self._draw(np.random.RandomState(self.seed), tuple(shape))
        return ops.convert_to_tensor(
            values.astype("float32"), dtype=dtype or keras.backend.floatx()
        )

    def _draw(self, rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        return {"seed": self._given_seed}


class TruncatedNormal(_NumpyInitializer):
    """Normal numbers; those beyond two standard deviations are drawn again."""

    def __init__(self, stddev: float, seed: int | None = None):
        super().__init__(seed)
        self.stddev = stddev

    def _draw(self, rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        values = rng.standard_normal(shape)
        while (is_outside := np.abs(values) > 2.0).any():
            values[is_outside] = rng.standard_normal(int(is_outside.sum()))
        return self.stddev * values

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "stddev": self.stddev}


class GlorotUniform(_NumpyInitializer):
    """Matrix of uniform numbers with the variance `gain²` × 2 / (inputs + outputs)."""

    def __init__(self, gain: float = 1.0, seed: int | None = None):
        super().__init__(seed)
        self.gain = gain

    def _draw(self, rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        limit = self.gain * math.sqrt(6.0 / (shape[-2] + shape[-1]))
        return rng.uniform(-limit, limit, shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "gain": self.gain}


class Orthogonal(_NumpyInitializer):
    """Random matrix with orthonormal rows or columns, whichever are fewer."""

    def _draw(self, rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        rows, columns = shape
        # On a busy machine, OpenBLAS with two threads takes a hundred times as long as with one.
        with threadpool_limits(1, user_api="blas"):
            q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
        q *= np.sign(np.diag(r))
        return q if rows >= columns else q.T
