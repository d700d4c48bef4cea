r"""Lower-casing, splitting into runs and restoring of text, without TensorFlow.

`convert_tf.text.runs` does the same with TensorFlow ops and describes the runs. The classes of
characters are TensorFlow's (`unicode_tables.json`, by `scripts.derive_unicode_tables`), not those
of Python's Unicode version.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from convert_tf.storage.json_text import json_file, whole_characters
from convert_tf.text.subwords import WORD_START

TABLES: dict[str, str] = json_file(Path(__file__).with_name("unicode_tables.json"))
_SIGMA, _FINAL_SIGMA = "Σ", "ς"
_ESCAPE = "\ufe4e"
ESCAPES = {_ESCAPE: _ESCAPE * 2, WORD_START: _ESCAPE + "\ufe4d", "\0": _ESCAPE + "\ufe4c"}
_UNESCAPES = {escaped: character for character, escaped in ESCAPES.items()}
# NUL is escaped in runs, so it can separate texts.
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
    return frozenset(chr(c) for code_points in _ranges(table) for c in code_points)


def _lower_casings() -> dict[int, str]:
    mapped: dict[int, str] = {}
    numbers = _numbers(TABLES["lower"])
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
_CASED = _characters(TABLES["cased"]) | {_SIGMA}
_IGNORABLE = _characters(TABLES["ignorable"])
_MARKS = "".join(rf"\U{r[0]:08x}-\U{r[-1]:08x}" for r in _ranges(TABLES["marks"]))
_RUN = re.compile(f"[{_MARKS}]+|[^{_MARKS}]+")
_SPACE = re.compile(f"(?<=[^{_MARKS}{BETWEEN_TEXTS}]){WORD_START}(?=[^{_MARKS}])")
_ESCAPED = re.compile(f"{_ESCAPE}[{''.join(key[1] for key in _UNESCAPES)}]")


def as_text(text: str | bytes) -> str:
    """Return the text with everything that is invalid in UTF-8 replaced by U+FFFD."""
    if isinstance(text, str):
        return whole_characters(text)
    return text.decode("utf-8", "replace")


def cut_into_runs(text: str) -> list[str]:
    """Escape and lower-case text and split it into runs.

    Unlike in `convert_tf.text.runs.split_runs`, runs have no marker, and single spaces between
    words are runs.
    """
    return _RUN.findall(_normal(text))


def restored_texts(tokens: str) -> list[str]:
    """Restore lower-cased texts from their tokens.

    Args:
      tokens: the tokens of a text joined to one string. Several texts are separated by
        `BETWEEN_TEXTS`.

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
    """Replace capital sigmas at the end of words by ς, following Unicode's rule."""
    characters = list(text)
    for index, character in enumerate(text):
        if (
            character == _SIGMA
            and _is_next_to_letter(text, index, -1)
            and not _is_next_to_letter(text, index, 1)
        ):
            characters[index] = _FINAL_SIGMA
    return "".join(characters)


def _is_next_to_letter(text: str, index: int, step: int) -> bool:
    index += step
    while 0 <= index < len(text) and text[index] in _IGNORABLE:
        index += step
    return 0 <= index < len(text) and text[index] in _CASED
