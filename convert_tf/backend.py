"""What computes the encodings of `convert_tf.client`.

Importing this loads neither TensorFlow nor ONNX Runtime.
"""

from collections.abc import Collection
from typing import Protocol

import numpy as np

from convert_tf.text_batches import Columns

COMPUTE_DTYPES = ("auto", "float32", "bfloat16")


class Backend(Protocol):
    """What computes encodings: a module, or an ONNX file.

    Attributes:
      outputs: which of `default`, `encode_context` and `encode_response` it has.
      reads_history: whether `encode_context` has a second column, `extra_context`.

    It may also have `concurrent_batches`: how many batches are best encoded at once, each by a
    thread. Without it they are encoded one by one.
    """

    @property
    def outputs(self) -> Collection[str]: ...

    @property
    def reads_history(self) -> bool: ...

    def run(self, output: str, columns: Columns) -> np.ndarray:
        """Encodes a batch.

        Args:
          output: one of `outputs`.
          columns: texts, any bytes; one column, or two for `encode_context` of a model that reads
            history. There may be no rows.

        Returns:
          float `[rows, dim]`. The other rows of the batch change nothing. Several threads may call
          at once.
        """
        ...


def open_backend(path: str, *, compute_dtype: str = "auto") -> Backend:
    """Opens a model, and loads what it needs to run.

    Args:
      path: folder of a module, what `tensorflow_hub.resolve` takes, or an `.onnx` file.
      compute_dtype: of a module's network, one of `COMPUTE_DTYPES`; `"auto"` for an ONNX file.

    Raises:
      ValueError: the model is none, or a damaged one, or cannot compute so.
    """
    if path.endswith(".onnx"):
        if compute_dtype != "auto":
            raise ValueError(
                "An .onnx file computes as it was exported. "
                f"Received: compute_dtype={compute_dtype!r} for {path!r}. Leave it out."
            )
        from convert_tf.light import OnnxBackend

        return OnnxBackend(path)
    from convert_tf.module_backend import ModuleBackend

    return ModuleBackend(path, compute_dtype=compute_dtype)
