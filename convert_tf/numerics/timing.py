"""Which of several computations is the fastest here."""

import time
from collections.abc import Callable, Sequence
from typing import Any

_ROUNDS = 4


def shortest_seconds(runs: Sequence[Callable[[], Any]]) -> list[float]:
    """The shortest time of each run, in turns: other programs may be running.

    Of several rounds the first does not count, in which they are set up.

    Args:
      runs: each computes once, to its end.
    """
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(_ROUNDS):
        for run, own in zip(runs, seconds, strict=True):
            start = time.perf_counter()
            run()
            own.append(time.perf_counter() - start)
    return [min(own[1:]) for own in seconds]
