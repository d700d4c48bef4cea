"""Backend of `SentenceEncoder` for exported modules.

The backend uses only the signatures of a module. It can therefore also open other SavedModels that
turn strings into vectors.
"""

import functools
import os

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401 (its ops are in the module's graph)

from convert_tf.checkpoints.facts import numbers_turns
from convert_tf.encoding.backends.pickling import OpenedFromPath
from convert_tf.encoding.text_batches import Columns
from convert_tf.numerics.forks import check_not_forked
from convert_tf.numerics.processor import bfloat16_is_faster
from convert_tf.numerics.quiet import quieten_float16
from convert_tf.storage.checksums import check_files


class ModuleBackend(OpenedFromPath):
    """A TF Hub module, or another SavedModel with a signature from strings to vectors.

    Args:
      folder: the folder of the module.
      compute_dtype: number format of the network: `"float32"`, `"bfloat16"`, or `"auto"`. `"auto"`
        uses bfloat16 if the module supports it and bfloat16 is faster on this machine.

    Attributes:
      compute_dtype: the number format in use, `"float32"` or `"bfloat16"`.
      outputs: `signature` for the output `default` of each signature from texts to vectors, and
        `signature:output` for each other output that contains vectors.
      reads_history: whether `encode_context` has the input `extra_context`.
      numbers_turns: whether the model was trained with `turn_prefixes`.

    Raises:
      ValueError: if the folder is not a module, is damaged, or does not support `compute_dtype`.
      ForkedError: if the process was forked after a model had been opened. `run` raises it too.
    """

    _REMEDY = "Pass the folder of a module from convert-tf export."

    def __init__(self, folder: str | os.PathLike[str], *, compute_dtype: str = "float32") -> None:
        super().__init__(folder, compute_dtype=compute_dtype)
        check_not_forked(self.path)
        try:
            check_files(folder)
            quieten_float16()
            self._module = tf.saved_model.load(self.path)
        except Exception as error:  # damaged files raise errors of any class
            raise self._unusable(error) from error
        self._signatures = dict(getattr(self._module, "signatures", {}))
        self._encodings = {
            output if key == "default" else f"{output}:{key}": (output, key)
            for output in self._signatures
            for key in self._vectors_of(output)
        }
        self.outputs = {*self._encodings}
        self.numbers_turns = numbers_turns(folder)
        self.reads_history = "extra_context" in self._inputs("encode_context")
        self.compute_dtype = self._compute_in(compute_dtype)

    def run(self, output: str, columns: Columns) -> np.ndarray:
        """Return the vectors of a batch, float `[rows, dim]`."""
        check_not_forked(self.path)
        inputs = [tf.constant(column, tf.string, shape=[len(column)]) for column in columns]
        signature, key = self._encodings[output]
        encode = self._signatures[signature]
        try:
            if len(inputs) > 1:
                return np.asarray(encode(context=inputs[0], extra_context=inputs[1])[key])
            return np.asarray(encode(*inputs)[key])
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryError(
                f"Not enough memory for {len(columns[0])} texts at once. Pass a lower batch_size."
            ) from error
        # For example, the signature may have other arguments.
        except (tf.errors.OpError, TypeError, ValueError) as error:
            raise self._unusable(error) from error

    def _compute_in(self, compute_dtype: str) -> str:
        """Set the number format of the module, which is float32 after loading, and return it."""
        use_bfloat16 = getattr(self._module, "use_bfloat16", None)
        if compute_dtype == "auto":
            is_faster = use_bfloat16 is not None and _is_faster_in_bfloat16()
            compute_dtype = "bfloat16" if is_faster else "float32"
        if compute_dtype == "bfloat16":
            if use_bfloat16 is None:
                raise ValueError(
                    f"{self.path!r} computes in float32 only. Received: compute_dtype='bfloat16'. "
                    "Pass 'auto', or export the module again."
                )
            use_bfloat16(True)
        return compute_dtype

    def _vectors_of(self, signature: str) -> list[str]:
        """Return the outputs of a signature that consist of one vector per text."""
        inputs = self._inputs(signature)
        has_history = signature == "encode_context" and {*inputs} == {"context", "extra_context"}
        is_of_texts = all(spec.dtype == tf.string for spec in inputs.values())
        if not is_of_texts or (len(inputs) != 1 and not has_history):
            return []
        outputs = self._signatures[signature].structured_outputs
        return [
            key
            for key, spec in outputs.items()
            if spec.dtype.is_floating and spec.shape.rank in (None, 2)
        ]

    def _inputs(self, signature: str) -> dict[str, tf.TensorSpec]:
        if signature not in self._signatures:
            return {}
        return dict(self._signatures[signature].structured_input_signature[1])


@functools.cache
def _is_faster_in_bfloat16() -> bool:
    """Return whether TensorFlow multiplies matrices clearly faster in bfloat16 on this machine."""
    kernels = {dtype: tf.ones([512, 2048], dtype) for dtype in ("float32", "bfloat16")}
    return bfloat16_is_faster(
        lambda dtype: tf.matmul(kernels[dtype], kernels[dtype], transpose_b=True).numpy()
    )
