"""Profile a training step on JAX, and print its kernels by time.

    KERAS_BACKEND=jax python benchmarks/gpu_profile.py --output /tmp/profiled --data work/ids \
        --flagfile=hub_modules/recipes/convert.flags --utterances work/text_ids \
        --utterance_teacher work/text_vectors

The script takes the arguments of `train.py` and sets up the run in the same way. It takes twenty
steps to warm up and then records ten steps with JAX's profiler. It writes nothing to --output
except the options of the run. It prints the time of a step, and a table with the milliseconds and
the number of calls of each kernel per step, slowest first.
"""

import collections
import glob
import itertools
import re
import sys
import tempfile
import time
from typing import Any

import jax

from convert_tf.cli.main import main
from convert_tf.training import loop
from convert_tf.training.step import make_step
from convert_tf.training.task import Task

WARM_UP = 20
STEPS = 10
ROWS = 40


def kernel_times(folder: str) -> dict[str, list[float]]:
    """Return the milliseconds of each kernel call in a trace, by the kernel's name without numbers.

    On a GPU these are the kernels of its streams, and on a CPU the ops of XLA's threads.

    Args:
      folder: folder of the trace.

    Raises:
      ValueError: if the trace has no kernels.
    """
    (path,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
    planes = [*jax.profiler.ProfileData.from_file(path).planes]
    devices = [plane for plane in planes if plane.name.startswith("/device:GPU")]
    found: dict[str, list[float]] = collections.defaultdict(list)
    for plane in devices or planes:
        for line in plane.lines:
            if line.name.startswith("Stream" if devices else "tf_XLA"):
                for event in line.events:
                    name = re.sub(r"[._]?\d+\b", "", event.name)
                    if not name.startswith("end: "):  # markers of XLA's CPU threads
                        found[name].append(event.duration_ns / 1e6)
    if not found:
        lines = [f"{plane.name}: {line.name}" for plane in planes for line in plane.lines]
        raise ValueError(f"The trace has no kernels. Its lines are {lines}.")
    return found


def report(found: dict[str, list[float]], step_ms: float) -> str:
    """Return the time of a step and the table of kernels as text."""
    rows = sorted(found.items(), key=lambda item: -sum(item[1]))
    busy = sum(sum(times) for _, times in rows) / STEPS
    lines = [
        f"step {step_ms:.1f} ms, kernels {busy:.1f} ms",
        "",
        "| kernel | ms per step | calls per step |",
        "|---|---|---|",
        *(
            f"| {name[:80]} | {sum(times) / STEPS:.2f} | {len(times) / STEPS:g} |"
            for name, times in rows[:ROWS]
        ),
    ]
    return "\n".join(lines)


def profiled_steps(task: Task, step: int, _: Any) -> None:
    """Replace `training.loop.take_steps`: take steps only, and trace the last ten."""
    made = itertools.islice(task.batches(step), WARM_UP + STEPS)
    batches = [batch.inputs for batch in made]  # before the trace starts
    take = make_step(task.model)
    for batch in batches[:WARM_UP]:
        take(batch)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        with jax.profiler.trace(folder):
            for batch in batches[WARM_UP:]:
                float(take(batch)["loss"])
        step_ms = 1e3 * (time.perf_counter() - started) / STEPS
        print(report(kernel_times(folder), step_ms))


if __name__ == "__main__":
    loop.take_steps = profiled_steps
    sys.exit(main(["train", *sys.argv[1:]]))
