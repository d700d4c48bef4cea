"""What a classifier says of texts, as programs and services print it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_DIGITS = 4


class Answer(NamedTuple):
    """What is said of a text.

    Attributes:
      text: the text.
      intent: out of scope the classifier's `out_of_scope_label`; None for an empty text. Several
        intents stand with the classifier's `label_separator` between them; it is empty for none.
      confidence: the highest probability; 0 for an empty text. Of several intents the lowest one of
        those that are answered; of none, how improbable the most probable one is.
      shares: `(intent, probability)`, the most probable first; none for an empty text.
    """

    text: str
    intent: str | None
    confidence: float
    shares: list[tuple[str, float]]

    def described(self, top_k: int = 1) -> dict[str, Any]:
        """As JSON holds it, with `intents` where several are asked for."""
        found: dict[str, Any] = {
            "text": self.text,
            "intent": self.intent,
            "confidence": self.confidence,
        }
        if top_k > 1 and self.shares:
            found["intents"] = dict(self.shares[:top_k])
        return found


def answers(classifier: Any, texts: Sequence[str]) -> list[Answer]:
    """The intents of texts.

    Args:
      classifier: an `IntentClassifier`, a `MultiIntentClassifier` or an `IntentFile`.
      texts: those without anything but white space have no intent.
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
        said.append(_answer(classifier, text, intent, shares))
    return said


def _answer(classifier: Any, text: str, intent: Any, shares: list[tuple[str, float]]) -> Answer:
    if not isinstance(intent, tuple):
        return Answer(text, str(intent), shares[0][1], shares)
    own = [share for label, share in shares if label in intent]
    confidence = min(own) if own else round(1 - shares[0][1], _DIGITS)
    return Answer(text, classifier.label_separator.join(intent), confidence, shares)
