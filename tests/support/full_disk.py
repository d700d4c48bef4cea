"""A disk that is full, by a real limit on the size of files."""

import contextlib
import resource
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes while the block runs.

    What is imported in it leaves no bytecode: Python would cut the `.pyc`, and keep it.
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
