from pathlib import Path

import pytest

from convert_tf.corpora.comments import Rules
from convert_tf.corpora.dumps import CountedFile
from convert_tf.corpora.registry import CORPORA, NO_LIMIT

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
    short = CountedFile(file.path, max_line_bytes=9)
    assert not list(CORPORA[name].read(short))
    assert short.skipped["line_too_long"]


@pytest.mark.parametrize(
    ("name", "shortest", "longest"),
    [
        ("dialogues", 9, 127),
        ("opensubtitles", 9, 127),
        ("pairs", 1, NO_LIMIT),
        ("amazon_qa", 1, NO_LIMIT),
    ],
)
def test_rules_of_each_corpus(name, shortest, longest):
    rules = Rules(**CORPORA[name].rules)
    assert rules.min_context_length == rules.min_response_length == shortest
    assert rules.max_context_length == rules.max_response_length == longest
    assert rules.deduplicate == ("exact" if name in ("pairs", "amazon_qa") else "no")
