"""Subtitles cleaned by PolyAI's rules, read from text, `.srt`, `.vtt` and OPUS's `.xml` files."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.dump_files import COMPRESSORS

from convert_tf.corpora import opensubtitles
from convert_tf.corpora.dumps import CountedFile
from convert_tf.corpora.opensubtitles import clean_line, read


def _read(path, **options):
    """Return the texts of the conversations by id, and the file with its counts."""
    file = CountedFile(path, **options)
    conversations = [*read(file)]
    assert {one.source for one in conversations} <= {"opensubtitles"}
    return {one.id: [turn.text for turn in one.turns] for one in conversations}, file


@pytest.mark.parametrize(
    ("line", "cleaned"),
    [
        ("anna: Where were you?", "Where were you?"), ("ANNA:", ""), ("Émile: Salut", "Salut"),
        ("OLD MAN: Two words stay", "OLD MAN: Two words stay"),
        # Removing a name also removes the preceding punctuation mark and one space.
        ("Hello. ANNA: Hi there", "Hello Hi there"), ("Wait... BO: Now", "Wait.. Now"),
        ("12:30 it is", "30 it is"), ("ANNA: BO: Both", "BO: Both"),
        ("(all laughing) Stop (boom!) it", "Stop  it"), ("(a (b) c) d", "c) d"),
        ("(one kind] closes the other", "closes the other"),
        ("a closed] one (x) too (", "a closed] one  too ("),
        # Names are removed first, and only at the very start of the line.
        ("[door] ANNA: Hi", "ANNA: Hi"), ("- ANNA: Hi", "ANNA: Hi"),
        ("-- Hi - there --", "Hi - there"), ("\tHi\t\r\n", "\tHi\t"),
    ],
)  # fmt: skip
def test_what_is_said(line, cleaned):
    assert clean_line(line) == cleaned


def _naive(line):
    """Apply the four cleaning steps character by character, without regular expressions."""
    said, position = "", 0
    while position < len(line):
        for before in ([""] if position == 0 else []) + [line[position : position + 2]]:
            if before and not re.fullmatch(r"[.!?]\s", before):
                continue
            end = position + len(before)
            while end < len(line) and re.match(r"\w", line[end]):
                end += 1
            if end > position + len(before) and line[end : end + 1] == ":":
                position = end + 1
                break
        else:
            said += line[position]
            position += 1
    kept, position = "", 0
    while position < len(said):
        closing = [i for i in range(position + 1, len(said)) if said[i] in "])"]
        if said[position] in "[(" and closing:
            position = closing[0] + 1
        else:
            kept += said[position]
            position += 1
    return kept.strip(" -")


@settings(deadline=None, max_examples=1000)
@given(line=st.text("ab1é:.!? -[]()\t", max_size=25))
def test_steps_against_a_naive_loop(line):
    assert clean_line(line) == _naive(line)


def test_brackets_take_linear_time():
    # Scanning the line to its end for each of these brackets would take an hour.
    assert clean_line("(" * 2_000_000) == "(" * 2_000_000
    assert clean_line("(" * 2_000_000 + ")") == ""


def test_one_file_is_one_conversation(write_dump):
    # As in PolyAI's script, history may have lines of any length, and only empty lines are dropped.
    text = "ANNA: Where were you?\n\n[music]\nOut.\n   \n-\nBO: " + "x" * 300 + "\nNo\r\nlast"
    conversations, file = _read(write_dump("lines-aab", text.encode("utf-8")))
    said = ["Where were you?", "Out.", "x" * 300, "No", "last"]
    assert conversations == {"lines-aab": said}
    assert (file.lines, file.skipped, file.num_bad) == (9, {"nothing_said": 4}, 0)


@pytest.mark.parametrize(
    ("name", "file_id"),
    [
        ("input_train.txt", "input_train.txt"),  # with its suffix, as in PolyAI's script
        ("input_train.txt.gz", "input_train.txt"),
        ("en/1994/7.txt", "7.txt"),
    ],
)
def test_the_id_is_the_name_of_the_file(write_dump, name, file_id):
    assert [*_read(write_dump(name, b"one\ntwo\n"))[0]] == [file_id]


def test_longer_files_are_cut_as_polyai_cut_them(write_dump, monkeypatch):
    # As with `split -a 3 -l 4`: empty lines count, and history does not extend beyond a piece.
    monkeypatch.setattr(opensubtitles, "LINES_PER_FILE", 4)
    lines = ["1", "", "3", "4", "5", "6", "7", "", "", "10", "", "12", *map(str, range(13, 4 * 28))]
    conversations, _ = _read(write_dump("lines.gz", "\n".join(lines).encode()))
    ids, texts = [*conversations], [*conversations.values()]
    assert texts[:3] == [["1", "3", "4"], ["5", "6", "7"], ["10", "12"]]
    assert ids[:2] == ["lines-aaa", "lines-aab"]
    assert ids[25:] == ["lines-aaz", "lines-aba", "lines-abb"]
    assert texts[-1] == ["109", "110", "111"]


@pytest.mark.parametrize(
    ("data", "ids"),
    [
        (b"line\n" * 4, ["lines"]),
        (b"line\n" * 5, ["lines-aaa"]),
        (b"", []),
        (b"alone\n", []),
        (b"[x]\n\n", []),
    ],
)
def test_a_file_of_the_right_size_keeps_its_name(write_dump, monkeypatch, data, ids):
    """A file no longer than one piece keeps its name; one without replies gives nothing."""
    monkeypatch.setattr(opensubtitles, "LINES_PER_FILE", 4)
    assert [*_read(write_dump("lines", data))[0]] == ids


def test_a_piece_without_usable_lines_counts_in_the_cutting(write_dump, monkeypatch):
    monkeypatch.setattr(opensubtitles, "LINES_PER_FILE", 2)
    data = b"a\nb\n\n(x)\n" + (b"x" * 100 + b"\n") * 3 + b"c\nd\ne\n"
    conversations, _ = _read(write_dump("lines", data), max_line_bytes=50)
    assert conversations == {"lines-aaa": ["a", "b"], "lines-aae": ["d", "e"]}


def test_unusable_lines_are_counted_and_stop_nothing(write_dump):
    data = b"\xef\xbb\xbfANNA: one\n\xff\xfe\n" + b"x" * 50 + b"\ntwo\n" + b"y" * 49 + b"\n"
    conversations, file = _read(write_dump("a.txt", data), max_line_bytes=49)
    assert conversations == {"a.txt": ["one", "two", "y" * 49]}
    assert file.skipped == {"invalid_utf8": 1, "line_too_long": 1}
    assert file.lines == 5


SRT = r"""1
00:00:01,000 --> 00:00:02,600
<i>Where have you been
all night?</i>

