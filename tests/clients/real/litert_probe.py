"""Convert a module to LiteRT (TensorFlow Lite) with TensorFlow's own ops. Run in TensorFlow 2.15.

`python litert_probe.py MODULE VECTORS.npz` converts the signature `default`, runs the file, and
prints one line of JSON.
"""

import json
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its ops are in the module's graph)
from module_probe import TEXTS


def main():
    converter = tf.lite.TFLiteConverter.from_saved_model(sys.argv[1], signature_keys=["default"])
    converter.target_spec.supported_ops = [
        tf.lite.OpsSet.TFLITE_BUILTINS,
        tf.lite.OpsSet.SELECT_TF_OPS,
    ]
    converter.experimental_enable_resource_variables = True
    content = converter.convert()
    interpreter = tf.lite.Interpreter(model_content=content)
    encode = interpreter.get_signature_runner("default")
    vectors = np.load(sys.argv[2])["default/default"]
    for text, expected in zip(TEXTS, vectors):  # noqa: B905 (equally long)
        found = encode(default=np.array([text.encode()], object))["default"][0]
        np.testing.assert_allclose(found, expected, atol=5e-4)
    start = time.perf_counter()
    for _ in range(10):
        encode(default=np.array([TEXTS[0].encode()], object))
    seconds = (time.perf_counter() - start) / 10
    facts = {"TensorFlow": tf.__version__, "file, MB": round(len(content) / 1e6, 1)}
    print(json.dumps({**facts, "one sentence, ms": round(1000 * seconds, 1)}))


if __name__ == "__main__":
    main()
