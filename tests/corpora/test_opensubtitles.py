import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convert_tf.corpora import opensubtitles
from convert_tf.corpora.dumps import CountedFile
from convert_tf.corpora.opensubtitles import clean_line, read


def _read(path, **options):
    file = CountedFile(path, **options)
    return list(read(file)), file


def _texts(conversation):
    return [turn.text for turn in conversation.turns]


@pytest.mark.parametrize(
    ("line", "cleaned"),
    [
        ("anna: Where were you?", "Where were you?"),
        ("ANNA:", ""),
        ("Émile: Salut", "Salut"),
        ("OLD MAN: Two words stay", "OLD MAN: Two words stay"),
        # With the end of the sentence before it and one white space.
        ("Hello. ANNA: Hi there", "Hello Hi there"),
        ("Wait... BO: Now", "Wait.. Now"),
        ("12:30 it is", "30 it is"),
        ("ANNA: BO: Both", "BO: Both"),
        ("(all laughing) Stop (boom!) it", "Stop  it"),
        ("(one kind] closes the other", "closes the other"),
        ("(a (b) c) d", "c) d"),
        ("a closed] one (x) too (", "a closed] one  too ("),
        # The speaker is looked for first, at the very start of the line.
        ("[door] ANNA: Hi", "ANNA: Hi"),
        ("- ANNA: Hi", "ANNA: Hi"),
        ("-- Hi - there --", "Hi - there"),
        ("\tHi\t\r\n", "\tHi\t"),
    ],
)
def test_what_is_said(line, cleaned):
    assert clean_line(line) == cleaned


def _naive(line):
    """The four steps one character at a time, where the script has regular expressions."""
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
    # Searching for the end of each of these brackets to the end of the line takes an hour.
    assert clean_line("(" * 2_000_000) == "(" * 2_000_000
    assert clean_line("(" * 2_000_000 + ")") == ""


def test_one_file_is_one_conversation(write_dump):
    # PolyAI's script: a line of any length is history; only what is empty goes.
    text = "ANNA: Where were you?\n\n[music]\nOut.\n   \n-\nBO: " + "x" * 300 + "\nNo\r\nlast"
    conversations, file = _read(write_dump("lines-aab", text.encode("utf-8")))
    assert [one.id for one in conversations] == ["lines-aab"]
    assert conversations[0].source == "opensubtitles"
    assert _texts(conversations[0]) == ["Where were you?", "Out.", "x" * 300, "No", "last"]
    assert all(turn.author == "" for turn in conversations[0].turns)
    assert file.lines == 9
    assert file.skipped == {"nothing_said": 4}
    assert not file.bad_lines.count


@pytest.mark.parametrize(
    ("name", "file_id"),
    [
        ("input_train.txt", "input_train.txt"),  # with its suffix, as in PolyAI's script
        ("input_train.txt.gz", "input_train.txt"),
        ("en/1994/7.txt", "7.txt"),
    ],
)
def test_the_id_is_the_name_of_the_file(write_dump, name, file_id):
    path = write_dump(name, b"one\ntwo\n")
    assert [one.id for one in _read(path)[0]] == [file_id]


def test_longer_files_are_cut_as_polyai_cut_them(write_dump, monkeypatch):
    # As `split -a 3 -l 4`: empty lines count, and the history ends where a piece does.
    monkeypatch.setattr(opensubtitles, "LINES_PER_FILE", 4)
    lines = ["1", "", "3", "4", "5", "6", "7", "", "", "10", "", "12", *map(str, range(13, 4 * 28))]
    conversations, _ = _read(write_dump("lines.gz", "\n".join(lines).encode()))
    assert [_texts(one) for one in conversations[:3]] == [
        ["1", "3", "4"],
        ["5", "6", "7"],
        ["10", "12"],
    ]
    ids = [one.id for one in conversations]
    assert ids[:2] == ["lines-aaa", "lines-aab"]
    assert ids[25:] == ["lines-aaz", "lines-aba", "lines-abb"]
    assert _texts(conversations[-1]) == ["109", "110", "111"]


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
    """And one without a reply gives nothing."""
    monkeypatch.setattr(opensubtitles, "LINES_PER_FILE", 4)
    assert [one.id for one in _read(write_dump("lines", data))[0]] == ids


def test_a_piece_without_usable_lines_counts_in_the_cutting(write_dump, monkeypatch):
    monkeypatch.setattr(opensubtitles, "LINES_PER_FILE", 2)
    data = b"a\nb\n\n(x)\n" + (b"x" * 100 + b"\n") * 3 + b"c\nd\ne\n"
    conversations, _ = _read(write_dump("lines", data), max_line_bytes=50)
    assert [(one.id, _texts(one)) for one in conversations] == [
        ("lines-aaa", ["a", "b"]),
        ("lines-aae", ["d", "e"]),
    ]


def test_unusable_lines_are_counted_and_stop_nothing(write_dump):
    data = b"\xef\xbb\xbfANNA: one\n\xff\xfe\n" + b"x" * 50 + b"\ntwo\n" + b"y" * 49 + b"\n"
    conversations, file = _read(write_dump("a.txt", data), max_line_bytes=49)
    assert _texts(conversations[0]) == ["one", "two", "y" * 49]
    assert file.skipped == {"invalid_utf8": 1, "line_too_long": 1}
    assert file.lines == 5
