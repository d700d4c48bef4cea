"""Loading modules: under strategies, in graphs, in Keras models, and repeatedly."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
from support.documents import blocks, run_block
from support.made_once import made_once
from support.processes import printed_by
from support.tiny_checkpoint import write_checkpoint
from support.token_ids import encoder_and_ids

from convert_tf.export.hub.writing import export_module

TEXTS = ["where is my card?", "refund, please", "", "Zebra \u4f60 42!"]

MODULE = "hub_modules/convert_small/3"
FINE_TUNING, SERVING = blocks("docs/deployment.md", language="python", section="Keras")


@pytest.fixture(scope="module", params=[8, pytest.param(32, marks=pytest.mark.slow)])
def folder(request):
    """A module wide enough for 8-bit matrices, and one that needs no unpacking."""

    def make(folder):
        run = write_checkpoint(folder / "run", embedding_dim=64, feed_forward_dim=128)
        export_module(run, folder / "module" / "1", network_bits=request.param)

    return made_once(("loading", request.param), make) / "module" / "1"


@pytest.fixture(scope="module")
def expected(folder):
    return tf.saved_model.load(str(folder))(TEXTS).numpy()


def test_under_a_distribution_strategy(folder, expected):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        module = tf.saved_model.load(str(folder))
    for _ in range(2):
        found = strategy.run(lambda: module(tf.constant(TEXTS)))
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_in_a_graph_with_initializers(folder, expected):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        module = tf.saved_model.load(str(folder))
        texts = tf.compat.v1.placeholder(tf.string, [None])
        encode = module.signatures["default"](texts)["default"]
        session.run(
            [tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()]
        )
        for _ in range(2):
            found = session.run(encode, {texts: TEXTS})
            np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.slow
def test_a_keras_3_model_exports_it(folder, expected, tmp_path):
    layer = keras.layers.TFSMLayer(str(folder), call_endpoint="serving_default", trainable=False)
    inputs = keras.Input((), dtype="string")
    model = keras.Model(inputs, layer(inputs)["default"])
    model.export(tmp_path / "before", verbose=False)
    np.testing.assert_allclose(model(tf.constant(TEXTS)), expected, atol=1e-6)
    model.export(tmp_path / "after", verbose=False)
    for name in ("before", "after"):
        again = tf.saved_model.load(str(tmp_path / name))
        np.testing.assert_allclose(again.serve(tf.constant(TEXTS)), expected, atol=1e-6)


def test_each_signature_unpacks(folder):
    """The weights are unpacked whichever signature is called first."""
    module = tf.saved_model.load(str(folder))

    def outputs(name):
        return {k: v.numpy() for k, v in module.signatures[name](
            **{i: tf.constant(TEXTS) for i in module.signatures[name].structured_input_signature[1]}
        ).items()}  # fmt: skip

    first = outputs("encode_response")  # the call that unpacks
    expected = {name: outputs(name) for name in module.signatures}
    np.testing.assert_array_equal(first["default"], expected["encode_response"]["default"])
    for name, own in expected.items():
        if len(module.weights._stored):
            module.weights._is_unpacked.assign(False)
            for variable in module.trainable_variables:
                variable.assign(tf.zeros_like(variable))
        for key, value in outputs(name).items():
            np.testing.assert_array_equal(value, own[key], err_msg=name)


def test_bfloat16_before_anything_else(folder, expected):
    module = tf.saved_model.load(str(folder))
    module.use_bfloat16(True)
    found = module(TEXTS).numpy()
    np.testing.assert_allclose(found, expected, atol=0.1 * np.abs(expected).max())
    assert np.abs(found).max() > 0.5 * np.abs(expected).max()


@pytest.mark.slow
def test_gradients_are_those_of_the_checkpoint(folder):
    encoder, token_ids = encoder_and_ids(folder)
    ids = token_ids(TEXTS)
    for block in encoder.trunk.blocks:
        block.feed_forward.fold_slope()  # as in exported modules
    target = np.random.default_rng(0).standard_normal((4, encoder.config.encoding_dim))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder.encode_response(ids) * target)
    variables = [v.value for v in encoder.network_variables]
    wanted = tape.gradient(loss, variables)
    module = tf.saved_model.load(str(folder))
    with tf.GradientTape() as tape:
        encodings = module.signatures["encode_response"](default=tf.constant(TEXTS))["default"]
        loss = tf.reduce_sum(encodings * target)
    found = tape.gradient(loss, module.trainable_variables)
    reached = 0
    for own, want, variable in zip(found, wanted, variables, strict=True):
        assert (own is None) == (want is None), variable.path
        if own is not None:
            own, want = (tf.convert_to_tensor(each).numpy() for each in (own, want))
            np.testing.assert_allclose(own, want, atol=2e-4 * max(np.abs(want).max(), 1e-3))
            reached += np.abs(want).max() > 0
    assert reached > 20


RELOADING = """
import gc, sys
import tensorflow as tf, tensorflow_text

def kept():
    gc.collect()
    return sum(isinstance(each, tf.Graph) for each in gc.get_objects())

counts = []
for _ in range(4):
    module = tf.saved_model.load(sys.argv[1])
    module(tf.constant(["how are you?"]))
    del module
    counts.append(kept())
assert counts[-1] == counts[1], counts
"""


@pytest.mark.slow
def test_a_process_that_loads_it_again_keeps_nothing(folder):
    printed_by(RELOADING, folder)


def test_saved_before_its_first_call(folder, expected, tmp_path):
    module = tf.saved_model.load(str(folder))
    tf.saved_model.save(module, str(tmp_path / "again"), signatures=module.signatures)
    again = tf.saved_model.load(str(tmp_path / "again"))
    np.testing.assert_allclose(again(TEXTS), expected, atol=1e-6)


@pytest.mark.slow
def test_a_fine_tuned_model_is_the_same_when_loaded_again(tiny_modules, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_block(FINE_TUNING, {MODULE: str(tiny_modules["single"][1])})
    expected = names["model"](tf.constant(TEXTS)).numpy()
    np.testing.assert_allclose(names["again"](tf.constant(TEXTS)), expected, atol=1e-5)
    source = (
        "import sys, numpy as np, tensorflow as tf, tensorflow_text\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        f"np.save(sys.argv[2], model(tf.constant({TEXTS!r})))"
    )
    printed_by(source, tmp_path / "intents", tmp_path / "out.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)


def test_a_keras_3_model_serves(tiny_modules):
    names = run_block(SERVING, {MODULE: str(tiny_modules["single"][1])})
    assert names["scores"].shape == (2, 2)
    module = hub.load(str(tiny_modules["single"][1]))
    r = names["encode"](tf.constant(TEXTS))["default"]
    np.testing.assert_allclose(r, module(TEXTS), atol=1e-5)
    kernel, bias = names["model"].layers[-1].get_weights()
    expected = module(TEXTS[:2]).numpy() @ kernel + bias
    np.testing.assert_allclose(names["scores"], expected, atol=1e-4)
