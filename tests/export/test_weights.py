"""Weights that are packed in a module's file and unpacked when it is loaded."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub

from convert_tf.export.hub.portable import save_portable
from convert_tf.export.hub.weights import StoredWeights
from convert_tf.numerics.quantization import pack_kernel

INPUTS = np.random.default_rng(1).standard_normal((4, 80)).astype(np.float32)


def make_model() -> keras.Model:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((80,))
    hidden = keras.layers.LayerNormalization()(keras.layers.Dense(96, "relu")(inputs))
    return keras.Model(inputs, keras.layers.Dense(70)(hidden))


class Module(tf.Module):
    variables = None
    trainable_variables = None

    def __init__(self, model, bits):
        super().__init__()
        self._model = lambda: model
        self.weights = StoredWeights(model.trainable_variables, bits=bits)
        self.variables = self.weights.variables
        self.trainable_variables = self.weights.trainable_variables
        self.regularization_losses = []

    @tf.function(input_signature=[tf.TensorSpec([None, 80])])
    def __call__(self, inputs):
        self.weights.unpack()
        with self.weights.scope():
            return self._model()(inputs)


@pytest.fixture(scope="module", params=[16, 8])
def saved(request, tmp_path_factory):
    """`(folder, model, bits)`."""
    folder = tmp_path_factory.mktemp("stored") / "module"
    model = make_model()
    module = Module(model, request.param)
    save_portable(module, folder, signatures={"serving_default": module.__call__})
    return folder, model, request.param


def in_file(folder) -> list[tuple[str, list[int]]]:
    path = str(folder / "variables" / "variables")
    reader = tf.train.load_checkpoint(path)
    types = reader.get_variable_to_dtype_map()
    shapes = reader.get_variable_to_shape_map()
    return sorted(
        (types[name].name, shapes[name]) for name in shapes if not name.startswith("_CHECK")
    )


def test_the_file_holds_what_is_packed_and_zeros(saved):
    folder, _, bits = saved
    vectors = [("float16", [n]) for n in (70, 96, 96, 96)]
    shapes = [[80, 96], [96, 70], [70], [96], [96], [96]]
    vectors += [*(("float32", shape) for shape in shapes), ("bool", [])]
    if bits == 16:
        assert in_file(folder) == sorted([*vectors, ("float16", [80, 96]), ("float16", [96, 70])])
    else:
        kernels = [(t, s) for n, m in ((80, 96), (96, 70))
                   for t, s in (("int8", [n, m]), ("float32", [m]))]  # fmt: skip
        assert in_file(folder) == sorted([*vectors, *kernels])


def test_unpacked_weights_are_the_rounded_ones(saved):
    folder, model, bits = saved
    loaded = tf.saved_model.load(str(folder))
    assert not any(variable.numpy().any() for variable in loaded.trainable_variables)
    loaded(INPUTS)
    assert len(loaded.trainable_variables) == len(model.trainable_variables)
    for variable, got in zip(model.trainable_variables, loaded.trainable_variables, strict=True):
        value = variable.numpy()
        assert (got.shape.as_list(), got.dtype) == (list(value.shape), tf.float32)
        if bits == 8 and value.ndim == 2:
            half_a_step = np.abs(value).max(axis=0) / 254
            assert (np.abs(got.numpy() - value) <= half_a_step * 1.001).all()
        else:
            np.testing.assert_array_equal(got.numpy(), value.astype(np.float16))
    atol = {16: 5e-3, 8: 5e-2}[bits]
    np.testing.assert_allclose(loaded(INPUTS), model(INPUTS), atol=atol)
    assert np.abs(loaded(INPUTS) - model(INPUTS)).max() > 0


def test_the_loader_of_tensorflow_1_fills_them(saved):
    folder, _, _ = saved
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        graph = tf.compat.v1.saved_model.load(session, ["serve"], str(folder))
        signature = graph.signature_def["serving_default"]
        (given,), (wanted,) = signature.inputs.values(), signature.outputs.values()
        got = session.run(wanted.name, {given.name: INPUTS})
    np.testing.assert_allclose(got, tf.saved_model.load(str(folder))(INPUTS), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "sgd", "legacy"])
def test_trained_weights_are_kept_when_saved_again(saved, tmp_path, optimizer):
    import tf_keras

    folder, _, _ = saved
    layer = hub.KerasLayer(str(folder), trainable=True, input_shape=[80], dtype=tf.float32)
    model = tf_keras.Sequential([layer, tf_keras.layers.Dense(3)])
    model.summary(print_fn=lambda line: None)
    legacy = tf_keras.optimizers.legacy.Adam()
    model.compile(legacy if optimizer == "legacy" else optimizer, "mse")
    layer(INPUTS)  # unpacks
    before = [v.numpy() for v in layer.trainable_weights]
    model.fit(INPUTS, np.ones((4, 3), np.float32), verbose=0)
    assert len(before) == 6
    for old, variable in zip(before, layer.trainable_weights, strict=True):
        assert np.abs(variable.numpy() - old).max() > 0
    again = tmp_path / "again"
    tuned = layer.resolved_object
    tf.saved_model.save(tuned, str(again), signatures=tuned.signatures)
    np.testing.assert_array_equal(tf.saved_model.load(str(again))(INPUTS), tuned(INPUTS))
    model.save(tmp_path / "keras")
    np.testing.assert_allclose(
        tf_keras.models.load_model(tmp_path / "keras")(INPUTS), model(INPUTS), atol=1e-6
    )


def test_pack_kernel():
    rng = np.random.default_rng(0)
    kernel = rng.standard_normal((40, 5)).astype(np.float32) * [1, 10, 0.01, 0, 1e-6]
    codes, scales = pack_kernel(kernel)
    assert (codes.dtype, scales.dtype) == (np.int8, np.float32)
    assert (np.abs(codes).max(axis=0) == [127, 127, 127, 0, 127]).all()  # -128 has no opposite
    assert (np.abs(codes * scales - kernel) <= scales / 2 * 1.001).all()
    assert scales[1] > 5 * scales[0]  # a scale for each column


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e6])
def test_weights_that_16_bits_cannot_hold_are_refused(value):
    model = make_model()
    broken = model.trainable_variables[0].numpy()
    broken[0, 0] = value
    model.trainable_variables[0].assign(broken)
    for bits in (16, 8, 32):
        with pytest.raises(ValueError, match=f"{model.trainable_variables[0].path} holds NaN"):
            StoredWeights(model.trainable_variables, bits=bits)
    with pytest.raises(ValueError, match="bits=4"):
        StoredWeights(make_model().trainable_variables, bits=4)
