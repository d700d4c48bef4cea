"""Find the ends of sentences, and cut or split long texts there.

Sentences end as in Latin script, Chinese and Japanese, and at the end of a line.
"""

import itertools
import re
from collections.abc import Iterator

# Closing quotes and brackets belong to the sentence. A full stop does not end a sentence if a small
# letter follows, or after a single letter (initials) or an abbreviation.
_END = re.compile(
    r"(?:(?P<dot>[.…]+)|[!?]+[.…]*|[。！？]+)[\"'”’»)\]*_]*"
    r"(?:(?<=[。！？])|(?=\s)|\Z)|(?=\n)"
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'“])(?:[^\W\d_]|mr|mrs|ms|dr|prof|sr|jr|st|vs|etc|approx|inc|fig|e\.g|i\.e|[^\W\d_]\.[^\W\d_])\Z",
    re.IGNORECASE,
)
_SPACES = re.compile(r"\s+")


def sentence_ends(text: str) -> Iterator[int]:
    """Yield the ends of the sentences of a text, in characters from its start."""
    for match in _END.finditer(text):
        end = match.end()
        if match["dot"] and _is_within(text, match.start(), end):
            continue
        if text[:end].strip():
            yield end


def _is_within(text: str, start: int, end: int) -> bool:
    """Return whether a full stop is within a sentence."""
    following = text[end : end + 40].lstrip(" \t")
    if following[:1].islower():
        return True
    return bool(following) and _ABBREVIATION.search(text[max(0, start - 12) : start]) is not None


def first_sentences(text: str, max_length: int, *, min_length: int = 1) -> str:
    """Return the first sentences of a text that fit into a limit.

    Args:
        text: a text.
        max_length: largest number of characters of the result.
        min_length: if the whole sentences have fewer characters, the text is cut at the end of a
            word instead.
    """
    if len(text) <= max_length:
        return text
    end = 0
    for next_end in sentence_ends(text):
        if next_end > max_length:
            break
        end = next_end
    whole = text[:end].strip()
    return whole if end and len(whole) >= min_length else _first_words(text, max_length)


def last_sentences(text: str, max_length: int, *, min_length: int = 1) -> str:
    """Return the last sentences of a text that fit into a limit. Args as for `first_sentences`."""
    text = text.rstrip()
    if len(text) <= max_length:
        return text
    earliest = len(text) - max_length
    # A sentence may start exactly at the limit, so the search starts before it.
    offset = max(0, earliest - 200)
    for end in sentence_ends(text[offset:]):
        last = text[offset + end :].strip()
        if len(last) <= max_length:
            if len(last) >= min_length:
                return last
            break
    return _last_words(text, max_length)


def _first_words(text: str, max_length: int) -> str:
    end = max_length
    while end > 0 and not text[end].isspace() and not text[end - 1].isspace():
        end -= 1
    return text[: end or max_length].strip()


def _last_words(text: str, max_length: int) -> str:
    return _first_words(text[::-1], max_length)[::-1]


def short_texts(text: str, max_length: int, *, min_length: int = 1) -> Iterator[str]:
    """Yield a text with single spaces, or its sentences if it is longer than a limit.

    Longer sentences are cut. Texts of fewer than `min_length` characters are dropped, and so are
    texts with fewer letters than other characters, such as tables and emoticons.
    """
    whole = _SPACES.sub(" ", text).strip()
    if len(whole) <= max_length:
        pieces = [whole]
    else:
        ends = [0, *sentence_ends(text), len(text)]
        pieces = [
            first_sentences(_SPACES.sub(" ", text[start:end]).strip(), max_length)
            for start, end in itertools.pairwise(ends)
        ]
    for piece in pieces:
        if len(piece) >= min_length and 2 * sum(map(str.isalpha, piece)) >= len(piece):
            yield piece
