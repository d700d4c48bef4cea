"""What the processor computes fast: its instructions, as Linux reports them, and a short timing."""

import contextlib
import time
from collections.abc import Callable

_CPUINFO = "/proc/cpuinfo"
# By the name of the line: "flags" on x86, "features" on ARM.
_BFLOAT16 = {"flags": {"amx_bf16", "avx512_bf16"}, "features": {"bf16"}}
_BYTES = {"flags": {"amx_int8", "avx512_vnni", "avx_vnni"}}
_ROUNDS = 4  # of the timing; the first one is a warm-up
# bfloat16 rounds, so it must be at least this much faster.
_SPEED_UP_THAT_COUNTS = 1.2


def bfloat16_is_faster(multiply: Callable[[str], object]) -> bool:
    """Return whether a library multiplies matrices clearly faster in bfloat16 than in float32.

    Without bfloat16 instructions it never does. Otherwise both are timed in turns for a few
    milliseconds, and the shortest times are compared, because other programs may be running.
    float16 is not timed: on a CPU, TensorFlow's matmul + bias is thousands of times slower in it.

    Args:
      multiply: multiplies matrices in `"float32"` or `"bfloat16"`, and returns when the product is
        computed.
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
    """Return whether the processor has bfloat16 instructions; None if unknown.

    Without them, bfloat16 is always slower than float32, so no timing is needed. With them it may
    still be slower.
    """
    return _has_any(_BFLOAT16)


def adds_products_of_bytes() -> bool | None:
    """Return whether an x86 processor adds products of bytes in 32 bits; None if unknown.

    Without these instructions (VNNI, AMX) two products are added in 16 bits and may overflow.
    """
    return _has_any(_BYTES)


def _has_any(instructions: dict[str, set[str]]) -> bool | None:
    with contextlib.suppress(OSError), open(_CPUINFO, encoding="utf-8", errors="replace") as file:
        for line in file:
            line_name, _, value = line.partition(":")
            if names := instructions.get(line_name.strip().lower()):
                return not names.isdisjoint(value.split())
    return None
