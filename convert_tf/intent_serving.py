"""One SavedModel from strings to label probabilities: encoder, head and threshold together."""

import os
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401 (its ops are in the module's graph)

from convert_tf.intent_classifier import IntentClassifier
from convert_tf.intent_encodings import encoders_of
from convert_tf.unsaved_variables import leave_out_of_files, variables_without_values

_TEXTS = tf.TensorSpec([None], tf.string, name="texts")


class IntentModule(tf.Module):
    """A classifier as a graph, with the modules that it reads.

    Masking: none; rows do not depend on each other.

    Args:
      classifier: fitted, with modules as encoders.

    Raises:
      ValueError: an encoder is no module's folder.
    """

    def __init__(self, classifier: IntentClassifier):
        super().__init__(name="intents")
        encoders = encoders_of(classifier.encoder)
        for encoder in encoders:
            if not isinstance(encoder, str | os.PathLike) or not Path(encoder).is_dir():
                raise ValueError(
                    "A serving module is made of modules. Received: a classifier whose encoder is "
                    f"{encoder!r}. Train it with a module's folder."
                )
        self.encoders = [_loaded(Path(encoder)) for encoder in encoders]
        self.layers = [
            [tf.Variable(value, trainable=False) for value in layer]
            for layer in classifier.head_.layers
        ]
        self.labels = tf.constant([str(label) for label in classifier.classes_])
        self.centroids = tf.constant(classifier.centroids_)
        self.kind = classifier.out_of_scope
        self.threshold = classifier.threshold_

    @tf.function(input_signature=[_TEXTS])
    def serve(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Classifies texts.

        Args:
          texts: string `[batch]`.

        Returns:
          `intent` string `[batch]`, `""` where a text is out of scope; `confidence` float32
          `[batch]`, the highest probability; `probabilities` float32 `[batch, intents]` and
          `labels` string `[batch, intents]`, the intent of each.
        """
        encodings = tf.concat([self._unit_encodings(one, texts) for one in self.encoders], axis=1)
        values = encodings
        for kernel, bias in self.layers[:-1]:
            values = tf.nn.relu(values @ kernel + bias)
        kernel, bias = self.layers[-1]
        probabilities = tf.nn.softmax(values @ kernel + bias)
        confidence = tf.reduce_max(probabilities, axis=1)
        intent = tf.gather(self.labels, tf.argmax(probabilities, axis=1))
        if self.threshold is not None:
            score = confidence
            if self.kind == "distance":
                score = tf.reduce_max(tf.matmul(encodings, self.centroids, transpose_b=True), 1)
            intent = tf.where(score >= self.threshold, intent, "")
        batch = tf.shape(texts)[0]
        return {
            "intent": intent,
            "confidence": confidence,
            "probabilities": probabilities,
            "labels": tf.tile(self.labels[None], [batch, 1]),
        }

    def _unit_encodings(self, encoder: Any, texts: tf.Tensor) -> tf.Tensor:
        signatures = getattr(encoder, "signatures", {})
        if "default" in signatures:
            encodings = signatures["default"](texts)["default"]
        else:
            encodings = encoder(texts)
        return encodings / tf.maximum(tf.norm(encodings, axis=1, keepdims=True), 1e-12)


def _loaded(folder: Path) -> Any:
    """A module that holds no more when it is saved again than its own file does."""
    module = hub.load(os.fspath(folder))
    for variable in variables_without_values(module, folder):
        leave_out_of_files(variable)
    return module


def export_serving(classifier: IntentClassifier, folder: str | os.PathLike[str]) -> None:
    """Writes a classifier as one SavedModel, which needs tensorflow_text but no convert_tf.

    Its only signature, `serving_default`, takes `texts`.

    Args:
      classifier: fitted, with modules as encoders.
      folder: a new one.

    Raises:
      ValueError: the folder exists, or an encoder is no module.
    """
    if os.path.exists(folder):
        raise ValueError(
            f"A serving module is written to a new folder. Received: {os.fspath(folder)!r}, which "
            "exists. Choose another --serving_module."
        )
    module = IntentModule(classifier)
    tf.saved_model.save(module, os.fspath(folder), signatures={"serving_default": module.serve})
