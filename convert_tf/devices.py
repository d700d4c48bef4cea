"""What Keras computes on.

Importing this loads Keras and its backend.
"""

import keras


def has_gpu() -> bool:
    """Whether Keras's backend sees a GPU."""
    try:
        return bool(keras.distribution.list_devices("gpu"))
    except RuntimeError:  # JAX's answer where it has no such backend
        return False


def is_tensorflow_on_cpu() -> bool:
    """Whether ops run one by one, each with a pass over memory: nothing compiles them together."""
    return keras.backend.backend() == "tensorflow" and not has_gpu()
