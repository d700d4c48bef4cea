"""Reading one text per line from files and standard input; `convert-tf embed` has more tests.

If a file becomes shorter while it is read, every reader reports it.
"""

import bz2
import contextlib
import gzip
import io
import itertools
import json
import lzma
import os
import pickle
import sys
import tarfile
import threading
import time
import zipfile

import numpy as np
import pytest
from support import task_files

from convert_tf.corpora.dumps import CountedFile, read_objects
from convert_tf.corpora.options import CORPORA
from convert_tf.data.candidates import read_candidates
from convert_tf.data.triplets import read_triplets
from convert_tf.data.utterances import UtteranceFiles
from convert_tf.readers.texts import Texts, filled_texts
from convert_tf.storage.content import check_is_text


@pytest.mark.parametrize("packed", [bytes, gzip.compress, lzma.compress])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("\ufeffone\r\n\n  two words \nünï\n".encode(), ["one", "", "  two words ", "ünï"]),
        *(("hi\r\nthére 😊\n".encode(name), ["hi", "thére 😊"]) for name in ("utf-16", "utf-32")),
        (b"a\0b\n\0\0\0\0\n", ["a\0b", "\0\0\0\0"]),
        (b"one\rtwo\rthree", ["one", "two", "three"]),
        (b"one\n\rtwo\rthree", ["one", "\rtwo\rthree"]),
        *(
            (b"a" * size + b"\r\ntwo\r\nthree\r\n", ["a" * size, "two", "three"])
            for size in (1022, 1023, 1024)
        ),
        (b"1 %\r50 %\r99 %\rdone\nbye\n", ["1 %\r50 %\r99 %\rdone", "bye"]),
        (b"a\r" + b"b" * 2000 + b"\ntwo\n", ["a\r" + "b" * 2000, "two"]),
        (b"a" * 2000 + b"\rtwo\rthree\nfour\rfive", ["a" * 2000, "two", "three", "four", "five"]),
        (b"a" * 2000 + b"\rtwo\r", ["a" * 2000, "two"]),
        # Texts that resemble other formats.
        *(
            (f"{text}\n".encode(), [text])
            for text in (
                "{hi} there",
                "[door] hi",
                "1:02 --> soon",
                "version: two",
                "[1, 2]",
                "# a",
            )
        ),
    ],
)
def test_lines_of_a_file(tmp_path, content, lines, packed):
    (tmp_path / "texts").write_bytes(packed(content))
    assert list(Texts(tmp_path / "texts")) == lines
    assert list(filled_texts(Texts(tmp_path / "texts"))) == [*filter(None, map(str.strip, lines))]


RUSSIAN = "Привет как дела сегодня\n" * 8  # its UTF-16 bytes are also valid UTF-8
WIDE = [
    text.encode(name)
    for text in ("hi\nthere\n", "\nthere\n", RUSSIAN)
    for name in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
]
FORMATS = [
    ("SubRip", b"1\n00:00:01,000 --> 00:00:02,600\nHi\n"),
    ("WebVTT", b"WEBVTT\n\n00:01.000 --> 00:02.600\nHi\n"),
    ("XML", b'<?xml version="1.0"?>\n<document/>\n'),
    ("Rasa's Markdown", b"## intent:greet\n- hi\n"),
    ("Rasa's YAML", b'version: "3.1"\nnlu:\n'),
]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"one\n" * 1000, mtime=0)[:-9], "the end of a truncated gz archive"),
        (b"fine\ncaf\xe9\n", r"texts, line 2, is not UTF-8 \(byte 4 of the line is 0xE9\)"),
        *((text, "texts is .*text in an encoding other than UTF-8") for text in WIDE),
        *(
            (b"\xef\xbb\xbf" + text, f"texts is .*{name}.*, not plain text")
            for name, text in FORMATS
        ),
    ],
)
def test_other_files_than_a_text_a_line_are_refused(tmp_path, content, message):
    (tmp_path / "texts").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(Texts(tmp_path / "texts"))


def test_bytes_are_counted_as_they_are_read(tmp_path):
    (tmp_path / "texts").write_bytes(b"a\n" * 2**20)
    texts = Texts(tmp_path / "texts")
    counts = {texts.bytes_done for _ in texts}
    assert len(counts) > 1
    assert max(counts) == texts.total_bytes == 2**21


