"""Run code in a process forked from this one, like the workers of gunicorn --preload."""

import os
import select
import signal
from collections.abc import Callable
from typing import Any


def said_in_fork(call: Callable[[], Any], *, seconds: float = 60) -> str:
    """Return the `repr` of a call's result in a forked process, or its error's type and message.

    Args:
      call: function that the child calls.
      seconds: time after which the child is killed and the result is `"no answer"`.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = repr(call())
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())  # fits into the buffer of a pipe
        os._exit(0)  # skips the exit handlers of pytest and TensorFlow
    os.close(writing)
    is_answered, _, _ = select.select([reading], [], [], seconds)
    said = os.read(reading, 2**16).decode() if is_answered else "no answer"
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return said
