"""Pairs and dialogues in common JSON layouts."""

import hashlib
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.dump_files import json_lines

from convert_tf.corpora import pairs
from convert_tf.corpora.dialogues import read
from convert_tf.corpora.dumps import Conversation, CountedFile, Turn
from convert_tf.corpora.options import PrepareOptions
from convert_tf.corpora.rows import Steps, split_and_shard
from convert_tf.data.schema import Example


def _read(path):
    file = CountedFile(path)
    return list(read(file)), file


def _turns(*texts):
    return tuple(Turn(text) for text in texts)


def test_turns_are_texts_or_objects(write_dump):
    turns = [
        {"text": "Hello", "speaker": "guest"},
        {"text": "Hi", "author": "clerk"},
        {"text": "Room 4, please", "speaker": 0, "time": "9:00"},
        {"text": "Here", "speaker": None, "author": 1},
        {"text": "Bye", "speaker": ["guest"]},
    ]
    texts = {"turns": ["Is the pool open?", "Until nine."], "source": "desk", "id": "17"}
    conversations, file = _read(write_dump("hotel.jsonl", [texts, {"turns": turns, "id": 18}]))
    speakers = ("guest", "clerk", "0", "1", "")
    expected = (Turn(one["text"], speaker) for one, speaker in zip(turns, speakers, strict=True))
    assert conversations == [
        Conversation("desk/17", "desk", _turns("Is the pool open?", "Until nine.")),
        Conversation("hotel/18", "hotel", tuple(expected), split_id="18"),
    ]
    assert not file.skipped


def test_ids_are_hashes_that_do_not_depend_on_file_order_or_speakers(write_dump):
    (one,) = _read(write_dump("one.jsonl", [{"turns": ["one", "två"]}]))[0]
    assert one.id == hashlib.md5("one\0två".encode()).hexdigest()
    dialogues = [{"turns": [f"question {n}", f"answer {n}"]} for n in range(20)]
    ids = {one.turns: one.id for one in _read(write_dump("a.jsonl", dialogues))[0]}
    assert len(set(ids.values())) == 20
    random.Random(0).shuffle(dialogues)
    with_speakers = [
        {"turns": [{"text": text, "speaker": "x"} for text in one["turns"]]} for one in dialogues
    ]
    for name, copies in (("sub/b.jsonl.zst", dialogues), ("c.jsonl", with_speakers)):
        for one in _read(write_dump(name, copies))[0]:
            assert one.id == ids[_turns(*(turn.text for turn in one.turns))]


@pytest.mark.parametrize("unusable", ["", "  \n", None, 3, ["x"], {"text": None}, {"speaker": "x"}])
def test_a_turn_without_text_ends_a_conversation(write_dump, unusable):
    # `c` does not answer `b`, nor `f` `d`. The parts keep one id, so they get the same split.
    turns = ["a", "b", unusable, "c", "d", "e", unusable, unusable, "f"]
    path = write_dump("a.jsonl", [{"turns": turns, "id": "7"}])
    conversations, file = _read(path)
    assert conversations == [
        Conversation("a/7", "a", _turns("a", "b"), split_id="7"),
        Conversation("a/7", "a", _turns("c", "d", "e"), split_id="7"),
    ]
    reason = "empty_turn" if isinstance(unusable, str) else "wrong_type_turn"
    assert file.skipped == {reason: 3}


@pytest.mark.parametrize("row_source", ["", "desk"])
def test_a_dialogue_with_an_id_is_in_the_same_split_in_every_file(write_dump, row_source):
    """Different dialogues with the same id are all used, and keep the names of their files."""
    rows = [
        {"turns": [f"the question {n}", f"an answer {n}", "thank you all"], "id": n}
        | ({"source": row_source} if row_source else {})
        for n in range(1, 201)
    ]
    other = [{**row, "turns": [f"another {text}" for text in row["turns"]]} for row in rows]
    steps = Steps(PrepareOptions(dev_fraction=0.1))
    places = {}
    for name, dialogues in (("week1", rows), ("week2", rows), ("bot", other)):
        for row in steps.rows_of_file("dialogues", CountedFile(write_dump(name, dialogues))):
            example = Example(*json.loads(row.payload))
            source, number = example.thread_id.split("/")
            assert source == example.source == (row_source or name)
            places.setdefault(number, []).append((split_and_shard(row.key)[0], example.context))
    assert len(places) == 200
    assert {len(some) for some in places.values()} == {6}  # two examples in each file
    splits = [{split for split, _ in some} for some in places.values()]
    assert {len(some) for some in splits} == {1}
    assert set().union(*splits) == {"train", "dev", "test"}


