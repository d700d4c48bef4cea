"""Filter for TensorFlow's message about float16, in which modules only store numbers."""

import functools
import os

import tensorflow as tf

from convert_tf.numerics.quiet import LEVEL, filtered_standard_error


@functools.cache
def quieten_float16() -> None:
    """Make TensorFlow print its message that oneDNN cannot compute in float16, and drop it.

    TensorFlow prints it as an error for the first float16 tensor of a process. Call this right
    before there is one: after the first tensor, threads and devices cannot be configured any more.
    """
    if os.environ.get(LEVEL) not in ("0", "1"):
        with filtered_standard_error():
            tf.constant(0.0, tf.float16)
