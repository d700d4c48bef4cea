"""What is said in files of subtitles: `.srt`, `.vtt`, and OPUS's `.xml`.

Numbers, time codes, names of styles, tags and positions are dropped. A caption is one line of
text, as its line breaks are those of a screen; where a line begins with a dash, another person
speaks and another line begins. Of OPUS's files each sentence is a line.
"""

import html
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from xml.parsers import expat

from convert_tf.storage.content import SUBRIP, WEBVTT, XML, ContentError
from convert_tf.storage.streams import InputFile

FORMATS = (SUBRIP, WEBVTT, XML)
_CODE = r"(?:\d+:)?\d{1,3}:\d{1,2}(?:[,.:]\d{1,3})?"
_TIME = re.compile(rf"{_CODE}\s*-->\s*{_CODE}")
# <i>, </font>, <v Anna>, <c.yellow>, <00:00:01.000>; {\an8}, {y:i}; but neither <3 nor { a }.
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<\d+:[\d:.]+>|\{\\[^{}]*\}|\{[a-zA-Z]:[^{}]*\}")
_DASH = re.compile(r"\s*(?:-|–|—|‐)")
_SENTENCE, _WORD = "s", "w"
# Words and punctuation are apart in OPUS's XML.
_SPACE_BEFORE = re.compile(r" (?=[.,!?;:%)\]}…]|n't\b|'(?:s|m|d|ll|re|ve)\b)", re.IGNORECASE)
_SPACE_AFTER = re.compile(r"(?<=[(\[{$¿¡]) ")
# Times and frames at the start of lines, as MPL2, TMPlayer, LRC, SubViewer and Whisper write them,
# and tables of times.
_OTHER_TIME = (
    r"(?:\[\d+\]\[\d+\]|[\[(]?\d{1,2}:\d\d:\d\d\b|[\[(]\d{1,2}:\d\d\.\d+"
    r"|\d+\.\d+[\t,]\d+\.\d+[\t,])"
)
_OTHER_TIMES = re.compile(
    rf"\s*{_OTHER_TIME}[^\n]*\n(?:[^\n]*\n){{0,2}}?\s*{_OTHER_TIME}"
    r"|\s*start[,\t]end[,\t]text\s*\n",
    re.IGNORECASE,
)
_MAX_SENTENCE = 10_000  # words
_SAYS_UTF_16 = re.compile(rb"<\?xml[^>]*encoding=[\"'](?i:utf-?16)")


def check_has_no_times(path: str, head: bytes) -> None:
    """Refuses text whose lines begin with times, which would be read as what is said.

    Args:
        path: names the file.
        head: its first bytes.

    Raises:
        ContentError: its first lines begin with times.
    """
    if _OTHER_TIMES.match(head.decode("utf-8", "ignore").removeprefix("\ufeff")):
        raise ContentError(
            f"{path} is subtitles or a transcript in another format than .srt, .vtt and OPUS's "
            ".xml: its lines begin with times. Convert it to .srt, for example with ffmpeg -i FILE "
            "subtitles.srt, or remove the times."
        )


def caption_lines(lines: Iterable[str], kind: str) -> Iterator[str]:
    """The lines of text in `.srt` or `.vtt`.

    Args:
        lines: of the file, with or without line breaks.
        kind: `SUBRIP`, in which empty lines may be anywhere, or `WEBVTT`, in which one ends a
            caption and notes, styles and names of captions are outside.
    """
    caption: list[str] | None = None
    for line in map(str.strip, lines):
        if _TIME.match(line):
            if kind == SUBRIP and caption and caption[-1].isdecimal():
                caption.pop()  # the number of the caption that begins here
            yield from _spoken(caption or [])
            caption = []
        elif line and caption is not None:
            caption.append(line)
        elif caption and kind == WEBVTT:
            yield from _spoken(caption)
            caption = None
    yield from _spoken(caption or [])


def _spoken(caption: list[str]) -> Iterator[str]:
    said: list[str] = []
    for line in caption:
        line = " ".join(html.unescape(_TAG.sub("", line)).split())
        if said and line and _DASH.match(line):
            yield " ".join(said)
            said = []
        said += [line] if line else []
    if said:
        yield " ".join(said)


def sentences(pieces: Iterable[bytes], file: InputFile) -> Iterator[str]:
    """The sentences of OPUS's XML.

    Args:
        pieces: the bytes of the file.
        file: the file; after the last piece it knows whether it was cut off.

    Raises:
        ContentError: it is no XML, no XML of OPUS, or declares entities, which may stand for more
            text than a machine holds.
    """
    pieces = iter(pieces)
    first = next(pieces, b"")
    # UTF-16 comes as UTF-8, whatever the declaration says.
    parser = expat.ParserCreate("UTF-8" if _SAYS_UTF_16.search(first) else None)
    found: list[str] = []
    words: list[str] | None = None
    is_opus = False

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal words, is_opus
        if name == _SENTENCE:
            words, is_opus = [], True
        elif words is not None:
            words.append(" ")

    def end(name: str) -> None:
        nonlocal words
        if name == _SENTENCE and words is not None:
            text = " ".join("".join(words).split())
            found.append(_SPACE_AFTER.sub("", _SPACE_BEFORE.sub("", text)))
            words = None

    def characters(text: str) -> None:
        if words is not None and len(words) < _MAX_SENTENCE:
            words.append(text)

    def declaration(name: str, *_: object) -> None:
        raise ContentError(
            f"{file.name}, line {parser.CurrentLineNumber}, declares the entity {name[:40]!r}, as "
            "files of subtitles do not. Remove the declarations."
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.EntityDeclHandler = declaration
    try:
        for piece in chain([first], pieces):
            parser.Parse(piece, False)
            yield from found
            found.clear()
        if not file.is_cut_off:
            parser.Parse(b"", True)
            yield from found
    except ContentError:
        raise
    except (expat.ExpatError, LookupError, ValueError) as error:  # also unknown encodings
        raise ContentError(
            f"{file.name}, line {parser.CurrentLineNumber}, is no whole XML ({error}). Copy it "
            "again, or convert it to plain text."
        ) from error
    if not is_opus:
        raise ContentError(
            f"{file.name} is XML, but not of OPUS's subtitles, which have <s> elements. Convert it "
            "to .srt or to plain text, one line a subtitle line."
        )
