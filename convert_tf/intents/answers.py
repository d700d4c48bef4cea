"""Answers of a classifier, as programs and services print them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_DIGITS = 4


class Answer(NamedTuple):
    """The answer to a text.

    Attributes:
      text: the text.
      intent: the intent, or the classifier's `out_of_scope_label`; None for an empty text. Several
        intents are joined by the classifier's `label_separator`.
      confidence: the highest probability; 0 for an empty text. With several intents it is the
        lowest of those answered; without any, how improbable the most probable one is.
      shares: `(intent, probability)`, the most probable first; empty for an empty text.
      explanation: see `explanation`; None if nobody asked for it.
    """

    text: str
    intent: str | None
    confidence: float
    shares: list[tuple[str, float]]
    explanation: dict[str, Any] | None = None

    def described(self, top_k: int = 1) -> dict[str, Any]:
        """Return the answer as JSON values, with `intents` if several are asked for."""
        found: dict[str, Any] = {
            "text": self.text,
            "intent": self.intent,
            "confidence": self.confidence,
        }
        if top_k > 1 and self.shares:
            found["intents"] = dict(self.shares[:top_k])
        if self.explanation is not None:
            found["explanation"] = self.explanation
        return found


def answers(classifier: Any, texts: Sequence[str], *, explains: bool = False) -> list[Answer]:
    """Return the intents of texts.

    Args:
      classifier: an `IntentClassifier`, a `MultiIntentClassifier` or an `IntentFile`.
      texts: a text of white space has no intent.
      explains: whether each answer is explained.

    Raises:
      ValueError: `explains`, and the classifier answers with several intents.
    """
    filled = [text for text in texts if text.strip()]
    if filled:
        found = iter(zip(classifier.predict(filled), classifier.predict_proba(filled), strict=True))
    said = []
    for text in texts:
        if not text.strip():
            said.append(Answer(text, None, 0.0, []))
            continue
        intent, probabilities = next(found)
        best = np.argsort(-probabilities, kind="stable")
        shares = [
            (str(classifier.classes_[i]), round(float(probabilities[i]), _DIGITS)) for i in best
        ]
        answer = _answer(classifier, text, intent, shares)
        if explains:
            answer = answer._replace(explanation=classifier.explain(text))
        said.append(answer)
    return said


def _answer(classifier: Any, text: str, intent: Any, shares: list[tuple[str, float]]) -> Answer:
    if not isinstance(intent, tuple):
        return Answer(text, str(intent), shares[0][1], shares)
    own = [share for label, share in shares if label in intent]
    confidence = min(own) if own else round(1 - shares[0][1], _DIGITS)
    return Answer(text, classifier.label_separator.join(intent), confidence, shares)
