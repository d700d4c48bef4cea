"""Properties of the processor: its instructions, its speed in bfloat16, and the usable cores."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

_CPUINFO = "/proc/cpuinfo"
_CGROUP, _CGROUPS = "/proc/self/cgroup", "/sys/fs/cgroup"
# Keys are the names of lines in /proc/cpuinfo: "flags" on x86, "features" on ARM.
_BFLOAT16 = {"flags": {"amx_bf16", "avx512_bf16"}, "features": {"bf16"}}
_BYTES = {"flags": {"amx_int8", "avx512_vnni", "avx_vnni"}}
_ROUNDS = 4  # number of timed rounds; the first one is a warm-up
# bfloat16 is less exact than float32, so it is used only if it is faster by at least this factor.
_SPEED_UP_THAT_COUNTS = 1.2
_threads: list[int] = []  # the number passed to `use_threads`, if it was called


def bfloat16_is_faster(multiply: Callable[[str], object]) -> bool:
    """Return whether a library multiplies matrices clearly faster in bfloat16 than in float32.

    If the processor has no bfloat16 instructions, the result is false. Otherwise both formats are
    timed in turn for a few milliseconds. The shortest times are compared, because other programs
    may be running. float16 is not timed: on a CPU, TensorFlow's matmul + bias is thousands of times
    slower in float16.

    Args:
      multiply: function that multiplies matrices in the format in its argument, `"float32"` or
        `"bfloat16"`, and returns when the product has been computed.
    """
    if multiplies_bfloat16() is False:
        return False
    seconds: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    for _ in range(_ROUNDS):
        for dtype, times in seconds.items():
            start = time.perf_counter()
            multiply(dtype)
            times.append(time.perf_counter() - start)
    in_float32, in_bfloat16 = (min(times[1:]) for times in seconds.values())
    return in_float32 >= _SPEED_UP_THAT_COUNTS * in_bfloat16


def multiplies_bfloat16() -> bool | None:
    """Return whether the processor has bfloat16 instructions, or None if this is unknown.

    Without these instructions, bfloat16 is always slower than float32, so no timing is needed. With
    them, it may still be slower.
    """
    return _has_any(_BFLOAT16)


def adds_products_of_bytes() -> bool | None:
    """Return whether an x86 processor adds products of bytes in 32 bits, or None if unknown.

    Without the instructions for this (VNNI, AMX), two products are added in 16 bits, and the sum
    may overflow.
    """
    return _has_any(_BYTES)


def use_threads(number: int) -> None:
    """Set the number of threads for models that this process opens later.

    TensorFlow must not have been imported yet, because it reads the environment variable for its
    number of threads only once.
    """
    _threads[:] = [number]
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(number)


def allowed_cores() -> int:
    """Return the number of cores that this process may use, at least 1.

    After a call of `use_threads`, this is the number that was passed to `use_threads`. Otherwise it
    is the number of cores on which the process may run, or the quota of its cgroup, rounded down,
    if that is lower. Containers have such quotas (`docker run --cpus`, Kubernetes limits).
    """
    return _threads[0] if _threads else max(1, int(min(visible_cores(), cgroup_quota())))


def visible_cores() -> int:
    """Return the number of cores on which this process may run, regardless of its quota."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cgroup_quota(listed: str = _CGROUP, folder: str = _CGROUPS) -> float:
    """Return how many cores the cgroup of this process and the cgroups above it allow.

    Args:
      listed: path of the file that names the cgroup of the process.
      folder: folder with the files of all cgroups.

    Returns:
      The lowest quota of these cgroups, in cores, or infinity if there is no quota.
    """
    quotas = [float("inf")]
    with contextlib.suppress(OSError):
        for line in Path(listed).read_text(encoding="utf-8").splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            # Version 2 of cgroups names no controllers here. Version 1 has a folder for each
            # controller.
            if controllers and "cpu" not in controllers.split(","):
                continue
            top = Path(folder, controllers and "cpu")
            place = top / path.strip("/")
            # In a container, the path may be a path on the host that the container does not have.
            for group in {top, *(up for up in (place, *place.parents) if top in up.parents)}:
                quotas += _quotas(group)
    return min(quotas)


def _quotas(group: Path) -> list[float]:
    """Return the quotas of a cgroup of version 2 or 1, in cores. The list may be empty."""
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = " ".join((group / name).read_text() for name in names).split()
            if float(quota) > 0:  # "max" and -1 mean no quota
                return [float(quota) / float(period)]
    return []


def _has_any(instructions: dict[str, set[str]]) -> bool | None:
    with contextlib.suppress(OSError), open(_CPUINFO, encoding="utf-8", errors="replace") as file:
        for line in file:
            line_name, _, value = line.partition(":")
            if names := instructions.get(line_name.strip().lower()):
                return not names.isdisjoint(value.split())
    return None
