"""The user's Keras settings: the variable `KERAS_BACKEND` and the file `keras.json`.

Importing this module loads Keras and its backend.
"""

import keras

from convert_tf.extras import KERAS_BACKENDS, unusable_setting


def use_float32() -> None:
    """Make Keras compute in float32, regardless of the user's `keras.json`."""
    keras.config.set_floatx("float32")


def check_keras_settings() -> None:
    """Raise `ValueError` if convert_tf cannot run with the user's Keras settings."""
    if (backend := keras.backend.backend()) not in KERAS_BACKENDS:
        raise unusable_setting("backend", backend)
    if (floats := keras.config.floatx()) != "float32":
        raise unusable_setting("floatx", floats)
