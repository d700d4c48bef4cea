"""Refuse to run networks in forked processes."""

import os

_opened_in: int | None = None


class ForkedError(ValueError):
    """Error: a network cannot run in this forked process."""


def check_not_forked(what: str) -> None:
    """Raise an error in a forked process, where a call of a network would never return.

    Call this before a network is opened and before each of its calls. TensorFlow and JAX start
    their threads once per process. A forked process does not have these threads, so even a network
    that the forked process opens would wait forever.

    Args:
      what: path of the network.

    Raises:
      ForkedError: if this process was forked from one that had opened a network.
    """
    global _opened_in
    process = os.getpid()
    if _opened_in is None:
        _opened_in = process
    if _opened_in != process:
        raise ForkedError(
            f"{what!r} cannot compute in process {process}, which was forked after process "
            f"{_opened_in} had opened a model. Open models in each worker, after the fork, start "
            "workers with spawn, or use an .onnx file, which works after a fork."
        )