2
00:00:03,000 --> 00:00:05,100 X1:10 X2:20
{\an8}<font color="#ff0000">I was waiting</font> &amp; reading.

3
00:00:09,000 --> 00:00:10,500
- You never answer, 2 < 3 {sic}.
- I had no battery left.

4
00:00:11,000 --> 00:00:12,000

42
13
5
00:00:13,000 --> 00:00:14,000
[door slams]
"""
SAID_IN_SRT = [
    "Where have you been all night?",
    "I was waiting & reading.",
    "You never answer, 2 < 3 {sic}.",
    "I had no battery left.",
    "42 13",
]
VTT = """WEBVTT - a title

STYLE
::cue { color: red }

NOTE a remark
on two lines

first
01.000 --> 02.000
not a time, and outside

intro
00:01.000 --> 00:02.600 align:start
<v Anna>Where have you <00:00:02.000><c.yellow>been</c>?

00:00:03.000 --> 00:00:05.100
At the station.

NOTE the end
"""
SAID_IN_VTT = ["Where have you been?", "At the station."]
OPUS = """<?xml version="1.0" encoding="utf-8"?>
<document id="1"><meta><title>A film</title></meta>
  <s id="1"><time id="T1S" value="00:00:01,000" />
    <w id="1.1">Where</w> <w id="1.2">were</w><w id="1.3">n't</w> <w>you</w> <w>,</w>
    <w>&amp;</w> <w>why</w> <w>?</w><time id="T1E" value="00:00:02,000" /></s>
  <s id="2">At the new station !</s>
