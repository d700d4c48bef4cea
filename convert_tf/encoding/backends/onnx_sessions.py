"""Sessions of ONNX Runtime for one model: one with a single thread, and one with all threads."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from convert_tf.extras import needs
from convert_tf.numerics.processor import adds_products_of_bytes

# Up to this many tokens, a call uses all threads, unless another call is in progress.
_FEW_TOKENS = 128


class Sessions:
    """A session with a single thread, and one with all threads for short calls.

    Args:
      path: the `.onnx` file.
      unusable: makes the exception for a reason why ONNX Runtime cannot use the file.
      num_threads: number of threads; None for one per core.

    Attributes:
      one_thread: the session with a single thread.
      concurrent_batches: number of batches to encode at once.

    Raises:
      MissingLibraryError: if `onnxruntime` is not installed.
      Exception: the result of `unusable` if ONNX Runtime cannot read the file.
    """

    def __init__(
        self, path: str, unusable: Callable[[str], Exception], *, num_threads: int | None = None
    ):
        self._unusable = unusable
        self.concurrent_batches = num_threads or _number_of_cores()
        with needs("", "Reading .onnx files", package="onnxruntime"):
            import onnxruntime  # noqa: F401
        with self._errors():
            self.one_thread = self._all_threads = _session(path, 1)
            if self.concurrent_batches > 1:
                self._all_threads = _session(path, num_threads or 0)  # 0 lets ONNX Runtime choose
        self._calls, self._lock = 0, threading.Lock()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # ONNX Runtime has no common class of errors
            first_line = next(iter(str(error).splitlines()), repr(error))
            raise self._unusable(first_line) from error

    def run(self, output: str, feeds: Mapping[str, np.ndarray], *, num_tokens: int) -> np.ndarray:
        """Compute one output.

        Args:
          output: its name.
          feeds: the inputs by name.
          num_tokens: number of tokens in the inputs.

        Raises:
          Exception: the result of `unusable` if ONNX Runtime cannot compute it.
        """
        with self._lock:
            self._calls += 1
            is_alone = self._calls == 1
        try:
            is_short = num_tokens <= _FEW_TOKENS
            session = self._all_threads if is_alone and is_short else self.one_thread
            with self._errors():
                return session.run([output], feeds)[0]
        finally:
            with self._lock:
                self._calls -= 1


def checked_number(
    facts: Mapping[str, Any], name: str, least: int = 1, most: int = 2**31 - 1
) -> int:
    """Return a whole number among the facts of a model.

    Raises:
      ValueError: if it is missing, has another type, or is not from `least` to `most`.
    """
    value = facts.get(name)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name}: {value!r}")
    return value


def _session(path: str, num_threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # On processors without such instructions, ONNX Runtime adds products of bytes in 16 bits, which
    # can overflow. This option prevents that. With AMX it would take four times as long.
    if not adds_products_of_bytes():
        options.add_session_config_entry("session.x64quantprecision", "1")
    options.intra_op_num_threads = num_threads
    options.log_severity_level = 3
    # A memory plan would be kept for each shape of a batch, and there are very many shapes.
    options.enable_mem_pattern = False
    # Keep weights out of the memory arena, whose size is a power of two. This saves 12 MB.
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _number_of_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
