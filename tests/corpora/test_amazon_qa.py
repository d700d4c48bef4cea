import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convert_tf.corpora.amazon_qa import read
from convert_tf.corpora.dumps import Conversation, CountedFile, Turn


def _read(path, **options):
    file = CountedFile(path, **options)
    return list(read(file)), file


def _lines(*objects):
    """Objects as the corpus holds them: Python's notation."""
    return "".join(f"{one!r}\n" for one in objects).encode("utf-8")


def _pairs(conversations):
    return [(one.id, one.turns[0].text, one.turns[1].text) for one in conversations]


FOUR = "does it fit mine"
FIVE = 'it\'s as "large" as yours'


def test_single_answers(write_dump):
    one = {"questionType": "?", "asin": "B0017", "unixTime": 1, "question": FOUR, "answer": FIVE}
    conversations, file = _read(write_dump("qa_Tools.json", _lines(one, one)))
    expected = Conversation("B0017", "amazon_qa", (Turn(FOUR), Turn(FIVE)))
    # Of equal pairs one is kept by the engine, which sees all files.
    assert conversations == [expected, expected]
    assert file.lines == 2
    assert not file.skipped


def test_several_answers(write_dump):
    line = {
        "asin": "B1",
        "questions": [
            {
                "questionText": "one two three four",
                "answers": [{"answerText": text} for text in ("a b c d", "too short", "e f g h")],
            },
            {"questionText": "short", "answers": [{"answerText": "a b c d"}]},
            {"questionText": "five six seven eight", "answers": []},
            {"questionText": "nine ten eleven twelve", "answers": [{"answerText": "i j k l"}]},
        ],
    }
    conversations, file = _read(write_dump("qa.json.gz", _lines(line)))
    assert _pairs(conversations) == [
        ("B1", "one two three four", "a b c d"),
        ("B1", "one two three four", "e f g h"),
        ("B1", "nine ten eleven twelve", "i j k l"),
    ]
    assert file.skipped == {"answer_too_short": 1, "question_too_short": 1}


@pytest.mark.parametrize(
    ("text", "is_used"),
    [
        ("a b c", False),
        ("a b c d", True),
        (" ".join("x" * 59), True),
        (" ".join("x" * 60), False),
        ("a  b c", True),  # two spaces: an empty word
        ("a b\tc\nd e", False),  # only spaces part words
        ("a b c ", True),
        ("    ", False),
        ("x" * 1000 + " b c d", True),  # no limit in characters
    ],
)
@pytest.mark.parametrize("role", ["question", "answer"])
def test_numbers_of_words(write_dump, text, is_used, role):
    line = {"asin": "B1", "question": FOUR, "answer": FIVE} | {role: text}
    conversations, file = _read(write_dump("qa.json", _lines(line)))
    assert bool(conversations) == is_used
    if is_used:
        assert text in [turn.text for turn in conversations[0].turns]  # as it is
    else:
        length = "long" if "x" in text else "short"
        assert file.skipped == {f"{role}_too_{length}": 1}
        assert not file.bad_lines.count


def test_json_lines(write_dump):
    lines = [
        {"asin": "B1", "answerTime": None, "question": f"{FOUR} 🙂", "answer": FIVE},
        {
            "asin": "B2",
            "is_answerable": True,
            "questions": [{"questionText": FOUR, "answers": [{"answerText": FIVE}]}],
        },
    ]
    conversations, file = _read(write_dump("qa.json", lines))  # emoji as two halves
    assert _pairs(conversations) == [("B1", f"{FOUR} 🙂", FIVE), ("B2", FOUR, FIVE)]
    assert not file.skipped


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


@settings(deadline=None, max_examples=60)
@given(
    questions=st.lists(st.tuples(st.text("ab '\"\\\n😀é", max_size=30), st.text(max_size=30))),
)
def test_texts_come_back_as_they_were_written(tmp_path_factory, questions):
    path = tmp_path_factory.mktemp("qa") / "qa.json"
    objects = [{"asin": "B", "question": q, "answer": a} for q, a in questions]
    path.write_bytes(_lines(*objects))
    kept = [
        pair for pair in questions if all(t.strip() and t.count(" ") in range(3, 59) for t in pair)
    ]
    assert [(q, a) for _, q, a in _pairs(_read(str(path))[0])] == kept
