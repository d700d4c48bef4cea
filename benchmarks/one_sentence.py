"""Profile the encoding of one sentence with a module: loading, the first call, and each op.

```
python benchmarks/one_sentence.py --encoder hub_modules/convert/2
```

Loading and calls are timed in one process that uses all its threads. The ops are timed in a trace
of one call on one thread, so that their times add up. Memory is the peak of the process so far.
Most of it is due to importing TensorFlow.
"""

import collections
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tensorflow_text  # noqa: F401 (its ops are in the module's graph)
from absl import app, flags

_ENCODER = flags.DEFINE_string("encoder", None, "Folder of a module.", required=True)
_TEXT = flags.DEFINE_string(
    "text", "how do I change my pin for the card I got last week?", "Sentence to encode."
)
_CALLS = flags.DEFINE_integer("calls", 200, "Calls to time; the median is printed.")
_OPS = flags.DEFINE_integer("ops", 12, "Kinds of ops to print, slowest first.")
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes on macOS, else KiB


def _milliseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT / 1e6


def _print_calls(path: str, text: str) -> None:
    print(f"import tensorflow, tensorflow_text: {_peak_mb():,.0f} MB")
    start = time.perf_counter()
    module = tf.saved_model.load(path)
    print(f"load: {time.perf_counter() - start:.1f} s, {_peak_mb():,.0f} MB")
    texts = tf.constant([text])
    for name in ("default", "tokenize"):
        signature = module.signatures[name]

        def call(signature=signature) -> object:
            return signature(default=texts)["default"].numpy()

        first = _milliseconds(call)
        later = sorted(_milliseconds(call) for _ in range(_CALLS.value))
        print(
            f"{name}: first call {first / 1e3:.1f} s, then {statistics.median(later):.2f} ms "
            f"(fastest {later[0]:.2f}), {_peak_mb():,.0f} MB"
        )


def _print_ops(path: str, text: str) -> None:
    one_thread = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
    )
    with tf.Graph().as_default(), tf.compat.v1.Session(config=one_thread) as session:
        graph = tf.compat.v1.saved_model.load(session, ["serve"], path)
        signature = graph.signature_def["default"]
        result = signature.outputs["default"].name
        feeds = {signature.inputs["default"].name: [text]}
        for _ in range(5):
            session.run(result, feeds)
        trace = tf.compat.v1.RunMetadata()
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)
        session.run(result, feeds, options=options, run_metadata=trace)
    microseconds: collections.Counter[str] = collections.Counter()
    numbers: collections.Counter[str] = collections.Counter()
    for device in trace.step_stats.dev_stats:
        for node in device.node_stats:
            kind = node.timeline_label.split(" = ")[-1].split("(")[0] or node.node_name
            microseconds[kind] += node.op_end_rel_micros - node.op_start_rel_micros
            numbers[kind] += 1
    total = microseconds.total()
    print(f"one thread: {numbers.total():,} ops, {total / 1e3:.1f} ms")
    for kind, spent in microseconds.most_common(_OPS.value):
        print(f"  {numbers[kind]:4d} {kind:30s} {spent / 1e3:6.2f} ms, {spent / total:.0%}")


def main(_: list[str]) -> None:
    _print_calls(_ENCODER.value, _TEXT.value)
    _print_ops(_ENCODER.value, _TEXT.value)


if __name__ == "__main__":
    app.run(main)