def test_a_typed_line_is_given_at_once(monkeypatch):
    """The line is available before the input ends."""
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(reading, "rb")))
    os.write(writing, b"first\n")
    watchdog = threading.Timer(5, os.close, [writing])  # otherwise a failure would block forever
    watchdog.start()
    lines = iter(Texts("-"))
    assert next(lines) == "first"
    assert watchdog.is_alive()
    watchdog.cancel()
    os.write(writing, b"second")
    os.close(writing)
    assert list(lines) == ["second"]


@pytest.fixture
def standard_input(monkeypatch):
    """Return a function that writes pieces to the standard input, with pauses between them."""
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(os.fdopen(reading, "rb")))

    def write(pieces):
        for piece in pieces:
            time.sleep(0.05)
            os.write(writing, piece)
        os.close(writing)

    def start(pieces, *, blocks):
        os.set_blocking(reading, blocks)
        threading.Thread(target=write, args=[pieces], daemon=True).start()

    return start


def test_a_standard_input_that_does_not_block_is_read_to_the_end(standard_input):
    """ssh and docker exec leave such descriptors."""
    standard_input([b"one\n", b"two\nth", b"ree\n"], blocks=False)
    assert list(Texts("-")) == ["one", "two", "three"]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("blocks", [True, False])
def test_an_archive_is_told_however_few_bytes_come_first(standard_input, pack, blocks):
    content = pack(b"one\ntwo\n")
    standard_input([content[:1], content[1:3], content[3:]], blocks=blocks)
    assert list(Texts("-")) == ["one", "two"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_an_encoding_is_told_however_few_bytes_come_first(standard_input, encoding):
    content = "é\n😀\n".encode(encoding)
    standard_input([content[:1], content[1:3], content[3:]], blocks=True)
    assert list(Texts("-")) == ["é", "😀"]


MEGABYTES = 3 * 2**20  # plain files are read in pieces of 1 MB
LINES = {
    "dialogues": json.dumps({"turns": ["where is my card?", "in the post"]}),
    "pairs": json.dumps({"question": "where is my card?", "answer": "in the post"}),
    "amazon_qa": json.dumps({"asin": "B1", "question": "a b c d", "answer": "a b c d"}),
    "opensubtitles": "I was",  # 100,000 such lines are less than a file
    "documents": "where is it?\there",
    "dstc7": json.dumps(task_files.dstc7_items(1)[0]),
    "convai2": "1 where is my card?\tin the post",
    # Consecutive rows with the same context form one example.
    "ubuntu": "1\twhere is it?\there\n1\twho is it?\tme",
    "wikiqa": "where is it?\there\t1\nwho is it?\tme\t1",
    "article_search": "The pool is open from seven in the morning.\tOn Sundays it opens at nine.",
    "comments": json.dumps({"id": "c1"}),
    "candidates": json.dumps({"context": "hi", "candidates": ["a", "b"], "label": 0}),
    "utterances": json.dumps({"text": "where is my card?"}),
    "triplets": json.dumps({"anchor": "hi", "positive": "hello", "negative": "bye"}),
    "lines": "where is my card?",
}


def shortened(path, values):
    """Yield the first value, truncate the file, and yield the others."""
    values = iter(values)
    next(values)
    os.truncate(path, os.path.getsize(path) // 2)
    return sum(1 for _ in values)


def written(path, line, packed=bytes):
    text = (line + "\n").encode()
    path.write_bytes(packed(text * (MEGABYTES // len(text))))
    return str(path)


@pytest.mark.parametrize("name", [*CORPORA, "comments"])
def test_readers_of_corpora_count_it(tmp_path, name):
    suffix = "txt" if name == "documents" else "jsonl"  # documents are not tables
    path = written(tmp_path / f"a.{suffix}", LINES[name])
    file = CountedFile(path)
    read = read_objects(file) if name == "comments" else CORPORA[name].read(file)
    shortened(path, read)
    assert file.skipped["truncated_file"] == 1
    assert "a file that shrank while it was read; kept the" in file.warnings[-1]


@pytest.mark.parametrize("packed", [bytes, lambda data: gzip.compress(data, 0)])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("candidates", read_candidates),
        ("utterances", lambda path: UtteranceFiles([path])),
        ("lines", Texts),
    ],
)
def test_readers_of_texts_stop(tmp_path, name, read, packed):
    line = LINES[name]
    path = written(tmp_path / ("a.txt" if name == "lines" else "a.jsonl"), line, packed)
    with pytest.raises(
        ValueError, match=r"a\.\w+, line .* is the end of .*(shrank while|truncated gz)"
    ):
        shortened(path, read(path))


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2", ".XZ", ".lzma"])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("utterances", UtteranceFiles),
        ("triplets", read_triplets),
        ("lines", lambda paths: itertools.chain(*map(Texts, paths))),
    ],
)
def test_an_empty_archive_among_other_files_is_refused(tmp_path, name, read, suffix):
    """Empty files are allowed if their names do not have the suffix of an archive."""
    start = "a" if name == "lines" else "a.jsonl"
    paths = [tmp_path / file for file in (start, f"{start}.empty", f"{start}{suffix}")]
    paths[0].write_text(LINES[name] + "\n")
    paths[1].touch()
    assert len([*read([*map(str, paths[:2])])]) == 1
    paths[2].touch()
    with pytest.raises(ValueError, match=f"{suffix} is empty, so it is not an archive"):
        list(read([*map(str, paths)]))


def test_a_file_of_which_something_was_read_before_is_whole(tmp_path, monkeypatch):
    (tmp_path / "texts").write_text("read before\nhi\n")
    with open(tmp_path / "texts", encoding="utf-8") as file:
        os.lseek(file.fileno(), len("read before\n"), os.SEEK_SET)
        monkeypatch.setattr("sys.stdin", file)
        assert list(Texts("-")) == ["hi"]


def zipped(name):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(name, "x")
    return archive.getvalue()


def tarred():
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as file:
        file.addfile(tarfile.TarInfo("a"), io.BytesIO())
    return archive.getvalue()


def saved():
    array = io.BytesIO()
    np.save(array, np.arange(3))
    return array.getvalue()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (zipped("xl/workbook.xml"), "an Excel workbook"),
        (zipped("word/document.xml"), "a Word document"),
        (zipped("a.txt"), "a zip archive"),
        (tarred(), "a tar archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "an Office file from before 2007"),
        (b"PAR1\x15\x04\x15" + bytes(100), "a Parquet file"),
        (b"SQLite format 3\x00" + bytes(84), "an SQLite database"),
        (saved(), "a NumPy array"),
        (pickle.dumps(["a"]), "a Python pickle"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF"),
        (rb"{\rtf1\ansi hi}", "a rich text file"),
        (bytes([30, *bytes(7), 1, 2, 3, 4]) + b"\n\x10\n\x0e\n\x07context\x12\x03" + b"x" * 40,
         r"a TFRecord file.* Only commands with --data read records; pass them the folder\."),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>\n", "a web page"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_binary_files_are_named(tmp_path, content, kind):
    (tmp_path / "texts").write_bytes(content)
    with pytest.raises(ValueError, match=f"texts is {kind}"):
        list(Texts(tmp_path / "texts"))


@pytest.mark.parametrize(
    ("head", "is_refused"),
    [
        (b"a" * 36 + bytes(4), False),  # a tenth
        (b"a" * 35 + bytes(5), True),
        (b"a" * 28 + bytes(4), True),  # 32 bytes are enough to decide
        (b"a" * 27 + bytes(4), False),
        (b"\x01" * 12 + b"a" * 28, False),  # control characters, at most three in ten
        (b"\x01" * 13 + b"a" * 27, True),
        (b"\xff\x01" + b"a" * 98, False),  # and at most two in 100 if it is not UTF-8
        (b"\xff\x01\x01\x01" + b"a" * 96, True),
        (b"a\x00b\x00", True),  # UTF-16
        (b"a\x00bc", False),
    ],
)
def test_what_is_not_text_is_told_by_its_bytes(head, is_refused):
    with pytest.raises(ValueError, match="binary data") if is_refused else contextlib.nullcontext():
        check_is_text("a file", head)
