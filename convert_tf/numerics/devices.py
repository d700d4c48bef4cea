"""Devices that Keras's backend uses, and the fastest precision on them.

Importing this module loads Keras and its backend, and checks the user's Keras settings. All
packages that compute with Keras import it.
"""

import warnings

import keras
from keras import ops

from convert_tf.numerics.keras_settings import check_keras_settings
from convert_tf.numerics.processor import bfloat16_is_faster

check_keras_settings()


def has_gpu() -> bool:
    """Return whether Keras's backend sees a GPU."""
    try:
        return bool(keras.distribution.list_devices("gpu"))
    except RuntimeError:  # JAX raises this error if it has no GPU backend
        return False


def is_tensorflow_on_cpu() -> bool:
    """Return whether Keras runs on TensorFlow without a GPU, where XLA does not fuse ops."""
    return keras.backend.backend() == "tensorflow" and not has_gpu()


def compiles_shapes() -> bool:
    """Return whether XLA compiles training steps for each shape of a batch.

    With TensorFlow on a CPU, steps are not compiled, because XLA has no fast 16-bit matrix product
    for CPUs.
    """
    return keras.backend.backend() == "jax" or has_gpu()


def compiles_feed_forward(precision: str) -> bool:
    """Return whether training with TensorFlow on a CPU should compile the feed-forward layers.

    Compiled layers are faster only in 16-bit precision, in which TensorFlow's ops are slow.

    Args:
      precision: name of a Keras dtype policy, for example `mixed_bfloat16`.
    """
    return is_tensorflow_on_cpu() and precision != "float32"


def choose_precision(requested: str = "auto") -> str:
    """Return the precision to train in. `auto` chooses the fastest one on this device.

    On a GPU, `auto` is `mixed_float16`. On a CPU, a short matrix product is timed: `auto` is
    `mixed_bfloat16` if it is clearly faster in bfloat16 than in float32, and otherwise `float32`.
    float16 is never chosen on a CPU, where it makes TensorFlow's matmul + bias thousands of times
    slower.

    Args:
      requested: value of the field `precision` in a training configuration.

    Returns:
      The name of a Keras dtype policy.
    """
    if requested == "mixed_float16" and not has_gpu() and keras.backend.backend() == "tensorflow":
        warnings.warn(
            "With TensorFlow on a CPU, mixed_float16 is thousands of times slower than "
            "mixed_bfloat16. Use --precision=mixed_bfloat16 or auto.",
            stacklevel=2,
        )
    if requested != "auto":
        return requested
    if has_gpu():
        return "mixed_float16"
    matrices = {
        dtype: (ops.ones((2048, 512), dtype), ops.ones((512, 2048), dtype))
        for dtype in ("float32", "bfloat16")
    }
    is_faster = bfloat16_is_faster(lambda dtype: float(ops.matmul(*matrices[dtype])[0, 0]))
    return "mixed_bfloat16" if is_faster else "float32"
