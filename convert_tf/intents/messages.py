"""Messages of a log: distinct texts, how often each was sent, and which are answered surely."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from convert_tf.intents.data import checked_texts
from convert_tf.intents.encodings import IntentEncodings, encodes_similarity
from convert_tf.intents.scope import margins
from convert_tf.storage.progress import Progress

_MESSAGES_AT_ONCE = 4096
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


def shuffled(texts: Sequence[str], seed: int) -> list[str]:
    """Return the texts in random order."""
    return [texts[place] for place in np.random.default_rng(seed).permutation(len(texts))]


def batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield 4,096 texts at a time, and show progress."""
    with Progress("messages", total=len(texts)) as progress:
        for start in range(0, len(texts), _MESSAGES_AT_ONCE):
            chosen = list(texts[start : start + _MESSAGES_AT_ONCE])
            yield chosen
            progress.add(len(chosen))


def encode_of(encoder: Any, classifier: Any) -> Callable[[list[str]], np.ndarray]:
    """Return the encodings of a classifier; without one, those of an encoder to compare texts with.

    Raises:
      ValueError: both are None.
    """
    if classifier is not None:
        return classifier.encode  # type: ignore[no-any-return]
    if encoder is None:
        raise ValueError("encoder or classifier is needed. Pass one of them.")
    encoders = IntentEncodings(encoder).encoders
    kind = "similarity" if encodes_similarity(encoders) else "sentence"
    return IntentEncodings(encoders, kind=kind, max_texts=0)


def leads(classifier: Any, texts: Iterable[str]) -> np.ndarray:
    """Return how sure the answers are: float `[texts]`.

    It is how far the highest probability leads the second. With several intents in a text it is how
    far the probability that is nearest to the threshold is from it.
    """
    probabilities = classifier.predict_proba(texts)
    if hasattr(classifier, "label_separator"):
        return np.abs(probabilities - classifier.threshold_).min(axis=1)
    return margins(probabilities)


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
