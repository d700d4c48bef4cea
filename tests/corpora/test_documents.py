"""Plain documents in both layouts: each sentence with the next one."""

import pytest

from convert_tf.corpora import documents
from convert_tf.corpora.documents import read
from convert_tf.corpora.dumps import CountedFile
from convert_tf.storage.content import ContentError


def _read(path):
    file = CountedFile(path)
    return [[turn.text for turn in one.turns] for one in read(file)], file


def test_empty_lines_end_documents(write_dump):
    text = "\ufeffOne.\n Two. \nThree.\r\n\n\nAlone.\n\nFour.\nFive."
    found, file = _read(write_dump("a.txt", text.encode()))
    assert found == [["One.", "Two.", "Three."], ["Four.", "Five."]]
    assert file.skipped == {"too_few_sentences": 1}


def test_a_line_with_tabs_is_a_document(write_dump):
    text = "One.\tTwo.\nThree.\t\tFour.\tFive.\nSix.\nSeven.\nEight.\tNine.\n"
    found, _ = _read(write_dump("a.txt", text.encode()))
    assert found == [["One.", "Two."], ["Three.", "Four.", "Five."], ["Six.", "Seven."],
                     ["Eight.", "Nine."]]  # fmt: skip


def test_copies_of_a_document_have_one_id(write_dump):
    path = write_dump("a.txt", b"One.\nTwo.\n\none. \ntwo.\nThree.\n\nTwo.\nOne.\n")
    ids = [one.id for one in read(CountedFile(path))]
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize(
    ("bad_line", "reason"), [(b"\xe9", "invalid_utf8"), (b"x" * 21, "line_too_long")]
)
def test_sentences_around_an_unusable_line_do_not_follow_each_other(write_dump, bad_line, reason):
    lines = [bad_line, b"One.", b"Two.", bad_line, bad_line, b"Alone.", bad_line, b"3.", b"4."]
    file = CountedFile(write_dump("a.txt", b"\n".join(lines)), max_line_bytes=20)
    found = [[turn.text for turn in one.turns] for one in read(file)]
    assert found == [["One.", "Two."], ["3.", "4."]]
    assert file.skipped == {reason: 4, "too_few_sentences": 1}


def test_a_long_document_is_cut(write_dump, monkeypatch):
    monkeypatch.setattr(documents, "_MAX_SENTENCES", 3)
    found, _ = _read(write_dump("a.txt", b"1\n2\n3\n4\n5\n6\n7\n8\n"))
    assert found == [["1", "2", "3"], ["4", "5", "6"], ["7", "8"]]


def test_bad_lines_are_counted_and_other_files_are_refused(write_dump):
    found, file = _read(write_dump("a.txt", b"One.\nTwo.\n\xff\nThree.\nFour.\n"))
    assert (found, file.skipped) == ([["One.", "Two."], ["Three.", "Four."]], {"invalid_utf8": 1})
    with pytest.raises(ContentError, match="is JSON"):
        _read(write_dump("b.txt", b'{"turns": ["a", "b"]}\n'))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "One.\nTwo.\n"),
        ("a.csv.gz", "frage,antwort\nWo?,Hier.\n"),
        ("a.txt", "question;answer\nWhere?;Here.\n"),
    ],
)
def test_a_table_is_refused(write_dump, name, content):
    with pytest.raises(ContentError, match=rf"{name} is a table\. Pass plain text"):
        _read(write_dump(name, content.encode()))


def test_documents_with_tabs_are_no_table(write_dump):
    found, _ = _read(write_dump("a.tsv", b"text\tlabel\n" + 5 * b"One.\tTwo.\n"))
    assert found == [["text", "label"], *5 * [["One.", "Two."]]]
