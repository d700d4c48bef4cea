import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support import naive
from support.processes import printed_by

from convert_tf.layers.embedding import SubwordEmbedding
from convert_tf.numerics.byte_codes import pack_kernel, pack_table
from convert_tf.numerics.quantization import GrowingRangeQuantizer, fake_quantize

RANGES = [(-1.0, 1.01), (-0.2, 0.7), (0.0, 0.5), (-3.0, 0.0), (-1e-3, 2e-3), (-0.013, 1.7)]


def _float32(*numbers: float) -> list:
    """Return the limits of a range as float32 scalars, like a layer's."""
    return [ops.convert_to_tensor(number, dtype="float32") for number in numbers]


def _values(low: float, high: float, seed: int = 0) -> np.ndarray:
    random = np.random.RandomState(seed)
    return random.uniform(low, high, (40, 8)).astype("float32")


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_parity_with_loop(low, high):
    values = _values(1.5 * low - 0.01, 1.5 * high + 0.01)
    expected = np.vectorize(lambda v: naive.fake_quantize(v, low, high))(values.astype("float64"))
    result = np.asarray(fake_quantize(values, *_float32(low, high)))
    step = (high - low) / 255
    # A value halfway between two codes may be rounded to either in float32, but this must be rare.
    differs = np.abs(result - expected) > 1e-6
    assert differs.sum() <= 1
    np.testing.assert_allclose(result, expected, atol=step * 1.001)


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_zero_is_exact(low, high):
    assert float(fake_quantize(ops.zeros(()), *_float32(low, high))) == 0.0


def test_gradient_passes_straight_through():
    """Inside the range, gradients equal TensorFlow's; outside, ours are 1 and TensorFlow's 0."""
    values = tf.Variable(_values(-1.5, 1.5))
    upstream = np.random.RandomState(1).standard_normal(values.shape).astype("float32")
    with tf.GradientTape() as tape:
        result = tf.reduce_sum(fake_quantize(values, -1.0, 1.0) * upstream)
    np.testing.assert_array_equal(tape.gradient(result, values), upstream)


def _built():
    quantizer = GrowingRangeQuantizer((-0.5, 0.5))
    return quantizer, quantizer.build((40, 8), "table", keras.layers.Layer())


def _range(weights) -> tuple[float, float]:
    return float(weights["range_min"]), float(weights["range_max"])


def test_the_range_is_updated_every_n_training_calls(monkeypatch):
    monkeypatch.setattr(GrowingRangeQuantizer, "UPDATE_STEPS", 3)
    quantizer, weights = _built()
    assert _range(weights) == (-0.5, 0.5)
    seen = []
    for call in range(7):
        quantizer(np.full((2, 2), 1.0 + call, "float32"), True, weights)
        seen.append(_range(weights)[1])
    # The upper limit is the largest value (1, 4, 7 in calls 0, 3, 6) plus 10 % of it.
    np.testing.assert_allclose(seen, [1.1] * 3 + [4.4] * 3 + [7.7], rtol=1e-6)
    assert int(weights["calls"]) == 7


def test_by_default_the_range_is_updated_every_100_training_calls():
    """The interval is that of arXiv 1911.03688 §2.1."""
    quantizer, weights = _built()
    for call in range(101):
        quantizer(np.full((1, 1), 1.0 + call, "float32"), True, weights)
        if call < 100:
            assert _range(weights)[1] == pytest.approx(1.1)
    assert _range(weights)[1] == pytest.approx(1.1 * 101)


def test_the_range_stays_when_not_training():
    quantizer, weights = _built()
    quantizer(np.full((2, 2), 9.0, "float32"), False, weights)
    assert _range(weights) == (-0.5, 0.5)
    assert int(weights["calls"]) == 0


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([-1.0, 3.0], (-1.4, 3.4)),  # 10 % of 4
        ([-0.02, 0.03], (-0.03, 0.04)),  # 10 % of 0.05 is less than 0.01
        ([-0.05, 0.05], (-0.06, 0.06)),  # both are equal
        ([2.0, 4.0], (-0.4, 4.4)),  # the range includes 0
        ([-4.0, -2.0], (-4.4, 0.4)),
        ([0.0, 0.0], (-0.01, 0.01)),
    ],
    ids=str,
)
def test_the_range_holds_all_values_with_the_papers_room(values, expected):
    low, high = GrowingRangeQuantizer((-1.0, 1.0)).range_of(np.array(values, "float32"))
    np.testing.assert_allclose([low, high], expected, rtol=1e-6)


def test_only_the_rows_of_the_batch_are_quantized():
    """Only the range update computes with the whole table; rows are gathered, then quantized."""
    embedding = SubwordEmbedding(977, 4, position_table_sizes=(5, 3))
    embedding.build((None, None))
    graph = tf.function(lambda ids: embedding(ids)).get_concrete_function(
        tf.TensorSpec([2, 3], tf.int32)
    )
    reads = {"ReadVariableOp", "ResourceGather", "GatherV2", "Identity", "StridedSlice"}
    computed = [
        op.type
        for op in graph.graph.get_operations()
        for output in op.outputs
        if output.shape.rank and 977 in output.shape.as_list() and op.type not in reads
    ]
    assert computed == []


