"""The vocabulary file holds any subword and refuses what is none."""

import gzip
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convert_tf.text.subwords import WORD_START
from convert_tf.text.vocabulary import (
    VocabularyError,
    escape,
    read_vocabulary,
    unescape,
    write_vocabulary,
)

TRICKY = "\\\n\r\t\0\x0b\x0c\x1c\x85\u2028\u2029 nu\U0001f600"


def complete(characters):
    return [f"{start}{character}" for character in characters for start in ("", WORD_START)]


@given(st.text(st.characters(codec="utf-8") | st.sampled_from(TRICKY)))
def test_lines_hold_any_text(text):
    assert unescape(escape(text)) == text
    assert len(escape(text).splitlines()) <= 1


def test_file_round_trip(tmp_path):
    subwords = [*complete(TRICKY), "\\n", "a\nb", WORD_START + "\r\n", "\\u0041"]
    subwords += [f"{WORD_START}a", "a", f"{WORD_START}b", "b"]
    write_vocabulary(tmp_path / "vocab.txt", subwords)
    assert read_vocabulary(tmp_path / "vocab.txt") == subwords
    assert len((tmp_path / "vocab.txt").read_text("utf-8").splitlines()) == len(subwords)
    assert os.listdir(tmp_path) == ["vocab.txt"]


def test_golden_bytes(tmp_path):
    write_vocabulary(tmp_path / "v", ["the", "\n", WORD_START + "\n", "\\", WORD_START + "\\"])
    expected = "the\n\\n\n\ufe4f\\n\n\\\\\n\ufe4f\\\\\n"
    assert (tmp_path / "v").read_bytes() == expected.encode("utf-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"vocab\.txt is empty"),
        ("﹏the\n\nof\n".encode(), "Line 2 of .* is not a subword: ''"),
        ("﹏the\nof\n﹏the\n".encode(), "'﹏the' twice, in lines 1 and 3"),
        (b"the\n\xff\xfe\n", "not UTF-8 text .*position 4"),
        ("﹏\n".encode(), "Line 1 of .* is not a subword: '\ufe4f'"),
        ("a﹏b\n﹏b\n".encode(), "Line 1 of .* is not a subword: 'a\ufe4fb'"),
        ("﹏ab\na\n".encode(), r"'a' \(line 2\) but not '\ufe4fa'"),
        ("﹏a\nb\\ud83d\n".encode(), r"Line 2 of .* is not a subword: 'b\\ud83d'"),
        ("﹏a\nb\\x".encode(), r"Line 2 of .*vocab\.txt: 'b\\\\x' contains a backslash"),
        ("▁the\n▁of\n".encode(), r"None of the 2 lines .*another tokenizer.*its \.model file"),
        (gzip.compress("﹏a\na\n".encode(), mtime=0), "not UTF-8 text"),
        (b"{\0}\0\n\0", "None of the 2 lines"),
    ],
)
def test_refuses_other_files(tmp_path, content, message):
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(VocabularyError, match=message):
        read_vocabulary(tmp_path / "vocab.txt")


@pytest.mark.parametrize("change", [b"\r\n", b"\r", b"\xef\xbb\xbf"])
def test_line_ends_and_marks_of_other_systems_are_read(tmp_path, change):
    subwords = ["﹏the", "\ufeff", "﹏\ufeff", "\r", "﹏\r", "﹏ ", " "]
    write_vocabulary(tmp_path / "vocab.txt", subwords)
    content = (tmp_path / "vocab.txt").read_bytes()
    assert not content.count(b"\r") and not content.count(b"\xef\xbb\xbf")
    is_mark = change.startswith(b"\xef")
    (tmp_path / "other.txt").write_bytes(
        change + content if is_mark else content.replace(b"\n", change)
    )
    assert read_vocabulary(tmp_path / "other.txt") == subwords


def test_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "vocab.txt"
    write_vocabulary(path, ["﹏old"])

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full_disk)
        with pytest.raises(OSError, match="No space"):
            write_vocabulary(path, ["new"])
    with pytest.raises(VocabularyError, match="'new' twice"):
        write_vocabulary(path, ["new", "new"])
    assert read_vocabulary(path) == ["﹏old"]
    assert os.listdir(tmp_path) == ["vocab.txt"]
