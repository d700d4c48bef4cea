"""Filter the messages that TensorFlow writes to standard error when a command starts.

TensorFlow writes some messages before it reads `TF_CPP_MIN_LOG_LEVEL`. On machines without a GPU,
it also writes an error. Therefore, while a command imports TensorFlow and looks for devices,
standard error goes through a process that drops these messages. The process passes on all other
lines, even if TensorFlow aborts. Set `TF_CPP_MIN_LOG_LEVEL` to 0 or 1 to see all messages.
"""

import contextlib
import functools
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Informational messages and warnings in both of TensorFlow's log formats, and harmless errors.
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
    """Filter TensorFlow's messages, unless TensorFlow has already been imported.

    This function changes how the process imports TensorFlow, so libraries must not call it.
    """
    if os.environ.setdefault(LEVEL, "2") in ("0", "1") or "tensorflow" in sys.modules:
        return
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Import hook that filters standard error while TensorFlow is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "tensorflow":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            # This assignment replaces the method for this loader only, not for its class.
            run = functools.partial(_run_filtered, spec.loader.exec_module)
            spec.loader.exec_module = run  # type: ignore[method-assign]
        return spec


def _run_filtered(run: Callable[[ModuleType], None], module: ModuleType) -> None:
    with filtered_standard_error():
        run(module)
        if not _may_have_gpu():
            module.config.list_physical_devices()  # TensorFlow reports a missing GPU only once


def _may_have_gpu() -> bool:
    has_driver = os.path.exists("/proc/driver/nvidia") or os.path.exists("/dev/nvidiactl")
    return has_driver and os.environ.get("CUDA_VISIBLE_DEVICES") not in ("", "-1")


@contextlib.contextmanager
def filtered_standard_error() -> Iterator[None]:
    """Drop lines that match `NOISE` from standard error, whether C++ or Python writes them."""
    import subprocess  # this import is slow, and `import convert_tf` does not need it

    with contextlib.ExitStack() as at_end:
        try:
            original = os.dup(2)
            at_end.callback(os.close, original)
            reader = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _FILTER, NOISE],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl+C must not stop this process
            )
        except OSError:  # there is no standard error, or no process can be started
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
            os.dup2(original, 2)
            # If another thread has started a process meanwhile, that process may keep the pipe
            # open.
            with contextlib.suppress(subprocess.TimeoutExpired):
                reader.wait(timeout=2.0)


def _flush() -> None:
    if sys.stderr is not None:
        sys.stderr.flush()


@functools.cache
def quieten_float16() -> None:
    """Drop TensorFlow's message that oneDNN cannot compute in float16.

    TensorFlow prints this message as an error for the first float16 tensor of a process. This
    function creates such a tensor and drops the message. Call it only right before the first
    float16 tensor is needed, because threads and devices cannot be configured after a tensor has
    been created.
    """
    import tensorflow as tf

    if os.environ.get(LEVEL) not in ("0", "1"):
        with filtered_standard_error():
            tf.zeros([], tf.float16)
