"""Open encoders to export: runs, modules and Hugging Face folders."""

import contextlib
import os
from collections.abc import Iterator

from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.export.source import EncoderSource, load_source


@contextlib.contextmanager
def opened_source(
    checkpoint: str | os.PathLike, max_tokens: int | None, *, as_keras: bool
) -> Iterator[EncoderSource]:
    """Load an encoder to export from a run, a module or a Hugging Face folder.

    Args:
      checkpoint: the folder of the run or module, or the Hugging Face folder.
      max_tokens: as in `load_source`. If None for a Hugging Face folder, the limit in the folder.
      as_keras: whether the encoder must be a `DualEncoder`. Otherwise modules and Hugging Face
        folders are read without TensorFlow and Keras.

    Yields:
      The encoder. Its vocabulary may be a temporary file, which exists only inside the `with`
      block.

    Raises:
      CheckpointError: if the checkpoint is incomplete or damaged.
      ValueError: if `max_tokens` is not positive.
    """
    kind = kind_of(checkpoint)
    if kind is Kind.HUGGING_FACE_ENCODER:
        from convert_tf.export.huggingface.reading import opened_folder

        with opened_folder(checkpoint, max_tokens, as_keras=as_keras) as source:
            yield source
    elif kind is Kind.ENCODER_MODULE and not as_keras:
        from convert_tf.export.onnx.plain_encoder import load_plain_source

        yield load_plain_source(checkpoint, max_tokens)
    else:
        yield load_source(checkpoint, max_tokens)
