"""Simulate a full disk with a real limit on the size of files."""

import contextlib
import resource
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """Limit the files that this process writes to `num_bytes` bytes while the block runs.

    No bytecode is written for modules imported in the block, because Python would leave a truncated
    `.pyc` behind.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes_none = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = writes_none
