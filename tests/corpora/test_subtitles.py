"""Subtitles as people download them: `.srt`, `.vtt` and OPUS's `.xml`."""

import pytest
from support.dump_files import COMPRESSORS

from convert_tf.corpora.dumps import CountedFile
from convert_tf.corpora.opensubtitles import read

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
FILES = {
    "a.srt": (SRT, SAID_IN_SRT),
    "a.vtt": (VTT, SAID_IN_VTT),
    "a.xml": (OPUS, SAID_IN_OPUS),
}


def _read(path):
    file = CountedFile(path)
    return [[turn.text for turn in one.turns] for one in read(file)], file


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("change", ["", "\r\n", "\r", "utf-8-sig", "utf-16"])
def test_what_is_said(write_dump, name, suffix, change):
    text, said = FILES[name]
    text = text.replace("\n", change) if change == "\r\n" else text
    data = text.encode(change if "utf" in change else "utf-8")
    conversations, file = _read(write_dump(name + suffix, data))
    assert conversations == [said]
    assert file.skipped == ({"nothing_said": 1} if name == "a.srt" else {})


@pytest.mark.parametrize("encoding", ["UTF-16", "iso-8859-1"])
def test_another_encoding_that_the_declaration_names(write_dump, encoding):
    data = OPUS.replace("utf-8", encoding).replace("station", "café").encode(encoding)
    assert _read(write_dump("a.xml", data))[0][0][1] == "At the new café!"


# A line that would expand to 10 GB.
_ENTITIES = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(9))
BOMB = f'<!DOCTYPE d [<!ENTITY a0 "ten letter">{_ENTITIES}]><document><s>&a9;</s></document>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, r"is no whole XML \(limit on input amplification"),
        ('<!DOCTYPE d [<!ENTITY a SYSTEM "file:///a">]><s>&a;</s>', "undefined entity &a;"),
        (OPUS[:-30], r"is no whole XML \(.*line \d+.*Copy it again"),
        ('<?xml version="1.0" encoding="nothing"?><a/>', "is no whole XML"),
        ("<?xml version='1.0'?><feed><item/></feed>", "not of OPUS's subtitles.*Convert it"),
        ("[Script Info]\nTitle: x\n", "subtitles in another format.*ffmpeg"),
        ("{0}{25}Where were you?\n", "subtitles in another format.*ffmpeg"),
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
    assert conversations == [SAID_IN_OPUS]
    assert file.skipped["truncated_archive"] == 1


def test_lines_that_are_no_utf_8_are_counted(write_dump):
    data = SRT.replace("waiting", "ü").encode("latin-1")
    conversations, file = _read(write_dump("a.srt", data))
    assert conversations == [SAID_IN_SRT[:1] + SAID_IN_SRT[2:]]
    assert file.skipped["invalid_utf8"] == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.srt", "1\n0:0:1,0 --> 0:0:2,5\nWhere?\n\n2\n0:0:3,0 --> 0:0:4,0\nHere.\n", 2),
        ("a.txt", "10:30:00 is early.\nIt is not.\nI see.\nGood.\n", 4),
    ],
)
def test_times_of_one_digit_and_a_line_with_a_time(write_dump, name, text, said):
    assert len(_read(write_dump(name, text.encode()))[0][0]) == said
