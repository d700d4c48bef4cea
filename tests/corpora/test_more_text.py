"""`--long=cut`, `--more_pairs`, `--single_texts`: more text of the same dumps."""

import json
import random
from pathlib import Path

import pytest
import zstandard
from support.dump_files import comment
from support.record_files import read_examples

from convert_tf.corpora.comments import POST_ID, TITLE_ID, Comment, Rules
from convert_tf.corpora.data_folder import SINGLE_TEXTS
from convert_tf.corpora.dumps import Conversation, Turn
from convert_tf.corpora.local import prepare
from convert_tf.corpora.options import PrepareOptions
from convert_tf.corpora.threads import (
    ThreadCounts,
    comments_of,
    create_examples,
    split_of,
)
from convert_tf.data.shards import list_shards
from convert_tf.data.utterances import read_utterances

TRAIN, TEST = "5h6yvl", "41ar0l"
SENTENCE = "This is sentence number {} of many."
LONG = " ".join(SENTENCE.format(n) for n in range(100, 110))  # ten of 36 characters, and spaces


def _pairs(examples):
    return [(one.context, one.response) for one in examples]


def _of(turns, rules):
    counts = ThreadCounts()
    conversation = Conversation("5h6yvl", "here", tuple(map(Turn, turns)))
    comments = comments_of(conversation, rules, changed=counts.changed)
    return list(create_examples(comments, rules, counts=counts, is_conversation=True)), counts


def _read(folder, split):
    try:
        shards = list_shards(str(folder), split)
    except ValueError:
        return []
    return [(one["context"].decode(), one["response"].decode()) for one in read_examples(shards)]


def _single_texts(folder):
    data = (Path(folder) / SINGLE_TEXTS).read_bytes()
    text = zstandard.ZstdDecompressor().stream_reader(data).read().decode()
    return [json.loads(line) for line in text.splitlines()]


def test_a_long_context_keeps_its_end_and_a_long_response_its_start():
    examples, counts = _of([LONG, LONG], Rules(long="cut"))
    last, first = (
        " ".join(map(SENTENCE.format, numbers)) for numbers in (range(107, 110), range(100, 103))
    )
    assert _pairs(examples) == [(last, first)]
    assert len(last) <= 127 < len(last) + 37
    assert counts.examples == 1
    assert counts.changed == {"long_context_cut": 1, "long_response_cut": 1}
    examples, counts = _of([LONG, LONG], Rules())
    assert not examples
    assert counts.dropped == {"response_too_long": 1}


def _turn(turn_id, parent_id, body, **fields):
    return Comment(turn_id, TRAIN, parent_id, body, False, f"by {turn_id}", "tests", **fields)


TITLE = _turn(TITLE_ID, None, "the title of it all")
POST = _turn(POST_ID, TITLE_ID, "the text of the post")


def _created(turns, **rules):
    counts = ThreadCounts()
    examples = list(create_examples(turns, Rules(**rules), counts=counts))
    usual = [one for one in examples if not one.is_additional]
    further = [one for one in examples if one.is_additional]
    assert (counts.examples, counts.additional) == (len(usual), len(further))
    return usual, further


def test_the_last_two_turns_are_one_context():
    turns = [
        _turn("a", "lost", "the first turn"),
        _turn("b", "a", "the second"),
        _turn("c", "b", "the third one"),
        _turn("d", "c", "the fourth one"),
    ]
    usual, further = _created(turns, more_pairs=True)
    assert usual == _created(turns)[0]
    assert [(one.context, one.response, one.extra_contexts) for one in further] == [
        ("the first turn the second", "the third one", ()),
        ("the second the third one", "the fourth one", ("the first turn",)),
    ]


@pytest.mark.parametrize("second", ["why?", "[deleted]", "[removed]"])
def test_a_short_turn_is_context_with_the_one_before(second):
    turns = [
        _turn("a", "lost", "the first turn"),
        _turn("b", "a", second),
        _turn("c", "b", "because it is"),
    ]
    usual, further = _created(turns, more_pairs=True)
    assert not usual
    expected = [("the first turn why?", "because it is")] if second == "why?" else []
    assert _pairs(further) == expected


def test_two_turns_that_are_too_long():
    turns = [
        _turn("a", "lost", LONG[:110]),
        _turn("b", "a", "x" * 80),
        _turn("c", "b", "an answer"),
    ]
    assert not _created(turns, more_pairs=True)[1]
    (example,) = _created(turns, more_pairs=True, long="cut")[1]
    assert example.context == f"{SENTENCE.format(102)} {'x' * 80}"
    turns[1] = turns[1]._replace(body="x" * 120)  # no room for a turn before it
    assert not _created(turns, more_pairs=True, long="cut")[1]


def test_a_title_and_its_post():
    turns = [TITLE, POST, _turn("a", TITLE_ID, "a comment on it"), _turn("b", "a", "an answer")]
    usual, further = _created(turns, more_pairs=True)
    assert usual == _created(turns)[0]
    assert [(one.context, one.response, one.extra_contexts) for one in further] == [
        ("the title of it all", "the text of the post", ()),
        ("the title of it all the text of the post", "a comment on it", ()),
        ("the title of it all a comment on it", "an answer", ()),
    ]
    # A post without room for its title is a context by itself, with the title as history.
    long = POST._replace(body=LONG[:127], is_trimmed=True, rest=LONG[127:])
    further = _created([TITLE, long, *turns[2:]], more_pairs=True, long="cut")[1]
    expected = ((LONG[-110:], "a comment on it"), ("the title of it all",))
    assert ((further[1].context, further[1].response), further[1].extra_contexts) == expected
    assert further[0].response == LONG[:110]
    # Without the title the post is still there.
    assert _pairs(_created([POST, *turns[2:3]], more_pairs=True)[1]) == []


