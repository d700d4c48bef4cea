"""Derive TensorFlow's tables of characters from its lower-casing and character classes.

```
python -m scripts.derive_unicode_tables > convert_tf/text/unicode_tables.json
```

TensorFlow carries its own tables (in ICU and RE2), of another Unicode version than Python's
`unicodedata` has. The tokenizer without TensorFlow must see characters as the one in the graph
does, so each character is tried once and what comes out is written down.

Ranges are pairs of the gap since the last range and the length, numbers in base 36. A group of
lower-casings is the gap since the last group's end, how many, the step between them (1 or 2), and
what is added to each.
"""

import sys
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from convert_tf.storage.json_text import written_json
from convert_tf.text import runs

_SURROGATES = range(0xD800, 0xE000)
# Handled where they occur: NUL and the dotted capital I in `runs.lower`, the sigma by its place.
_NOT_TRIED = {0, 0x130, 0x3A3}


def derive() -> dict[str, str]:
    """The tables by name, as text."""
    characters = [c for c in range(0x110000) if c not in _SURROGATES and c not in _NOT_TRIED]
    texts = [chr(c).encode("utf-8") for c in characters]
    lowered = [text.decode("utf-8") for text in runs.lower(tf.constant(texts)).numpy().tolist()]
    mapped = {}
    for c, low in zip(characters, lowered, strict=True):
        if low != chr(c):
            (only,) = low
            mapped[c] = ord(only)
    marks = tf.strings.regex_full_match(tf.constant(texts), r"[\p{P}\p{Z}]").numpy()

    def sigma_is_final(before: str) -> list[bool]:
        """Whether a sigma behind `before` and each character is written as at a word's end."""
        tried = tf.constant([before.encode() + text + "Σ".encode() for text in texts])
        return [text.endswith("ς".encode()) for text in runs.lower(tried).numpy().tolist()]

    is_cased = sigma_is_final("")
    is_seen_through = sigma_is_final("a")
    cased = [c for c, is_one in zip(characters, is_cased, strict=True) if is_one]
    return {
        "marks": _ranges(c for c, is_mark in zip(characters, marks, strict=True) if is_mark),
        "lower": _lower_casings(mapped),
        "cased": _ranges(cased),
        # Behind a letter, a sigma is final after cased characters and after ignorable ones.
        "ignorable": _ranges(
            c
            for c, alone, seen in zip(characters, is_cased, is_seen_through, strict=True)
            if seen and not alone
        ),
    }


def _ranges(characters: Iterable[int]) -> str:
    numbers: list[int] = []
    end = 0
    for c in characters:
        if numbers and c == end:
            numbers[-1] += 1
        else:
            numbers += [c - end, 1]
        end = c + 1
    return _base_36(numbers)


def _lower_casings(mapped: dict[int, int]) -> str:
    groups: list[list[int]] = []  # first, number, step, difference
    for c, low in sorted(mapped.items()):
        if groups:
            first, number, step, difference = groups[-1]
            gap = c - (first + (number - 1) * step)
            if low - c == difference and gap in ((1, 2) if number == 1 else (step,)):
                groups[-1] = [first, number + 1, gap, difference]
                continue
        groups.append([c, 1, 1, low - c])
    numbers: list[int] = []
    end = 0
    for first, number, step, difference in groups:
        numbers += [first - end, number, step, difference]
        end = first + (number - 1) * step + 1
    return _base_36(numbers)


def _base_36(numbers: Iterable[int]) -> str:
    return " ".join(np.base_repr(number, 36).lower() for number in numbers)


if __name__ == "__main__":
    sys.stdout.write(written_json(derive()))
