"""A trained classifier: its answers, its explanations, and its JSON values and arrays.

`convert_tf.intents.folder` writes the values and arrays to a folder, and
`convert_tf.intents.one_file` to one file.
"""

import abc
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from convert_tf.intents.data import LabelledTexts, checked_texts
from convert_tf.intents.encodings import PROBES
from convert_tf.intents.examples import OUTSIDE
from convert_tf.intents.explain import explanation
from convert_tf.intents.head import head_arrays, head_of_arrays
from convert_tf.intents.heldout import Answers, Mixture, Parts, answers_of, sureness
from convert_tf.intents.lexical import lexical_arrays, lexical_of_arrays
from convert_tf.intents.scope import margins, with_upper_levels

_VERSION = 2
# What reading damaged files of JSON and arrays raises.
UNREADABLE = (
    OSError, AttributeError, KeyError, OverflowError, TypeError, ValueError, RecursionError,
)  # fmt: skip


class ClassifierParts(NamedTuple):
    """A trained classifier without its encoder, as it is stored.

    All fields but `params` are attributes of classifiers, where their names end in `_`.

    Attributes:
      params: parameters of `IntentClassifier` or `MultiIntentClassifier` without `encoder`.
      classes: the intents, sorted.
      threshold: the threshold of out of scope, or of each of several intents; None without one.
      best_params: the options that a grid search chose.
      parts: head, words and mean encodings.
      mixture: the combination of head and words.
      thresholds: a threshold for each intent, float64 `[intents]`; None without.
      examples: the texts and labels of `fit`; None if they are not kept.
    """

    params: dict[str, Any]
    classes: np.ndarray
    threshold: float | None
    best_params: Mapping[str, Any]
    parts: Parts
    mixture: Mixture
    thresholds: np.ndarray | None
    examples: LabelledTexts | None = None

    def answers(self, texts: list[str], encodings: np.ndarray) -> Answers:
        """Return what the head and the words say about texts without known labels."""
        labels = np.full(len(texts), OUTSIDE)
        if "label_separator" in self.params:
            labels = np.zeros((len(texts), len(self.classes)), bool)
        return answers_of(self.parts, texts, encodings, labels)

    def scope_scores(self, answers: Answers) -> np.ndarray:
        """Return how surely texts are in scope, float32 `[n]`. Thresholds compare with it."""
        return sureness(answers, self.mixture, self.params["out_of_scope"])

    def answered(self, answers: Answers) -> np.ndarray:
        """Return the intent of each text or `out_of_scope_label`, or tuples of intents: `[n]`."""
        probabilities = answers.probabilities(self.mixture)
        if "label_separator" in self.params:
            found = np.empty(len(probabilities), object)
            found[:] = [
                tuple(self.classes[own].tolist()) for own in probabilities >= self.threshold
            ]
            return found
        best = probabilities.argmax(axis=1)
        # Files of earlier versions have no margin.
        min_margin = self.params.get("min_margin", 0)
        is_outside = margins(probabilities) < min_margin
        if self.threshold is not None:
            limits = self.threshold if self.thresholds is None else self.thresholds
            limits = np.broadcast_to(limits, len(self.classes))
            is_outside |= self.scope_scores(answers) < limits[best]
        found, outside = self.classes[best], self.params["out_of_scope_label"]
        if self.threshold is not None or is_outside.any():
            is_text = found.dtype.kind == "U" and isinstance(outside, str)
            found = found.astype(object)
            found[is_outside] = outside
            found = found.astype(str) if is_text else found
        if not self.params.get("upper_levels", False):
            return found
        threshold = self.threshold or 0.0
        return with_upper_levels(found, probabilities, self.classes, outside, threshold, min_margin)