def test_the_table_of_the_layer_decides_the_range():
    embedding = SubwordEmbedding(30, 4, position_table_sizes=(5, 3))
    embedding.build((None, None))
    table = np.zeros(embedding.table.shape, "float32")
    table[-1, :2] = [4.0, -1.0]
    embedding.table.assign(table)
    embedding(np.zeros((1, 2), "int32"), training=True)
    np.testing.assert_allclose(_range(embedding.quantizer_weights), (-1.5, 4.5), rtol=1e-6)


def _unpack(codes, offset, step):
    return np.float32(offset) + codes.astype(np.float32) * np.float32(step)


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_unpacking_gives_what_fake_quantization_gives(low, high):
    table = _values(1.5 * low - 0.01, 1.5 * high + 0.01)
    codes, offset, step = pack_table(table, low, high)
    assert codes.dtype == np.uint8
    assert codes.nbytes == table.size  # one byte per value
    unpacked = _unpack(codes, offset, step)
    assert unpacked.dtype == np.float32
    fake = np.asarray(fake_quantize(table, *_float32(low, high)))
    inside = (table >= low) & (table <= high)
    np.testing.assert_array_equal(unpacked[inside], fake[inside])
    np.testing.assert_allclose(unpacked, fake, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("value", "low", "high"), [(np.nan, -1, 1), (np.inf, -1, 1), (0, np.nan, 1), (0, -1, np.inf)]
)
def test_tables_and_ranges_that_are_not_finite_are_refused(value, low, high):
    with pytest.raises(ValueError, match="has non-finite values"):
        pack_table(np.array([[0.5, value]], "float32"), low, high)


def test_a_kernel_gets_a_scale_for_each_output():
    kernel = np.array([[1.0, 0.0, -0.5], [-2.54, 0.0, 1.27], [0.011, 0.0, 0.004]])
    codes, scales = pack_kernel(kernel)
    np.testing.assert_allclose(scales, [0.02, 0.0, 0.01], rtol=1e-6)
    assert codes.dtype == np.int8
    assert codes.tolist() == [[50, 0, -50], [-127, 0, 127], [1, 0, 0]]
    assert (np.abs(codes * scales - kernel) <= scales / 2 + 1e-6).all()


class _Range(keras.layers.Layer):
    """Returns the range of a quantizer as a layer reads it."""

    def build(self, _):
        self.range = GrowingRangeQuantizer((-2.003, 0.5)).build((2,), "table", self)

    def call(self, x):
        return x, self.range["range_min"] * 1.0


def test_the_range_is_not_trained():
    weights = GrowingRangeQuantizer((-2.0, 0.5)).build((2,), "table", keras.layers.Layer())
    assert not any(weight.trainable for weight in weights.values())


def test_the_range_stays_in_float32_where_layers_compute_in_16_bits():
    x, low = _Range(dtype="mixed_bfloat16")(np.zeros((1, 2), "float32"))
    assert keras.backend.standardize_dtype(x.dtype) == "bfloat16"
    np.testing.assert_array_equal(low, np.float32(-2.003))


def test_it_is_a_tfmot_quantizer():
    import tensorflow_model_optimization as tfmot

    base = tfmot.quantization.keras.quantizers.Quantizer
    assert issubclass(GrowingRangeQuantizer, base)
    quantizer = GrowingRangeQuantizer((-2.0, 0.5))
    revived = GrowingRangeQuantizer.from_config(quantizer.get_config())  # tfmot's own method
    assert isinstance(revived, base)
    assert revived.initial_range == (-2.0, 0.5)


@pytest.mark.parametrize(("low", "high"), [(-6.5, 7.0), (-9.0, 6.0), (-30.0, 12.0), (-6.0, 91.3)])
def test_parity_with_tfmots_fake_quantization(low, high):
    """tfmot's `AllValuesQuantizer` uses the range of all values seen so far."""
    import tensorflow_model_optimization as tfmot

    values = _values(low, high)
    values[0, :2] = low, high
    theirs = tfmot.quantization.keras.quantizers.AllValuesQuantizer(
        num_bits=8, per_axis=False, symmetric=False, narrow_range=False
    )
    weights = {"min_var": tf.Variable(-6.0), "max_var": tf.Variable(6.0)}
    expected = np.asarray(theirs(tf.constant(values), True, weights))
    assert (weights["min_var"], weights["max_var"]) == (low, high)
    found = np.asarray(fake_quantize(values, *_float32(low, high)))
    # A value halfway between two codes may be rounded to either in float32.
    differs = np.abs(found - expected) > 1e-5 * (high - low)
    assert differs.sum() <= 1
    np.testing.assert_allclose(found, expected, atol=1.001 * (high - low) / 255)


@pytest.mark.slow
def test_importing_it_leaves_keras_as_it_was():
    """tfmot's import sets TF_USE_LEGACY_KERAS, with which `tf.keras` is another Keras version."""
    script = (
        "import os; os.environ.pop('TF_USE_LEGACY_KERAS', None)\n"
        "import convert_tf.numerics.quantization, tensorflow as tf, keras\n"
        "assert 'TF_USE_LEGACY_KERAS' not in os.environ\n"
        "assert tf.keras.layers.Dense is keras.layers.Dense\n"
    )
    printed_by(script)
