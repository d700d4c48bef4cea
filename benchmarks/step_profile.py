"""Profile a training step on TensorFlow, and group its ops by kind."""

import collections
import glob
import re
import tempfile
from collections.abc import Callable
from typing import Any

# An op belongs to the first kind whose pattern matches its name, `scope/…/name:Type`. Gradients of
# silu have no scope, because TensorFlow defines them.
KINDS = (
    ("optimizer", r"adam|adadelta"),
    ("norms", r"norm"),
    ("matmul", r":.*MatMul"),
    ("gradient of the table", r"table_gradient|:UnsortedSegmentSum|^[^/]*:(Square|Sum)$"),
    ("dropout", r"dropout"),
    ("feed-forward: fast GELU, biases", r"feed_forward|^[^/]*:(Sigmoid|Mul|Sub|AddV2|Cast)$"),
    ("attention and reduction: softmax, masks", r"attention|reduction"),
    ("embedding: gather, quantization", r"embedding"),
    ("side networks", r"_side"),
    ("sums of gradients", r":AddN$"),
)
OTHER = "loss, metrics, residual sums and the rest"
# The time of an op is this quantile of the times of its calls. The mean would be too high, because
# other programs interrupt some of the calls.
QUANTILE = 0.15


def kind_of(name: str) -> str:
    """Return the kind of an op from its name in the trace."""
    return next((kind for kind, pattern in KINDS if re.search(pattern, name)), OTHER)


def self_times(run: Callable[[], Any], steps: int) -> dict[str, list[float]]:
    """Trace steps and return the milliseconds of each call by op.

    The time of a call does not include other ops that it calls.

    Args:
      run: takes one step.
      steps: number of steps to trace.
    """
    import tensorflow as tf
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2)
        tf.profiler.experimental.start(folder, options=options)
        for _ in range(steps):
            run()
        tf.profiler.experimental.stop()
        space = xplane_pb2.XSpace()
        (path,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        with open(path, "rb") as file:
            space.ParseFromString(file.read())
    found: dict[str, list[float]] = collections.defaultdict(list)
    for plane in space.planes:
        if "CPU" not in plane.name:
            continue
        for line in plane.lines:
            _add_line(found, plane, line)
    return found


def _add_line(found: dict[str, list[float]], plane: Any, line: Any) -> None:
    """Add the events of a thread. The time of an event excludes the events nested in it."""
    events = sorted(
        (event.offset_ps, -event.duration_ps, plane.event_metadata[event.metadata_id].name)
        for event in line.events
    )
    stack: list[list[Any]] = []  # end, name, time without nested events

    def close() -> None:
        _, name, own = stack.pop()
        if re.search(r":\w+$", name):  # an op; other events belong to the runtime
            found[name].append(own / 1e9)

    for start, negative_duration, name in events:
        while stack and stack[-1][0] <= start:
            close()
        if stack:
            stack[-1][2] += negative_duration
        stack.append([start - negative_duration, name, -negative_duration])
    while stack:
        close()


def cost_table(times: dict[str, list[float]], steps: int) -> dict[str, dict[str, float]]:
    """Return `ms` and `ops` per step for each kind of op, slowest kind first.

    Args:
      times: milliseconds of each call by op.
      steps: number of steps that were traced.
    """
    table: dict[str, dict[str, float]] = {}
    for name, own in times.items():
        runs = len(own) / steps
        row = table.setdefault(kind_of(name), {"ms": 0.0, "ops": 0.0})
        row["ms"] += sorted(own)[int(QUANTILE * len(own))] * runs
        row["ops"] += runs
    return dict(sorted(table.items(), key=lambda item: -item[1]["ms"]))
