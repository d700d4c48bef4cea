r"""Lower-cases text, cuts it into runs and puts runs together again, without TensorFlow.

`convert_tf.text.runs` does the same inside a graph and says what runs are. Characters are seen as
TensorFlow sees them (`convert_tf.text.unicode_tables`), whatever Unicode version Python has.
"""

import re
from collections.abc import Iterator

from convert_tf.storage.json_text import whole_characters
from convert_tf.text import unicode_tables
from convert_tf.text.subwords import WORD_START

_SIGMA, _FINAL_SIGMA = "Σ", "ς"
_ESCAPE = "\ufe4e"
ESCAPES = {_ESCAPE: _ESCAPE * 2, WORD_START: _ESCAPE + "\ufe4d", "\0": _ESCAPE + "\ufe4c"}
_UNESCAPES = {escaped: character for character, escaped in ESCAPES.items()}
# Stands in no run, as it is escaped there, so it can stand between texts.
BETWEEN_TEXTS = "\0"


def _numbers(table: str) -> Iterator[int]:
    return (int(number, 36) for number in table.split())


def _ranges(table: str) -> Iterator[range]:
    numbers = _numbers(table)
    end = 0
    for gap, length in zip(numbers, numbers, strict=True):
        start = end + gap
        end = start + length
        yield range(start, end)


def _characters(table: str) -> frozenset[str]:
    return frozenset(chr(c) for each in _ranges(table) for c in each)


def _lower_casings() -> dict[int, str]:
    mapped: dict[int, str] = {}
    numbers = _numbers(unicode_tables.LOWER)
    end = 0
    for gap, number, step, difference in zip(numbers, numbers, numbers, numbers, strict=True):
        start = end + gap
        mapped |= {c: chr(c + difference) for c in range(start, start + number * step, step)}
        end = start + (number - 1) * step + 1
    return mapped


_NORMAL = {
    **_lower_casings(),
    0x130: "i\u0307",
    ord(_SIGMA): "σ",
    **{ord(character): escaped for character, escaped in ESCAPES.items()},
}
_CASED = _characters(unicode_tables.CASED) | {_SIGMA}
_IGNORABLE = _characters(unicode_tables.IGNORABLE)
_MARKS = "".join(rf"\U{r[0]:08x}-\U{r[-1]:08x}" for r in _ranges(unicode_tables.MARKS))
_RUN = re.compile(f"[{_MARKS}]+|[^{_MARKS}]+")
_SPACE = re.compile(f"(?<=[^{_MARKS}{BETWEEN_TEXTS}]){WORD_START}(?=[^{_MARKS}])")
_ESCAPED = re.compile(f"{_ESCAPE}[{''.join(key[1] for key in _UNESCAPES)}]")


def as_text(text: str | bytes) -> str:
    """A text that UTF-8 can hold: what is invalid becomes U+FFFD."""
    if isinstance(text, str):
        return whole_characters(text)
    return text.decode("utf-8", "replace")


def cut_into_runs(text: str) -> list[str]:
    """Escapes, lower-cases and cuts text where punctuation or separators begin or end.

    Unlike those of `convert_tf.text.runs.split_runs`, runs have no marker, and single spaces
    between words are runs, too.
    """
    return _RUN.findall(_normal(text))


def restored_texts(tokens: str) -> list[str]:
    """The lower-cased texts that were cut into tokens.

    Args:
      tokens: the tokens of one text joined to one string, or those of several texts with
        `BETWEEN_TEXTS` between two of them.

    Returns:
      The texts.
    """
    texts = _SPACE.sub(" ", tokens).replace(WORD_START, "").split(BETWEEN_TEXTS)
    return [
        _ESCAPED.sub(lambda match: _UNESCAPES[match[0]], text) if _ESCAPE in text else text
        for text in texts
    ]


def _normal(text: str) -> str:
    if text.isascii() and "\0" not in text:
        return text.lower()
    if _SIGMA in text:
        text = _with_final_sigmas(text.replace("\u0130", _NORMAL[0x130]))
    return text.translate(_NORMAL)


def _with_final_sigmas(text: str) -> str:
    """Writes the capital sigmas that end a word, by Unicode's rule, as small ones."""
    characters = list(text)
    for place, character in enumerate(text):
        if (
            character == _SIGMA
            and _is_beside_letter(text, place, -1)
            and not _is_beside_letter(text, place, 1)
        ):
            characters[place] = _FINAL_SIGMA
    return "".join(characters)


def _is_beside_letter(text: str, place: int, step: int) -> bool:
    place += step
    while 0 <= place < len(text) and text[place] in _IGNORABLE:
        place += step
    return 0 <= place < len(text) and text[place] in _CASED
