"""Modules inside Keras models, as docs/deployment.md shows it: its own lines are run."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
from support.documents import blocks, run_block

MODULE = "hub_modules/convert_small/1"
FINE_TUNING, SERVING = blocks("docs/deployment.md", language="python", section="Keras")
TEXTS = ["where is my card?", "refund, please", "", "thanks"]


def values(layer) -> list[np.ndarray]:
    return [v.numpy() for v in layer.trainable_weights]


@pytest.fixture(scope="module")
def folder(tiny_modules):
    return tiny_modules["single"][1]


@pytest.fixture(scope="module")
def fine_tuned(folder, tmp_path_factory):
    """The names of the first block after it was run, and the folder it ran in."""
    place = tmp_path_factory.mktemp("keras")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        return run_block(FINE_TUNING, {MODULE: str(folder)}), place


@pytest.mark.slow
def test_a_tf_keras_model_trains_the_network(fine_tuned, folder):
    names, _ = fine_tuned
    layer = names["layer"]
    fresh = hub.KerasLayer(str(folder), trainable=True, input_shape=[], dtype=tf.string)
    fresh(TEXTS)  # its weights are unpacked by its first call
    before, after = values(fresh), values(layer)
    assert [v.shape for v in before] == [v.shape for v in after]
    assert len(layer.trainable_weights) > 20
    changed = [np.abs(a - b).max() > 0 for a, b in zip(after, before, strict=True)]
    # r is made by the trunk and the reduction; the side networks stay as they were.
    assert sum(changed) > len(changed) / 2
    assert all(np.isfinite(v).all() for v in after)
    assert np.abs(layer(TEXTS) - fresh(TEXTS)).max() > 1e-5


@pytest.mark.slow
def test_a_fine_tuned_model_is_the_same_when_it_is_loaded_again(fine_tuned, tmp_path):
    names, place = fine_tuned
    expected = names["model"](tf.constant(TEXTS)).numpy()
    np.testing.assert_allclose(names["again"](tf.constant(TEXTS)), expected, atol=1e-5)
    source = (
        "import sys, numpy as np, tensorflow as tf, tensorflow_text\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        f"np.save(sys.argv[2], model(tf.constant({TEXTS!r})))"
    )
    arguments = ["-I", "-c", source, str(place / "intents"), str(tmp_path / "out.npy")]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)


def test_a_keras_3_model_serves(folder):
    names = run_block(SERVING, {MODULE: str(folder)})
    assert names["scores"].shape == (2, 2)
    module = hub.load(str(folder))
    r = names["encode"](tf.constant(TEXTS))["default"]
    np.testing.assert_allclose(r, module(TEXTS), atol=1e-5)
    kernel, bias = names["model"].layers[-1].get_weights()
    expected = module(TEXTS[:2]).numpy() @ kernel + bias
    np.testing.assert_allclose(names["scores"], expected, atol=1e-4)
