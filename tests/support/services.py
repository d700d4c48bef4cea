"""A running service, and models that need no TensorFlow."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from convert_tf.encoding.sentence_encoder import SentenceEncoder
from convert_tf.service.server import make_server


class LetterBackend:
    """Encodes a text by its letters, counting bytes by their last five bits.

    Args:
      reads_history: whether contexts have earlier turns, which get half the weight.
    """

    outputs = ("default", "encode_context", "encode_response")

    def __init__(self, *, reads_history: bool = False):
        self.reads_history = reads_history
        self.batches: list[int] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.has_begun = threading.Event()

    def run(self, output: str, columns: list[list[bytes]]) -> np.ndarray:
        self.has_begun.set()
        assert self.may_go.wait(30)
        self.batches.append(len(columns[0]))
        rows = [
            sum(weight * _counts(text) for weight, text in zip((1, 0.5), row, strict=False))
            for row in zip(*columns, strict=True)
        ]
        vectors = np.array(rows, np.float32).reshape(len(rows), 32)
        if output != "default":
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        return vectors


def _counts(text: bytes) -> np.ndarray:
    return np.bincount([byte % 32 for byte in text], minlength=32).astype(float)


def letter_encoder(**options: bool) -> tuple[SentenceEncoder, LetterBackend]:
    backend = LetterBackend(**options)
    return SentenceEncoder(backend), backend


def wait_until(condition: Callable[[], object]) -> None:
    """Return once the condition is true, or fail after a few seconds."""
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("The condition did not become true.")


@contextlib.contextmanager
def running(application: object) -> Iterator[str]:
    """Serve an application on a free port while the block runs, and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Uvicorn's own log configuration would close other handlers, such as absl's on pytest's stream.
    server = make_server(application, port=port, log_config=None, log_level="error")
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
