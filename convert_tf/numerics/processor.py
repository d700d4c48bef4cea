"""Instructions of the processor, as Linux reports them."""

import os

_CPUINFO = "/proc/cpuinfo"
# By the name of the line: "flags" on x86, "features" on ARM.
_BFLOAT16 = {"flags": {"amx_bf16", "avx512_bf16"}, "features": {"bf16"}}
_BYTES = {"flags": {"amx_int8", "avx512_vnni", "avx_vnni"}}


def multiplies_bfloat16(cpuinfo: str | os.PathLike[str] = _CPUINFO) -> bool | None:
    """Return whether the processor has bfloat16 instructions; None if unknown.

    Without them, bfloat16 is always slower than float32, so no timing is needed. With them it may
    still be slower.

    Args:
      cpuinfo: Linux's file about its processors.
    """
    return _has_any(_BFLOAT16, cpuinfo)


def adds_products_of_bytes(cpuinfo: str | os.PathLike[str] = _CPUINFO) -> bool | None:
    """Return whether an x86 processor adds products of bytes in 32 bits; None if unknown.

    Without these instructions (VNNI, AMX) two products are added in 16 bits and may overflow.

    Args:
      cpuinfo: Linux's file about its processors.
    """
    return _has_any(_BYTES, cpuinfo)


def _has_any(instructions: dict[str, set[str]], cpuinfo: str | os.PathLike[str]) -> bool | None:
    try:
        with open(cpuinfo, encoding="utf-8", errors="replace") as file:
            for line in file:
                line_name, _, value = line.partition(":")
                names = instructions.get(line_name.strip().lower())
                if names:
                    return not names.isdisjoint(value.split())
    except OSError:
        pass
    return None
