"""Files that get shorter while they are read: it is said, whatever reads them."""

import gzip
import json
import os

import pytest

from convert_tf.corpora.dumps import CountedFile, read_objects
from convert_tf.corpora.options import CORPORA
from convert_tf.data.candidates import read_candidates
from convert_tf.data.utterances import read_utterances
from convert_tf.storage.lines import TextLines

MEGABYTES = 3 * 2**20  # plain files are read a megabyte at a time
LINES = {
    "dialogues": json.dumps({"turns": ["where is my card?", "in the post"]}),
    "pairs": json.dumps({"question": "where is my card?", "answer": "in the post"}),
    "amazon_qa": json.dumps({"asin": "B1", "question": "a b c d", "answer": "a b c d"}),
    "opensubtitles": "I was",  # of which 100,000 lines are less than a file
    "comments": json.dumps({"id": "c1"}),
    "candidates": json.dumps({"context": "hi", "candidates": ["a", "b"], "label": 0}),
    "utterances": json.dumps({"text": "where is my card?"}),
    "lines": "where is my card?",
}


def shortened(path, values):
    """Takes the first value, cuts the file, and takes the others."""
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
    path = written(tmp_path / "a.jsonl", LINES[name])
    file = CountedFile(path)
    read = read_objects(file) if name == "comments" else CORPORA[name].read(file)
    shortened(path, read)
    assert file.skipped["truncated_file"] == 1
    assert "a file that got shorter while it was read; kept the" in file.warnings[-1]


@pytest.mark.parametrize("packed", [bytes, lambda data: gzip.compress(data, 0)])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("candidates", read_candidates),
        ("utterances", lambda path: read_utterances([path])),
        ("lines", TextLines),
    ],
)
def test_readers_of_texts_stop(tmp_path, name, read, packed):
    line = LINES[name]
    path = written(tmp_path / "a.jsonl", line, packed)
    with pytest.raises(
        ValueError, match=r"Line .*a\.jsonl is the end of .*(got shorter while|truncated gz)"
    ):
        shortened(path, read(path))


def test_a_file_of_which_something_was_read_before_is_whole(tmp_path, monkeypatch):
    (tmp_path / "texts").write_text("read before\nhi\n")
    with open(tmp_path / "texts", encoding="utf-8") as file:
        os.lseek(file.fileno(), len("read before\n"), os.SEEK_SET)
        monkeypatch.setattr("sys.stdin", file)
        assert list(TextLines("-")) == ["hi"]
