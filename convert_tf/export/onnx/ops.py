"""Build the ops of an ONNX graph, in float32 or with 8-bit matrix products.

The ops were chosen for their speed in ONNX Runtime. `docs/decisions.md` has the figures.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

from convert_tf.numerics.byte_codes import pack_kernel

CONTRIB = "com.microsoft"  # the operator set of ONNX Runtime
EPSILON = 1e-6
# Measured ranges are widened by this factor, because they are measured on a few thousand tokens,
# and the values of other texts may be outside them.
_CENTRED_ROOM = 1.2
_MAX_CENTRED_WIDTH = 0.75
SIDE_BLOCK = 32  # number of values, of texts and of weights, that share a scale in side networks


def as_array(variable: Any) -> np.ndarray:
    """Return the values of a Keras variable, or of an array, as float32."""
    if isinstance(variable, np.ndarray):
        return np.asarray(variable, np.float32)
    import keras

    return np.asarray(keras.ops.convert_to_numpy(variable), np.float32)


def with_one_unknown(table: np.ndarray, vocab_size: int) -> np.ndarray:
    """Return a table with the rows of the vocabulary, followed by the mean row of hash buckets."""
    unknown = table[vocab_size:].mean(axis=0, keepdims=True)
    return np.concatenate([table[:vocab_size], unknown])


class Calibration(NamedTuple):
    """The measured range of a tensor that is converted to bytes.

    Attributes:
      low, high: the range of the tensor after the centre is subtracted. Values outside the range
        are clipped.
      values: float32 `[tokens, dim]`, a sample of the tensor's values.
      centre: float32 `[dim]`, the vector that is subtracted before values are converted to bytes;
        None if nothing is subtracted.
    """

    low: float
    high: float
    values: np.ndarray
    centre: np.ndarray | None = None

    @classmethod
    def measured(cls, low: float, high: float, values: np.ndarray) -> "Calibration":
        """Return the calibration for a tensor from its range and a sample of its values.

        In the outputs of a layer norm, two dimensions may be near -12 and 8 in every text, while
        all others are between -6 and 6. The steps between bytes are smaller if the middle of each
        dimension's range is subtracted.
        """
        lows, highs = values.min(axis=0), values.max(axis=0)
        reach = _CENTRED_ROOM * float((highs - lows).max()) / 2
        if 2 * reach > _MAX_CENTRED_WIDTH * float(highs.max() - lows.min()):  # not worth another op
            return cls(low, high, values)
        return cls(-reach, reach, values, (lows + highs) / 2)

    def code(self) -> tuple[np.float32, np.uint8]:
        """Return the step between two adjacent bytes, and the byte that stands for 0."""
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        step = max(high - low, 1e-6) / 255.0
        return np.float32(step), np.uint8(np.clip(np.rint(-low / step), 0, 255))

    def rounded(self) -> np.ndarray:
        """Return `values` minus the centre, rounded to the values that bytes can represent."""
        step, zero = self.code()
        centred = self.values if self.centre is None else self.values - self.centre
        codes = np.clip(np.rint(centred / step) + np.float32(zero), 0, 255)
        return (codes - np.float32(zero)) * step


Calibrations = Mapping[str, Calibration]


class GraphWriter:
    """Collects the ops and constants of a graph.

    Args:
      calibrations: for 8-bit matrix products, the calibration of each tensor in `observed`. If
        None, the products are in float32.

    Attributes:
      observed: names of the tensors that are quantized to bytes, in the order of the graph.
    """

    def __init__(self, calibrations: Calibrations | None = None) -> None:
        self._calibrations = calibrations
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, np.ndarray] = {}
        self._bytes_of: dict[str, str] = {}
        self.observed: list[str] = []

    def _dense(self, name: str, x: str, kernel: np.ndarray, bias: np.ndarray | None = None) -> str:
        """Build x · kernel + bias. With calibrations, the product is computed in 8 bits.

        In 8 bits, the bias also corrects for the subtracted centre and for the mean rounding error.
        The mean error is not zero: most hidden values are between -0.28 and 0. The step between
        bytes is larger than the differences between these values, so their errors have the same
        sign.

        Reference: arXiv 1906.04721 §4.2 (bias correction).
        """
        if x not in self.observed:
            self.observed.append(x)
        if self._calibrations is None:
            product = self._add("MatMul", [x, self._constant(f"{name}/kernel", kernel)])
            if bias is None:
                return product
            return self._add("Add", [product, self._constant(f"{name}/bias", bias)])
        codes, scales = pack_kernel(kernel)
        calibration = self._calibrations[x]
        exact = calibration.values.mean(axis=0) @ kernel
        correction = exact - calibration.rounded().mean(axis=0) @ (codes * scales)
        corrected = correction if bias is None else bias + correction
        step, zero = calibration.code()
        step_name = self._constant(f"{x}/step", step)
        zero_name = self._constant(f"{x}/zero", zero)
        return self._add(
            "MatMulIntegerToFloat",
            [self._as_bytes(x, step_name, zero_name, calibration.centre),
             self._constant(f"{name}/kernel", codes), step_name,
             self._constant(f"{name}/scales", scales), zero_name, "",
             self._constant(f"{name}/bias", corrected.astype(np.float32))],
            domain=CONTRIB,
        )  # fmt: skip

    def _as_bytes(self, x: str, step: str, zero: str, centre: np.ndarray | None) -> str:
        if x not in self._bytes_of:
            if centre is None:
                centred = x
            else:
                centred = self._add("Sub", [x, self._constant(f"{x}/centre", centre)])
            self._bytes_of[x] = self._add("QuantizeLinear", [centred, step, zero])
        return self._bytes_of[x]

    def _block_dense(
        self, name: str, x: str, weights: np.ndarray, bias_values: np.ndarray | None = None
    ) -> str:
        """Build x · weights + bias for side networks.

        With calibrations, the product is computed in 8 bits. Every `SIDE_BLOCK` weights of an
        output and every `SIDE_BLOCK` values of a text then share a scale.
        """
        bias = "" if bias_values is None else self._constant(f"{name}/bias", bias_values)
        if self._calibrations is None or weights.shape[0] % SIDE_BLOCK:
            kernel = self._constant(f"{name}/kernel", weights)
            return self._add("Gemm", [x, kernel, bias])
        codes, scales = block_codes(weights, SIDE_BLOCK)
        return self._add(
            "MatMulNBits",
            [x, self._constant(f"{name}/kernel", codes), self._constant(f"{name}/scales", scales),
             "", "", bias],
            domain=CONTRIB,
            K=weights.shape[0],
            N=weights.shape[1],
            bits=8,
            block_size=SIDE_BLOCK,
            accuracy_level=4,  # multiplies 8-bit integers
        )  # fmt: skip

    def _add_and_norm(self, name: str, y: str, x: str, norm: Any) -> str:
        return self._norm(name, self._add("Add", [y, x]), norm)

    def _norm(self, name: str, x: str, norm: Any) -> str:
        """Build a layer norm from four ops, which centre the numbers and normalise them.

        ONNX Runtime's `LayerNormalization` and `SkipLayerNormalization` take 2.1 µs for a row of
        512 numbers, half as long as the neighbouring matrix products. These four ops take 0.25 µs.
        """
        scaled = self._scaled_norm(f"{name}/scaled", x, norm)
        return self._add("Add", [scaled, self._constant(f"{name}/beta", as_array(norm.beta))], name)

    def _scaled_norm(self, name: str, x: str, norm: Any) -> str:
        """Build a layer norm without its beta."""
        gamma = self._constant(f"{name}/gamma", as_array(norm.gamma))
        mean = self._add("ReduceMean", [x, self._int64("last_axis", -1)], keepdims=1)
        centred = self._add("Sub", [x, mean])
        return self._add("SimplifiedLayerNormalization", [centred, gamma], name, epsilon=EPSILON)

    def _split(
        self, x: str, name: str, sizes: list[int], outputs: list[str], *, axis: int
    ) -> list[str]:
        """Divide an axis into parts of these sizes. The sizes become the constant `name`."""
        lengths = self._constant(name, np.array(sizes, np.int64))
        self._nodes.append(helper.make_node("Split", [x, lengths], outputs, axis=axis))
        return outputs

    def _int64(self, name: str, value: int) -> str:
        return self._constant(name, np.array([value], np.int64))

    def _constant(self, name: str, value: Any) -> str:
        self._constants[name] = np.asarray(value)
        return name

    def _add(
        self, op: str, inputs: Sequence[str], output: str = "", *, domain: str = "", **options: Any
    ) -> str:
        """Append an op, and return the name of its result."""
        output = output or f"{op}_{len(self._nodes)}"
        node = helper.make_node(op, inputs, [output], name=output, domain=domain, **options)
        self._nodes.append(node)
        return output


def block_codes(weights: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Quantize weights to bytes around 128, with a scale for every `block` inputs of each output.

    Args:
      weights: float32 `[inputs, outputs]`; `inputs` must be a multiple of `block`.
      block: number of inputs that share a scale.

    Returns:
      `(codes, scales)` in the format of `MatMulNBits`: codes, uint8 `[outputs, inputs / block,
      block]`; and scales, float32 `[outputs, inputs / block]`. `(codes - 128) * scales` differs
      from the weights by at most half a scale.
    """
    blocks = weights.T.reshape(weights.shape[1], -1, block)
    scales = np.maximum(np.abs(blocks).max(axis=-1), 1e-12) / np.float32(127)
    codes = np.clip(np.rint(blocks / scales[..., None]), -127, 127) + 128
    return codes.astype(np.uint8), scales.astype(np.float32)
