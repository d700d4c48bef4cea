"""Mask, count and encode messages from a log, and find messages with uncertain answers."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from convert_tf.intents.encodings import IntentEncodings, encodes
from convert_tf.intents.examples import checked_string, column
from convert_tf.storage.progress import Progress
from convert_tf.text.characters import fold

# With this limit, half of the messages with unknown intents and one in nine of the other messages
# have uncertain answers (docs/lab/intents.md).
MIN_CONFIDENCE = 0.8
COMPARED = 2_000  # maximum number of messages and of examples whose distances are compared
CENTRAL = 5  # number of messages shown per group
MAX_TEXT = 90  # maximum number of characters printed per message
_MESSAGES_AT_ONCE = 4096
# Both patterns take linear time, even for a word of a megabyte, because no match is tried in the
# middle of a word. `_EMAIL` matches every word; only those with a domain are e-mail addresses.
_EMAIL = re.compile(r"[\w.+-]+(?P<domain>@[\w-]+\.[\w.-]*\w)?")
# One or several words that contain digits, such as a telephone number, an account or a date.
_NUMBER = re.compile(r"(?:\+|(?<!\w))\w*\d\w*(?:[ .,:/()+-]+\w*\d\w*)*")

Report = dict[str, Any]


def masked(text: str) -> str:
    """Return the text with e-mail addresses and numbers replaced by `[email]` and `[number]`.

    If unusual characters hide a part of an address or number, the text is folded first.
    """
    masked_text, folded = _masked(text), fold(text)
    if folded == text or fold(masked_text) == (masked_folded := _masked(folded)):
        return masked_text
    return masked_folded


def _masked(text: str) -> str:
    if "@" in text:
        text = _EMAIL.sub(lambda match: "[email]" if match["domain"] else match[0], text)
    return _NUMBER.sub("[number]", text)


def counted_messages(texts: Iterable[str], *, mask: bool = False) -> Counter[str]:
    """Count each distinct message, after stripping the white space around it.

    Args:
      texts: messages, in any iterable or a table with one column. Messages with only white space
        and invisible characters are left out.
      mask: whether to mask numbers and e-mail addresses.

    Raises:
      ValueError: if no message is left, a message is not a string, or `texts` is a single text, a
        mapping or a table with several columns.
    """
    if isinstance(texts, str | bytes | Mapping) or hasattr(texts, "shape"):
        texts = column(texts, "messages")
    filled = (checked_string(text, index).strip() for index, text in enumerate(texts))
    counts = Counter(masked(text) if mask else text for text in filled if fold(text))
    if not counts:
        raise ValueError("There are no messages: all lines are empty. Pass another log.")
    return counts


def shuffled(texts: Sequence[str], seed: int) -> list[str]:
    """Return the texts in a random order, which is the same for the same seed."""
    return [texts[place] for place in np.random.default_rng(seed).permutation(len(texts))]


def in_batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield 4,096 texts at a time, and show the progress."""
    with Progress("messages", total=len(texts)) as progress:
        for start in range(0, len(texts), _MESSAGES_AT_ONCE):
            chosen = list(texts[start : start + _MESSAGES_AT_ONCE])
            yield chosen
            progress.add(len(chosen))


def encode_of(encoder: Any, classifier: Any) -> Callable[[list[str]], np.ndarray]:
    """Return the function that encodes messages.

    It is the classifier's function, or the encoder's function if `classifier` is None.

    Raises:
      ValueError: if both are None.
    """
    if classifier is not None:
        return classifier.encode  # type: ignore[no-any-return]
    if encoder is None:
        raise ValueError("There is neither an encoder nor a classifier. Pass one of them.")
    encoders = IntentEncodings(encoder).encoders
    kind = "similarity" if encodes(encoders, "similarity") else "sentence"
    return IntentEncodings(encoders, kind=kind, max_texts=0)


def rest_text(rows: Sized, shown: int) -> list[str]:
    """Return a line with the number of rows that are not printed; `[]` if all are printed."""
    return [f"          … and {len(rows) - shown:,} more"] if len(rows) > shown else []


def unsure(classifier: Any, texts: Sequence[str], min_confidence: float) -> np.ndarray:
    """Return which texts a classifier does not answer confidently.

    Args:
      classifier: an `IntentClassifier`, a `MultiIntentClassifier` or an `IntentFile`.
      texts: messages. They must not be empty.
      min_confidence: minimum probability of a confident answer.

    Returns:
      bool `[texts]`, true for texts that get no intent, or whose highest probability is lower than
      `min_confidence`.
    """
    outside = classifier.decision.out_of_scope_label
    has_none = [answer == outside for answer in classifier.predict(texts).tolist()]
    return np.array(has_none) | (classifier.predict_proba(texts).max(axis=1) < min_confidence)
