"""Quantization to 8 bits: fake quantization in training, with a range that grows.

Reference: arXiv 1911.03688 §2.1, "Quantization"; arXiv 1712.05877 §3 (fake quantization).
"""

import importlib.util
import os
import sys
from typing import Any

import keras
from keras import ops

_HIGHEST_CODE = 255.0  # the largest 8-bit number


def _quantizer_base() -> type:
    """Return tfmot's `Quantizer` if tfmot is installed and Keras runs on TensorFlow, else `object`.

    Importing tfmot sets TF_USE_LEGACY_KERAS, which would turn `tf.keras` into tf_keras for the
    whole process. The variable is therefore restored after the import. `tf.keras` is bound when it
    is first used, so it is used before the import.
    """
    if keras.backend.backend() != "tensorflow" or not importlib.util.find_spec(
        "tensorflow_model_optimization"
    ):
        return object
    before = os.environ.get("TF_USE_LEGACY_KERAS")
    hasattr(sys.modules["tensorflow"].keras, "layers")
    import tensorflow_model_optimization as tfmot

    if before is None:
        os.environ.pop("TF_USE_LEGACY_KERAS", None)
    else:
        os.environ["TF_USE_LEGACY_KERAS"] = before
    return tfmot.quantization.keras.quantizers.Quantizer


def nudged_range(range_min: Any, range_max: Any) -> tuple[Any, Any]:
    """Return the offset and step that encode a range in 8 bits, with an exact code for 0.0.

    Args:
      range_min: lowest value of the range, a scalar tensor ≤ 0.
      range_max: highest value of the range, a scalar tensor ≥ 0 and > `range_min`.

    Returns:
      Two scalars, `(offset, step)`. Code k stands for the value `offset + k * step`.
    """
    step = (range_max - range_min) / _HIGHEST_CODE
    zero_code = ops.clip(ops.floor(-range_min / step + 0.5), 0.0, _HIGHEST_CODE)
    return -zero_code * step, step


def quantize(values: Any, offset: Any, step: Any) -> Any:
    """Return codes from 0 to 255 as floats. Values outside the range are clipped."""
    return ops.clip(ops.floor((values - offset) / step + 0.5), 0.0, _HIGHEST_CODE)


def fake_quantize(values: Any, range_min: Any, range_max: Any) -> Any:
    """Round values to the nearest value that has a code. The gradient passes straight through.

    Unlike with TensorFlow's fake-quant op, values outside the range have a gradient, so training
    still changes them until the next update of the range.

    Args:
      values: values to round, a float32 tensor of any shape.
      range_min: lowest value of the range, a scalar ≤ 0.
      range_max: highest value of the range, a scalar ≥ 0.

    Returns:
      A tensor with the shape of `values`. Values inside the range change by at most half a step.
    """
    offset, step = nudged_range(range_min, range_max)
    rounded = offset + quantize(values, offset, step) * step
    return values + ops.stop_gradient(rounded - values)


class GrowingRangeQuantizer(_quantizer_base()):  # type: ignore[misc]
    """8-bit fake quantization of the embedding rows that a batch uses.

    Only the rows that the batch uses are quantized, not the whole table. Every 100 training calls,
    the range is updated to contain all values in the table, with a margin on either side. The
    margin is 10 % of the range, but at least 0.01.

    Masking: none. Rows of padding are quantized too.

    Args:
      initial_range: range before the first update, `(min, max)` with min ≤ 0 ≤ max.

    Example:
      quantizer = GrowingRangeQuantizer(initial_range=(-0.5, 0.5))
      weights = quantizer.build(table.shape, "embedding", layer)
      rows = quantizer(ops.take(table, ids, axis=0), True, weights, table=table)

    Reference: arXiv 1911.03688 §2.1, "Quantization".
    """

    UPDATE_STEPS = 100  # training calls between updates of the range
    MARGIN_SHARE = 0.1
    MIN_MARGIN = 0.01

    def __init__(self, initial_range: tuple[float, float]) -> None:
        self.initial_range = tuple(initial_range)

    def build(self, tensor_shape: Any, name: str, layer: keras.layers.Layer) -> dict[str, Any]:
        """Add weights for the range and a call counter to `layer`, and return them by name."""
        low, high = self.initial_range
        values = (
            ("range_min", low, "float32"),
            ("range_max", high, "float32"),
            ("calls", 0, "int32"),
        )
        return {
            suffix: layer.add_weight(
                shape=(),
                initializer=keras.initializers.Constant(value),
                dtype=dtype,
                trainable=False,
                autocast=False,
                name=f"{name}_{suffix}",
            )
            for suffix, value, dtype in values
        }

    def __call__(
        self,
        inputs: Any,
        training: Any,
        weights: dict[str, Any],
        *,
        table: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Fake-quantize `inputs`. In training, also update the range every 100 calls.

        Args:
          inputs: rows to quantize, float32 `[..., dim]`.
          training: whether this is a training call, as a Python bool.
          weights: the result of `build`.
          table: values that the range must contain, float32 `[rows, dim]`. If None, `inputs` is
            used.

        Returns:
          The quantized rows, float32 `[..., dim]`.
        """
        if training:
            self._update_range(inputs if table is None else table, weights)
        return fake_quantize(inputs, weights["range_min"], weights["range_max"])

    def range_of(self, table: Any) -> tuple[Any, Any]:
        """Return a range `(min, max)` that contains `table` and 0, with a margin on either side."""
        table = ops.stop_gradient(ops.convert_to_tensor(table))
        low = ops.minimum(ops.min(table), 0.0)
        high = ops.maximum(ops.max(table), 0.0)
        margin = ops.maximum(self.MARGIN_SHARE * (high - low), self.MIN_MARGIN)
        return low - margin, high + margin

    def _update_range(self, table: Any, weights: dict[str, Any]) -> None:
        calls = ops.convert_to_tensor(weights["calls"])
        # `.value` is needed because a variable cannot be assigned to itself in a stateless scope.
        old = (weights["range_min"].value, weights["range_max"].value)
        new = ops.cond(
            ops.equal(calls % self.UPDATE_STEPS, 0), lambda: self.range_of(table), lambda: old
        )
        weights["range_min"].assign(new[0])
        weights["range_max"].assign(new[1])
        weights["calls"].assign(calls + 1)

    def get_config(self) -> dict[str, Any]:
        return {"initial_range": self.initial_range}
