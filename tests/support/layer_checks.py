"""Checks for every layer: `check_layer`, modelled on keras-hub's `run_layer_test`."""

import inspect
import json
import tempfile

import keras
import numpy as np
from support.model_cases import fill_weights


class OneLayer(keras.Model):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, inputs, training=False):
        if "training" in inspect.signature(self.layer.call).parameters:
            return self.layer(**inputs, training=training)
        return self.layer(**inputs)


def check_layer(layer_class, arguments: dict, inputs: dict, expected_shape: tuple) -> None:
    """Check the output shape, one compiled training step, mixed precision and serialisation.

    Args:
      layer_class: class under test.
      arguments: constructor arguments.
      inputs: call arguments by name; floats are cast to each policy's compute dtype.
      expected_shape: shape of the result.
    """
    layer = layer_class(**arguments, name="under_test")
    result = layer(**inputs)
    assert tuple(result.shape) == expected_shape
    assert np.isfinite(np.asarray(result)).all()

    _check_fit_step(layer_class(**arguments), inputs, expected_shape)
    _check_serialisation(layer, inputs)
    for policy in ("mixed_bfloat16", "mixed_float16"):
        mixed = layer_class(**arguments, dtype=policy)
        assert layer_class.from_config(mixed.get_config()).dtype_policy.name == policy
        low = {k: _lower(v, mixed.compute_dtype) for k, v in inputs.items()}
        lowered = mixed(**low)
        assert tuple(lowered.shape) == expected_shape
        assert keras.backend.standardize_dtype(lowered.dtype) in (mixed.compute_dtype, "float32")
        assert np.isfinite(np.asarray(keras.ops.cast(lowered, "float32"))).all()
        assert {v.dtype for v in mixed.trainable_variables} <= {"float32"}


def _check_serialisation(layer, inputs: dict) -> None:
    """Check that a layer can be restored from its configuration and from a `.keras` file."""
    settings = layer.get_config()
    assert type(layer).from_config(settings).get_config() == settings
    assert json.loads(json.dumps(settings)) == settings
    fill_weights(layer.variables)
    symbolic = {
        name: keras.Input(batch_shape=value.shape, dtype=str(value.dtype), name=name)
        for name, value in inputs.items()
    }
    model = keras.Model(symbolic, layer(**symbolic))
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/layer.keras")
        loaded = keras.models.load_model(f"{folder}/layer.keras")
    for before, after in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(np.asarray(model(inputs)), np.asarray(loaded(inputs)))


def _lower(value, dtype: str):
    value = np.asarray(value)
    return keras.ops.cast(value, dtype) if value.dtype.kind == "f" else value


def _check_fit_step(layer, inputs: dict, expected_shape: tuple) -> None:
    model = OneLayer(layer)
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", jit_compile=False)
    target = np.random.RandomState(0).standard_normal(expected_shape).astype("float32")
    first = model.train_on_batch(inputs, target)
    before = [np.asarray(v) for v in layer.trainable_variables]
    second = model.train_on_batch(inputs, target)
    assert np.isfinite(first)
    assert np.isfinite(second)
    for old, variable in zip(before, layer.trainable_variables, strict=True):
        assert np.isfinite(np.asarray(variable)).all()
        assert not np.array_equal(old, np.asarray(variable)), f"{variable.path} does not train"
