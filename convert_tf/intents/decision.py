"""Turn probabilities into answers. Thresholds, margins and levels are applied only here.

A text has one intent or none (`SingleIntent`), or any number of intents (`SeveralIntents`). Both
classes work on arrays, and classifiers in folders and in `.onnx` files call them. Serving modules
answer with a TensorFlow graph, which is tested against these classes.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from convert_tf.intents.examples import OUTSIDE, plain
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
      threshold: the score below which a text is out of scope; None for no threshold.
      thresholds: separate thresholds for the intents, float `[intents]`. If None, `threshold` is
        used for all intents.
      out_of_scope: the score to compare with the threshold. `"confidence"` is the highest
        probability, `"distance"` is the cosine to the nearest intent, and `"both"` is this cosine
        times `cosine_weight`, minus the logarithm of the entropy of the probabilities. None if
        there is no threshold.
      min_margin: the minimum lead of the highest probability over the second highest. Texts with a
        smaller lead are rejected.
      upper_levels: whether to answer a text that is rejected because of its probabilities with the
        upper level of a label, such as `"faq"` in `"faq/opening_hours"`, if this level is certain
        enough. A level may also be an intent itself. Texts that the score of `"distance"` or
        `"both"` rejects stay out of scope.
      out_of_scope_label: the answer to rejected texts.
      cosine_weight: the weight of the cosine in the score `"both"`.
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
        """Return the probabilities of the intents, float `[n, intents]`. Each row sums to 1."""
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
        """Return the scores to compare with thresholds, float `[n]`.

        A high score means that the text is in scope.

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
        """Return the threshold of each intent, float `[intents]`: −inf if there is no threshold."""
        threshold: Any = -np.inf if self.threshold is None else self.threshold
        if self.threshold is not None and self.thresholds is not None:
            threshold = self.thresholds
        # If the number of thresholds is not the number of intents, this raises an error.
        return np.broadcast_to(threshold, len(self.classes))

    def answers(self, probabilities: np.ndarray, nearest: np.ndarray) -> np.ndarray:
        """Return an intent, an upper level or `out_of_scope_label` for each text: `[n]`.

        Args:
          probabilities, nearest: see `scores`.
        """
        best = probabilities.argmax(axis=1)
        is_below = self.scores(probabilities, nearest) < self.limits()[best]
        is_outside = is_below | (self.leads(probabilities) < self.min_margin)
        intents = self.classes[best]
        if self.threshold is not None or is_outside.any():
            outside = np.array([self.out_of_scope_label])
            kinds = {intents.dtype.kind, outside.dtype.kind}
            # NumPy would join other types too: integers and text become text.
            is_one_type = any(kinds <= set(alike) for alike in ("U", "iu", "f"))
            outside = outside if is_one_type else outside.astype(object)
            intents = np.where(is_outside, outside, intents)
        if not self.upper_levels:
            return intents
        # A text that is too far from every intent is out of scope at every level.
        is_uncertain = is_outside if self.out_of_scope == "confidence" else is_outside & ~is_below
        return self._with_upper_levels(intents, probabilities, is_uncertain)

    def _with_upper_levels(
        self, answers: np.ndarray, probabilities: np.ndarray, is_uncertain: np.ndarray
    ) -> np.ndarray:
        """Answer uncertain texts with an upper level if this level is certain enough.

        The total probability of the level's intents must reach the threshold, and it must exceed
        the total of the second most probable level by at least `min_margin`.

        Args:
          answers: `[n]`, an intent or `out_of_scope_label` for each text.
          probabilities: float `[n, intents]`, the probabilities of the intents for each text.
          is_uncertain: bool `[n]`, whether each text was rejected because of its probabilities.

        Returns:
          The answers with upper levels, `[n]`, strings or objects.
        """
        uppers = [upper_level(label) for label in self.classes]
        names, numbers = np.unique(uppers, return_inverse=True)
        sums = probabilities @ np.eye(len(names), dtype=probabilities.dtype)[numbers]
        lead = self.leads(sums) if len(names) > 1 else np.ones(len(sums))
        # A label without levels is an intent, and this intent has already been rejected.
        has_levels = np.isin(names, [*self._levels()])
        # Only with "confidence" is the threshold a probability.
        least = self.threshold or 0.0 if self.out_of_scope == "confidence" else 0.0
        is_sure = (sums.max(axis=1) >= least) & (lead >= self.min_margin)
        is_sure &= has_levels[sums.argmax(axis=1)] & is_uncertain
        if not is_sure.any():
            return answers
        with_levels = answers.astype(object)
        with_levels[is_sure] = names[sums[is_sure].argmax(axis=1)]
        return with_levels.astype(str) if answers.dtype.kind == "U" else with_levels

    def _levels(self) -> set[str]:
        """Return the upper levels of the intents. Such a level may be an intent itself."""
        return {upper_level(label) for label in self.classes if LEVELS in str(label)}

    @staticmethod
    def as_text(intent: Any) -> str:
        """Return an answer as text."""
        return str(intent)

    def confidence(self, probabilities: np.ndarray, intent: Any) -> float:
        """Return the confidence of an answer.

        The confidence is the probability of the intent. For a text that was answered with an upper
        level instead of being rejected, it is the total probability of the intents in this level.
        For a rejected text, it is 1 minus the highest probability.

        Args:
          probabilities: float `[intents]`, the probabilities of the intents for the text.
          intent: the answer: an intent, an upper level or `out_of_scope_label`.
        """
        best = probabilities.argmax()
        if self.classes[best] == intent and not self._is_level(probabilities, intent):
            return float(probabilities[best])
        if intent == self.out_of_scope_label:
            return float(1 - probabilities[best])
        is_below = [upper_level(label) == intent for label in self.classes]
        return float(probabilities[is_below].sum())

    def _is_level(self, probabilities: np.ndarray, intent: Any) -> bool:
        """Return whether the most probable intent was rejected, so that the answer is a level."""
        if not self.upper_levels or intent == self.out_of_scope_label:
            return False
        if str(intent) not in self._levels():
            return False
        is_close = bool(self.leads(probabilities[None])[0] < self.min_margin)
        if self.out_of_scope != "confidence":
            return is_close
        best = probabilities.argmax()
        return is_close or bool(probabilities[best] < self.limits()[best])


