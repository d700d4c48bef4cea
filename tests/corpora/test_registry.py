import gzip
from pathlib import Path

import pytest

from convert_tf.corpora.dumps import CountedFile
from convert_tf.corpora.registry import CORPORA

FILES = {
    "dialogues": ("a.jsonl.gz", b'{"turns": ["Is it open?", "Until nine."]}\n'),
    "pairs": ("a.csv.zst", b"question,answer\nIs it open?,Until nine.\n"),
    "amazon_qa": (
        "qa.json.gz",
        b"{'asin': 'B1', 'question': 'Is it open now?', 'answer': 'It is until nine.'}\n",
    ),
    "opensubtitles": ("lines-aaa.bz2", b"Is it open?\nUntil nine.\n"),
}


@pytest.mark.parametrize("name", CORPORA)
def test_every_corpus_is_read_in_the_same_way(write_dump, name):
    file_name, content = FILES[name]
    file = CountedFile(write_dump(file_name, content))
    assert [len(one.turns) for one in CORPORA[name].read(file)] == [2]
    assert file.lines
    assert f".{file.kind}" == Path(file_name).suffix
    assert not file.skipped
    short = CountedFile(file.path, max_line_bytes=9)
    assert not list(CORPORA[name].read(short))
    assert short.skipped["line_too_long"]


@pytest.mark.parametrize("name", CORPORA)
def test_a_truncated_archive_gives_the_lines_before(tmp_path, name):
    line = FILES[name][1]
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(line * 9)[:-12])
    file = CountedFile(str(path))
    assert list(CORPORA[name].read(file))
    assert file.skipped["truncated_archive"] == 1
    assert file.skipped["unfinished_line"] <= 1
