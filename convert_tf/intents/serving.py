"""Write a classifier and its encoder as a SavedModel that maps strings to label probabilities."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401 (its ops are in the module's graph)

from convert_tf.checkpoints.kinds import VOCABULARY_ASSETS, kind_of
from convert_tf.encoding.signatures import signature_name
from convert_tf.export.hub.portable import save_portable
from convert_tf.intents.classifier import IntentClassifier
from convert_tf.intents.decision import LEAST_ENTROPY, Decision, SeveralIntents, SingleIntent
from convert_tf.intents.encodings import encoder_paths
from convert_tf.intents.lexical import CHARACTER_WIDTHS, LexicalModel
from convert_tf.intents.multi import MultiIntentClassifier
from convert_tf.numerics.quiet import quieten_float16
from convert_tf.storage.checksums import check_files
from convert_tf.storage.files import writing
from convert_tf.storage.folders import OutputFolder
from convert_tf.text.runs import fold_strings, lower

_FILES = (
    "saved_model.pb", "fingerprint.pb", "variables/variables.*", "variables", *VOCABULARY_ASSETS,
    "assets",
)  # fmt: skip
_TEXTS = tf.TensorSpec([None], tf.string, name="texts")


class LexicalModule(tf.Module):
    """The word model as a TensorFlow graph.

    Masking: none is needed, because rows do not depend on each other.

    Args:
      model: the trained model.

    Call arguments:
      texts: string `[batch]`.

    Returns:
      Logits, float32 `[batch, intents]`.

    Example:
      logits = LexicalModule(model)(tf.constant(["where is my card?"]))
    """

    def __init__(self, model: LexicalModel) -> None:
        super().__init__(name="words")
        self.words, self.characters = (_table(terms) for terms in (model.words, model.characters))
        number = len(model.words)
        self.rarity = (tf.constant(model.rarity[:number]), tf.constant(model.rarity[number:]))
        ((kernel, bias),) = model.head.layers
        self.kernel, self.bias = (
            tf.Variable(weights, trainable=False) for weights in (kernel, bias)
        )

    def __call__(self, texts: tf.Tensor) -> tf.Tensor:
        plain = lower(fold_strings(texts))
        # This pattern is \W+ in Python's `re`. In RE2, \W also matches all letters beyond ASCII.
        plain = tf.strings.regex_replace(plain, r"[^\p{L}\p{N}_]+", " ")
        plain = tf.strings.strip(plain)
        words = tf.strings.split(plain)
        letters = tf.strings.unicode_split(tf.strings.join([" ", plain, " "]), "UTF-8")
        first, last = CHARACTER_WIDTHS
        runs = [tf.strings.ngrams(letters, width, separator="") for width in range(first, last + 1)]
        features = [
            _tf_idf(words, self.words, self.rarity[0]),
            _tf_idf(tf.concat(runs, axis=1), self.characters, self.rarity[1]),
        ]
        return tf.concat(features, axis=1) @ self.kernel + self.bias


def _table(terms: Sequence[str]) -> Any:
    places = np.arange(len(terms), dtype=np.int64)
    initial = tf.lookup.KeyValueTensorInitializer(tf.constant(terms, tf.string), places)
    return tf.lookup.StaticHashTable(initial, len(terms))  # unknown terms get the last place


def _tf_idf(terms: tf.RaggedTensor, table: Any, rarity: tf.Tensor) -> tf.Tensor:
    """Return TF-IDF features as in `convert_tf.intents.lexical`: float32 `[batch, known terms]`."""
    size, batch = tf.shape(rarity)[0], terms.nrows()
    places = tf.ragged.map_flat_values(table.lookup, terms)
    flat = places.value_rowids() * tf.cast(size + 1, tf.int64) + places.values
    ones = tf.ones_like(flat, tf.float32)
    counts = tf.math.unsorted_segment_sum(ones, flat, batch * tf.cast(size + 1, tf.int64))
    counts = tf.reshape(counts, [-1, size + 1])[:, :-1]
    weighted = tf.where(counts > 0, 1 + tf.math.log(tf.maximum(counts, 1)), 0.0) * rarity
    return weighted / tf.maximum(tf.norm(weighted, axis=1, keepdims=True), 1e-12)


def _logs(logits: tf.Tensor) -> tf.Tensor:
    """Return log-probabilities with the lower bound of `cross_validation.log_of`."""
    return tf.maximum(tf.nn.log_softmax(logits), tf.math.log(1e-12))


def single_intent(
    decision: SingleIntent, probabilities: tf.Tensor, nearest: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Apply the rule `decision`: return answers, and the confidence of each answer.

    Answers are strings. Upper levels are not supported.

    Args:
      decision: the rule that turns probabilities into answers.
      probabilities: float32 `[batch, intents]`, the probabilities of the intents for each text.
      nearest: float32 `[batch]`, the cosine of each text to the nearest intent.
    """
    confidence = tf.reduce_max(probabilities, axis=1)
    best, outside = tf.argmax(probabilities, axis=1), str(decision.out_of_scope_label)
    intent = most_probable = tf.gather(tf.constant(_names(decision)), best)
    if decision.threshold is not None:
        scores = nearest if decision.out_of_scope == "distance" else confidence
        if decision.out_of_scope == "both":
            entropy = -tf.reduce_sum(tf.math.xlogy(probabilities, probabilities), axis=1)
            logs = tf.math.log(tf.maximum(entropy, LEAST_ENTROPY))
            scores = decision.cosine_weight * nearest - logs
        limits = tf.constant(decision.limits(), tf.float32)
        intent = tf.where(scores >= tf.gather(limits, best), intent, outside)
    if decision.min_margin:
        two = tf.math.top_k(probabilities, 2).values
        intent = tf.where(two[:, 0] - two[:, 1] >= decision.min_margin, intent, outside)
    return intent, tf.where(intent == most_probable, confidence, 1 - confidence)


