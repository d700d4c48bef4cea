"""Networks and forks: the threads that compute stay behind in the parent process."""

import os

_opened_in: int | None = None


class ForkedError(ValueError):
    """A network is used in a process that was forked after one had been opened."""


def check_not_forked(what: str) -> None:
    """Refuse a network where its call would never return.

    Called where a network is opened and before each of its calls. TensorFlow and JAX start their
    threads once in a process. A forked process has none of them, so even a network that it opens
    itself would wait for ever.

    Args:
      what: the network's path.

    Raises:
      ForkedError: this process was forked from one that had opened a network.
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
