"""Compare all signatures with a newer TensorFlow's vectors. Run in the client's environment.

`python module_probe.py MODULE VECTORS.npz` prints one line of JSON. In this project's environment,
`--write` writes the vectors instead. TensorFlow 2.6 runs this file, so it must suit Python 3.8.
"""

import json
import os
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401 (its ops are in the module's graph)

TEXTS = [
    "How do I reset my password?", "", "I lost my card yesterday, please help!", "Zebra \u4f60 42!",
    "word " * 700, "na\u00efve \U0001f600 caf\u00e9", "10.000,50 euro", "yes", "a\x00b", "\ufe4f",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8", "where is the bank?",
    *(f"Sentence {number} about cats, dogs and banks." for number in range(20)),
]  # fmt: skip


def outputs_of(module):
    """Yield the outputs of every signature with their names; some contexts have no history."""
    columns = {"extra_context": ["" if i % 3 else text for i, text in enumerate(TEXTS[::-1])]}
    for signature, function in sorted(module.signatures.items()):
        inputs = function.structured_input_signature[1]
        given = {name: tf.constant(columns.get(name, TEXTS)) for name in inputs}
        for name, value in function(**given).items():
            value = value.numpy()
            yield signature + "/" + name, value.astype("S") if value.dtype == object else value


def seconds_of_one(module):
    """Return the median time in seconds for one sentence."""
    text, seconds = tf.constant(TEXTS[:1]), []
    for _ in range(30):
        start = time.perf_counter()
        module.signatures["default"](default=text)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def main():
    start = time.perf_counter()
    module = hub.load(sys.argv[1])
    loaded = time.perf_counter() - start
    found = dict(outputs_of(module))
    if "--write" in sys.argv:
        np.savez(sys.argv[2], **found)
    expected = np.load(sys.argv[2])
    assert sorted(found) == sorted(expected.files), sorted(found)
    difference = {}
    for name, value in found.items():
        if value.dtype.kind == "S":
            assert (value == expected[name]).all(), name
        else:
            assert value.shape == expected[name].shape and np.isfinite(value).all(), name
            # Values that sum many tokens are large, so these are compared relatively.
            size = np.maximum(1, np.abs(expected[name]).max(-1, keepdims=True))
            difference[name] = float((np.abs(value - expected[name]) / size).max())
    facts = {"TensorFlow": tf.__version__, "signatures": len(module.signatures)}
    facts["largest difference"] = float(f"{max(difference.values()):.1e}")
    facts["load, s"] = round(loaded, 1)
    facts["one sentence, ms"] = round(1000 * seconds_of_one(module), 1)
    print(json.dumps(facts))
    assert facts["largest difference"] <= 5e-5, difference


if __name__ == "__main__":
    main()
