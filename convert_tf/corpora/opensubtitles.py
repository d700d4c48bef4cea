"""Subtitles by the rules of PolyAI's OpenSubtitles data: every line answers the one before.

A file holds plain text, one subtitle line a line, or subtitles with their times, of which the lines
are taken first. PolyAI's script

1. removes the first word if a colon follows it, and so the first word after `.`, `!` or `?` and
   one white space, with those two: names of speakers (`Hello. ANNA: Hi` becomes `Hello Hi`);
2. removes what is between brackets, `[` or `(` to the next `]` or `)`: what is heard, not said;
3. strips spaces and hyphens from both ends;
4. drops lines of which nothing is left: they are in no example and in no history.

The order matters: a name after a hyphen or a bracket stays, as in `- ANNA: Hi` and `[door] ANNA:`.

A line and the line before it make an example if both hold 9 to 127 characters. A line of any
other length makes none but stays in the history of the lines after it, so a context is always the
line just before. Extra contexts are the up to 10 lines before the context, whole: they may be of
any length. There is no deduplication.

The split is that of the file's name, with its suffix and without its folder (and, here, without
the suffix of its compression). PolyAI cut the one file of a language with
`split -a 3 -l 100000 en.txt lines/lines-`; a longer file is read here as if it were cut in the
same way, so that `lines.gz` gives PolyAI's split: files `lines-aaa`, `lines-aab`, …

What differs: `\\r` before a line break goes with it; a line that is not UTF-8, at which the script
stops, is counted. The script ran on Python 2, where `\\w` are the letters of ASCII; here they are
those of all scripts, so names such as `Émile:` go too.

Reference: github.com/PolyAI-LDN/conversational-datasets, opensubtitles.
"""

import codecs
import io
import re
from collections.abc import Iterator

from convert_tf.corpora import dumps, subtitles
from convert_tf.corpora.conversations import Conversation, Turn, base_name
from convert_tf.storage.content import HEAD_BYTES, XML, check_format, text_format
from convert_tf.storage.json_text import whole_characters
from convert_tf.storage.streams import open_decompressed

LINES_PER_FILE = 100_000
SOURCE = "opensubtitles"
_MAX_LINE_BYTES = 10_000  # a conversation is 100,000 lines in memory
_SUFFIX_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SPEAKER = re.compile(r"(?:^|[.!?]\s)\w+:")
_BRACKETED = re.compile(r"[\[(][^\])]*[\])]")


def read(
    path: str,
    stats: dumps.DumpStats,
    *,
    max_line_bytes: int = _MAX_LINE_BYTES,
    open_file: dumps.OpenFile = dumps.open_local,
) -> Iterator[Conversation]:
    """Yields the lines of one file as one conversation, or one per 100,000 lines.

    Args:
        path: a `.gz`, `.zst`, `.bz2`, `.xz` or plain file: text, a subtitle line a line, or
            `.srt`, `.vtt` or OPUS's `.xml` (`convert_tf.corpora.subtitles`).
        stats: counts the lines `invalid_utf8`, `line_too_long`, `unfinished_line`, and
            `nothing_said`: lines that are empty, or are so after the rules; and `too_few_turns`:
            files of one line, which nothing answers, or of none.
        max_line_bytes: longer lines are dropped; at most 10,000, whatever is given.
        open_file: gives the binary stream of a path.

    Raises:
        ContentError: the file has another format, or its XML is damaged.
    """
    file_id = whole_characters(base_name(path))
    turns: list[Turn] = []
    start = 0  # lines of the file before those in `turns`
    limit = min(max_line_bytes, _MAX_LINE_BYTES)
    with open_decompressed(path, stats, open_file) as stream:
        for line in _lines(path, stream, stats, limit):
            if stats.lines > start + LINES_PER_FILE:
                yield from _conversation(_piece_id(file_id, start), turns, stats)
                turns = []
                start = (stats.lines - 1) // LINES_PER_FILE * LINES_PER_FILE
            text = clean_line(line)
            if text:
                turns.append(Turn(text))
            else:
                stats.skip("nothing_said", is_bad=False)
    is_cut = stats.lines > LINES_PER_FILE
    yield from _conversation(_piece_id(file_id, start) if is_cut else file_id, turns, stats)


def _lines(
    path: str, stream: io.BufferedReader, stats: dumps.DumpStats, max_line_bytes: int
) -> Iterator[str]:
    """The subtitle lines of a file of any format, told by its first bytes."""
    head = stream.peek()[:HEAD_BYTES]
    check_format(path, head, read=subtitles.FORMATS)
    kind = text_format(head)
    if not kind:
        subtitles.check_has_no_times(path, head)
    if kind == XML:
        for sentence in subtitles.sentences(iter(stream.read1, b""), stats):
            stats.lines += 1
            yield sentence
        return
    lines = _text_lines(stream, stats, max_line_bytes)
    yield from subtitles.caption_lines(lines, kind) if kind else lines


def _text_lines(
    stream: io.BufferedReader, stats: dumps.DumpStats, max_line_bytes: int
) -> Iterator[str]:
    for line in _raw_lines(stream, stats, max_line_bytes):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError:
            stats.skip("invalid_utf8")


def clean_line(line: str) -> str:
    """What is said in a subtitle line, by PolyAI's rules; empty if there is nothing.

    Args:
        line: a line with or without its line break.
    """
    line = _SPEAKER.sub("", line)
    # No bracket opens for good in what is searched, so that time is linear in the length.
    end = max(line.rfind("]"), line.rfind(")")) + 1
    if end:
        line = _BRACKETED.sub("", line[:end]) + line[end:]
    return line.strip(" -\r\n")


def _raw_lines(
    stream: io.BufferedReader, stats: dumps.DumpStats, max_line_bytes: int
) -> Iterator[bytes]:
    """Lines as they are: white space at the start of a line tells the rules something."""
    while line := stream.readline(max_line_bytes + 1):  # with its line break
        stats.lines += 1
        if stats.lines == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        is_whole = line.endswith(b"\n")
        if not is_whole and len(line) > max_line_bytes:
            stats.skip("line_too_long")
            while line and not line.endswith(b"\n"):
                line = stream.readline(max_line_bytes)
        elif not is_whole and stats.is_cut_off:
            stats.skip("unfinished_line")
        else:
            yield line


def _conversation(
    conversation_id: str, turns: list[Turn], stats: dumps.DumpStats
) -> Iterator[Conversation]:
    if len(turns) > 1:
        yield Conversation(conversation_id, SOURCE, tuple(turns))
    elif stats.lines:
        stats.skip("too_few_turns", is_bad=False)


def _piece_id(file_id: str, start: int) -> str:
    """The name that `split -a 3` gives to the piece of a file that starts after `start` lines."""
    number = start // LINES_PER_FILE
    letters = ""
    while number or len(letters) < 3:
        number, letter = divmod(number, len(_SUFFIX_LETTERS))
        letters = _SUFFIX_LETTERS[letter] + letters
    return f"{file_id}-{letters}"
