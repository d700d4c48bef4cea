"""Readers of whole conversations: the behaviour that all share, and AmazonQA."""

import gzip
from pathlib import Path

import pytest
from support.dump_files import json_lines

from convert_tf.corpora.amazon_qa import read
from convert_tf.corpora.dumps import Conversation, CountedFile, Turn
from convert_tf.corpora.options import CORPORA

FILES = {
    "dialogues": ("a.jsonl.gz", b'{"turns": ["Is it open?", "Until nine."]}\n'),
    "pairs": ("a.csv.zst", b"question,answer\nIs it open?,Until nine.\n"),
    "amazon_qa": (
        "qa.json.gz",
        b"{'asin': 'B1', 'question': 'Is it open now?', 'answer': 'It is until nine.'}\n",
    ),
    "opensubtitles": ("lines-aaa.bz2", b"Is it open?\nUntil nine.\n"),
    "documents": ("a.txt.xz", b"The pool is open.\tUntil nine.\n"),
    "dstc7": (
        "a.json.gz",
        b'{"messages-so-far": [{"utterance": "Is it open?"}], "options-for-correct-answers": '
        b'[{"candidate-id": "A"}], "options-for-next": [{"candidate-id": "A", "utterance": "Yes."},'
        b' {"candidate-id": "B", "utterance": "Red."}]}\n',
    ),
    "convai2": ("train_self_original.txt.zst", b"1 Is it open?\tUntil nine.\t\tRed.|Until nine.\n"),
    "ubuntu": ("train.txt.xz", b"1\tIs it open?\tUntil nine.\n"),
    "wikiqa": ("WikiQA-train.txt.gz", b"Is it open?\tUntil nine.\t1\n"),
    "article_search": ("articles.txt.gz", b"The pool is open.\tUntil nine.\n"),
}


@pytest.mark.parametrize("name", CORPORA)
def test_every_corpus_is_read_in_the_same_way(write_dump, name):
    file_name, content = FILES[name]
    file = CountedFile(write_dump(file_name, content))
    assert [len(one.turns) for one in CORPORA[name].read(file)] == [2]
    assert file.lines
    assert f".{file.kind}" == Path(file_name).suffix
    assert not file.skipped
    # Two lines, because the limit does not apply to JSON on a single line.
    short = CountedFile(write_dump(file_name, content * 2), max_line_bytes=9)
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
        ('["a", "b"]', {"not_an_object": 1}),  # valid only in files of pairs
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
        ('{"text": "a"}', {"unknown_keys": 1}),
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
        ("{'asin': 0x%s, 'question': 'a b c d', 'answer': 'a b c d'}" % ("f" * 5_000),
         {"wrong_type_asin": 1}),
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


def _read(path):
    file = CountedFile(path)
    return list(read(file)), file


def _lines(objects):
    """Return the lines of the corpus for these objects, as Python literals."""
    return "".join(f"{one!r}\n" for one in objects).encode("utf-8")


def _pairs(conversations):
    return [(one.id, one.turns[0].text, one.turns[1].text) for one in conversations]


FOUR = "does it fit mine"
FIVE = 'it\'s as "large" as yours 🙂'


@pytest.mark.parametrize("written", [_lines, json_lines])
def test_both_layouts_of_amazon_qa(write_dump, written):
    """AmazonQA is read as Python literals and as JSON, where an emoji is a surrogate pair."""
    several = [("one two three four", ["a b c d", "too short", "e f g h"]), ("short", ["a b c d"]),
               ("five six seven eight", []), ("nine ten eleven twelve", ["i j k l"])]  # fmt: skip
    questions = [
        {"questionText": question, "answers": [{"answerText": text} for text in answers]}
        for question, answers in several
    ]
    one = {"questionType": "?", "asin": "B0", "unixTime": None, "question": FOUR, "answer": FIVE}
    objects = [one, {"asin": "B1", "is_answerable": True, "questions": questions}]
    conversations, file = _read(write_dump("qa.json.gz", written(objects)))
    assert conversations[0] == Conversation("B0", "amazon_qa", (Turn(FOUR), Turn(FIVE)))
    assert _pairs(conversations[1:]) == [
        ("B1", "one two three four", "a b c d"),
        ("B1", "one two three four", "e f g h"),
        ("B1", "nine ten eleven twelve", "i j k l"),
    ]
    assert file.skipped == {"answer_too_short": 1, "question_too_short": 1}


