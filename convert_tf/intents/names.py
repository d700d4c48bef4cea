"""Names of intents in plain words, which are examples of them.

Reference: arXiv 2404.12365 (FastFit), whose examples are compared with names of classes too.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

NAMES = ("auto", "always")

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN = re.compile(r"[\W_]+")


class IntentNames(NamedTuple):
    """Names of some intents.

    Attributes:
      labels: number of each intent.
      texts: its name in plain words.
    """

    labels: list[int]
    texts: list[str]


def name_in_words(label: Any) -> str:
    """`"card_arrival"` and `"CardArrival"` → `"card arrival"`; `""` for what has no letter."""
    if not isinstance(label, str):
        return ""
    words = _BETWEEN.sub(" ", _HUMP.sub(" ", label)).strip().lower()
    return words if any(map(str.isalpha, words)) else ""


def names_of(classes: Iterable[Any]) -> IntentNames:
    """Names of intents, without those that say nothing or are those of several.

    Args:
      classes: the intents, in the order of their numbers.
    """
    words = [*map(name_in_words, classes)]
    number = Counter(words)
    labels = [label for label, name in enumerate(words) if name and number[name] == 1]
    return IntentNames(labels, [words[label] for label in labels])
