"""Weights of a network inside a saved module: small in the file, ready to compute with once loaded.

The file holds each weight as 16-bit floats, or as 8-bit codes with a scale per output channel.
Loading unpacks them, once, into float32 variables of the same shapes, of which the file holds
nothing: these are what the network computes with and what a user may train. A module that was
trained and saved again holds them too, and keeps them.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from convert_tf.quantization import pack_kernel
from convert_tf.unsaved_variables import leave_out_of_files

NETWORK_BITS = (16, 8)
# Kernels with a shorter side stay in 16 bits: they are few bytes, and tables of positions and of
# relative biases, whose columns have no common scale, are among them.
SMALLEST_SIDE = 64


class WeightsError(ValueError):
    """Weights that cannot be stored."""


class StoredWeights(tf.Module):
    """The weights of a Keras model, for a `tf.Module` that computes with that model's layers.

    An attribute of the module that is saved. The model itself must be kept where `tf.Module` does
    not find its variables, behind a function, say.

    Args:
      variables: of the model; their values are copied.
      bits: 16 stores float16; 8 stores matrices of at least 64 × 64 as 8-bit codes, one float32
        scale for each column, and the rest as float16.

    Attributes:
      trainable_variables: float32 variables with the shapes of `variables`, in their order.
      variables: these and what is stored.

    Raises:
      WeightsError: a weight is no number or too large for 16 bits.
      ValueError: `bits` is neither 16 nor 8.

    Example:
      class Module(tf.Module):
          def __init__(self, model, bits):
              super().__init__()
              self._model = lambda: model
              self.weights = StoredWeights(model.trainable_variables, bits=bits)
              self.variables = self.weights.variables
              self.trainable_variables = self.weights.trainable_variables

          @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
          def __call__(self, ids):
              with self.weights.scope():
                  return self._model()(ids)

    Reference: arXiv 1911.03688 §2.1, "Quantization" (16 bits); arXiv 1712.05877 §2 (8 bits; there
    one scale for a whole matrix).
    """

    def __init__(self, variables: Sequence[Any], *, bits: int = 16):
        super().__init__(name="stored_weights")
        if bits not in NETWORK_BITS:
            raise ValueError(
                f"Weights are stored in 16 or 8 bits. Received: bits={bits!r}. Pass one of these."
            )
        self._sources = lambda: list(variables)
        self._stored: list[list[tf.Variable]] = []
        self._computed: list[tf.Variable] = []
        self._unpacking = _Unpacking()
        for variable in variables:
            stored = _stored(variable, bits)
            self._stored.append(stored)
            self._computed.append(self._unpacking.into(stored, name=variable.path))

    def scope(self) -> keras.StatelessScope:
        """Where the model's variables have the values of `trainable_variables`."""
        return keras.StatelessScope(
            state_mapping=list(zip(self._sources(), self._computed, strict=True))
        )


class Bfloat16Copies(tf.Module):
    """The kernels of a network in bfloat16, beside the float32 variables; a file holds neither.

    Args:
      variables: of a copy of the model that computes in bfloat16.
      weights: of the model; its variables begin with those that match `variables`.

    Example:
      copies = Bfloat16Copies(fast_model.trainable_variables, weights)
      with copies.scope():
          fast_model(ids)
    """

    def __init__(self, variables: Sequence[Any], weights: StoredWeights):
        super().__init__(name="bfloat16_copies")
        self._variables = lambda: list(variables)
        self._computed = weights._computed[: len(variables)]
        self._values = [
            weights._unpacking.into(
                stored, dtype=tf.bfloat16, trainable=False, name=f"{variable.path}/bfloat16"
            )
            if _is_kernel(variable)
            else computed
            for variable, stored, computed in zip(
                variables, weights._stored, weights._computed, strict=False
            )
        ]

    def update(self) -> None:
        """Copies the float32 variables as they are now."""
        for copy, variable in zip(self._values, self._computed, strict=True):
            if copy is not variable:
                copy.assign(tf.cast(variable, tf.bfloat16))

    def scope(self) -> keras.StatelessScope:
        """Where the model has the copies, and for the rest the float32 variables."""
        scope = keras.StatelessScope()
        for variable, value in zip(self._variables(), self._values, strict=True):
            scope.add_update((variable, value.read_value()))  # the constructor would cast
        return scope


def _is_kernel(variable: Any) -> bool:
    # Tables of positions and of biases are matrices too, but are read by rows and stay in float32.
    return variable.name.endswith("kernel") and len(variable.shape) == 2


def _stored(variable: Any, bits: int) -> list[tf.Variable]:
    """`[float16 values]`, or `[int8 codes, float32 scales]`."""
    as_float16 = float16_values(variable)  # refuses what codes would hide
    if bits == 16 or as_float16.ndim != 2 or min(as_float16.shape) < SMALLEST_SIDE:
        return [tf.Variable(as_float16, trainable=False, name=f"{variable.path}/float16")]
    codes, scales = pack_kernel(keras.ops.convert_to_numpy(variable))
    return [
        tf.Variable(codes, trainable=False, name=f"{variable.path}/codes"),
        tf.Variable(scales, trainable=False, name=f"{variable.path}/scales"),
    ]


def _unpacked(stored: list[tf.Variable], dtype: tf.DType) -> tf.Tensor:
    values = tf.cast(stored[0], tf.float32)
    return tf.cast(values * stored[1] if len(stored) == 2 else values, dtype)


def float16_values(variable: Any) -> np.ndarray:
    """The values of a variable in 16 bits.

    Raises:
      WeightsError: one of them is no number, or too large.
    """
    with np.errstate(over="ignore"):
        values = keras.ops.convert_to_numpy(variable).astype(np.float16)
    if not np.isfinite(values).all():
        raise WeightsError(
            "The weights of a module must be numbers that 16 bits hold, up to 65,504. "
            f"Received: others in {variable.path}. Export an earlier checkpoint of the run."
        )
    return values


def unsaved_variable(value: Any, **kwargs: Any) -> tf.Variable:
    """A variable whose shape is saved with a module, and whose value is not.

    Args:
      value: initial value.
      **kwargs: of `tf.Variable`.
    """
    variable = tf.Variable(value, **kwargs)
    leave_out_of_files(variable)
    return variable


class _Unpacking(tf.saved_model.experimental.TrackableResource):
    """Fills variables that a file has no values of, when a module is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self._pairs: list[tuple[list[tf.Variable], tf.Variable]] = []

    def into(
        self, stored: list[tf.Variable], *, dtype: tf.DType = tf.float32, **kwargs: Any
    ) -> tf.Variable:
        """A new variable that is filled with what is stored; other arguments: of `tf.Variable`."""
        variable = unsaved_variable(_unpacked(stored, dtype), **kwargs)
        self._pairs.append((stored, variable))
        return variable

    def _create_resource(self) -> tf.Tensor:
        # Stands for this object alone, and is never read.
        return tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name="", container="")

    def _initialize(self) -> None:
        # A file holds values of all of them, or of none.
        tf.cond(
            tf.raw_ops.VarIsInitializedOp(resource=self._pairs[0][1].handle),
            lambda: False,
            self._fill,
        )

    def _fill(self) -> bool:
        for stored, variable in self._pairs:
            variable.assign(_unpacked(stored, variable.dtype))
        return True
