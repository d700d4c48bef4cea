"""Initial weights that are a function of a seed alone: the same on every backend of Keras.

Keras's own initializers draw with the backend's generator: TensorFlow and JAX begin with other
numbers for the same seed. These draw with numpy's `RandomState`, whose streams do not change.
"""

import math
import random
from typing import Any

import keras
import numpy as np
from keras import ops
from threadpoolctl import threadpool_limits


def set_seed(seed: int) -> None:
    """Seeds all that draws initial weights and dropout."""
    if keras.backend.backend() == "tensorflow":
        keras.utils.set_random_seed(seed)
    else:  # where that would import TensorFlow; Keras draws its seeds from Python's
        random.seed(seed)
        np.random.seed(seed)


class _Drawn(keras.initializers.Initializer):
    """Draws with a seed, which is taken from Python's `random` where none is given, as Keras does.

    Args:
      seed: not negative, or None.
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


class TruncatedNormal(_Drawn):
    """Normal numbers of a standard deviation; those beyond two of them are drawn again."""

    def __init__(self, stddev: float, seed: int | None = None):
        super().__init__(seed)
        self.stddev = stddev

    def _draw(self, rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        values = rng.standard_normal(shape)
        while (beyond := np.abs(values) > 2.0).any():
            values[beyond] = rng.standard_normal(int(beyond.sum()))
        return self.stddev * values

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "stddev": self.stddev}


class GlorotUniform(_Drawn):
    """Uniform numbers with the variance `gain²` × 2 / (inputs + outputs), of a matrix."""

    def __init__(self, gain: float = 1.0, seed: int | None = None):
        super().__init__(seed)
        self.gain = gain

    def _draw(self, rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        limit = self.gain * math.sqrt(6.0 / (shape[-2] + shape[-1]))
        return rng.uniform(-limit, limit, shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "gain": self.gain}


class Orthogonal(_Drawn):
    """A matrix whose shorter side is orthonormal, each such one equally likely."""

    def _draw(self, rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        rows, columns = shape
        # Two threads of OpenBLAS take a hundred times as long as one beside other programs.
        with threadpool_limits(1, user_api="blas"):
            q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
        q *= np.sign(np.diag(r))
        return q if rows >= columns else q.T
