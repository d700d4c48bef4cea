"""SIGTERM, which machines that are taken back send first: a run saves its state and ends."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

SIGNAL = signal.SIGTERM


class Termination:
    """Whether the process was told to end.

    Attributes:
      is_requested: set by the first SIGTERM; a second one ends the process at once.
    """

    def __init__(self) -> None:
        self.is_requested = False

    def _request(self, number: int, frame: Any) -> None:
        self.is_requested = True
        signal.signal(SIGNAL, signal.SIG_DFL)


@contextlib.contextmanager
def termination_noted() -> Iterator[Termination]:
    """Notes a SIGTERM while the block runs; elsewhere than in the main thread nothing is noted."""
    termination = Termination()
    if threading.current_thread() is not threading.main_thread():
        yield termination
        return
    before = signal.signal(SIGNAL, termination._request)
    try:
        yield termination
    finally:
        # None: set by a library, as that of JAX for several processes.
        signal.signal(SIGNAL, before if before is not None else signal.SIG_DFL)