def _dump(rng):
    comments, submissions = [], []
    for thread in range(120):
        name = f"thread{thread}"
        submissions.append(
            {
                "id": name,
                "title": f"what about number {thread}?",
                "selftext": f"Post {thread}. {LONG}",
                "author": f"asker {thread}",
            }
        )
        parents = [f"t3_{name}"]
        for _ in range(rng.randrange(1, 9)):
            comment_id = f"c{len(comments)}"
            body = f"remark {len(comments)} on {thread}"
            if rng.random() < 0.2:
                body = f"{LONG} It was remark {comment_id}."
            comments.append(comment(comment_id, rng.choice(parents), body, link=f"t3_{name}"))
            parents.append(f"t1_{comment_id}")
        comments.append(comment(f"o{thread}", "t1_lost", f"an orphan {thread}", link=f"t3_{name}"))
    return comments, submissions


def _prepared(write_dump, folder, comments, submissions, **rules):
    options = PrepareOptions(
        rules=Rules(deduplicate="folded", **rules),
        dev_fraction=0.1,
        num_shards={"train": 2, "dev": 1, "test": 1},
    )
    report = prepare(
        [write_dump(f"{folder.name}/RC", comments)],
        str(folder / "data"),
        submissions=[write_dump(f"{folder.name}/RS", submissions)],
        options=options,
    )
    return report, folder / "data"


ALL = {"long": "cut", "more_pairs": True, "single_texts": True}


def test_dev_and_test_get_no_further_pairs_and_give_no_texts(write_dump, tmp_path):
    comments, submissions = _dump(random.Random(0))
    one, plain = _prepared(write_dump, tmp_path / "one", comments, submissions, long="cut")
    two, more = _prepared(write_dump, tmp_path / "two", comments, submissions, **ALL)
    assert len(_read(more, "train")) > 1.5 * len(_read(plain, "train"))
    for split in ("dev", "test"):
        assert (more / f"{split}-00000-of-00001.tfrecord").read_bytes() == (
            plain / f"{split}-00000-of-00001.tfrecord"
        ).read_bytes()
        assert len(_read(more, split)) > 20
    assert not (plain / SINGLE_TEXTS).exists()
    assert {*_read(plain, "train")} < {*_read(more, "train")}
    additional = two["threads"].pop("additional")
    assert additional == len(_read(more, "train")) - len(_read(plain, "train"))
    assert two["threads"] == one["threads"] | {"changed": two["threads"]["changed"]}
    # Of a thread all is in one split.
    held_out = {n for n in range(120) if split_of(f"thread{n}", dev_fraction=0.1) != "train"}
    texts = [row["text"] for row in _single_texts(more)]
    assert {int(text[10:]) for text in texts if text.startswith("an orphan")} == (
        {*range(120)} - held_out
    )
    assert {int(text[5:-1]) for text in texts if text.startswith("Post ")} <= {
        *range(120)
    } - held_out


def test_a_further_pair_never_replaces_a_usual_one(write_dump, tmp_path):
    # What is two turns in a train thread is one turn in a test thread, whose id is greater.
    comments = [
        comment("a", "t1_lost", "the first turn"),
        comment("b", "t1_a", "the second"),
        comment("c", "t1_b", "the third one"),
        comment("d", "t1_lost", "the first turn the second", link="t3_zz15"),
        comment("e", "t1_d", "the third one", link="t3_zz15"),
    ]
    assert split_of("zz15") == "test"
    report, data = _prepared(write_dump, tmp_path / "one", comments, [], more_pairs=True)
    assert _read(data, "test") == [("the first turn the second", "the third one")]
    assert len(_read(data, "train")) == 2
    assert report["threads"].get("additional", 0) == 0


def test_single_texts_are_what_no_example_holds(write_dump, tmp_path):
    comments = [
        comment("a", f"t3_{TRAIN}", "a comment of the top"),
        comment("b", "t1_a", "an answer to it"),
        comment("c", "t1_b", "[deleted]"),
        comment("d", "t1_c", "an answer to a deleted one"),
        comment("e", "t1_lost", "an orphan"),
        comment("f", "t1_lost", "an orphan"),
        comment("g", "t1_lost", "short"),
        comment("h", "t1_lost", LONG),
        comment("i", "t1_lost", "I am a bot, beep boop", author="helper_bot"),
        comment("j", "t1_lost", "an orphan in the test split", link=f"t3_{TEST}"),
        comment("k", "t1_lost", "[ Removed by Reddit ]"),
    ]
    submissions = [
        {"id": TRAIN, "title": "[deleted by user]", "selftext": "What is left of a post"},
        {"id": "alone1", "title": "A title nobody answered", "selftext": ""},
    ]
    report, data = _prepared(
        write_dump, tmp_path / "one", comments, submissions, single_texts=True, drop_bots=True
    )
    assert split_of("alone1", dev_fraction=0.1) == "train"
    rows = _single_texts(data)
    expected = {
        "an answer to a deleted one",
        "an orphan",
        "What is left of a post",
        "A title nobody answered",
        *(SENTENCE.format(n) for n in range(100, 110)),
    }
    assert len(rows) == len(expected)
    assert {row["text"] for row in rows} == expected
    assert {row["source"] for row in rows} == {"reddit"}
    assert report["single_texts"] == {"reddit": len(expected)}
    assert len(list(read_utterances([str(data / SINGLE_TEXTS)]))) == len(expected)
