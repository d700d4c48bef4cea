"""Load a module with whatlies' ConveRTLanguage, by each signature. Run in its own environment.

`python whatlies_probe.py MODULE` prints one line of JSON.
"""

import json
import os
import sys
from importlib.metadata import version

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its ops are in the module's graph)
from whatlies.language import ConveRTLanguage


def main():
    ConveRTLanguage.MODEL_URL = {"convert": sys.argv[1]}
    # It passes one input, but `encode_context` of a multi-context module takes two.
    functions = tf.saved_model.load(sys.argv[1]).signatures
    taken = [name for name in ConveRTLanguage.MODEL_SIGNATURES
             if len(functions[name].structured_input_signature[1]) == 1]  # fmt: skip
    for signature in taken:
        language = ConveRTLanguage(signature=signature)
        words = language[["bank of the river", "money on the bank", "bank", "\u4f60 \U0001f600"]]
        vectors = words.to_X()
        assert np.isfinite(vectors).all() and vectors.any(axis=1).all(), signature
    facts = {"whatlies": version("whatlies"), "TensorFlow": tf.__version__}
    print(json.dumps({**facts, "signatures": len(taken)}))


main()
