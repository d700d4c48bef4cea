"""Folders that are made once for all workers of a test run: checkpoints and exported modules."""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, key: object, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` filled, in this worker or in another one. Tests only read it.

    Args:
      factory: pytest's own, whose folder is next to those of the other workers.
      key: what decides the content, such as options; its `repr` is hashed.
      make: is called with an empty folder if no worker has made it yet.
    """
    base = factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made_once"
    shared.mkdir(exist_ok=True)
    folder = shared / hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    with open(f"{folder}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the others wait until the folder is complete
        if not folder.exists():
            part = Path(tempfile.mkdtemp(dir=shared))
            make(part)
            part.rename(folder)
    return folder
