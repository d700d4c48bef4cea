r"""Read subtitles by the rules of PolyAI's OpenSubtitles data: each line answers the previous one.

A file is plain text with one subtitle line per line, or a subtitle file with times, from which the
lines are extracted first. PolyAI's script

1. removes the names of speakers: the first word of a line if a colon follows it, and any later
   word that a colon follows and that comes after `.`, `!` or `?` and one white space. The
   punctuation mark is removed too (`Hello. ANNA: Hi` becomes `Hello Hi`);
2. removes descriptions of sounds: everything from `[` or `(` to the next `]` or `)`;
3. strips spaces and hyphens from both ends;
4. drops empty lines, so neither examples nor histories contain them.

The order of these steps matters: a name after a hyphen or a bracket stays, as in `- ANNA: Hi` and
`[door] ANNA:`.

A line and the line before it form an example if both have 9 to 127 characters. A line of another
length forms no example, but stays in the history of later lines. The context is therefore always
the previous line. The extra contexts are up to 10 lines before the context, uncut and of any
length. Duplicates are kept.

The file name decides the split, without the folder and the compression suffix, but with any other
suffix. PolyAI cut their single file for a language with `split -a 3 -l 100000 en.txt lines/lines-`.
Here, files of more than 100,000 lines are read as if they had been cut in the same way. `lines.gz`
therefore gives the same splits as PolyAI's files `lines-aaa`, `lines-aab` and so on.

In `.srt` and `.vtt`, numbers, time codes, styles, tags and positions are dropped. A caption becomes
one line of text, because its line breaks only make it fit on a screen. A dash at the start of a
line marks another speaker, so it starts a new line of text. In OPUS's `.xml`, each sentence is a
line.

Three things differ from PolyAI's script. This reader drops `\r` before a line break. If a line is
not UTF-8, the script stops, but this reader skips and counts the line. The script ran on Python 2,
where `\w` matches only ASCII letters. Here `\w` matches letters in all scripts, so names such as
`Émile:` are removed too.

Reference: github.com/PolyAI-LDN/conversational-datasets, opensubtitles.
"""

import html
import io
import re
from collections.abc import Iterable, Iterator
from string import ascii_lowercase
from typing import Any
from xml.etree import ElementTree

from convert_tf.corpora.dumps import Conversation, CountedFile, Turn, base_name
from convert_tf.readers.files import decoded, lines_in
from convert_tf.storage.content import HEAD_BYTES, SUBRIP, WEBVTT, XML, ContentError, check_format
from convert_tf.storage.json_text import whole_characters
from convert_tf.storage.lines import InputFile, open_decompressed

LINES_PER_FILE = 100_000
SOURCE = "opensubtitles"
_MAX_LINE_BYTES = 10_000  # limits memory, because up to 100,000 lines are in memory at a time
_SPEAKER = re.compile(r"(?:^|[.!?]\s)\w+:")
_BRACKETED = re.compile(r"[\[(][^\])]*[\])]")
_CODE = r"(?:\d+:)?\d{1,3}:\d{1,2}(?:[,.:]\d{1,3})?"
_TIME = re.compile(rf"{_CODE}\s*-->\s*{_CODE}")
# <i>, </font>, <v Anna>, <c.yellow>, <00:00:01.000>; {\an8}, {y:i}; but neither <3 nor { a }.
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|<\d+:[\d:.]+>|\{\\[^{}]*\}|\{[a-zA-Z]:[^{}]*\}")
_DASH = re.compile(r"\s*(?:-|–|—|‐)")
# OPUS's XML puts spaces between words and punctuation.
_SPACE_BEFORE = re.compile(r" (?=[.,!?;:%)\]}…]|n't\b|'(?:s|m|d|ll|re|ve)\b)", re.IGNORECASE)
_SPACE_AFTER = re.compile(r"(?<=[(\[{$¿¡]) ")
# Times and frames at the start of lines in MPL2, TMPlayer, LRC, SubViewer and Whisper, and in
# tables with times.
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


def read(file: CountedFile) -> Iterator[Conversation]:
    """Yield the lines of a file as one conversation, or as one conversation per 100,000 lines.

    Args:
      file: plain text with one subtitle line per line, or `.srt`, `.vtt` or OPUS's `.xml`, possibly
        compressed as `.gz`, `.zst`, `.bz2` or `.xz`. Lines longer than 10,000 bytes are dropped.
        The file counts unusable lines as `invalid_utf8`, `line_too_long` and `unfinished_line`. It
        counts lines that are empty before or after cleaning as `nothing_said`, and conversations of
        fewer than two lines as `too_few_turns`.

    Raises:
      ContentError: if the file has another format, or its XML is damaged.
    """
    file.max_line_bytes = min(file.max_line_bytes, _MAX_LINE_BYTES)
    file_id = whole_characters(base_name(file.path))
    turns: list[Turn] = []
    start = 0  # number of lines in the file before the first line in `turns`
    with open_decompressed(file) as stream:
        for line in _lines(stream, file):
            if file.lines > start + LINES_PER_FILE:
                yield from _conversation(_piece_id(file_id, start), turns, file)
                turns = []
                start = (file.lines - 1) // LINES_PER_FILE * LINES_PER_FILE
            text = clean_line(line)
            if text:
                turns.append(Turn(text))
            else:
                file.skip("nothing_said", is_bad=False)
    is_cut = file.lines > LINES_PER_FILE
    yield from _conversation(_piece_id(file_id, start) if is_cut else file_id, turns, file)


