"""Matrix products of bytes compared with products of floats, using a naive loop."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convert_tf.encoding.backends.onnx import onnx_runtime
from convert_tf.export.onnx.ops import CONTRIB, Calibration, GraphWriter
from convert_tf.numerics.byte_codes import pack_kernel

LOW, HIGH = -0.28, 30.0  # typical of hidden values: most are near LOW, and the step is 0.12


def hidden_values(rng, tokens, dim):
    """Return values like those after the fast GELU: most are small and negative."""
    wide = 8 * rng.standard_normal((tokens, dim)) - 6
    return np.clip(wide / (1 + np.exp(-np.clip(wide, -50, 50))), LOW, HIGH).astype(np.float32)


class Product(GraphWriter):
    """A graph for x · kernel + bias, and its session."""

    def session(self, kernel, bias):
        output = self._dense("layer", "x", kernel, bias)
        float32 = TensorProto.FLOAT
        graph = helper.make_graph(
            self._nodes, "product",
            [helper.make_tensor_value_info("x", float32, ("tokens", kernel.shape[0]))],
            [helper.make_tensor_value_info(output, float32, ("tokens", kernel.shape[1]))],
            [numpy_helper.from_array(value, name) for name, value in self._constants.items()],
        )  # fmt: skip
        sets = [helper.make_opsetid("", 20), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, opset_imports=sets, ir_version=10)
        onnx.checker.check_model(model)
        options = onnx_runtime().SessionOptions()
        options.add_session_config_entry("session.x64quantprecision", "1")
        return onnx_runtime().InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )


def naive_rounded(values):
    step = (HIGH - LOW) / 255
    zero = round(-LOW / step)
    rounded = np.empty_like(values)
    for place, value in np.ndenumerate(values):
        byte = min(max(round(float(value) / step) + zero, 0), 255)
        rounded[place] = (byte - zero) * step
    return rounded


@pytest.mark.parametrize("has_bias", [False, True])
def test_the_bias_makes_up_for_the_mean_error(has_bias):
    rng = np.random.default_rng(0)
    kernel = (rng.standard_normal((96, 16)) + 0.5).astype(np.float32)
    bias = rng.standard_normal(16).astype(np.float32) if has_bias else None
    seen, values = hidden_values(rng, 200, 96), hidden_values(rng, 200, 96)
    calibration = Calibration(LOW, HIGH, seen)
    np.testing.assert_allclose(calibration.rounded(), naive_rounded(seen), atol=1e-5)
    (found,) = Product({"x": calibration}).session(kernel, bias).run(None, {"x": values})

    exact = values @ kernel + (0 if bias is None else bias)
    scales = np.abs(kernel).max(axis=0) / 127
    read = np.rint(kernel / scales) * scales  # the kernel after rounding to bytes
    correction = (seen @ kernel - naive_rounded(seen) @ read).mean(axis=0)
    uncorrected = naive_rounded(values) @ read + (0 if bias is None else bias)
    np.testing.assert_allclose(found, uncorrected + correction, rtol=1e-4, atol=1e-3)
    before, after = (np.abs((each - exact).mean(axis=0)).mean() for each in (uncorrected, found))
    assert after < before / 4, (before, after)


def test_numbers_that_are_always_large_do_not_make_bytes_coarse():
    rng = np.random.default_rng(2)
    kernel = rng.standard_normal((96, 16)).astype(np.float32)
    values = rng.standard_normal((400, 96)).astype(np.float32)
    values[:, [7, 70]] += np.array([-12, 8], np.float32)  # outliers as after layer norms
    seen, values = values[:200], values[200:]
    low, high = seen.min(), seen.max()
    codes, scales = pack_kernel(kernel)
    errors = {}
    for calibration in (Calibration(low, high, seen), Calibration.measured(low, high, seen)):
        (product,) = Product({"x": calibration}).session(kernel, None).run(None, {"x": values})
        errors[calibration.centre is not None] = np.abs(product - values @ (codes * scales)).mean()
    assert errors[True] < 0.65 * errors[False], errors
    hidden = hidden_values(rng, 200, 96)
    assert Calibration.measured(LOW, HIGH, hidden).centre is None, "Centring would not help."


def test_without_calibration_the_product_is_exact():
    rng = np.random.default_rng(1)
    kernel, values = rng.standard_normal((32, 8)), rng.standard_normal((5, 32))
    kernel, values = kernel.astype(np.float32), values.astype(np.float32)
    (found,) = Product().session(kernel, np.ones(8, np.float32)).run(None, {"x": values})
    np.testing.assert_allclose(found, values @ kernel + 1, rtol=1e-4, atol=1e-4)
