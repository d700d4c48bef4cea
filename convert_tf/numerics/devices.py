"""Devices of Keras's backend and the fastest precision on them.

Importing this module loads Keras and its backend.
"""

import time
import warnings

import keras
import numpy as np
from keras import ops

from convert_tf.numerics.processor import multiplies_bfloat16

# bfloat16 costs accuracy, and timings on a busy machine vary, so it must be clearly faster.
MIN_SPEED_UP = 1.2


def has_gpu() -> bool:
    """Return whether Keras's backend sees a GPU."""
    try:
        return bool(keras.distribution.list_devices("gpu"))
    except RuntimeError:  # JAX raises this without a GPU backend
        return False


def is_tensorflow_on_cpu() -> bool:
    """Return whether Keras runs on TensorFlow without a GPU, where XLA does not fuse ops."""
    return keras.backend.backend() == "tensorflow" and not has_gpu()


def compiles_shapes() -> bool:
    """Return whether XLA compiles training steps for each shape of a batch.

    On TensorFlow's CPU it does not, because XLA has no fast 16-bit matrix product there.
    """
    return keras.backend.backend() == "jax" or has_gpu()


def compiles_feed_forward(precision: str) -> bool:
    """Return whether training should compile the feed-forward layers, on TensorFlow's CPU.

    This is faster only with 16-bit precision, for which TensorFlow's ops are slow.

    Args:
      precision: a dtype policy of Keras, for example `mixed_bfloat16`.
    """
    return is_tensorflow_on_cpu() and precision != "float32"


def matmul_seconds(dtype: str, *, rows: int = 2048, repeats: int = 5) -> float:
    """Return the median time of a matrix product `[rows, 512] × [512, 2048]` + bias in seconds."""
    rng = np.random.default_rng(0)
    x, kernel, bias = (
        ops.cast(rng.standard_normal(shape, dtype=np.float32), dtype)
        for shape in ((rows, 512), (512, 2048), (2048,))
    )
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        y = ops.add(ops.matmul(x, kernel), bias)
        ops.convert_to_numpy(ops.cast(y[0, 0], "float32"))
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[1:]))


def choose_precision(requested: str = "auto") -> str:
    """Return the precision to train in. `auto` chooses the fastest one on this device.

    On a GPU, `auto` is `mixed_float16`. On a CPU it is `mixed_bfloat16` if a short timed matrix
    product is clearly faster than in float32, else `float32`. float16 is never chosen on a CPU,
    where it makes TensorFlow's matmul + bias thousands of times slower.

    Args:
      requested: the field `precision` of a training configuration.

    Returns:
      A Keras dtype policy name.
    """
    if requested == "mixed_float16" and not has_gpu() and keras.backend.backend() == "tensorflow":
        warnings.warn(
            "mixed_float16 is thousands of times slower than mixed_bfloat16 on TensorFlow's CPU. "
            "Use --precision=mixed_bfloat16 or auto.",
            stacklevel=2,
        )
    if requested != "auto":
        return requested
    if has_gpu():
        return "mixed_float16"
    if multiplies_bfloat16() is False:
        return "float32"
    speed_up = matmul_seconds("float32") / matmul_seconds("bfloat16")
    return "mixed_bfloat16" if speed_up >= MIN_SPEED_UP else "float32"
