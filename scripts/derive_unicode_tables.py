"""Derive tables of characters from TensorFlow's lower-casing and character classes.

```
python -m scripts.derive_unicode_tables > convert_tf/text/unicode_tables.json
```

TensorFlow contains its own character tables (in ICU and RE2). They are from another Unicode version
than the tables of Python's `unicodedata`. The tokenizer without TensorFlow must treat characters as
the tokenizer in the graph does. This script therefore passes each character through TensorFlow and
records the result.

All numbers are in base 36. A range is two numbers: the gap since the end of the last range, and the
length. A group of lower-casings is four numbers: the gap since the end of the last group, the
number of characters, the step between them (1 or 2), and the number that is added to each
character.

The tables for `convert_tf.text.characters.fold` are classes of characters. From Python's
`unicodedata` the script uses only the tags of decompositions, and only for characters that Unicode
13 has.
"""

import sys
import unicodedata
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from convert_tf.storage.json_text import written_json
from convert_tf.text import runs

_SURROGATES = range(0xD800, 0xE000)
# Special cases in the code: `runs.lower` replaces NUL and the dotted capital I, and the form of a
# small sigma depends on its place.
_NOT_TRIED = {0, 0x130, 0x3A3}

# Control characters for spacing, and characters that are drawn as blanks.
_BLANKS = {*range(0x9, 0xE), *range(0x1C, 0x21), 0x85, 0x115F, 0x1160, 0x2800, 0x3164, 0xFFA0}
# Other control characters, and those that Unicode calls "default ignorable".
_UNSEEN = {
    *range(0x9), *range(0xE, 0x1C), *range(0x7F, 0x85), *range(0x86, 0xA0), 0xAD, 0x34F, 0x61C,
    0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x200B, 0x200C, 0x200E, 0x200F, *range(0x202A, 0x202F),
    *range(0x2060, 0x2070), *range(0xFE00, 0xFE0E), 0xFEFF, *range(0xFFF0, 0xFFFC),
    *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000),
}  # fmt: skip
_JOINERS = {0x200D, 0xFE0E, 0xFE0F}  # they join emoji, and vocabularies contain them
_PICTURES = range(0x1F000, 0x1FB00)  # includes code points for later versions of Unicode
_HYPHENS = {0x2010, 0x2011}
_ALIKE_TAGS = {
    f"<{tag}>"
    for tag in [
        "font",
        "noBreak",
        "initial",
        "medial",
        "final",
        "isolated",
        "circle",
        "wide",
        "narrow",
        "small",
        "square",
        "compat",
        "vertical",
    ]
}
# Stand-alone Korean letters. NFKC would combine them with their neighbours.
_LONE_LETTERS = {*range(0x3131, 0x318F), *range(0xFFA1, 0xFFDD)}
_MARKERS = {
    0xFE4D,
    0xFE4E,
    0xFE4F,
}  # broken and wavy lines, which `convert_tf.text.runs` uses as markers
_TOO_NEW = {0x32FF, *range(0x1FBF0, 0x1FBFA)}  # the package tokenizers does not support them yet
_JOINING_LETTERS = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}


def derive() -> dict[str, str]:
    """Return the tables by name, each as text."""
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
        """Return, for each character, whether a sigma after `before` and the character is final."""
        tried = tf.constant([before.encode() + text + "Σ".encode() for text in texts])
        return [text.endswith("ς".encode()) for text in runs.lower(tried).numpy().tolist()]

    is_cased = sigma_is_final("")
    is_seen_through = sigma_is_final("a")
    cased = [c for c, is_one in zip(characters, is_cased, strict=True) if is_one]
    return {
        **_folding(),
        "marks": _ranges(c for c, is_mark in zip(characters, marks, strict=True) if is_mark),
        "lower": _lower_casings(mapped),
        "cased": _ranges(cased),
        # After "a", a sigma becomes final if the next character is cased or ignorable.
        "ignorable": _ranges(
            c
            for c, alone, seen in zip(characters, is_cased, is_seen_through, strict=True)
            if seen and not alone
        ),
    }


def _folding() -> dict[str, str]:
    """Return the character classes of `fold`, and characters that only NFKC changes (`kept`)."""
    characters = [c for c in range(0x110000) if c not in _SURROGATES]
    texts = tf.constant([chr(c).encode("utf-8") for c in characters])

    def those_of(pattern: str) -> set[int]:
        is_one = tf.strings.regex_full_match(texts, pattern).numpy()
        return {c for c, matches in zip(characters, is_one, strict=True) if matches}

    def normal(form: str) -> dict[int, str]:
        normalized = tf_text.normalize_utf8(texts, form).numpy()
        return {c: one.decode() for c, one in zip(characters, normalized, strict=True)}

    nfc, nfkc = normal("NFC"), normal("NFKC")
    spaces = those_of(r"\p{Z}") | _BLANKS
    changed = {c for c in characters if nfkc[c] != nfc[c]} - spaces - _UNSEEN - _HYPHENS
    alike = {
        c
        for c in changed - _LONE_LETTERS - _TOO_NEW - _MARKERS
        if unicodedata.decomposition(chr(c)).split(" ")[0] in _ALIKE_TAGS
        and not nfkc[c].startswith(" ")
    }
    marks = those_of(r"\p{M}")
    composing = marks | _JOINING_LETTERS | {c for c in characters if nfc[c] != chr(c)}
    # A character that folding replaces, such as a letter in a circle, is not a picture afterwards.
    pictures = {c for c in those_of(r"\p{So}") | {*_PICTURES} if nfc[c] == chr(c)}
    classes = {
        "spaces": spaces,
        "unseen": _UNSEEN,
        "joiners": _JOINERS,
        "pictures": pictures - alike,
        "hyphens": _HYPHENS,
        "alike": alike,
        "kept": changed - alike,
        "composing": composing,
        # Combining marks, and half-width characters that NFKC replaces by them.
        "combining": marks | {c for c in alike if ord(nfkc[c][0]) in marks},
    }
    return {name: _ranges(sorted(members)) for name, members in classes.items()}


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
