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


@pytest.fixture(scope="module")
def folder(tiny_modules):
    return tiny_modules["single"][1]


@pytest.mark.slow
def test_a_fine_tuned_model_is_the_same_when_it_is_loaded_again(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_block(FINE_TUNING, {MODULE: str(folder)})
    expected = names["model"](tf.constant(TEXTS)).numpy()
    np.testing.assert_allclose(names["again"](tf.constant(TEXTS)), expected, atol=1e-5)
    source = (
        "import sys, numpy as np, tensorflow as tf, tensorflow_text\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        f"np.save(sys.argv[2], model(tf.constant({TEXTS!r})))"
    )
    arguments = ["-I", "-c", source, str(tmp_path / "intents"), str(tmp_path / "out.npy")]
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
