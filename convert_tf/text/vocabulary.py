r"""Subword vocabulary files: one subword per line, in UTF-8. The line numbers, from 0, are the ids.

A subword may contain any character. Backslash, newline and carriage return are written as `\\`,
`\n` and `\r`. Other characters that a reader may interpret as a line break or byte order mark are
written as `\uXXXX`.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from convert_tf.storage.content import compression
from convert_tf.storage.files import write_file
from convert_tf.storage.messages import shortened
from convert_tf.text.subwords import WORD_START

# File names by kind of tokenizer.
VOCABULARY_FILES = {
    "subword": "vocab.txt",
    "sentencepiece": "vocab.model",
    "wordpiece": "vocab.txt",
}
# This file next to a WordPiece vocabulary says whether to lower-case letters.
SETTINGS_FILE = "tokenizer_config.json"

_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_ESCAPED = re.compile("[\\\\\x00-\x1f\x7f\x85\u2028\u2029\ufeff]")
_LINE = re.compile(r"(?:[^\\]|\\[\\nr]|\\u[0-9a-f]{4})*")
_UNESCAPED = re.compile(r"\\(?:u([0-9a-f]{4})|(.))")
_HALF = re.compile("[\ud800-\udfff]")
_LONG = {"\\": "\\", "n": "\n", "r": "\r"}

_MAX_SHOWN = 70  # maximum number of characters of a line in a message
_LEARN = "Pass the vocab.txt that convert-tf vocabulary wrote."


class VocabularyError(ValueError):
    """Error in a vocabulary file or in a list of subwords."""


def escape(subword: str) -> str:
    """Return the line that stands for a subword in the file."""
    return _ESCAPED.sub(lambda match: _SHORT.get(match[0], f"\\u{ord(match[0]):04x}"), subword)


def unescape(line: str) -> str:
    """Return the subword that a valid line in the file stands for."""
    return _UNESCAPED.sub(lambda m: chr(int(m[1], 16)) if m[1] else _LONG[m[2]], line)


def _shown(line: str) -> str:
    return shortened(repr(line), _MAX_SHOWN)


def check_subwords(subwords: Sequence[str], *, source: str = "the list") -> None:
    """Check that texts can be split into these subwords.

    Args:
      subwords: the vocabulary in the order of ids.
      source: name of the vocabulary in error messages.

    Raises:
      VocabularyError: if there are no subwords; if a subword is empty, is a duplicate, is only the
        marker, contains the marker after its start, or contains half of a character (a surrogate);
        or if a character is in the vocabulary only without the marker.
    """
    if not subwords:
        raise VocabularyError(f"{source} is empty. Learn a vocabulary with convert-tf vocabulary.")
    line_of: dict[str, int] = {}
    for number, subword in enumerate(subwords, start=1):
        if subword in line_of:
            raise VocabularyError(
                f"{source} contains {_shown(subword)} twice, on lines {line_of[subword]} and "
                f"{number}. Remove one of them."
            )
        line_of[subword] = number
        has_marker_within = subword.rfind(WORD_START) > 0
        if subword in ("", WORD_START) or has_marker_within or _HALF.search(subword):
            raise VocabularyError(
                f"Line {number} of {source} is not a subword: {_shown(subword)}. A subword is some "
                f"text, with or without {WORD_START!r} before it. Check that the file is a "
                "vocabulary."
            )
    for subword, number in line_of.items():
        if len(subword) == 1 and WORD_START + subword not in line_of:
            raise VocabularyError(
                f"{source} contains {subword!r} (line {number}) but not {WORD_START + subword!r}. "
                "Without it, old clients misalign tokens and vectors. Add it as the last line."
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
    content = Path(path).read_bytes()
    if kind := compression(content):
        raise VocabularyError(f"{path} is compressed (.{kind}). Decompress it. {_LEARN}")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise VocabularyError(f"{path} is not UTF-8 text ({error}). {_LEARN}") from None
    return parse_vocabulary(text, source=os.fspath(path))


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
            f"None of the {len(lines):,} lines of {source} starts with {WORD_START!r}, so the file "
            f"is text or the vocabulary of another tokenizer. {_LEARN} For BERT, pass its "
            "vocab.txt; for SentencePiece, its .model file."
        )
    for number, line in enumerate(lines, 1):
        if not _LINE.fullmatch(line):
            raise VocabularyError(
                f"Line {number} of {source}: {_shown(line)} contains a backslash that does not "
                r"start \\, \n, \r or \uXXXX. Write a literal backslash twice."
            )
    subwords = list(map(unescape, lines))
    check_subwords(subwords, source=source)
    return subwords


def write_vocabulary(path: str | os.PathLike[str], subwords: Iterable[str]) -> None:
    """Check subwords and write them to a file.

    Args:
      path: the file. If it is a link, the file that it points to is replaced.
      subwords: the vocabulary in the order of ids.

    Raises:
      VocabularyError: if `check_subwords` refuses the subwords.
      FileWriteError: if the file cannot be written.
    """
    subwords = list(subwords)
    check_subwords(subwords)
    lines = "".join(f"{escape(subword)}\n" for subword in subwords)
    write_file(path, lines, follows_links=True)
