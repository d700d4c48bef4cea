"""What the processor has instructions for, as the operating system tells."""

import os

_TOLD_BY_LINUX = "/proc/cpuinfo"
_BFLOAT16 = {"flags": {"amx_bf16", "avx512_bf16"}, "features": {"bf16"}}  # x86's names, ARM's


def multiplies_bfloat16(cpuinfo: str | os.PathLike[str] = _TOLD_BY_LINUX) -> bool | None:
    """Whether there are instructions that multiply in bfloat16; None where nothing tells.

    Without them each number is made float32 first, so that no timing is needed to know what is
    faster, and a busy machine cannot make it come out wrong.

    Args:
      cpuinfo: Linux's file about its processors.
    """
    try:
        with open(cpuinfo, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                known = _BFLOAT16.get(name.strip().lower())
                if known:
                    return not known.isdisjoint(value.split())
    except OSError:
        pass
    return None