def several_intents(
    decision: SeveralIntents, probabilities: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return answers as strings, and the confidence of each answer; see `single_intent`."""
    is_there = probabilities >= decision.threshold
    labels = tf.tile(tf.constant(_names(decision))[None], [tf.shape(probabilities)[0], 1])
    intents = tf.ragged.boolean_mask(labels, is_there)
    lowest = tf.reduce_min(tf.where(is_there, probabilities, 1.0), axis=1)
    none = 1 - tf.reduce_max(probabilities, axis=1)
    confidence = tf.where(tf.reduce_any(is_there, axis=1), lowest, none)
    joined = tf.strings.reduce_join(intents, axis=1, separator=decision.label_separator)
    return joined, confidence


def _names(decision: Decision) -> list[str]:
    return [str(label) for label in decision.classes]


class IntentModule(tf.Module):
    """A classifier as a TensorFlow graph, with the modules of its encoders.

    Masking: none is needed, because rows do not depend on each other.

    Args:
      classifier: a fitted classifier. All of its encoders must be modules.

    Raises:
      ValueError: if an encoder is not a module or is damaged, or answers may be upper levels.
    """

    def __init__(self, classifier: IntentClassifier | MultiIntentClassifier) -> None:
        super().__init__(name="intents")
        self.decision = classifier.decision
        if isinstance(self.decision, SingleIntent) and self.decision.upper_levels:
            raise ValueError(
                "A SavedModel cannot answer with upper levels. Use the folder of the classifier or "
                "one .onnx file, or train without upper_levels."
            )
        encoders = encoder_paths(classifier.encoder)
        for encoder in encoders:
            if not isinstance(encoder, str | os.PathLike) or not kind_of(encoder).is_module:
                raise ValueError(
                    f"The encoder of this classifier is {encoder!r}. Only a classifier "
                    "whose encoder is a module's folder can be exported for serving. Train with "
                    "such a folder, for example module_path('convert_small')."
                )
            check_files(encoder)
        quieten_float16()
        self.encoders = [hub.load(os.fspath(encoder)) for encoder in encoders]
        parts = classifier.parts_
        self.layers = [
            [tf.Variable(value, trainable=False) for value in layer] for layer in parts.head.layers
        ]
        self.labels = tf.constant(_names(self.decision))
        self.centroids = tf.constant(parts.centroids)
        self.signature = signature_name(classifier.kind_)
        self.mixture = classifier.mixture_
        self.words = None
        if parts.lexical is not None and self.mixture.weight:
            self.words = LexicalModule(parts.lexical)

    @tf.function(autograph=False, input_signature=[_TEXTS])
    def serve(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Classify texts.

        Args:
          texts: string `[batch]`.

        Returns:
          A dict with
          - `intent`: string `[batch]`; `out_of_scope_label` for rejected texts. If a text may have
            several intents, they are joined with `label_separator`;
          - `confidence`: float32 `[batch]`, as defined in `SingleIntent.confidence` or
            `SeveralIntents.confidence`;
          - `probabilities`: float32 `[batch, intents]`, the probability of each intent;
          - `labels`: string `[batch, intents]`, the intent of each probability.
        """
        encodings = tf.concat([self._unit_encodings(one, texts) for one in self.encoders], axis=1)
        values = encodings
        for kernel, bias in self.layers[:-1]:
            values = tf.nn.relu(values @ kernel + bias)
        kernel, bias = self.layers[-1]
        of_logits = tf.identity if self.decision.has_several else _logs
        logits = of_logits(values @ kernel + bias)
        if self.words is not None:
            weight = self.mixture.weight
            logits = (1 - weight) * logits + weight * of_logits(self.words(texts))
        logits /= self.mixture.temperature
        if isinstance(self.decision, SeveralIntents):
            probabilities = tf.sigmoid(logits)
            intent, confidence = several_intents(self.decision, probabilities)
        else:
            probabilities = tf.nn.softmax(logits)
            nearest = tf.reduce_max(tf.matmul(encodings, self.centroids, transpose_b=True), 1)
            intent, confidence = single_intent(self.decision, probabilities, nearest)
        return {
            "intent": intent,
            "confidence": confidence,
            "probabilities": probabilities,
            "labels": tf.tile(self.labels[None], [tf.shape(probabilities)[0], 1]),
        }

    def _unit_encodings(self, encoder: Any, texts: tf.Tensor) -> tf.Tensor:
        signatures = getattr(encoder, "signatures", {})
        if self.signature in signatures:
            encodings = signatures[self.signature](texts)["default"]
        else:
            encodings = encoder(texts)
        return encodings / tf.maximum(tf.norm(encodings, axis=1, keepdims=True), 1e-12)


def serving_folder(folder: str | os.PathLike[str], *, overwrite: bool = False) -> OutputFolder:
    """Return the folder that a serving module is written to.

    Raises:
      ValueError: if the folder exists and may not be replaced, or contains other files.
    """
    return OutputFolder(folder, replaceable=_FILES, overwrite=overwrite)


def export_serving(
    classifier: IntentClassifier | MultiIntentClassifier,
    folder: str | os.PathLike[str],
    *,
    overwrite: bool = False,
) -> None:
    """Write a classifier as one SavedModel, which needs tensorflow_text but not convert_tf.

    The SavedModel's only signature, `serving_default`, takes `texts`.

    Args:
      classifier: a fitted classifier. All of its encoders must be modules.
      folder: the folder to write. Missing parent folders are created.
      overwrite: whether to replace an existing serving module.

    Raises:
      ValueError: if the folder exists and may not be replaced, if it contains other files, or if an
        encoder is not a module.
      OSError: if the folder cannot be written. No partial folder is left under its name.
    """
    output = serving_folder(folder, overwrite=overwrite)
    module = IntentModule(classifier)
    with output.open() as written, writing(folder):
        save_portable(module, Path(written), signatures={"serving_default": module.serve})
