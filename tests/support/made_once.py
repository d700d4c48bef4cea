"""Checkpoints and modules that are created once and reused by all workers and later test runs."""

import fcntl
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from support.commands import ROOT

_CACHE = ROOT / ".pytest_cache" / "made_once"
_LIBRARIES = ("keras", "numpy", "onnx", "tensorflow", "tensorflow-text")
_KEPT = 3  # versions of the sources, so that two branches do not delete each other's folders


@functools.cache
def _folder_of_these_sources() -> Path:
    """Return the cache folder for the present sources and libraries, and delete the oldest ones."""
    digest = hashlib.sha256(repr([version(name) for name in _LIBRARIES]).encode())
    tests = ROOT / "tests"
    sources = [*(ROOT / "convert_tf").rglob("*.py"), *(tests / "support").glob("*.py")]
    for path in sorted([*sources, tests / "conftest.py"]):
        digest.update(path.read_bytes())
    folder = _CACHE / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    others = sorted((p for p in _CACHE.iterdir() if p != folder), key=lambda p: p.stat().st_mtime)
    for old in others[: 1 - _KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def made_once(key: object, make: Callable[[Path], object]) -> Path:
    """Return a folder filled by `make`, in this process or an earlier one. Tests only read it.

    Args:
      key: what determines the content besides the sources, such as options; its `repr` is hashed.
      make: called with an empty folder unless a test run with the same sources has filled it.
    """
    shared = _folder_of_these_sources()
    folder = shared / hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    with open(f"{folder}.lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes wait until the folder is complete
        if not folder.exists():
            part = Path(tempfile.mkdtemp(dir=shared))
            make(part)
            part.rename(folder)
    return folder
