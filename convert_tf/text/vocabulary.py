r"""Subword vocabulary files: one subword per line, in UTF-8. Line numbers from 0 are the ids.

A subword may contain any character. Backslash, newline, carriage return and other characters that a
reader may take as a line break or byte order mark are written as `\\`, `\n`, `\r` and `\uXXXX`.
"""

import os
import re
from collections.abc import Iterable, Sequence

from convert_tf.storage.content import HEAD_BYTES, compression, known_content
from convert_tf.storage.files import write_file
from convert_tf.text.subwords import WORD_START

# In the folder of a WordPiece vocabulary; says whether to lower-case letters.
SETTINGS_FILE = "tokenizer_config.json"

_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_ESCAPED = re.compile("[\\\\\x00-\x1f\x7f\x85\u2028\u2029\ufeff]")
_UNESCAPED = re.compile(r"\\(?:u([0-9a-f]{4})|(.?))")
_HALF = re.compile("[\ud800-\udfff]")
_LONG = {"\\": "\\", "n": "\n", "r": "\r"}

_LEARN = "Pass the vocab.txt that convert-tf vocabulary wrote."


class VocabularyError(ValueError):
    """Error in a vocabulary file or in a list of subwords."""


def escape(subword: str) -> str:
    """Return the line of a subword in the file."""
    return _ESCAPED.sub(lambda match: _SHORT.get(match[0], f"\\u{ord(match[0]):04x}"), subword)


def unescape(line: str) -> str:
    """Return the subword of a line of the file.

    Raises:
      VocabularyError: if a backslash does not start an escape sequence.
    """

    def character(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] not in _LONG:
            raise VocabularyError(
                f"{line!r} contains a backslash that does not start "
                r"\\, \n, \r or \uXXXX. Write a literal backslash twice."
            )
        return _LONG[match[2]]

    return _UNESCAPED.sub(character, line)


def check_subwords(subwords: Sequence[str], *, source: str = "the list") -> None:
    """Check that texts can be split into these subwords.

    Args:
      subwords: the vocabulary in the order of ids.
      source: name of the vocabulary in error messages.

    Raises:
      VocabularyError: if there are no subwords; if a subword is empty, a duplicate, only the
        marker, contains the marker after its start, or contains half of a surrogate pair; if a
        character is in the vocabulary only without the marker.
    """
    if not subwords:
        raise VocabularyError(f"{source} is empty. Learn a vocabulary with convert-tf vocabulary.")
    line_of: dict[str, int] = {}
    for number, subword in enumerate(subwords, start=1):
        if subword in line_of:
            raise VocabularyError(
                f"{source} contains {subword!r} twice, in lines {line_of[subword]} and {number}. "
                "Remove one of them."
            )
        line_of[subword] = number
        if half := _HALF.search(subword):
            raise VocabularyError(
                f"Line {number} of {source} contains {half[0]!r}, which is half of a character. "
                f"UTF-8 texts never contain it. {_LEARN}"
            )
        if not subword or subword == WORD_START or subword.rfind(WORD_START) > 0:
            raise VocabularyError(
                f"Line {number} of {source} is not a subword: {subword!r}. A subword is some text, "
                f"with or without {WORD_START!r} before it. Check that the file is a vocabulary."
            )
    for subword, number in line_of.items():
        if len(subword) == 1 and WORD_START + subword not in line_of:
            raise VocabularyError(
                f"{source} contains {subword!r} (line {number}) but not {WORD_START + subword!r}. "
                "Without it, old clients misalign tokens and vectors. Add this line at the end."
            )


def read_vocabulary(path: str | os.PathLike[str]) -> list[str]:
    """Read and check a subword vocabulary.

    Args:
      path: the file.

    Returns:
      The subwords in the order of ids.

    Raises:
      FileNotFoundError: if there is no such file.
      VocabularyError: if the file is not a subword vocabulary.
    """
    source = os.fspath(path)
    with open(path, "rb") as file:
        content = file.read()
    if kind := compression(content):
        raise VocabularyError(f"{source} is compressed (.{kind}). Decompress it. {_LEARN}")
    if content_kind := known_content(content[:HEAD_BYTES]):
        raise VocabularyError(f"{source} is {content_kind[0]}, not a vocabulary. {_LEARN}")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise VocabularyError(
            f"{source} is not UTF-8 text from byte {error.start} on. {_LEARN}"
        ) from None
    return parse_vocabulary(text, source=source)


def parse_vocabulary(text: str, *, source: str) -> list[str]:
    """Parse and check the content of a vocabulary file.

    Args:
      text: the content.
      source: name of the file in error messages.

    Returns:
      The subwords in the order of ids.

    Raises:
      VocabularyError: if this is not a subword vocabulary.
    """
    # Windows editors add a byte order mark and CRLF. In subwords these characters are escaped.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if lines and not any(line.startswith(WORD_START) for line in lines):
        raise VocabularyError(
            f"None of the {len(lines):,} lines of {source} starts with {WORD_START!r}, so it is "
            f"text or the vocabulary of another tokenizer. {_LEARN} For BERT, pass its vocab.txt; "
            "for SentencePiece, its .model file."
        )
    subwords = [_unescaped(line, number, source) for number, line in enumerate(lines, 1)]
    check_subwords(subwords, source=source)
    return subwords


def _unescaped(line: str, number: int, source: str) -> str:
    try:
        return unescape(line)
    except VocabularyError as error:
        raise VocabularyError(f"Line {number} of {source}: {error}") from None


def write_vocabulary(path: str | os.PathLike[str], subwords: Iterable[str]) -> None:
    """Check subwords and write them to a file.

    Args:
      path: the file.
      subwords: the vocabulary in the order of ids.

    Raises:
      VocabularyError: if `check_subwords` refuses the subwords.
      FileWriteError: if the file cannot be written.
    """
    subwords = list(subwords)
    check_subwords(subwords)
    lines = "".join(f"{escape(subword)}\n" for subword in subwords)
    write_file(path, lines)
