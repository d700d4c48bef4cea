"""What computes the encodings of `SentenceEncoder`.

Importing this loads neither TensorFlow nor ONNX Runtime; opening a model loads the one it needs.
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
    """What computes encodings: a module, an ONNX file, a folder for Hugging Face, or a checkpoint.

    Attributes:
      outputs: names of the signatures that it has.
      reads_history: whether `encode_context` has a second column, `extra_context`.

    It may also have `concurrent_batches`, how many batches are best encoded at once, each by a
    thread (without it they are encoded one by one), and `numbers_turns`, whether the turns before a
    context are numbered (without it they are not).
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
      path: folder of a module, what `tensorflow_hub.resolve` takes, an `.onnx` file, folder of a
        checkpoint or for Hugging Face programs, or a name as of `model_path`.
      compute_dtype: of the network, one of `COMPUTE_DTYPES`; `"auto"` for an ONNX file or a folder
        for Hugging Face programs.

    Raises:
      ValueError: the model is none, or a damaged one, or cannot compute so.
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
