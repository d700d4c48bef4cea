"""A network's weights in a saved module: small in the file, float32 after the first call.

The file stores each weight as a 16-bit float, or as an 8-bit code with a scale per output channel.
The first call unpacks the weights into float32 variables of the same shapes, which are zeros in the
file. The network computes with these variables, and a user may train them. If a module is saved
again after a call, the file contains the values of these variables.

Weights are not unpacked when a module is loaded. A resource whose initializer assigns variables
could unpack them. However, under a distribution strategy, the initializer is called before
variables have a handle. In a graph, or in a model that exports the module again, the initializer is
not called at all.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from convert_tf.layers.side_network import l2_normalize
from convert_tf.numerics.byte_codes import pack_kernel, pack_table
from convert_tf.numerics.quiet import quieten_float16
from convert_tf.numerics.vectors import SENTENCE_SCALE

NETWORK_BITS = (16, 8, 32)
# Matrices with a shorter side are always stored with 16 bits. They need few bytes, and some of them
# are tables of positions and relative biases, whose columns have no common scale.
SMALLEST_SIDE = 64


class StoredWeights(tf.Module):
    """The weights of a Keras model, for a `tf.Module` that computes with that model's layers.

    The weights are an attribute of the saved module. The model itself must be kept where
    `tf.Module` does not find its variables, for example in a function.

    Args:
      variables: the variables of the model, whose values are copied.
      bits: number of bits per stored weight. 16 stores float16 values. 8 stores matrices of at
        least 64 × 64 as 8-bit codes with a float32 scale for each column, and all other weights as
        float16. 32 stores the values unchanged, so there is nothing to unpack.

    Attributes:
      trainable_variables: float32 variables with the shapes of `variables`, in the same order. They
        are zeros until `unpack` is called.
      variables: the trainable variables, the stored values, and a variable that says whether the
        values are unpacked.

    Raises:
      ValueError: if `bits` is not 8, 16 or 32, or a weight is NaN or too large for 16 bits.

    Example:
      class Module(tf.Module):
          def __init__(self, model, bits):
              super().__init__()
              self._model = lambda: model
              self.weights = StoredWeights(model.trainable_variables, bits=bits)
              self.variables = self.weights.variables
              self.trainable_variables = self.weights.trainable_variables

          @tf.function(autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32)])
          def __call__(self, ids):
              self.weights.unpack()
              with self.weights.scope():
                  return self._model()(ids)

    Reference: arXiv 1911.03688 §2.1, "Quantization" (16 bits); arXiv 1712.05877 §2 (8 bits; the
    paper has one scale for a whole matrix).
    """

    def __init__(self, variables: Sequence[Any], *, bits: int = 16) -> None:
        super().__init__(name="stored_weights")
        quieten_float16()
        if bits not in NETWORK_BITS:
            raise ValueError(f"Weights can have 8, 16 or 32 bits. Received: bits={bits!r}.")
        self._sources = lambda: list(variables)
        is_packed = bits < 32
        self._stored = [_stored(variable, bits) for variable in variables] if is_packed else []
        self._computed = [
            tf.Variable(
                tf.zeros(variable.shape) if is_packed else _finite(variable), name=variable.path
            )
            for variable in variables
        ]
        self._is_unpacked = tf.Variable(not is_packed, trainable=False, name="is_unpacked")
        # A function hides the model from tf.Module, which would save it.
        do = (_do_nothing, self._fill) if is_packed else ()
        branches = [_traced(function, len(self._handles)) for function in do]
        self._branches: Callable[[], list[Any]] = lambda: branches

    def unpack(self) -> None:
        """Set `trainable_variables` to the stored values, unless they have been set already.

        In a graph, call this method before `scope` and outside loops.
        """
        if not self._stored:
            return
        done, fill = self._branches()
        # tf.cond would add an op per variable to every call.
        tf.raw_ops.If(
            cond=self._is_unpacked.read_value(),
            input=self._handles,
            Tout=[],
            then_branch=done,
            else_branch=fill,
        )

    def scope(self) -> keras.StatelessScope:
        """Make the model use the values of `trainable_variables` during the block."""
        return keras.StatelessScope(
            state_mapping=list(zip(self._sources(), self._computed, strict=True))
        )

    @property
    def _handles(self) -> list[tf.Tensor]:
        stored = [part for parts in self._stored for part in parts]
        return [variable.handle for variable in (*stored, *self._computed, self._is_unpacked)]

    def _fill(self, *handles: tf.Tensor) -> None:
        rest = iter(handles)
        values = [_unpacked([_read(next(rest), part) for part in parts]) for parts in self._stored]
        done = [tf.raw_ops.AssignVariableOp(resource=next(rest), value=value) for value in values]
        with tf.control_dependencies(done):
            tf.raw_ops.AssignVariableOp(resource=next(rest), value=tf.constant(True))


def _traced(function: Callable[..., None], arguments: int) -> Any:
    handle = tf.TensorSpec([], tf.resource)
    return tf.function(function, autograph=False).get_concrete_function(*[handle] * arguments)


def _do_nothing(*handles: tf.Tensor) -> None:
    pass


def _read(handle: tf.Tensor, variable: tf.Variable) -> tf.Tensor:
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype)


class Bfloat16Copies(tf.Module):
    """Copies of a network's kernels in bfloat16. They are zeros until `update` is called.

    Args:
      variables: the variables of a copy of the model that computes in bfloat16.
      weights: the float32 weights of the model, the first of which correspond to `variables`.

    Example:
      copies = Bfloat16Copies(fast_model.trainable_variables, weights)
      with copies.scope():
          fast_model(ids)
    """

    def __init__(self, variables: Sequence[Any], weights: StoredWeights) -> None:
        super().__init__(name="bfloat16_copies")
        self._variables = lambda: list(variables)
        self._computed = weights._computed[: len(variables)]
        self._values = [
            tf.Variable(
                tf.zeros(computed.shape, tf.bfloat16),
                trainable=False,
                name=f"{variable.path}/bfloat16",
            )
            if _is_kernel(variable)
            else computed
            for variable, computed in zip(variables, self._computed, strict=True)
        ]

    def update(self) -> None:
        """Set the copies to the current values of the float32 variables."""
        for copy, variable in zip(self._values, self._computed, strict=True):
            if copy is not variable:
                copy.assign(tf.cast(variable, tf.bfloat16))

    def scope(self) -> keras.StatelessScope:
        """Make the model use the copies, and float32 variables for weights that have no copy."""
        scope = keras.StatelessScope()
        for variable, value in zip(self._variables(), self._values, strict=True):
            scope.add_update((variable, value.read_value()))  # the constructor would cast values
        return scope


class StoredMap(tf.Module):
    """The linear map from encodings to similarity vectors. It is not trainable.

    Args:
      kernel: the matrix of the map, float32 `[inputs, outputs]`.
      bits: number of bits per stored number: 32, 16, or 8 with a scale for each column.

    Raises:
      ValueError: if a number is NaN, infinite or too large for 16 bits.

    Example:
      vectors = StoredMap(kernel, bits=8)(reduced)
    """

    def __init__(self, kernel: np.ndarray, *, bits: int = 16) -> None:
        super().__init__(name="stored_map")
        variable = keras.Variable(kernel, name="similarity_map")
        values: Any = float16_values(variable) if bits < 32 else _finite(variable)
        scales = np.ones(kernel.shape[1], np.float32)
        self._scales = None
        if bits == 8:
            values, scales = pack_kernel(kernel)
            self._scales = tf.Variable(scales, trainable=False, name="similarity/scales")
        self._values = tf.Variable(values, trainable=False, name="similarity/values")
        # `sentence_encodings` multiplies by K and then by Kᵀ. It applies these factors once, so
        # they contain the scale of each column k twice, and 1 / |k| once.
        lengths = np.linalg.norm(values.astype(np.float32) * scales, axis=0)
        gains = scales**2 / np.maximum(lengths, 1e-12)
        self._gains = tf.Variable(gains, trainable=False, name="similarity/gains")

    def __call__(self, reduced: tf.Tensor) -> tf.Tensor:
        """Map encodings `[texts, inputs]` to similarity vectors, float32 `[texts, outputs]`.

        An encoding that consists of zeros gets a vector of zeros.
        """
        product = tf.matmul(reduced, tf.cast(self._values, tf.float32))
        return l2_normalize(product if self._scales is None else product * self._scales)

    def sentence_encodings(self, reduced: tf.Tensor) -> tf.Tensor:
        """Compute `convert_tf.models.distillation.sentence_encodings`, `[texts, inputs]`."""
        values = tf.cast(self._values, tf.float32)
        read = tf.matmul(reduced, values) * self._gains
        return SENTENCE_SCALE * (reduced + tf.matmul(read, values, transpose_b=True))


def _is_kernel(variable: Any) -> bool:
    # Tables of positions and biases are matrices too. But their rows are read one by one, so they
    # have no bfloat16 copies.
    return variable.name.endswith("kernel") and len(variable.shape) == 2


def _stored(variable: Any, bits: int) -> list[tf.Variable]:
    """Return `[float16 values]`, or `[int8 codes, float32 scales]`."""
    as_float16 = float16_values(variable)  # raises an error for NaN, which 8-bit codes would hide
    if bits == 16 or as_float16.ndim != 2 or min(as_float16.shape) < SMALLEST_SIDE:
        return [tf.Variable(as_float16, trainable=False, name=f"{variable.path}/float16")]
    codes, scales = pack_kernel(keras.ops.convert_to_numpy(variable))
    return [
        tf.Variable(codes, trainable=False, name=f"{variable.path}/codes"),
        tf.Variable(scales, trainable=False, name=f"{variable.path}/scales"),
    ]


def _unpacked(stored: list[tf.Tensor]) -> tf.Tensor:
    values = tf.cast(stored[0], tf.float32)
    return values * stored[1] if len(stored) == 2 else values


def _finite(variable: Any) -> np.ndarray:
    float16_values(variable)  # raises an error for values that cannot be stored with 16 bits
    return keras.ops.convert_to_numpy(variable)


def float16_values(variable: Any) -> np.ndarray:
    """Return the values of a variable as 16-bit floats.

    Raises:
      ValueError: if a value is NaN, infinite or too large.
    """
    with np.errstate(over="ignore"):
        values = keras.ops.convert_to_numpy(variable).astype(np.float16)
    if not np.isfinite(values).all():
        raise ValueError(
            f"The weights {variable.path} contain NaN, or numbers beyond 65,504, the largest "
            "16-bit float. Export an earlier checkpoint of the run."
        )
    return values


class StoredTable(tf.Module):
    """The token table of an embedding layer, for a module that computes with that layer.

    A table that was trained with 8 bits per weight is stored with 8 bits, with the same values as
    in training. Any other table is stored as 16-bit floats or, with `bits=8`, as signed bytes with
    a scale for each row. The table is not trainable.

    Args:
      embedding: a built layer with a `table`. If the table was trained with 8 bits, the layer also
        has a `quantizer`.
      bits: number of bits per weight for a table that was not trained with 8 bits: 16 or 8.

    Raises:
      ValueError: if an entry is NaN or too large for 16 bits.

    Example:
      stored = StoredTable(embedding)
      embedding.gather_rows = stored.gather_rows

    Reference: arXiv 1911.03688 §2.1, "Quantization".
    """

    def __init__(self, embedding: Any, *, bits: int = 16) -> None:
        super().__init__(name="stored_table")
        # `float16_values` raises an error for NaN, which 8-bit codes would hide.
        values: Any = float16_values(embedding.table)
        self._offset = self._scale = self._row_scales = None
        if getattr(embedding, "quantizer", None) is not None:
            ranges = embedding.quantizer_weights
            values, *code = pack_table(embedding.table, ranges["range_min"], ranges["range_max"])
            self._offset, self._scale = (
                tf.Variable(number, trainable=False, dtype=tf.float32, name=name)
                for number, name in zip(code, ("offset", "scale"), strict=True)
            )
        elif bits == 8:
            codes, scales = pack_kernel(keras.ops.convert_to_numpy(embedding.table).T)
            values = codes.T
            self._row_scales = tf.Variable(scales[:, None], trainable=False, name="row_scales")
        self._values = tf.Variable(values, trainable=False, name="table")

    def gather_rows(self, token_ids: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        """Return the rows for token ids: int `[…]` → float32 `[…, dim]`.

        This method replaces the layer's method of the same name.
        """
        rows = tf.cast(tf.gather(self._values, token_ids), tf.float32)
        if self._row_scales is not None:
            return rows * tf.gather(self._row_scales, token_ids)
        return rows if self._offset is None else self._offset + rows * self._scale
