"""Initializers that give the same weights on every backend of Keras.

Keras's initializers use the random generator of the backend, so the same seed gives different
numbers on TensorFlow and JAX. The initializers in this module use numpy's `RandomState`, which
gives the same numbers in all versions of numpy.
"""

import math
import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops
from threadpoolctl import threadpool_limits


def set_seed(seed: int) -> None:
    """Set the seed for initial weights and dropout."""
    if keras.backend.backend() == "tensorflow":
        keras.utils.set_random_seed(seed)
    else:  # Keras's own function would import TensorFlow
        random.seed(seed)
        np.random.seed(seed)


def _initializer(draw: Callable[[np.random.RandomState, tuple[int, ...]], np.ndarray]) -> Any:
    """Return a Keras initializer whose seed comes from Python's `random`, as in Keras."""
    seed = random.randint(1, 10**9)

    def initial_values(shape: Any, dtype: Any = None) -> Any:
        values = draw(np.random.RandomState(seed), tuple(shape)).astype("float32")
        return ops.convert_to_tensor(values, dtype=dtype or keras.backend.floatx())

    return initial_values


def truncated_normal(stddev: float) -> Any:
    """Return an initializer for a normal distribution truncated at two standard deviations."""

    def draw(rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        values = rng.standard_normal(shape)
        while (is_outside := np.abs(values) > 2.0).any():
            values[is_outside] = rng.standard_normal(int(is_outside.sum()))
        return stddev * values

    return _initializer(draw)


def glorot_uniform(gain: float = 1.0) -> Any:
    """Return a uniform initializer for matrices with variance `gain²` × 2 / (inputs + outputs)."""

    def draw(rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        limit = gain * math.sqrt(6.0 / (shape[-2] + shape[-1]))
        return rng.uniform(-limit, limit, shape)

    return _initializer(draw)


def orthogonal() -> Any:
    """Return an initializer for matrices with orthonormal columns, or rows if these are fewer."""

    def draw(rng: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
        # OpenBLAS is limited to one thread. While other programs use the cores, two threads take a
        # hundred times as long as one.
        with threadpool_limits(1, user_api="blas"):
            q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
        q *= np.sign(np.diag(r))
        return q if shape[0] >= shape[1] else q.T

    return _initializer(draw)