class Predictor(abc.ABC):
    """A trained classifier: what it learnt, and its answers to texts.

    Attributes:
      classes_: the intents, sorted.
      parts_: head, words and mean encodings.
      mixture_: the combination of head and words.
      threshold_: see `ClassifierParts`.
    """

    classes_: np.ndarray
    parts_: Parts
    mixture_: Mixture
    threshold_: float | None

    @abc.abstractmethod
    def stored_parts(self) -> ClassifierParts:
        """Return everything that was learnt."""

    @abc.abstractmethod
    def encode(self, texts: Iterable[str]) -> np.ndarray:
        """Return the encodings that the head reads: float32 `[texts, dim]`.

        Args:
          texts: a list, an array or a table of one column.
        """

    def raw_answers(self, texts: Iterable[str]) -> Answers:
        """Return what the head and the words say, before they are combined.

        Raises:
          ValueError: a text is empty.
        """
        return self._parts_and_answers(texts)[1]

    def _parts_and_answers(self, texts: Iterable[str]) -> tuple[ClassifierParts, Answers]:
        parts, texts = self.stored_parts(), checked_texts(texts)
        return parts, parts.answers(texts, self.encode(texts))

    def predict_proba(self, texts: Iterable[str]) -> np.ndarray:
        """Return the probabilities of `classes_`: float32 `[texts, intents]`.

        Rows sum to 1, except those of a classifier of several intents.

        Raises:
          ValueError: a text is empty.
        """
        parts, answers = self._parts_and_answers(texts)
        return answers.probabilities(parts.mixture)

    def predict(self, texts: Iterable[str]) -> np.ndarray:
        """Return the intent of each text or `out_of_scope_label`: `[texts]`.

        A classifier of several intents returns sorted tuples of intents.

        Raises:
          ValueError: a text is empty.
        """
        parts, answers = self._parts_and_answers(texts)
        return parts.answered(answers)

    def scope_scores(self, texts: Iterable[str]) -> np.ndarray:
        """Return how surely texts are in scope, float32 `[texts]`. Thresholds compare with it."""
        parts, answers = self._parts_and_answers(texts)
        return parts.scope_scores(answers)

    def explain(self, text: str) -> dict[str, Any]:
        """Explain the answer to a text; result as in `explanation`."""
        return explanation(self, text)

    def nearest_examples(self, text: str) -> list[dict[str, Any]]:
        """Return the training examples nearest to a text; none if they are not kept."""
        return []


def stored(parts: ClassifierParts) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return JSON values, and arrays by name."""
    described = {
        "version": _VERSION,
        "labels": parts.classes.tolist(),
        "threshold": parts.threshold,
        "best_params": dict(parts.best_params),
        "mixture": parts.mixture._asdict(),
        "params": parts.params,
    }
    if parts.examples is not None:
        described["examples"] = parts.examples._asdict()
    arrays = {**head_arrays(parts.parts.head), "centroids": parts.parts.centroids}
    if parts.parts.lexical is not None:
        arrays |= lexical_arrays(parts.parts.lexical)
    if parts.thresholds is not None:
        arrays["thresholds"] = parts.thresholds
    return described, arrays


def restored(described: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> ClassifierParts:
    """Return the parts that `stored` was given.

    Args:
      described: JSON values.
      arrays: arrays by name, and `probes`, the encodings of `PROBES`. The parts answer these once,
        so that arrays that do not fit together are found now.

    Raises:
      One of `UNREADABLE`: a value is missing, or values do not fit together.
    """
    if described["version"] != _VERSION:
        raise ValueError(f"version {described['version']} of its format, not {_VERSION}")
    params, mixture = described["params"], Mixture(**described["mixture"])
    threshold, labels = described["threshold"], described["labels"]
    if not (0 <= mixture.weight <= 1 and 0 < mixture.temperature <= sys.float_info.max):
        raise ValueError(f"{mixture} is out of range")
    if threshold is not None and not np.isfinite(float(threshold)):
        raise ValueError(f"threshold {threshold}")
    if not isinstance(labels, list) or labels != sorted({*labels}):
        raise ValueError("the labels are not sorted intents")
    examples = None
    if "examples" in described:
        examples = LabelledTexts(**described["examples"])
        if len(checked_texts(examples.texts)) != len(examples.labels):
            raise ValueError("the examples have more texts or more labels")
    for name, array in arrays.items():
        is_text = name in ("words", "characters")
        if array.dtype.kind != ("u" if is_text else "f") or not np.isfinite(array).all():
            raise ValueError(f"{name} does not hold finite numbers")
    parts = Parts(head_of_arrays(arrays), lexical_of_arrays(arrays), arrays["centroids"])
    thresholds, best_params = arrays.get("thresholds"), dict(described["best_params"])
    found = ClassifierParts(
        params, np.array(labels), threshold, best_params, parts, mixture, thresholds, examples
    )
    answers = found.answers([*PROBES], arrays["probes"])
    if not answers.head.shape[1] == len(parts.centroids) == len(labels):
        raise ValueError(f"the head and the mean encodings are not those of {len(labels)} intents")
    found.answered(answers)
    return found


def reason_of(error: Exception) -> str:
    """Return why a classifier is unreadable, of one of the exceptions in `UNREADABLE`."""
    return f"without {error}" if isinstance(error, KeyError) else str(error)
