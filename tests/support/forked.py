"""Code that runs in a process forked from this one, as workers of gunicorn --preload are."""

import os
import select
import signal
from collections.abc import Callable
from typing import Any


def said_in_fork(call: Callable[[], Any], *, seconds: float = 60) -> str:
    """What a call in a forked process returns, or the kind and words of its error.

    Args:
      call: what the child does.
      seconds: after which the child is killed, for `"no answer"`.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = repr(call())
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())  # less than a pipe holds
        os._exit(0)  # neither what pytest does at its end, nor TensorFlow
    os.close(writing)
    is_answered, _, _ = select.select([reading], [], [], seconds)
    said = os.read(reading, 2**16).decode() if is_answered else "no answer"
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return said
