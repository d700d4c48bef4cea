"""What whatlies does with a module: `ConveRTLanguage[text]` for each of its signatures.

Written anew from the calls in whatlies' published source (`_convert_lang.py`, Apache-2.0).
"""

import functools

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401 (its ops are in the module's graph)

_load = functools.cache(hub.load)  # whatlies loads anew for each signature; tests need not
SIGNATURES = ("default", "encode_context", "encode_response", "encode_sequence")


class WhatliesClient:
    """A vector for a text by one of `SIGNATURES`.

    Args:
      folder: a module.
      signature: of it.
    """

    def __init__(self, folder: str, signature: str = "default"):
        self._signature = signature
        self._function = _load(folder).signatures[signature]

    def __getitem__(self, text: str) -> np.ndarray:
        outputs = self._function(tf.convert_to_tensor([text]))
        if self._signature == "encode_sequence":
            return outputs["sequence_encoding"].numpy().sum(axis=1)[0]
        return outputs["default"].numpy()[0]