</document>
"""
SAID_IN_OPUS = ["Where weren't you, & why?", "At the new station!"]
FILES = {"a.srt": (SRT, SAID_IN_SRT), "a.vtt": (VTT, SAID_IN_VTT), "a.xml": (OPUS, SAID_IN_OPUS)}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("change", ["", "\r\n", "\r", "utf-8-sig", "utf-16"])
def test_what_is_said_in_files(write_dump, name, suffix, change):
    text, said = FILES[name]
    text = text.replace("\n", change) if change == "\r\n" else text
    data = text.encode(change if "utf" in change else "utf-8")
    conversations, file = _read(write_dump(name + suffix, data))
    assert conversations == {name: said}
    assert file.skipped == ({"nothing_said": 1} if name == "a.srt" else {})


@pytest.mark.parametrize("encoding", ["UTF-16", "iso-8859-1"])
def test_another_encoding_that_the_declaration_names(write_dump, encoding):
    data = OPUS.replace("utf-8", encoding).replace("station", "café").encode(encoding)
    assert _read(write_dump("a.xml", data))[0]["a.xml"][1] == "At the new café!"


# A line that would expand to 10 GB.
_ENTITIES = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(9))
BOMB = f'<!DOCTYPE d [<!ENTITY a0 "ten letter">{_ENTITIES}]><document><s>&a9;</s></document>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, r"is not complete XML \(limit on input amplification"),
        ('<!DOCTYPE d [<!ENTITY a SYSTEM "file:///a">]><s>&a;</s>', "undefined entity &a;"),
        (OPUS[:-30], r"is not complete XML \(.*line \d+.*Copy it again"),
        ('<?xml version="1.0" encoding="nothing"?><a/>', "is not complete XML"),
        ("<?xml version='1.0'?><feed><item/></feed>", "not in OPUS's subtitle format.*Convert it"),
        ("[Script Info]\nTitle: x\n", "subtitles in a format other.*ffmpeg"),
        ("{0}{25}Where were you?\n", "subtitles in a format other.*ffmpeg"),
        ("[0][25]Where?\n[26][50]Here.\n", "its lines begin with times.*ffmpeg"),
        ("00:00:01:Where?\n00:00:03:Here.\n", "its lines begin with times"),
        ("[00:01.00]Where?\n[00:03.00]Here.\n", "its lines begin with times"),
        ("00:00:01.00,00:00:02.00\nWhere?\n\n00:00:03.00,00:00:04.00\nHere.\n", "times"),
        ("[00:00.000 --> 00:02.000]  Where?\n[00:02.000 --> 00:03.000]  Here.\n", "times"),
        ("0.0\t1.5\tWhere?\n1.5\t2.5\tHere.\n", "its lines begin with times"),
        ("start,end,text\n0,1,Where?\n", "its lines begin with times"),
        ('{"text": "Where were you?"}\n', "is JSON, not plain text"),
    ],
)
def test_other_files_are_named(write_dump, text, message):
    with pytest.raises(ValueError, match=rf"a\.xml.*{message}"):
        _read(write_dump("a.xml", text.encode()))


def test_xml_in_a_truncated_archive(tmp_path):
    path = tmp_path / "a.xml.gz"
    path.write_bytes(COMPRESSORS[".gz"](OPUS.encode())[:-9])
    conversations, file = _read(str(path))
    assert conversations == {"a.xml": SAID_IN_OPUS}
    assert file.skipped["truncated_archive"] == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.srt", "1\n0:0:1,0 --> 0:0:2,5\nWhere?\n\n2\n0:0:3,0 --> 0:0:4,0\nHere.\n", 2),
        ("a.txt", "10:30:00 is early.\nIt is not.\nI see.\nGood.\n", 4),
    ],
)
def test_times_of_one_digit_and_a_line_with_a_time(write_dump, name, text, said):
    assert len(_read(write_dump(name, text.encode()))[0][name]) == said
