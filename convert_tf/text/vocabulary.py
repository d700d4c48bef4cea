r"""The subword vocabulary file: one subword a line, in UTF-8; the line's number from 0 is its id.

A subword may hold any character: backslash, newline, carriage return and other characters at which
a reader might break the line, or which it might take for the mark of an encoding, are written `\\`,
`\n`, `\r` and `\uXXXX`.
"""

import os
import re
from collections.abc import Iterable, Sequence

from convert_tf.storage.content import HEAD_BYTES, compression, known_content
from convert_tf.storage.files import write_file
from convert_tf.text.subwords import WORD_START

# Beside a WordPiece vocabulary: whether letters are lower-cased.
SETTINGS_FILE = "tokenizer_config.json"

_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_ESCAPED = re.compile("[\\\\\x00-\x1f\x7f\x85\u2028\u2029\ufeff]")
_UNESCAPED = re.compile(r"\\(?:u([0-9a-f]{4})|(.?))")
_LONG = {"\\": "\\", "n": "\n", "r": "\r"}


_TELLING_LINES = 100
_SCORED = re.compile(r".*\t-?\d+(\.\d+)?([eE]-?\d+)?")
_MERGE = re.compile(r"[^ ]+ [^ ]+")
_MARKS = {"\u2581": "SentencePiece", "\u0120": "byte-level BPE"}
# Subwords are of letters and digits, or of punctuation and spaces; their tabs are escaped.
_TEXT = re.compile(r"\t|[^\W_]\s+[^\W_]")
_LEARN = "Pass the vocab.txt that convert-tf vocabulary wrote."
_BERT = "Of a BERT, pass its vocab.txt."


class VocabularyError(ValueError):
    """A file is not a subword vocabulary, or a list of subwords cannot be one."""


def escape(subword: str) -> str:
    """Returns the line that stands for a subword."""
    return _ESCAPED.sub(lambda match: _SHORT.get(match[0], f"\\u{ord(match[0]):04x}"), subword)


def unescape(line: str) -> str:
    """Returns the subword that a line stands for.

    Raises:
        VocabularyError: A backslash begins none of the escapes.
    """

    def character(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] not in _LONG:
            raise VocabularyError(
                r"A backslash in a vocabulary begins \\, \n, \r or \uXXXX. "
                f"Received: {line!r}. Write a literal backslash twice."
            )
        return _LONG[match[2]]

    return _UNESCAPED.sub(character, line)


def check_subwords(subwords: Sequence[str], *, source: str = "the list") -> None:
    """Checks that texts can be cut into these subwords.

    Args:
        subwords: The vocabulary in the order of ids.
        source: What the messages call it.

    Raises:
        VocabularyError: There are none; one is empty, there twice, the marker alone or holds the
            marker behind its start; a character is there alone but not as the start of a word.
    """
    if not subwords:
        raise VocabularyError(
            f"A vocabulary holds at least one subword. Received: {source}, which is empty. "
            "Learn one with convert-tf vocabulary."
        )
    first: dict[str, int] = {}
    for number, subword in enumerate(subwords, start=1):
        if subword in first:
            raise VocabularyError(
                f"Subwords are unique. Received: {subword!r} in lines {first[subword]} and "
                f"{number} of {source}. Remove one of them."
            )
        first[subword] = number
        if not subword or subword == WORD_START or subword.rfind(WORD_START) > 0:
            raise VocabularyError(
                f"A subword is text that may follow one {WORD_START!r}. Received: {subword!r} in "
                f"line {number} of {source}. Remove the line; is the file a vocabulary?"
            )
    for subword, number in first.items():
        if len(subword) == 1 and WORD_START + subword not in first:
            raise VocabularyError(
                f"A character of the alphabet is also there behind {WORD_START!r}, or old clients "
                f"misalign tokens and vectors. Received: {subword!r} in line {number} of {source} "
                f"without {WORD_START + subword!r}. Add that line at the end."
            )


