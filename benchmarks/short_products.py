"""Time the multiplication of a short text with a layer's weights, for several TensorFlow ops.

```
python benchmarks/short_products.py --rows 13
```

The product is `[rows, 512] × [512, 2048]`, as in a feed-forward layer. Six weight matrices are used
in turn, so that none of them stays in the core's cache. All forms of the product take turns, and
numpy's product is one of them. The script prints the minimum and the median of the calls. The time
cannot be less than that of reading 4 MB of weights, or of the multiplications themselves.
"""

import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from absl import app, flags

_ROWS = flags.DEFINE_integer("rows", 13, "Number of tokens in the text.")
_CALLS = flags.DEFINE_integer("calls", 40, "How often each form multiplies by all weights.")
_INPUTS, _OUTPUTS, _WEIGHTS, _PIECES = 512, 2048, 6, 8


def forms(rows: int) -> dict[str, Callable[[], object]]:
    """Return functions by name that multiply a text once by each of the weights."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(rows, _INPUTS)).astype(np.float32)
    weights = [rng.normal(size=(_INPUTS, _OUTPUTS)).astype(np.float32) for _ in range(_WEIGHTS)]
    x, across = tf.constant(inputs), tf.constant(inputs.T.copy())
    variables = [tf.Variable(each) for each in weights]
    turned = [tf.Variable(each.T.copy()) for each in weights]
    pieces = [
        tf.Variable(each.reshape(_INPUTS, _PIECES, -1).transpose(1, 0, 2).copy())
        for each in weights
    ]
    constants = [tf.constant(each) for each in weights]
    halves = [tf.Variable(tf.cast(each, tf.bfloat16)) for each in weights]
    half_x = tf.cast(x, tf.bfloat16)
    products = {
        "x W": lambda: [tf.matmul(x, each) for each in variables],
        "x W, constants": lambda: [tf.matmul(x, each) for each in constants],
        "x W, bfloat16": lambda: [tf.matmul(half_x, each) for each in halves],
        "W' x'": lambda: [tf.matmul(each, across) for each in turned],
        "W' x', x transposed by the op": lambda: [
            tf.matmul(each, x, transpose_b=True) for each in turned
        ],
        "x W, W transposed by the op": lambda: [
            tf.matmul(x, each, transpose_b=True) for each in turned
        ],
        f"x W, {_PIECES} pieces of W as a batch": lambda: [
            tf.matmul(x[None], each) for each in pieces
        ],
        "a row at a time": lambda: [
            tf.stack([tf.linalg.matvec(each, row) for row in tf.unstack(x)]) for each in turned
        ],
    }
    found: dict[str, Callable[[], object]] = {
        name: tf.function(product) for name, product in products.items()
    }
    found["numpy"] = lambda: [inputs @ each for each in weights]
    return found


def main(_):
    timed = forms(_ROWS.value)
    times: dict[str, list[float]] = {name: [] for name in timed}
    for run in timed.values():
        run()
    for _ in range(_CALLS.value):
        for name, run in timed.items():
            started = time.perf_counter()
            run()
            times[name].append(1e3 * (time.perf_counter() - started) / _WEIGHTS)
    for name, own in times.items():
        print(f"{name:34}minimum {min(own):7.3f} ms, median {statistics.median(own):7.3f} ms")


if __name__ == "__main__":
    app.run(main)
