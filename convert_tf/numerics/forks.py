"""Refuse to run networks in forked processes."""

import os

_opened_in: int | None = None


class ForkedError(ValueError):
    """A network cannot run in this forked process."""


def check_not_forked(what: str) -> None:
    """Raise an error in a forked process, where a call of a network would never return.

    This function must be called before a network is opened and before every call of the network.
    TensorFlow and JAX start their threads once per process. A forked process does not have these
    threads, so even a network that it opens itself would wait forever.

    Args:
      what: path of the network, for the error message.

    Raises:
      ForkedError: if this process was forked from one that had already opened a network.
    """
    global _opened_in
    process = os.getpid()
    if _opened_in is None:
        _opened_in = process
    if _opened_in != process:
        raise ForkedError(
            f"{what!r} cannot compute in process {process}, which was forked after process "
            f"{_opened_in} had opened a model. Do one of the following: open models only in the "
            "workers, after the fork; start the workers with spawn; or use an .onnx file, which "
            "works after a fork."
        )
