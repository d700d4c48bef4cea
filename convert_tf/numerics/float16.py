"""What TensorFlow says of float16, which modules store and do not compute in."""

import functools
import os

import tensorflow as tf

from convert_tf.numerics.quiet import LEVEL, filtered_standard_error


@functools.cache
def quieten_float16() -> None:
    """Has TensorFlow say unheard that oneDNN does not compute in float16 on this processor.

    It says so as an error, once in a process, of the first tensor in float16. To be called where
    there will be one, not before: a tensor ends the time in which threads and devices can be set.
    """
    if os.environ.get(LEVEL) not in ("0", "1"):
        with filtered_standard_error():
            tf.constant(0.0, tf.float16)
