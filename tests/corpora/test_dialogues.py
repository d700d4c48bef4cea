import hashlib
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convert_tf.corpora.dialogues import read
from convert_tf.corpora.dumps import Conversation, CountedFile, Turn


def _read(path, **options):
    file = CountedFile(path, **options)
    return list(read(file)), file


def _turns(*texts):
    return tuple(Turn(text) for text in texts)


def test_turns_are_texts_or_objects(write_dump):
    path = write_dump(
        "hotel.jsonl",
        [
            {"turns": ["Is the pool open?", "Until nine."], "source": "desk", "id": "17"},
            {
                "turns": [
                    {"text": "Hello", "speaker": "guest"},
                    {"text": "Hi", "author": "clerk"},
                    {"text": "Room 4, please", "speaker": 0, "time": "9:00"},
                    {"text": "Here", "speaker": None, "author": 1},
                    {"text": "Bye", "speaker": ["guest"]},
                ],
                "id": 18,
            },
        ],
    )
    conversations, file = _read(path)
    assert conversations == [
        Conversation("desk/17", "desk", _turns("Is the pool open?", "Until nine.")),
        Conversation(
            "hotel/18",
            "hotel",
            (
                Turn("Hello", "guest"),
                Turn("Hi", "clerk"),
                Turn("Room 4, please", "0"),
                Turn("Here", "1"),
                Turn("Bye"),
            ),
        ),
    ]
    assert file.lines == 2
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
    # `c` did not answer `b`, and `f` not `d`; one id, so that they share their split.
    turns = ["a", "b", unusable, "c", "d", "e", unusable, unusable, "f"]
    path = write_dump("a.jsonl", [{"turns": turns, "id": "7"}])
    conversations, file = _read(path)
    assert conversations == [
        Conversation("a/7", "a", _turns("a", "b")),
        Conversation("a/7", "a", _turns("c", "d", "e")),
    ]
    reason = "empty_turn" if isinstance(unusable, str) else "wrong_type_turn"
    assert file.skipped == {reason: 3}


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
