"""Backends, which compute the encodings of `SentenceEncoder`.

Importing this module loads neither TensorFlow nor ONNX Runtime. Opening a model loads one of them.
"""

import os
from collections.abc import Collection
from typing import Protocol

import numpy as np

from convert_tf.checkpoints.hub import SCHEME
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.released import model_path
from convert_tf.encoding.text_batches import Columns
from convert_tf.extras import needs
from convert_tf.storage.folders import put_aside

COMPUTE_DTYPES = ("auto", "float32", "bfloat16")


class Backend(Protocol):
    """Interface of models that encode: modules, ONNX files, Hugging Face folders and runs.

    Attributes:
      outputs: names of the signatures.
      reads_history: whether `encode_context` has a second column, `extra_context`.

    Two more attributes are optional. `concurrent_batches` is the number of batches to encode at
    once, each in a thread; 1 by default. `numbers_turns` says whether earlier turns are numbered;
    false by default.
    """

    @property
    def outputs(self) -> Collection[str]: ...

    @property
    def reads_history(self) -> bool: ...

    def run(self, output: str, columns: Columns) -> np.ndarray:
        """Encode a batch. Several threads may call this at once.

        Args:
          output: one of `outputs`.
          columns: one column of texts, any bytes; or two for `encode_context` of a model that reads
            history. Columns may be empty.

        Returns:
          float `[rows, dim]`. A row does not depend on the other rows.
        """
        ...


def open_backend(path: str, *, compute_dtype: str = "auto") -> Backend:
    """Open a model.

    Args:
      path: the folder of a module or run, a Hugging Face folder, an `.onnx` file, or the name of a
        released encoder.
      compute_dtype: number format of the network, one of `COMPUTE_DTYPES`. It must be `"auto"` for
        `.onnx` files and Hugging Face folders.

    Raises:
      ValueError: if the model cannot be opened, or cannot compute in this format.
    """
    path = model_path(path)
    kind = kind_of(path)
    if kind is Kind.UNKNOWN and path.count("/") == 1 and not os.path.exists(path):
        raise ValueError(
            f"{path!r} is neither a file or folder nor a released encoder. Pass its path, or "
            f"{SCHEME}{path} for an encoder of the Hugging Face hub.{put_aside(path)}"
        )
    if kind is Kind.HUGGING_FACE:
        raise ValueError(
            f"{path!r} is {kind.value}, which has no encodings. Pass "
            f"{Kind.HUGGING_FACE_ENCODER.value}."
        )
    if kind.runs_onnx:
        if compute_dtype != "auto":
            raise ValueError(
                f"compute_dtype={compute_dtype!r} has no effect on {path!r}, which computes as it "
                "was exported. Omit it."
            )
        if kind is Kind.HUGGING_FACE_ENCODER:
            from convert_tf.encoding.backends.huggingface import HuggingFaceBackend

            return HuggingFaceBackend(path)
        from convert_tf.encoding.backends.onnx import OnnxBackend

        return OnnxBackend(path)
    if kind.is_module or kind is Kind.UNKNOWN:
        with needs("", "A module"):
            from convert_tf.encoding.backends.module import ModuleBackend

        return ModuleBackend(path, compute_dtype=compute_dtype)
    with needs("", "A run's folder"):
        from convert_tf.encoding.backends.checkpoint import CheckpointBackend

    precisions = {"bfloat16": "mixed_bfloat16"}
    return CheckpointBackend(path, precision=precisions.get(compute_dtype, compute_dtype))