def _lines(stream: io.BufferedReader, file: CountedFile) -> Iterator[str]:
    """Yield the subtitle lines in a file. The first bytes of the file show its format."""
    head = stream.peek()[:HEAD_BYTES]
    kind = check_format(file.name, head, read=(SUBRIP, WEBVTT, XML))
    text = head.decode("utf-8", "ignore").removeprefix("\ufeff")
    if not kind and _OTHER_TIMES.match(text):
        raise ContentError(
            f"{file.name} contains subtitles or a transcript in a format other than .srt, .vtt "
            "and OPUS's .xml: its lines begin with times. Convert it to .srt, for example with "
            "ffmpeg -i FILE subtitles.srt, or remove the times."
        )
    pieces = iter(stream.read1, b"")
    if kind == XML:
        for sentence in _sentences(pieces, file):
            file.lines += 1
            yield sentence
        return
    lines = _text_lines(pieces, file)
    yield from _caption_lines(lines, kind) if kind else lines


def _text_lines(pieces: Iterator[bytes], file: CountedFile) -> Iterator[str]:
    # White space at the start of a line is kept because the rules depend on it.
    for line in lines_in(pieces, file):
        with file.skipping():
            yield decoded(line)


def clean_line(line: str) -> str:
    """Return the spoken text in a subtitle line, by PolyAI's rules; `""` if nothing is spoken.

    Args:
      line: a line with or without its line break.
    """
    line = _SPEAKER.sub("", line)
    # The search ends at the last closing bracket. Otherwise it would take quadratic time if many
    # brackets are not closed.
    end = max(line.rfind("]"), line.rfind(")")) + 1
    if end:
        line = _BRACKETED.sub("", line[:end]) + line[end:]
    return line.strip(" -\r\n")


def _conversation(
    conversation_id: str, turns: list[Turn], file: CountedFile
) -> Iterator[Conversation]:
    if len(turns) > 1:
        yield Conversation(conversation_id, SOURCE, tuple(turns))
    elif file.lines:
        file.skip("too_few_turns", is_bad=False)


def _piece_id(file_id: str, start: int) -> str:
    """Return the name that `split -a 3` would give to the piece that starts after `start` lines."""
    number = start // LINES_PER_FILE
    letters = [ascii_lowercase[number // 26**place % 26] for place in (2, 1, 0)]
    return f"{file_id}-{''.join(letters)}"


def _caption_lines(lines: Iterable[str], kind: str) -> Iterator[str]:
    """Yield the spoken lines in `.srt` or `.vtt` subtitles.

    Args:
      lines: the lines of the file, with or without line breaks.
      kind: `SUBRIP`, where captions may contain empty lines, or `WEBVTT`, where an empty line ends
        a caption, and notes, styles and names stand between captions.
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
        if said and _DASH.match(line):
            yield " ".join(said)
            said = []
        said += [line] if line else []
    if said:
        yield " ".join(said)


def _sentences(pieces: Iterable[bytes], file: InputFile) -> Iterator[str]:
    """Yield the sentences in OPUS's XML.

    Args:
      pieces: the content of the file, in pieces of bytes.
      file: the file. After the last piece, `is_cut_off` tells whether it is truncated.

    Raises:
      ContentError: if the file is not XML or not in OPUS's format.
    """
    parser: Any = ElementTree.XMLPullParser(["end"])
    is_opus = False
    try:
        for piece in pieces:
            # UTF-16 was converted to UTF-8, but the declaration at the start still says UTF-16.
            parser.feed(_SAYS_UTF_16.sub(rb"\1UTF-8", piece))
            for _, element in parser.read_events():
                if element.tag == "s":
                    is_opus = True
                    text = " ".join(" ".join(element.itertext()).split())
                    yield _SPACE_AFTER.sub("", _SPACE_BEFORE.sub("", text))
                    element.clear()
        if not file.is_cut_off:
            parser.close()
    except ContentError:
        raise
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # LookupError: encoding
        raise ContentError(
            f"{file.name} is not complete XML ({error}). Copy it again, or convert it to plain "
            "text."
        ) from error
    if not (is_opus or file.is_cut_off):
        raise ContentError(
            f"{file.name} is XML, but not in OPUS's subtitle format, which has <s> elements. "
            "Convert it to .srt, or to plain text with one subtitle per line."
        )
