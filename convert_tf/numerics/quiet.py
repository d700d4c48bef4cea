"""Keeps TensorFlow's start-up lines off standard error, and nothing else.

TensorFlow says some before it reads `TF_CPP_MIN_LOG_LEVEL`, and one as an error on each machine
without a GPU. So what is written to standard error while it is imported and looks for devices goes
through a process of its own, which leaves those lines out and passes on the rest, also where
TensorFlow aborts. A user who sets `TF_CPP_MIN_LOG_LEVEL` to 0 or 1 sees all.
"""

import contextlib
import importlib.abc
import importlib.machinery
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Information and warnings in both formats of TensorFlow's, and errors that are none.
NOISE = (
    r"WARNING: All log messages before absl::InitializeLog\(\)"
    r"|[IW]\d{4} [\d:. ]+\S+:\d+\] "
    r"|\d{4}-\d\d-\d\d [\d:.]+: [IW] "
    r"|To enable the following instructions: "
    r"|.*failed call to cuInit: "
    r"|.*Unable to register cu\w+ factory: "
    r"|.*oneDNN supports DT_HALF only on platforms "
)
_FILTER = """
import re, sys
noise = re.compile(sys.argv[1].encode())
for line in sys.stdin.buffer:
    if not noise.match(line):
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
"""


def quieten() -> None:
    """Makes TensorFlow quiet, if it is imported from now on."""
    if not sys.warnoptions:  # of TensorFlow Hub, which imports it
        warnings.filterwarnings("ignore", message="pkg_resources is deprecated")
    if os.environ.setdefault(LEVEL, "2") not in ("0", "1") and "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow where the other finders do, and takes care of its first lines."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "tensorflow":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any):
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        with filtered_standard_error():
            self._loader.exec_module(module)
            if not _may_have_gpu():
                module.config.list_physical_devices()  # says that there is none, and once only


def _may_have_gpu() -> bool:
    has_driver = os.path.exists("/proc/driver/nvidia") or os.path.exists("/dev/nvidiactl")
    return has_driver and os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1")


@contextlib.contextmanager
def filtered_standard_error() -> Iterator[None]:
    """Within it, what C++ or Python write to standard error loses the lines of `NOISE`."""
    import subprocess  # of which `import convert_tf` has no need

    try:
        kept = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    command = [sys.executable, "-I", "-S", "-c", _FILTER, NOISE]
    try:
        reader = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt is not for it
        )
    except OSError:
        os.close(kept)
        yield
        return
    assert reader.stdin is not None
    _flush()
    os.dup2(reader.stdin.fileno(), 2)
    reader.stdin.close()
    try:
        yield
    finally:
        _flush()
        os.dup2(kept, 2)
        os.close(kept)
        # Who was started meanwhile, by another thread, may keep its end open.
        with contextlib.suppress(subprocess.TimeoutExpired):
            reader.wait(timeout=2.0)


def _flush() -> None:
    if sys.stderr is not None:
        sys.stderr.flush()
