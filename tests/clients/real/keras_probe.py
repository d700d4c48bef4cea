"""Use a module as `hub.KerasLayer` in a tf.keras model. Run in the client's own environment.

`python keras_probe.py MODULE --train` fine-tunes the module; without the flag, it predicts. It
prints one line of JSON.
"""

import json
import os
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401 (its ops are in the module's graph)

TEXTS = ["where is my card?", "the card is lost", "refund, please", "I want my money back", ""]
LABELS = [0, 0, 1, 1, 1]
# An empty text has a zero vector, from which only the bias learns, so its share of the loss stays.
STAYS = np.log(2) / len(TEXTS)


def train(model, layer, texts):
    model.compile(tf.keras.optimizers.Adam(1e-4), "sparse_categorical_crossentropy", ["accuracy"])
    history = model.fit(texts, np.array(LABELS), epochs=12, batch_size=5, verbose=0).history
    before = [v.numpy() for v in hub.load(sys.argv[1]).trainable_variables]
    assert len(before) == len(layer.trainable_weights) > 10
    expected = model.predict(texts, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        model.save(os.path.join(folder, "model"))
        again = tf.keras.models.load_model(os.path.join(folder, "model"))
        difference = np.abs(again.predict(texts, verbose=0) - expected).max()
    assert difference <= 1e-5, difference
    assert history["loss"][-1] - STAYS < 0.1 * (history["loss"][0] - STAYS), history
    return {"loss": [round(history["loss"][0], 3), round(history["loss"][-1], 3)]}


def main():
    is_trained = "--train" in sys.argv
    tf.keras.utils.set_random_seed(1)
    layer = hub.KerasLayer(sys.argv[1], trainable=is_trained, input_shape=[], dtype=tf.string)
    dense = tf.keras.layers.Dense(2, activation="softmax")
    model = tf.keras.Sequential([layer, dense])
    texts = tf.constant(TEXTS)
    direct = hub.load(sys.argv[1])(texts).numpy()
    facts = {"TensorFlow": tf.__version__}
    if is_trained:
        facts.update(train(model, layer, texts))
    else:
        kernel, bias = (np.asarray(w) for w in (model(texts), dense.get_weights())[1])
        logits = direct @ kernel + bias
        expected = np.exp(logits - logits.max(1, keepdims=True))
        expected /= expected.sum(1, keepdims=True)
        np.testing.assert_allclose(model.predict(texts), expected, atol=1e-4)
    print(json.dumps(facts))


main()