def test_lone_surrogates_in_names_can_be_written(write_dump):
    line = b'{"turns": ["\\ud800a", "b"], "source": "\\udc00", "id": "\\ud83d\\ude00\\ud83d"}\n'
    conversations, _ = _read(write_dump("a.jsonl", line + b'{"turns": ["\\ud800a", "b"]}'))
    assert conversations[0].id == "\ufffd/😀\ufffd"
    assert conversations[0].source == "\ufffd"
    assert len(conversations[1].id) == 32


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda values: (
        st.lists(values, max_size=4)
        | st.dictionaries(st.sampled_from(["text", "speaker", "author"]), values, max_size=3)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=60)
@given(dialogues=st.lists(st.fixed_dictionaries({"turns": _ANY, "id": _ANY, "source": _ANY})))
def test_any_json_gives_conversations_or_counts(tmp_path_factory, dialogues):
    path = tmp_path_factory.mktemp("dialogues") / "any.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in dialogues))
    conversations, file = _read(str(path))
    for one in conversations:
        assert len(one.turns) > 1 and all(turn.text.strip() for turn in one.turns)
        (one.id + one.source + "".join(turn.author for turn in one.turns)).encode("utf-8")
    used = {one.id for one in conversations}
    assert len(used) <= len(dialogues)
    assert used or file.skipped or not dialogues


def _texts(path):
    """Return the turns of each conversation, and the file with its counts."""
    file = CountedFile(path)
    return [[turn.text for turn in one.turns] for one in pairs.read(file)], file


