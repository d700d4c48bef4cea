"""Read the spoken lines of subtitle files: `.srt`, `.vtt`, and OPUS's `.xml`.

Numbers, time codes, styles, tags and positions are dropped. A caption becomes one line of text,
because its line breaks only fit it to a screen. A dash at the start of a line marks another
speaker, so it starts a new line. In OPUS's files, each sentence is a line.
"""

import html
import re
from collections.abc import Iterable, Iterator
from typing import Any
from xml.etree import ElementTree

from convert_tf.storage.content import SUBRIP, WEBVTT, XML, ContentError
from convert_tf.storage.streams import InputFile

FORMATS = (SUBRIP, WEBVTT, XML)
_CODE = r"(?:\d+:)?\d{1,3}:\d{1,2}(?:[,.:]\d{1,3})?"
_TIME = re.compile(rf"{_CODE}\s*-->\s*{_CODE}")
# <i>, </font>, <v Anna>, <c.yellow>, <00:00:01.000>; {\an8}, {y:i}; but neither <3 nor { a }.
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<\d+:[\d:.]+>|\{\\[^{}]*\}|\{[a-zA-Z]:[^{}]*\}")
_DASH = re.compile(r"\s*(?:-|–|—|‐)")
_SENTENCE = "s"
# OPUS's XML separates words and punctuation by spaces.
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
_SAYS_UTF_16 = re.compile(rb"\A(<\?xml[^>]*encoding=[\"'])(?i:utf-?16)")


def check_has_no_times(path: str, head: bytes) -> None:
    """Raise an error if lines begin with times, which would be read as text.

    Args:
        path: name of the file for messages.
        head: its first bytes.

    Raises:
        ContentError: if the first lines begin with times.
    """
    if _OTHER_TIMES.match(head.decode("utf-8", "ignore").removeprefix("\ufeff")):
        raise ContentError(
            f"{path} is subtitles or a transcript in another format than .srt, .vtt and OPUS's "
            ".xml: its lines begin with times. Convert it to .srt, for example with ffmpeg -i FILE "
            "subtitles.srt, or remove the times."
        )


def caption_lines(lines: Iterable[str], kind: str) -> Iterator[str]:
    """Yield the lines of text in `.srt` or `.vtt`.

    Args:
        lines: the lines of the file, with or without line breaks.
        kind: `SUBRIP`, where captions may contain empty lines, or `WEBVTT`, where an empty line
            ends a caption, and notes, styles and names are outside of captions.
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
    """Yield the sentences of OPUS's XML.

    Args:
        pieces: the bytes of the file.
        file: the file. After the last piece, it knows whether it was cut off.

    Raises:
        ContentError: if it is not XML or not OPUS's XML.
    """
    parser: Any = ElementTree.XMLPullParser(["end"])
    is_opus = False
    try:
        for piece in pieces:
            # UTF-16 was converted to UTF-8, but the declaration at the start still says UTF-16.
            parser.feed(_SAYS_UTF_16.sub(rb"\1UTF-8", piece))
            for _, element in parser.read_events():
                if element.tag == _SENTENCE:
                    is_opus = True
                    text = " ".join(" ".join(element.itertext()).split())
                    yield _SPACE_AFTER.sub("", _SPACE_BEFORE.sub("", text))
                    element.clear()
        if not file.is_cut_off:
            parser.close()
    except ContentError:
        raise
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # also unknown encodings
        raise ContentError(
            f"{file.name} is no whole XML ({error}). Copy it again, or convert it to plain text."
        ) from error
    if not (is_opus or file.is_cut_off):
        raise ContentError(
            f"{file.name} is XML, but not of OPUS's subtitles, which have <s> elements. Convert it "
            "to .srt or to plain text, one line a subtitle line."
        )
