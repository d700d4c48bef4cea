import gzip
from pathlib import Path

import pytest

from convert_tf.corpora.dumps import CountedFile
from convert_tf.corpora.options import CORPORA

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


GOOD_LINES = {
    "dialogues": '{"turns": ["good", "line"]}\n',
    "pairs": '{"question": "good", "answer": "line"}\n',
    "amazon_qa": "{'asin': 'B2', 'question': 'a good line here', 'answer': 'a good line here'}\n",
}
LACKS = {
    "dialogues": [
        ('{"turns": ["a"]}', {"too_few_turns": 1}),
        ('{"turns": ["a", "", "b"]}', {"empty_turn": 1, "too_few_turns": 1}),
        ('{"turns": "a b"}', {"wrong_type_turns": 1}),
        ('{"turns": null}', {"missing_turns": 1}),
        ('{"turns": ["a", "b"], "id": [1]}', {"wrong_type_id": 1}),
        ('{"turns": ["a", "b"], "id": true}', {"wrong_type_id": 1}),
        ('{"turns": ["a", "b"], "id": "%s"}' % ("x" * 201), {"too_long_id": 1}),
        ('{"messages": [{"role": "user", "content": "a"}, {"role": "assistant"}]}',
         {"wrong_type_turn": 1, "too_few_turns": 1}),
    ],
    "pairs": [
        ('{"question": "a", "answer": null}', {"missing_answer": 1}),
        ('{"question": 3, "answer": "b"}', {"wrong_type_question": 1}),
        ('{"question": "a", "answer": ["b", 3]}', {"wrong_type_answer": 1}),
        ('{"question": "a", "answer": []}', {"empty_response": 1}),
        ('{"question": " ", "answer": "b"}', {"empty_context": 1}),
        ('{"questions": ["a", "b"], "answers": ["c", "d"]}', {"lists_on_both_sides": 1}),
        ('{"text": "a"}', {"missing_pair": 1}),
        ("7", {"not_an_object": 1}),
    ],
    "amazon_qa": [
        ("{'asin': 'B1', 'question': 'a b c d'", {"not_a_dictionary": 1}),
        ("{[]: 1}", {"not_a_dictionary": 1}),
        ("{'asin': 'B\0'}", {"not_a_dictionary": 1}),
        ("-" * 60_000 + "1", {"not_a_dictionary": 1}),
        ("1+" * 60_000 + "1j", {"not_a_dictionary": 1}),
        ("{'question': 'a b c d', 'answer': 'a b c d'}", {"missing_asin": 1}),
        ("{'asin': 7.5, 'question': 'a b c d', 'answer': 'a b c d'}", {"wrong_type_asin": 1}),
        ("{'asin': '', 'question': 'a b c d', 'answer': 'a b c d'}", {"malformed_asin": 1}),
        ("{'asin': 'B1', 'question': 'a b c d'}", {"missing_answer": 1}),
        ("{'asin': 'B1', 'question': b'a', 'answer': 'a'}", {"wrong_type_question": 1}),
        ("{'asin': 'B1', 'answer': 'a b c d'}", {"missing_question": 1}),
        ("{'asin': 'B1', 'questions': 'a b c d'}", {"wrong_type_questions": 1}),
        ("{'asin': 'B1', 'questions': [1, {}]}",
         {"wrong_type_questions": 1, "missing_questionText": 1}),
        ("{'asin': 'B1', 'questions': [{'questionText': 'a b c d'}]}", {"missing_answers": 1}),
        ("{'asin': 'B1', 'questions': [{'questionText': 'a b c d', 'answers': [{}, None]}]}",
         {"missing_answerText": 1, "wrong_type_answers": 1}),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "line", "reasons"),
    [(name, line, reasons) for name in LACKS for line, reasons in LACKS[name]],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_what_a_line_lacks_is_counted_and_stops_nothing(write_dump, name, line, reasons):
    good = GOOD_LINES[name]
    path = write_dump("a.jsonl", f"{good}{line}\n{good}".encode())
    file = CountedFile(path)
    assert len([*CORPORA[name].read(file)]) == 2
    assert file.skipped == reasons
    assert all(place.startswith(f"{path}:2 (") for place in file.bad_lines.first)
