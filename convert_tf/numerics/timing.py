"""Timing of alternative computations."""

import time
from collections.abc import Callable, Sequence
from typing import Any

_ROUNDS = 4


def shortest_seconds(runs: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the shortest time of each function in seconds.

    The functions run in turns, because other programs may slow down the machine for a while. The
    first of several rounds is a warm-up.

    Args:
      runs: functions that return when their computation has finished.
    """
    seconds_of: list[list[float]] = [[] for _ in runs]
    for _ in range(_ROUNDS):
        for run, seconds in zip(runs, seconds_of, strict=True):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
    return [min(seconds[1:]) for seconds in seconds_of]