def test_tables_of_amazon_qa(write_dump):
    rows = [
        "questionText,questionType,answerText",
        'one two three four,open,"a b, c d"',
        "one two three four,open,e f g h",
        "short,open,a b c d",
        "five six seven eight,open",
    ]
    conversations, file = _read(write_dump("qa.csv.gz", "\n".join([*rows, ""]).encode()))
    assert [pair[1:] for pair in _pairs(conversations)] == [
        ("one two three four", "a b, c d"),
        ("one two three four", "e f g h"),
    ]
    assert conversations[0].id == conversations[1].id
    assert file.skipped == {"question_too_short": 1, "missing_answertext": 1}
    table = b"asin\tquestionText\tanswerText\nB7\ta b c d\te f g h\n"
    conversations, _ = _read(write_dump("qa.tsv", table))
    assert _pairs(conversations) == [("B7", "a b c d", "e f g h")]
    with pytest.raises(ValueError, match="'questionText' and 'answerText'"):
        _read(write_dump("other.csv", b"a,b\nc,d\n"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[]", "not_a_dictionary"),
        ('{"data": [["a b c d", "e f g h"]]}', "not_a_dictionary"),
        ('{"asin": ["B7"], "questionText": "a b c d", "answerText": "e f g h"}', "wrong_type_asin"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_json_that_is_called_a_table_of_amazon_qa(write_dump, content, reason, suffix):
    conversations, file = _read(write_dump(f"qa.{suffix}", content.encode()))
    assert not conversations
    assert file.skipped == {reason: 1}


def test_products_of_tables_may_be_numbers(write_dump):
    row = '{"asin": 140053, "questionText": "a b c d", "answerText": "e f g h"}'
    conversations, _ = _read(write_dump("qa.csv", row.encode()))
    assert _pairs(conversations) == [("140053", "a b c d", "e f g h")]


@pytest.mark.parametrize(
    ("text", "is_used"),
    [
        ("a b c", False),
        ("a b c d", True),
        (" ".join("x" * 59), True),
        (" ".join("x" * 60), False),
        ("a  b c", True),  # two spaces: an empty word
        ("a b\tc\nd e", False),  # only spaces separate words
        ("a b c ", True),
        ("    ", False),
        ("x" * 1000 + " b c d", True),  # characters are not limited
    ],
)
@pytest.mark.parametrize("role", ["question", "answer"])
def test_numbers_of_words(write_dump, text, is_used, role):
    line = {"asin": "B1", "question": FOUR, "answer": FIVE} | {role: text}
    conversations, file = _read(write_dump("qa.json", _lines([line])))
    assert bool(conversations) == is_used
    if is_used:
        assert text in [turn.text for turn in conversations[0].turns]  # unchanged
    else:
        length = "long" if "x" in text else "short"
        assert file.skipped == {f"{role}_too_{length}": 1}
        assert not file.bad_lines.count


@pytest.mark.parametrize(
    ("line", "pair"),
    [
        (rb"{'asin': 'B1', 'question': 'a b c \ud83d\ude42', 'answer': 'a b c \ud83d'}",
         ("B1", "a b c 🙂", "a b c \ufffd")),
        (b"{'asin': 'B\\ud800', 'question': 'a b c d', 'answer': 'caf\\xe9 b c d'}",
         ("B\ufffd", "a b c d", "café b c d")),
        (b"{'asin': 'B1', 'question': 'a b c d', 'answer': 'e f g h', 'questions': [{}]}",
         ("B1", "a b c d", "e f g h")),
        (b'{"asin": 1400532655, "question": "a b c d", "answer": "e f g h"}',
         ("1400532655", "a b c d", "e f g h")),
    ],
    ids=["emoji", "surrogates", "a question before questions", "a number"],
)  # fmt: skip
def test_what_lines_hold(write_dump, line, pair):
    conversations, file = _read(write_dump("qa.json", line))
    assert _pairs(conversations) == [pair]
    assert not file.skipped


def test_nothing_is_run(write_dump, tmp_path):
    trace = tmp_path / "trace"
    line = f"{{'asin': open({str(trace)!r}, 'w').name, 'question': 'a b c d'}}"
    conversations, file = _read(write_dump("qa.json", line.encode()))
    assert not conversations and not trace.exists()
    assert file.skipped == {"not_a_dictionary": 1}