@dataclasses.dataclass(frozen=True, eq=False)
class SeveralIntents:
    """Answers to texts that may have several intents, or none.

    Attributes:
      classes: the intents, sorted.
      threshold: the minimum probability of an answered intent.
      label_separator: the separator between the intents when an answer is written as text.
    """

    has_several: ClassVar[bool] = True
    thresholds: ClassVar[None] = None
    out_of_scope_label: ClassVar[tuple[()]] = ()  # a text without an intent

    classes: np.ndarray
    threshold: float
    label_separator: str = "+"

    @staticmethod
    def probabilities(logits: np.ndarray) -> np.ndarray:
        """Return the independent probabilities of the intents, float `[n, intents]`."""
        return 0.5 + 0.5 * np.tanh(0.5 * logits)  # the sigmoid, without overflow

    def unknown_labels(self, number: int) -> np.ndarray:
        """Return placeholder labels for texts without known labels: bool `[number, intents]`."""
        return np.zeros((number, len(self.classes)), bool)

    def leads(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the smallest distance between the threshold and a probability: float `[n]`."""
        return np.abs(probabilities - self.threshold).min(axis=1)

    @staticmethod
    def scores(probabilities: np.ndarray, nearest: np.ndarray) -> np.ndarray:
        """Return the highest probability, float `[n]`; see `SingleIntent.scores`."""
        return probabilities.max(axis=1, initial=0)

    def answers(self, probabilities: np.ndarray, nearest: np.ndarray) -> np.ndarray:
        """Return a sorted tuple of intents for each text, `[n]`; see `SingleIntent.answers`."""
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

        The confidence is the lowest probability among the answered intents. If no intent is
        answered, it is 1 minus the highest probability.

        Args:
          probabilities: float `[intents]`, the probabilities of the intents for the text.
          intents: the answered intents.
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
        plain(params["out_of_scope_label"]),
        cosine_weight,
    )


def upper_level(label: Any) -> str:
    """Return the upper level of a label: `"faq/opening_hours"` → `"faq"`."""
    return str(label).partition(LEVELS)[0]
