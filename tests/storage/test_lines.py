"""A text a line, of files and of standard input (more in the tests of `convert-tf embed`)."""

import gzip
import io
import lzma
import os
import sys
import threading

import pytest

from convert_tf.storage.lines import TextLines, filled_lines


def test_filled_lines_of_a_file(tmp_path):
    content = "\ufeffone\r\n\n  two words \nünï\n".encode()
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "archive.gz").write_bytes(gzip.compress(content))
    (tmp_path / "archive.xz").write_bytes(lzma.compress(content))
    for name in ("plain", "archive.gz", "archive.xz"):
        assert list(filled_lines(tmp_path / name)) == ["one", "two words", "ünï"]
    (tmp_path / "cut.gz").write_bytes(gzip.compress(content * 1000)[:-20])
    (tmp_path / "latin").write_bytes(b"fine\ncaf\xe9\n")
    with pytest.raises(ValueError, match=r"cut\.gz.*truncated"):
        list(filled_lines(tmp_path / "cut.gz"))
    with pytest.raises(ValueError, match=r"line 2 of .*latin as text: 'utf-8'"):
        list(filled_lines(tmp_path / "latin"))


@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_encodings_without_a_mark_are_refused(tmp_path, name):
    texts = "hi\nthere\n" if name != "utf-16-le" else "\nthere\n"
    (tmp_path / "wide").write_bytes(texts.encode(name))
    with pytest.raises(ValueError, match=r"wide is .*text in another encoding than UTF-8"):
        list(filled_lines(tmp_path / "wide"))


@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be"])
def test_wide_text_that_is_also_utf8_is_refused(tmp_path, name):
    (tmp_path / "wide").write_bytes(("Привет как дела сегодня\n" * 8).encode(name))
    with pytest.raises(ValueError, match=r"wide is .*text in another encoding than UTF-8"):
        list(filled_lines(tmp_path / "wide"))


@pytest.mark.parametrize("name", ["utf-16", "utf-32"])
def test_wide_encodings_with_a_mark_are_read(tmp_path, name):
    (tmp_path / "wide").write_bytes("hi\r\nthére 😊\n".encode(name))
    assert list(filled_lines(tmp_path / "wide")) == ["hi", "thére 😊"]


def test_texts_may_hold_nul(tmp_path):
    (tmp_path / "texts").write_bytes(b"a\0b\n\0\0\0\0\n")
    assert list(filled_lines(tmp_path / "texts")) == ["a\0b", "\0\0\0\0"]


def test_lines_are_numbered_as_they_are_read(tmp_path):
    (tmp_path / "texts").write_bytes(b"a\n\nb")
    lines = TextLines(tmp_path / "texts")
    assert [(text, lines.number, lines.bytes_done) for text in lines] == [
        ("a", 1, 2),
        ("", 2, 3),
        ("b", 3, 4),
    ]


def test_a_typed_line_is_given_at_once(monkeypatch):
    """Before whoever types has ended the input."""
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(reading, "rb")))
    os.write(writing, b"first\n")
    watchdog = threading.Timer(5, os.close, [writing])  # else a failure would wait for ever
    watchdog.start()
    lines = iter(TextLines("-"))
    assert next(lines) == "first"
    assert watchdog.is_alive()
    watchdog.cancel()
    os.write(writing, b"second")
    os.close(writing)
    assert list(lines) == ["second"]


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_lines_that_end_in_a_carriage_return_alone(tmp_path, packed):
    (tmp_path / "texts").write_bytes(packed(b"one\rtwo\rthree"))
    assert list(TextLines(tmp_path / "texts")) == ["one", "two", "three"]
    (tmp_path / "texts").write_bytes(packed(b"one\n\rtwo\rthree"))
    assert list(TextLines(tmp_path / "texts")) == ["one", "\rtwo\rthree"]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b'{"text": "hi", "label": "greet"}\n', "JSON"),
        (b'[\n  {"text": "hi"}\n]\n', "JSON"),
        (b"1\n00:00:01,000 --> 00:00:02,600\nHi\n", "SubRip"),
        (b"WEBVTT\n\n00:01.000 --> 00:02.600\nHi\n", "WebVTT"),
        (b'<?xml version="1.0"?>\n<document/>\n', "XML"),
        (b"## intent:greet\n- hi\n", "Rasa's Markdown"),
        (b'version: "3.1"\nnlu:\n', "Rasa's YAML"),
    ],
)
def test_other_formats_than_a_text_a_line_are_named(tmp_path, content, name):
    (tmp_path / "texts").write_bytes(b"\xef\xbb\xbf" + content)
    with pytest.raises(ValueError, match=f"texts is .*{name}.*, not plain text"):
        list(TextLines(tmp_path / "texts"))


@pytest.mark.parametrize(
    "text", ["{hi} there", "[door] hi", "1:02 --> soon", "version: two", "[1, 2]", "# a", "<3 you"]
)
def test_texts_that_look_a_little_like_them_are_texts(tmp_path, text):
    (tmp_path / "texts").write_text(f"{text}\n")
    assert list(TextLines(tmp_path / "texts")) == [text]
