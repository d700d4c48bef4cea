r"""Classes of characters, and a function that folds texts that look the same to a reader.

The classes are in `unicode_tables.json`, which `scripts.derive_unicode_tables` makes from
TensorFlow's tables. All tokenizers read these tables: in a graph, in plain Python, in the browser
and in folders for Hugging Face programs. All tokenizers therefore fold texts in the same way. Only
NFC uses the tables of each program, which may lack new combining marks.
"""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from convert_tf.storage.json_text import json_file

# NFC sorts the combining marks of a letter, which takes quadratic time. `fold` therefore keeps only
# this many marks in a row, as many as Unicode's Stream-Safe Text Format (UAX #15, section 13).
MOST_MARKS = 30
TABLES: dict[str, str] = json_file(Path(__file__).with_name("unicode_tables.json"))


def numbers_of(table: str) -> Iterator[int]:
    """Yield the numbers in one of the `TABLES`, which are written in base 36."""
    return (int(number, 36) for number in TABLES[table].split())


def ranges_of(table: str) -> Iterator[range]:
    """Yield the ranges of code points in a table that lists gaps and lengths alternately."""
    numbers = numbers_of(table)
    end = 0
    for gap, length in zip(numbers, numbers, strict=True):
        start = end + gap
        end = start + length
        yield range(start, end)


def character_class(table: str) -> str:
    """Return a table's characters as a class for a regular expression, without brackets."""
    return "".join(rf"\U{points.start:08x}-\U{points[-1]:08x}" for points in ranges_of(table))


_CLASSES = {
    name: character_class(name)
    for name in (
        "spaces", "unseen", "joiners", "pictures", "hyphens", "alike", "composing", "combining"
    )
}  # fmt: skip
# Folding does not change a text without these characters. Most texts have none of them.
_MAY_CHANGE = re.compile(
    f"[{''.join(_CLASSES[n] for n in ('unseen', 'joiners', 'hyphens', 'alike', 'composing'))}]"
    f"|(?! )[{_CLASSES['spaces']}]|  |^ | $"
)
_SPACE = re.compile(f"[{_CLASSES['spaces']}]")
_UNSEEN = re.compile(f"[{_CLASSES['unseen']}]")
_LOST_JOINERS = re.compile(
    f"(?<![{_CLASSES['pictures']}{_CLASSES['joiners']}])[{_CLASSES['joiners']}]+"
)
_HYPHEN = re.compile(f"[{_CLASSES['hyphens']}]")
_ALIKE = re.compile(f"[{_CLASSES['alike']}]+")
_LONG_RUN = re.compile(f"[{_CLASSES['combining']}]{{{MOST_MARKS + 1},}}")


def fold(text: str) -> str:
    r"""Fold a text. All texts that look the same to a reader fold to the same text.

    - Every run of white space (spaces of all widths, tabs, line breaks) becomes one space. White
      space at the ends is removed.
    - Invisible characters are removed: control characters, zero-width characters, direction marks.
      Emoji joiners stay after an emoji.
    - Hyphens become `-`.
    - Full-width, half-width, circled and mathematical letters, ligatures, "…" and the like become
      plain characters, by Unicode's NFKC form. Superscripts, subscripts and fractions stay, because
      10² is not 102. Accents that stand alone stay too.
    - Accents are combined with their letters (NFC).
    - Of more than 30 combining marks in a row, the first 30 stay. No language needs as many.

    Case, quotation marks and dashes stay. A folded text does not change when it is folded again.

    Args:
      text: any text.

    Returns:
      The folded text.

    Example:
      fold("where\tis my\u00a0card\uff1f")  # "where is my card?"
    """
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    if not _MAY_CHANGE.search(text):
        return text
    text = _UNSEEN.sub("", _SPACE.sub(" ", text))
    text = _HYPHEN.sub("-", _LOST_JOINERS.sub("", text))
    # NFC comes first, so that marks join the characters that folding keeps.
    text = unicodedata.normalize("NFC", _without_long_runs(text))
    text = _ALIKE.sub(lambda run: unicodedata.normalize("NFKC", run[0]), text)
    # NFC and NFKC may split a character into several marks.
    text = _without_long_runs(unicodedata.normalize("NFC", text))
    return re.sub(" +", " ", text).strip(" ")


def _without_long_runs(text: str) -> str:
    return _LONG_RUN.sub(lambda run: run[0][:MOST_MARKS], text)
