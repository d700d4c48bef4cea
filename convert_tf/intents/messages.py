"""Messages of a log: distinct texts, how often each was sent, and which are answered surely."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from convert_tf.intents.data import checked_texts

_EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w")
# A word with a digit and those that follow: a telephone number, an account, a date.
_NUMBER = re.compile(r"\+?\w*\d\w*(?:[ .,:/()+-]+\w*\d\w*)*")


def masked(text: str) -> str:
    """Return the text with `[email]` and `[number]` in place of e-mail addresses and numbers."""
    return _NUMBER.sub("[number]", _EMAIL.sub("[email]", text))


def counted_messages(texts: Iterable[str], *, masks: bool = False) -> Counter[str]:
    """Count each distinct message, without white space around it.

    Args:
      texts: messages; empty ones are left out.
      masks: whether numbers and e-mail addresses are masked.

    Raises:
      ValueError: no message is left.
    """
    filled = (text.strip() for text in texts)
    found = Counter(masked(text) if masks else text for text in filled if text)
    if not found:
        raise ValueError("There are no messages: all lines are empty. Pass another log.")
    return found


def unsure(classifier: Any, texts: Iterable[str], min_confidence: float) -> np.ndarray:
    """Return which texts a classifier does not answer surely.

    Args:
      classifier: an `IntentClassifier`, a `MultiIntentClassifier` or an `IntentFile`.
      texts: messages, none empty.
      min_confidence: the least probability of a sure answer.

    Returns:
      bool `[texts]`: texts without an intent, and those with a lower probability.
    """
    texts = checked_texts(texts)
    outside = ((), getattr(classifier, "out_of_scope_label", ()))
    has_none = [answer in outside for answer in classifier.predict(texts).tolist()]
    return np.array(has_none) | (classifier.predict_proba(texts).max(axis=1) < min_confidence)
