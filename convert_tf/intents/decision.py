"""Turn probabilities into answers. Thresholds, margins and levels are applied only here.

A text has one intent or none (`SingleIntent`), or any number of intents (`SeveralIntents`). Both
classes work on arrays. Classifiers in Python and in `.onnx` files call them. The TensorFlow graph
of a serving module is tested against them.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from convert_tf.intents.examples import OUTSIDE
from convert_tf.intents.head import softmax

KINDS = ("confidence", "distance", "both")
COSINE_WEIGHT = 5.0  # the weight for "both" if there are no examples to fit it on
LEAST_ENTROPY = 1e-5  # about the smallest entropy that float32 can represent
LEVELS = "/"  # separates the levels of a label


@dataclasses.dataclass(frozen=True, eq=False)
class SingleIntent:
    """Answers to texts that have one intent or none.

    Attributes:
      classes: the intents, sorted.
      threshold: texts with a lower score are out of scope; None for no threshold.
      thresholds: separate thresholds for the intents, float `[intents]`; None uses `threshold`.
      out_of_scope: the score to compare with the threshold. `"confidence"` is the highest
        probability, `"distance"` is the cosine to the nearest intent, and `"both"` is this cosine
        times `cosine_weight` minus the logarithm of the probabilities' entropy. None for no
        threshold.
      min_margin: the minimum lead of the highest probability over the second highest.
      upper_levels: whether to answer a rejected text with an upper level if this is certain enough.
      out_of_scope_label: the answer to rejected texts.
      cosine_weight: see `out_of_scope`.
    """

    has_several: ClassVar[bool] = False

    classes: np.ndarray
    threshold: float | None = None
    thresholds: np.ndarray | None = None
    out_of_scope: str | None = None
    min_margin: float = 0.0
    upper_levels: bool = False
    out_of_scope_label: Any = "oos"
    cosine_weight: float = COSINE_WEIGHT

    @staticmethod
    def probabilities(logits: np.ndarray) -> np.ndarray:
        """Return probabilities, float `[n, intents]`. Each row sums to 1."""
        return softmax(logits)

    def unknown_labels(self, number: int) -> np.ndarray:
        """Return placeholder labels for texts without known labels: int `[number]`."""
        return np.full(number, OUTSIDE)

    @staticmethod
    def leads(probabilities: np.ndarray) -> np.ndarray:
        """Return the lead of the highest probability over the second highest: float `[n]`."""
        two = np.partition(probabilities, -2, axis=1)[:, -2:]
        return two[:, 1] - two[:, 0]

    def scores(self, probabilities: np.ndarray, nearest: np.ndarray) -> np.ndarray:
        """Return the scores to compare with thresholds, float `[n]`. In-scope texts score high.

        Args:
          probabilities: float `[n, intents]`, the probabilities of the intents for each text.
          nearest: float `[n]`, the cosine of each text to the nearest intent.
        """
        if self.out_of_scope == "distance":
            return nearest
        if self.out_of_scope != "both":
            return probabilities.max(axis=1, initial=0)
        logs = np.log(np.maximum(probabilities, np.finfo(np.float32).tiny))
        entropy = -(probabilities * logs).sum(axis=1)
        return self.cosine_weight * nearest - np.log(np.maximum(entropy, LEAST_ENTROPY))

    def limits(self) -> np.ndarray:
        """Return the threshold of each intent: float `[intents]`; −inf without a threshold."""
        threshold: Any = -np.inf if self.threshold is None else self.threshold
        if self.threshold is not None and self.thresholds is not None:
            threshold = self.thresholds
        return np.broadcast_to(threshold, len(self.classes))  # raises an error if some are missing

    def answers(self, probabilities: np.ndarray, nearest: np.ndarray) -> np.ndarray:
        """Return an intent, an upper level or `out_of_scope_label` for each text: `[n]`.

        Args:
          probabilities, nearest: see `scores`.
        """
        best = probabilities.argmax(axis=1)
        is_outside = self.leads(probabilities) < self.min_margin
        is_outside |= self.scores(probabilities, nearest) < self.limits()[best]
        intents = self.classes[best]
        if self.threshold is not None or is_outside.any():
            is_text = intents.dtype.kind == "U" and isinstance(self.out_of_scope_label, str)
            intents = intents.astype(object)
            intents[is_outside] = self.out_of_scope_label
            intents = intents.astype(str) if is_text else intents
        return self._with_upper_levels(intents, probabilities) if self.upper_levels else intents

    def _with_upper_levels(self, answers: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
        """Answer rejected texts with an upper level if this is certain enough.

        The total probability of the level's intents must reach the threshold, and must lead the
        total of the next level by `min_margin`.

        Args:
          answers: `[n]`, an intent or `out_of_scope_label` for each text.
          probabilities: float `[n, intents]`, the probabilities of the intents for each text.

        Returns:
          The answers with upper levels, `[n]`, strings or objects.
        """
        uppers = [upper_level(label) for label in self.classes]
        names, numbers = np.unique(uppers, return_inverse=True)
        sums = probabilities @ np.eye(len(names), dtype=probabilities.dtype)[numbers]
        lead = self.leads(sums) if len(names) > 1 else np.ones(len(sums))
        # A label without levels has already been rejected.
        has_levels = ~np.isin(names, self.classes.astype(str))
        # Only with "confidence" is the threshold a probability.
        least = self.threshold or 0.0 if self.out_of_scope == "confidence" else 0.0
        is_sure = (sums.max(axis=1) >= least) & (lead >= self.min_margin)
        is_sure &= has_levels[sums.argmax(axis=1)] & (answers == self.out_of_scope_label)
        with_levels = answers.astype(object)
        with_levels[is_sure] = names[sums[is_sure].argmax(axis=1)]
        return with_levels.astype(str) if answers.dtype.kind == "U" else with_levels

    @staticmethod
    def as_text(intent: Any) -> str:
        """Return an answer as text."""
        return str(intent)

    def confidence(self, probabilities: np.ndarray, intent: Any) -> float:
        """Return the confidence of an answer, given the probabilities float `[intents]`.

        It is the probability of the intent, or the total probability of the intents in an upper
        level. For a rejected text, it is 1 minus the highest probability.
        """
        best = probabilities.argmax()
        if self.classes[best] == intent:
            return float(probabilities[best])
        if intent == self.out_of_scope_label:
            return float(1 - probabilities[best])
        is_below = [upper_level(label) == intent for label in self.classes]
        return float(probabilities[is_below].sum())


@dataclasses.dataclass(frozen=True, eq=False)
class SeveralIntents:
    """Answers to texts that may have several intents, or none.

    Attributes:
      classes: the intents, sorted.
      threshold: intents with this probability or more are answered.
      label_separator: joins the intents of an answer as text.
    """

    has_several: ClassVar[bool] = True
    thresholds: ClassVar[None] = None
    out_of_scope_label: ClassVar[tuple[()]] = ()  # a text without an intent

    classes: np.ndarray
    threshold: float
    label_separator: str = "+"

    @staticmethod
    def probabilities(logits: np.ndarray) -> np.ndarray:
        """Return the probability of each intent, independent of the others: `[n, intents]`."""
        return 0.5 + 0.5 * np.tanh(0.5 * logits)  # the sigmoid, without overflow

    def unknown_labels(self, number: int) -> np.ndarray:
        """Return placeholder labels for texts without known labels: bool `[number, intents]`."""
        return np.zeros((number, len(self.classes)), bool)

    def leads(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the distance of the threshold to the nearest probability: float `[n]`."""
        return np.abs(probabilities - self.threshold).min(axis=1)

    @staticmethod
    def scores(probabilities: np.ndarray, nearest: np.ndarray) -> np.ndarray:
        """Return the highest probability, float `[n]`; see `SingleIntent.scores`."""
        return probabilities.max(axis=1, initial=0)

    def answers(self, probabilities: np.ndarray, nearest: np.ndarray) -> np.ndarray:
        """Return a sorted tuple of intents for each text: `[n]`; see `SingleIntent`."""
        answers = np.empty(len(probabilities), object)
        answers[:] = [
            tuple(self.classes[is_in].tolist()) for is_in in probabilities >= self.threshold
        ]
        return answers

    def as_text(self, intents: tuple[str, ...]) -> str:
        """Return an answer as text."""
        return self.label_separator.join(intents)

    def confidence(self, probabilities: np.ndarray, intents: tuple[str, ...]) -> float:
        """Return the confidence of an answer.

        It is the lowest probability among the answered intents. If there are none, it is 1 minus
        the highest probability.
        """
        answered = probabilities[np.isin(self.classes, intents)]
        return float(answered.min() if len(answered) else 1 - probabilities.max())


Decision = SingleIntent | SeveralIntents


def decision_of(
    params: Mapping[str, Any],
    classes: np.ndarray,
    threshold: Any,
    thresholds: np.ndarray | None,
    cosine_weight: float,
) -> Decision:
    """Return the rule that turns a classifier's probabilities into answers.

    Args:
      params: parameters of an `IntentClassifier` or a `MultiIntentClassifier`, by name.
      classes, threshold, thresholds, cosine_weight: trained values; see `SingleIntent`.
    """
    if "label_separator" in params:
        return SeveralIntents(classes, threshold, params["label_separator"])
    return SingleIntent(
        classes,
        threshold,
        thresholds,
        params["out_of_scope"],
        params["min_margin"],
        params["upper_levels"],
        params["out_of_scope_label"],
        cosine_weight,
    )


def upper_level(label: Any) -> str:
    """Return the upper level of a label: `"faq/opening_hours"` → `"faq"`."""
    return str(label).partition(LEVELS)[0]
