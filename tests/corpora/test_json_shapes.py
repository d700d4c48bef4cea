"""Pairs and dialogues in the shapes in which people keep them as JSON."""

import json

import pytest
from support.dump_files import json_lines

from convert_tf.corpora import dialogues, pairs
from convert_tf.corpora.dumps import CountedFile


def _texts(path, read=pairs.read):
    """The turns of each conversation, and what was counted."""
    file = CountedFile(path)
    return [[turn.text for turn in one.turns] for one in read(file)], file


Q, A, B = "Is the pool open?", "Until nine.", "From seven on."
SHAPES = {
    "turns in pairs": ({"dialogue": [{"user": Q, "system": A}]}, [[Q, A]]),
    "the same key in upper case": ({"question": Q, "QUESTION": B, "answer": A}, [[Q, A]]),
    "question and answer": ({"id": 7, "question": Q, "answer": A}, [[Q, A]]),
    "names in upper case": ({"Question": Q, "ANSWER": f" {A}\n"}, [[Q, A]]),
    "context and response": ({"context": Q, "response": A}, [[Q, A]]),
    "turns as a context": ({"context": ["Hi", "Hello", Q], "response": A}, [["Hi", "Hello", Q, A]]),
    "records of PolyAI": (
        {"context/1": "Hi", "context/0": "Hello", "context": Q, "response": A},
        [["Hi", "Hello", Q, A]],
    ),
    "positives": ({"query": Q, "pos": [A, B], "neg": ["No"]}, [[Q, A], [Q, B]]),
    "positives with titles": (
        {"query_id": "1", "query": Q, "positive_passages": [{"docid": "9", "text": A}]},
        [[Q, A]],
    ),
    "an anchor": ({"anchor": Q, "positive": A, "negative": "No"}, [[Q, A]]),
    "an instruction with its input": (
        {"instruction": "Translate.", "input": "pool", "output": "piscine"},
        [["Translate.\npool", "piscine"]],
    ),
    "an instruction with history": (
        {"instruction": Q, "output": A, "history": [["Hi", "Hello"]]},
        [["Hi", "Hello", Q, A]],
    ),
    "an instruction of Dolly": (
        {"instruction": Q, "context": "A paragraph.", "response": A, "category": "qa"},
        [[Q, A]],
    ),
    "SQuAD's answers": (
        {"context": "A paragraph.", "question": Q, "answers": {"text": [A], "answer_start": [3]}},
        [[Q, A]],
    ),
    "several questions": ({"questions": [Q, "Pool?"], "answer": A}, [[Q, A], ["Pool?", A]]),
    "messages": (
        {
            "messages": [
                {"role": "system", "content": "You are a porter."},
                {"role": "user", "content": Q},
                {"role": "assistant", "content": A},
                {"role": "user", "content": [{"type": "text", "text": "Thanks"}, {"url": ""}]},
            ]
        },
        [[Q, A, "Thanks"]],
    ),
    "messages with calls of tools": (
        {
            "messages": [
                {"role": "user", "content": Q},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
                {"role": "tool", "content": '{"closes": 9}'},
                {"role": "assistant", "content": A},
            ]
        },
        [[Q, A]],
    ),
    "messages of one role in a row": (
        {"messages": [{"role": "user", "content": "Hi."}, {"role": "user", "content": Q},
                      {"role": "assistant", "content": A}]},
        [[f"Hi.\n{Q}", A]],
    ),
    "a chat as prompt and completion": (
        {"prompt": [{"role": "user", "content": Q}],
         "completion": [{"role": "assistant", "content": A}]},
        [[Q, A]],
    ),
    "preferences": (
        {"prompt": Q, "chosen": [{"role": "user", "content": Q},
                                 {"role": "assistant", "content": A}], "rejected": []},
        [[Q, A]],
    ),
    "conversations": (
        {"conversations": [{"from": "human", "value": Q}, {"from": "gpt", "value": A}]},
        [[Q, A]],
    ),
    "rounds": (
        {"conversation": [{"input": Q, "output": A}, {"input": "And?", "output": B}]},
        [[Q, A, "And?", B]],
    ),
    "a dialogue": ({"dialog": [Q, A, B]}, [[Q, A, B]]),
    "turns": ({"turns": [{"text": Q, "speaker": "x"}, A], "source": "hotel"}, [[Q, A]]),
    "a list of two texts": ([Q, A], [[Q, A]]),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("form", ["lines", "list", "a list over lines", "in an object"])
def test_shapes_are_read_by_their_keys(write_dump, name, form):
    value, expected = SHAPES[name]
    content = {
        "lines": json_lines([value, value]),
        "list": json.dumps([value, value]).encode(),
        "a list over lines": json.dumps([value, value], indent=1).encode(),
        "in an object": json.dumps({"version": 1, "data": [value, value]}, indent=1).encode(),
    }[form]
    read, file = _texts(write_dump("faq.csv", content))  # whatever it is called
    assert read == 2 * expected
    assert not file.skipped


@pytest.mark.parametrize("name", ["messages", "conversations", "a dialogue", "question and answer"])
def test_prepares_other_flag_reads_them_too(write_dump, name):
    value, expected = SHAPES[name]
    assert _texts(write_dump("chats", [value]), dialogues.read)[0] == expected


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
        for read in (pairs.read, dialogues.read):
            with pytest.raises(ValueError, match=r"a\.jsonl, line 1, has no keys") as caught:
                _texts(write_dump("a.jsonl", content), read)
            assert f"Its keys are {keys}." in str(caught.value)


@pytest.mark.parametrize(
    "content", [b'[\n{"question": "a"', b'[{"question": "a", \n 3', b'{"a": [\n{']
)
def test_json_that_is_damaged_as_a_whole(write_dump, content):
    with pytest.raises(ValueError, match=r"Cannot read .*a\.json as JSON.*Repair it"):
        _texts(write_dump("a.json", content))


def test_damaged_lines_are_counted(write_dump):
    content = b'{"question": "cut off\n' + json_lines([{"question": Q, "answer": A}]) + b"\xff\n{"
    read, file = _texts(write_dump("a.jsonl", content))
    assert read == [[Q, A]]
    assert file.skipped == {"not_json": 2, "invalid_utf8": 1}
    assert [place.split(":")[1] for place in file.bad_lines.first] == [
        "1 (not_json)", "3 (invalid_utf8)", "4 (not_json)",
    ]  # fmt: skip


def test_answers_to_one_question_share_a_split_with_those_of_a_table(write_dump):
    paths = [
        write_dump("a.jsonl", [{"question": "is the  POOL open?", "answers": [A, B]}]),
        write_dump("a.csv", f"question,answer\n{Q},{A}\n".encode()),
    ]
    found = [one.id for path in paths for one in pairs.read(CountedFile(path))]
    assert len(found) == 3 and len(set(found)) == 1


def test_tables_with_an_instruction_and_its_input(write_dump):
    table = b"input,instruction,output\npool,Translate.,piscine\n,Hello?,Hi\n"
    assert _texts(write_dump("a.csv", table))[0] == [
        ["Translate.\npool", "piscine"],
        ["Hello?", "Hi"],
    ]


def test_a_chat_without_a_key(write_dump):
    chat = [{"role": "user", "content": Q}, {"role": "assistant", "content": A}]
    for content in (json_lines([chat, chat]), json.dumps(chat, indent=1).encode()):
        read, file = _texts(write_dump("a.jsonl", content))
        assert read == [[Q, A]] * (2 if b"}]\n" in content else 1)
        assert not file.skipped


def test_a_key_that_is_there_twice_is_counted(write_dump):
    content = b'{"question": "Is it?", "answer": "Yes.", "answer": "No."}\n'
    good = json.dumps({"question": Q, "answer": A}).encode()
    read, file = _texts(write_dump("a.jsonl", good + b"\n" + content))
    assert read == [[Q, A]]
    assert file.skipped == {"not_json": 1}
