"""What Keras computes on, and the precision that is fast there.

Importing this loads Keras and its backend.
"""

import time
import warnings

import keras
import numpy as np
from keras import ops

from convert_tf.numerics.processor import multiplies_bfloat16

# bfloat16 has to win clearly: it costs accuracy, and a busy machine makes timings uncertain.
SPEED_UP_THAT_COUNTS = 1.2


def has_gpu() -> bool:
    """Whether Keras's backend sees a GPU."""
    try:
        return bool(keras.distribution.list_devices("gpu"))
    except RuntimeError:  # JAX's answer where it has no such backend
        return False


def is_tensorflow_on_cpu() -> bool:
    """Whether ops run one by one, each with a pass over memory, where nothing is compiled."""
    return keras.backend.backend() == "tensorflow" and not has_gpu()


def compiles_shapes() -> bool:
    """Whether a training step is compiled for each shape of its batch, by XLA.

    Not on TensorFlow's CPU: XLA has no fast 16-bit matmul there.
    """
    return keras.backend.backend() == "jax" or has_gpu()


def compiles_feed_forward(precision: str) -> bool:
    """Whether what lies between a feed-forward's matmuls is, in training on TensorFlow's CPU.

    In bfloat16 or float16 alone: there TensorFlow's own ops are slow, and in float32 runs stay what
    they were.

    Args:
      precision: a policy of Keras, as `mixed_bfloat16`.
    """
    return is_tensorflow_on_cpu() and precision != "float32"


def matmul_seconds(dtype: str, *, rows: int = 2048, repeats: int = 5) -> float:
    """Median seconds of one matmul `[rows, 512] × [512, 2048]` + bias in `dtype`."""
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
    """The precision to train in: what was asked for, or what this device does fast.

    `auto` is `mixed_float16` on a GPU; on a CPU it is `mixed_bfloat16` where the processor may have
    instructions for it and a short timed matmul is clearly faster than in float32, else `float32`.
    float16 is never chosen on a CPU: TensorFlow's fused matmul + bias is thousands of times slower
    there.

    Args:
      requested: a `Training.precision`.

    Returns:
      A Keras dtype policy name.
    """
    if requested == "mixed_float16" and not has_gpu() and keras.backend.backend() == "tensorflow":
        warnings.warn(
            "mixed_float16 on TensorFlow's CPU is thousands of times slower than mixed_bfloat16 in "
            "matmul + bias. Use --precision=mixed_bfloat16 or auto.",
            stacklevel=2,
        )
    if requested != "auto":
        return requested
    if has_gpu():
        return "mixed_float16"
    if multiplies_bfloat16() is False:
        return "float32"
    faster = matmul_seconds("float32") / matmul_seconds("bfloat16")
    return "mixed_bfloat16" if faster >= SPEED_UP_THAT_COUNTS else "float32"