Q, A, B = "Is the pool open?", "Until nine.", "From seven on."
ASKED, ANSWERED = {"role": "user", "content": Q}, {"role": "assistant", "content": A}
# The same question and answer in many layouts.
PAIRS = [
    {"id": 7, "question": Q, "answer": A},
    {"Question": Q, "ANSWER": f" {A}\n"},
    {"question": Q, "QUESTION": B, "answer": A},
    {"": "3", "context": Q, "response": A},  # R's row numbers
    {"dialogue": [{"user": Q, "system": A}]},
    {"query_id": "1", "query": Q, "positive_passages": [{"docid": "9", "text": A}]},
    {"anchor": Q, "positive": A, "negative": "No"},
    {"instruction": Q, "context": "A paragraph.", "response": A, "category": "qa"},  # Dolly
    {"context": "A paragraph.", "question": Q, "answers": {"text": [A], "answer_start": [3]}},
    {"messages": [ASKED, {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
                  {"role": "tool", "content": '{"closes": 9}'}, ANSWERED]},
    {"prompt": [ASKED], "completion": [ANSWERED]},
    {"prompt": Q, "chosen": [ASKED, ANSWERED], "rejected": []},
    {"conversations": [{"from": "human", "value": Q}, {"from": "gpt", "value": A}]},
    {"turns": [{"text": Q, "speaker": "x"}, A], "source": "hotel"},
    [Q, A],
]  # fmt: skip
THANKS = [{"type": "text", "text": "Thanks"}, {"url": ""}]
OTHERS = [
    ({"context": ["Hi", "Hello", Q], "response": A}, [["Hi", "Hello", Q, A]]),
    ({"context/1": "Hi", "context/0": "Hello", "context": Q, "response": A},  # PolyAI's records
     [["Hi", "Hello", Q, A]]),
    ({"query": Q, "pos": [A, B], "neg": ["No"]}, [[Q, A], [Q, B]]),
    ({"instruction": "Translate.", "input": "pool", "output": "piscine"},
     [["Translate.\npool", "piscine"]]),
    ({"instruction": Q, "output": A, "history": [["Hi", "Hello"]]}, [["Hi", "Hello", Q, A]]),
    ({"questions": [Q, "Pool?"], "answer": A}, [[Q, A], ["Pool?", A]]),
    ({"messages": [{"role": "system", "content": "You are a porter."}, ASKED, ANSWERED,
                   {"role": "user", "content": THANKS}]}, [[Q, A, "Thanks"]]),
    ({"messages": [{"role": "user", "content": "Hi."}, ASKED, ANSWERED]}, [[f"Hi.\n{Q}", A]]),
    ({"conversation": [{"input": Q, "output": A}, {"input": "And?", "output": B}]},
     [[Q, A, "And?", B]]),
    ({"dialog": [Q, A, B]}, [[Q, A, B]]),
]  # fmt: skip
SHAPES = [*((pair, [[Q, A]]) for pair in PAIRS), *OTHERS]


@pytest.mark.parametrize(("value", "expected"), SHAPES)
@pytest.mark.parametrize("form", ["lines", "list", "a list over lines", "in an object"])
def test_shapes_are_read_by_their_keys(write_dump, value, expected, form):
    content = {
        "lines": json_lines([value, value]),
        "list": json.dumps([value, value]).encode(),
        "a list over lines": json.dumps([value, value], indent=1).encode(),
        "in an object": json.dumps({"version": 1, "data": [value, value]}, indent=1).encode(),
    }[form]
    read, file = _texts(write_dump("faq.csv", content))  # the name does not matter
    assert read == 2 * expected
    assert not file.skipped


@pytest.mark.parametrize(
    ("value", "first_answer"),
    [
        ({"context/1": "Hi", "context/0": "Hello", "context": Q, "response": A}, 3),
        ({"history": ["Hi", "Hello"], "context": Q, "response": A}, 3),
        ({"history": [], "context": Q, "response": A}, 1),
        ({"instruction": Q, "output": A, "history": [["Hi", "Hello"]]}, 1),
        ({"question": Q, "answer": A, "history": [{"question": "Hi", "answer": "Hello"}]}, 1),
        ({"context": ["Hi", "Hello", Q], "response": A}, 1),
    ],
)
def test_answers_in_a_history_count_if_questions_come_with_them(write_dump, value, first_answer):
    (dialogue,) = read(CountedFile(write_dump("faq.jsonl", json_lines([value]))))
    assert (dialogue.first_answer, dialogue.turns[-1].text) == (first_answer, A)


@pytest.mark.parametrize(
    ("value", "keys"),
    [
        ({"text": "hi", "label": "greet"}, "'text', 'label'"),
        ({"context": ["a"], "candidates": ["b"], "label": 0}, "'context', 'candidates', 'label'"),
        ({}, "none"),
    ],
)
def test_other_shapes_are_refused_with_their_keys(write_dump, value, keys):
    for content in (json_lines([value] * 2), json.dumps([value], indent=1).encode()):
        message = rf"a\.jsonl, (line|entry) 1, is neither .* \(its keys: {keys}\)\."
        with pytest.raises(ValueError, match=message):
            _texts(write_dump("a.jsonl", content))


@pytest.mark.parametrize(
    "content", [b'[\n{"question": "a"', b'[{"question": "a", \n 3', b'{"a": [\n{']
)
def test_json_that_is_damaged_as_a_whole(write_dump, content):
    with pytest.raises(ValueError, match=r"a\.json is not valid JSON.*Repair it"):
        _texts(write_dump("a.json", content))


def test_damaged_lines_are_counted(write_dump):
    content = b'{"question": "cut off\n' + json_lines([{"question": Q, "answer": A}]) + b"\xff\n"
    content += b'{"question": "Is it?", "answer": "Yes.", "answer": "No."}'  # a duplicate key
    read, file = _texts(write_dump("a.jsonl", content))
    assert read == [[Q, A]]
    assert file.skipped == {"not_json": 2, "invalid_utf8": 1}
    assert [place.split(":")[1] for place in file.bad_lines.first] == [
        "1 (not_json)", "3 (invalid_utf8)", "4 (not_json)",
    ]  # fmt: skip


def test_a_chat_without_a_key(write_dump):
    chat = [{"role": "user", "content": Q}, {"role": "assistant", "content": A}]
    for content in (json_lines([chat, chat]), json.dumps(chat, indent=1).encode()):
        read, file = _texts(write_dump("a.jsonl", content))
        assert read == [[Q, A]] * (2 if b"}]\n" in content else 1)
        assert not file.skipped


@pytest.mark.parametrize(
    ("history", "said", "counts"),
    [
        ([["Pool?", ""], ["Garage?", B]], ["Garage?", B, Q, A], {"empty_turn": 1}),
        ([["Garage?", B], ["Pool?", " "]], [Q, A], {"empty_turn": 1}),
        ([["Pool?", None], ["Garage?", B]], ["Garage?", B, Q, A], {"empty_turn": 1}),
        ([[None, "Hi!"], ["Garage?", B]], ["Hi!", "Garage?", B, Q, A], {"empty_turn": 1}),
        ([float("nan")], [Q, A], {"empty_turn": 1}),
        (
            [{"role": "user", "content": [{"type": "image"}]}, {"role": "bot", "content": B}],
            [B, Q, A],
            {"empty_turn": 1},
        ),
        (["Pool?", "", "Garage?"], ["Garage?", Q, A], {"empty_turn": 1}),
        ([["Pool?", A], ["Garage?", B]], ["Pool?", A, "Garage?", B, Q, A], {}),
    ],
)
def test_a_question_in_a_history_is_no_answer_to_a_question(write_dump, history, said, counts):
    value = {"instruction": Q, "output": A, "history": history}
    file = CountedFile(write_dump("faq.jsonl", json_lines([value])))
    (dialogue,) = read(file)
    assert [turn.text for turn in dialogue.turns] == said
    assert file.skipped == counts
    assert file.num_bad == 0


def test_ids_that_pandas_wrote_are_the_same_ids(write_dump):
    values = [{"turns": [Q, A], "id": one} for one in (7, 7.0, "7", float("nan"), None)]
    file = CountedFile(write_dump("chats.jsonl", json_lines(values)))
    ids = [dialogue.id for dialogue in read(file)]
    assert ids[:3] == ["chats/7"] * 3
    assert ids[3] == ids[4] != ids[0]
    assert not file.skipped
