"""What the processor has instructions for, as the operating system tells."""

import os

_TOLD_BY_LINUX = "/proc/cpuinfo"
# By the line that lists them: x86's names, ARM's.
_BFLOAT16 = {"flags": {"amx_bf16", "avx512_bf16"}, "features": {"bf16"}}
_BYTES = {"flags": {"amx_int8", "avx512_vnni", "avx_vnni"}}


def multiplies_bfloat16(cpuinfo: str | os.PathLike[str] = _TOLD_BY_LINUX) -> bool | None:
    """Whether there are instructions that multiply in bfloat16; None where nothing tells.

    Without them each number is made float32 first, so that no timing is needed to know what is
    faster, and a busy machine cannot make it come out wrong. With them bfloat16 may yet be slower.

    Args:
      cpuinfo: Linux's file about its processors.
    """
    return _has_one_of(_BFLOAT16, cpuinfo)


def adds_products_of_bytes(cpuinfo: str | os.PathLike[str] = _TOLD_BY_LINUX) -> bool | None:
    """Whether an x86 processor adds products of bytes in 32 bits; None where nothing tells.

    Without such instructions (VNNI, AMX) two products are added in 16 bits, and cut.

    Args:
      cpuinfo: Linux's file about its processors.
    """
    return _has_one_of(_BYTES, cpuinfo)


def _has_one_of(instructions: dict[str, set[str]], cpuinfo: str | os.PathLike[str]) -> bool | None:
    try:
        with open(cpuinfo, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                known = instructions.get(name.strip().lower())
                if known:
                    return not known.isdisjoint(value.split())
    except OSError:
        pass
    return None
