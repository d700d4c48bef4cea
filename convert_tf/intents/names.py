"""Names of intents in plain words, which serve as examples.

Reference: arXiv 2404.12365 (FastFit), whose examples are compared with names of classes too.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import Any

NAMES = ("auto", "always")


def name_in_words(label: Any) -> str:
    """Return `"card arrival"` for `"card_arrival"` and `"CardArrival"`; `""` without letters."""
    if not isinstance(label, str):
        return ""
    text = unicodedata.normalize("NFC", label)
    found = []
    for before, character, behind in zip(f" {text}", text, f"{text[1:]} ", strict=False):
        is_hump = before.islower() or before.isdigit() or (before.isupper() and behind.islower())
        if character.isupper() and is_hump:
            found.append(" ")
        found.append(character if _is_of_words(character) else " ")
    words = " ".join("".join(found).lower().split())
    return words if any(map(str.isalpha, words)) else ""


def names_of(
    classes: Iterable[Any], *, left_out: Any = None, known: Iterable[str] = ()
) -> dict[int, str]:
    """Return names of intents by their numbers, without empty and repeated names.

    Args:
      classes: the intents, in the order of their numbers.
      left_out: an intent whose name is not used, such as the label of texts out of scope.
      known: examples. A name that is also an example is left out. It would otherwise be trained on
        while the example is held out.
    """
    words = ["" if label == left_out else name_in_words(label) for label in classes]
    number, left_out_words = Counter(words), {"", *known}
    return {
        label: name
        for label, name in enumerate(words)
        if number[name] == 1 and name not in left_out_words
    }


def _is_of_words(character: str) -> bool:
    is_mark = unicodedata.category(character).startswith("M")  # such as vowels of Hindi
    return character.isalnum() or is_mark or character in "'\u2019"