def read_vocabulary(path: str | os.PathLike[str]) -> list[str]:
    """Reads and checks a subword vocabulary.

    Args:
        path: The file.

    Returns:
        The subwords; the index of each is its id.

    Raises:
        FileNotFoundError: There is no such file.
        VocabularyError: It is not UTF-8, it is another tokenizer's or no vocabulary at all, or
            `check_subwords` or `unescape` refuse it.
    """
    source = os.fspath(path)
    with open(path, "rb") as file:
        content = file.read()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        what = known_content(content[:HEAD_BYTES])
        named = f" (it is {what[0]})" if what else ""
        if kind := compression(content):
            named = f" (it is compressed, .{kind}; decompress it)"
        raise VocabularyError(
            f"A subword vocabulary is UTF-8 text. Received: {source}, which is not from byte "
            f"{error.start} on{named}. Pass the vocab.txt that convert-tf vocabulary wrote."
        ) from None
    if what := known_content(content[:HEAD_BYTES]):
        raise VocabularyError(
            f"A subword vocabulary is UTF-8 text. Received: {source}, which is {what[0]}. {_LEARN}"
        )
    return parse_vocabulary(text, source=source)


def parse_vocabulary(text: str, *, source: str) -> list[str]:
    """Checks the content of a vocabulary file.

    Args:
        text: The content.
        source: What the messages call it.

    Returns:
        The subwords; the index of each is its id.

    Raises:
        VocabularyError: `check_subwords` or `unescape` refuse it.
    """
    # Line ends of Windows, and a mark of its editors: both are escaped where a subword has them.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if other := other_vocabulary(lines):
        raise VocabularyError(
            f"A subword vocabulary is one that convert-tf vocabulary wrote. Received: {source}, "
            f"which is {other[0]}. {other[1]}"
        )
    subwords = [_unescaped(line, number, source) for number, line in enumerate(lines, 1)]
    check_subwords(subwords, source=source)
    if not any(subword.startswith(WORD_START) for subword in subwords):
        raise VocabularyError(
            f"Every word begins with a subword that {WORD_START!r} marks. Received: {source}, of "
            f"{len(lines):,} lines without it: the vocabulary of another tokenizer, or a list of "
            "words. Pass the vocab.txt that convert-tf vocabulary wrote."
        )
    return subwords


def _unescaped(line: str, number: int, source: str) -> str:
    try:
        return unescape(line)
    except VocabularyError as error:
        raise VocabularyError(f"{error} It is line {number} of {source}.") from None


def other_vocabulary(lines: Sequence[str]) -> tuple[str, str] | None:
    """What a file is that is no subword vocabulary, and what to pass instead; else None.

    Args:
        lines: Of the file.
    """
    start = "\n".join(lines[:_TELLING_LINES])
    first = [line for line in lines[:_TELLING_LINES] if line]
    if re.match(r'\s*\{\s*"[^"\n]+"\s*:', start):
        if '"added_tokens"' in start or '"model"' in start:
            return "a tokenizer.json of Hugging Face", f"{_BERT} {_LEARN}"
        return "JSON, as a vocab.json of token ids", _LEARN
    if first and all(_SCORED.fullmatch(line) for line in first):
        return "a list of SentencePiece's pieces (.vocab)", "Pass the .model beside it."
    if start.startswith("#version:") or (first and all(_MERGE.fullmatch(line) for line in first)):
        return "a list of merges (merges.txt)", _LEARN
    for mark, tokenizer in _MARKS.items():
        if sum(line.startswith(mark) for line in first) * 5 > len(first):
            return f"of another tokenizer ({tokenizer}), which marks words with {mark!r}", _LEARN
    for number, line in enumerate(lines, 1):
        if _TEXT.search(line):
            return (
                f"text, with a space or tab between words in line {number:,}",
                "Learn a vocabulary from it with convert-tf vocabulary.",
            )
    return None


def write_vocabulary(path: str | os.PathLike[str], subwords: Iterable[str]) -> None:
    """Checks subwords and writes them, all or none.

    Args:
        path: The file.
        subwords: In the order of ids.

    Raises:
        VocabularyError: `check_subwords` refuses them.
        FileWriteError: The file could not be written.
    """
    subwords = list(subwords)
    check_subwords(subwords)
    lines = "".join(f"{escape(subword)}\n" for subword in subwords)
    write_file(path, lines)
