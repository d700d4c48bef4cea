"""The quality rules: what each one changes or drops, and how that is counted."""

import dataclasses
import json
from collections import Counter

import pytest
from support.dump_files import comment
from support.record_files import read_examples

from convert_tf.corpora.comments import PRESETS, Comment, Rules, clean_text, parse_comment
from convert_tf.corpora.dumps import Conversation, Turn, UnusableError
from convert_tf.corpora.local import prepare
from convert_tf.corpora.options import PrepareOptions
from convert_tf.corpora.threads import (
    ThreadCounts,
    comments_of,
    create_examples,
    is_bot,
    pair_key,
)
from convert_tf.data.shards import list_shards

CLEAN = Rules(**PRESETS["clean"])


def test_defaults_are_polyai_s_rules():
    assert {name: value for name, value in dataclasses.asdict(Rules()).items() if value} == {
        **dict.fromkeys(("min_context_length", "min_response_length"), 9),
        **dict.fromkeys(("max_context_length", "max_response_length", "max_extra_length"), 127),
        "long": "drop",
        "max_path_length": 11,
        "deduplicate": "no",
    }
    assert PRESETS["polyai"] == {}


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        ("unescape_html", "a &gt; b &amp;amp; c", "a > b &amp; c"),
        ("unescape_html", "AT&T; &nosuch; &", "AT&T; &nosuch; &"),
        ("strip_quotes", "> what you said\nmy answer", "my answer"),
        ("strip_quotes", "&gt;what you said\n\nmy answer\n  > more\n", "my answer"),
        ("strip_quotes", "a > b\n>! a spoiler\n>:(", "a > b\n>! a spoiler\n>:("),
        ("strip_quotes", "> only a quote", ""),
        ("strip_urls", "see http://a.b/c?d=e#f now", "see now"),
        ("strip_urls", "see [the docs](https://a.b/c_(d)) now", "see the docs now"),
        ("strip_urls", "WWW.Example.com is down", "is down"),
        ("strip_urls", "<https://a.b>, ftp://c.d/e", ","),
        (
            "strip_urls",
            "a [note](no link) and  spaces",
            "a [note](no link) and  spaces",
        ),
        ("strip_urls", "http is a protocol", "http is a protocol"),
        ("strip_urls", "see (https://a.b/Foo_(bar)).", "see ()."),
        ("strip_urls", "look at https://a.b/c, then go", "look at , then go"),
        ("strip_urls", "[this](http://a.b 'title') is nice", "this is nice"),
        ("strip_urls", "[a [nested] one](http://a.b) here", "a [nested] one here"),
    ],
)
def test_cleaning(rule, text, expected):
    changed = Counter()
    assert clean_text(text, Rules(**{rule: True}), changed=changed) == expected
    assert changed[rule] == (text != expected)
    assert clean_text(text, Rules(), changed=Counter()) == text


def test_entities_become_characters_before_quotes_and_urls_are_looked_for():
    text = "&gt; http://quoted.example\nread http://a.b/?c&amp;d please"
    assert clean_text(text, CLEAN, changed=Counter()) == "read please"


def _turn(turn_id, parent_id, body, **fields):
    turn = Comment(turn_id, "5h6yvl", parent_id, body, False, f"author {turn_id}", "tests")
    return turn._replace(**fields)


@pytest.mark.parametrize(
    ("author", "body", "expected"),
    [
        ("AutoModerator", "please read the rules", True),
        ("RemindMeBot", "in two days", True),
        ("xkcd_bot", "comic 1", True),
        ("some-Bot2", "text", True),
        ("autotldr", "text", True),
        ("sneakpeekbot", "text", True),
        ("AutoWikiBot", "text", True),
        ("abbot", "text", False),
        ("turbot", "text", False),
        ("x", "Do you really think I'm a bot?", False),
        ("Talbot", "text", False),
        ("robotics_fan", "I like bots", False),
        ("", "Beep boop, I'm a bot", True),
        ("x", "This action was performed automatically.", True),
        ("x", "*I am a bot, and this action", True),
        ("x", "I am a bottle collector", False),
        ("x", "you are a bot", False),
    ],
)
def test_bots(author, body, expected):
    assert is_bot(_turn("a", None, body, author=author)) == expected


def _dropped(turns, **rules):
    counts = ThreadCounts()
    examples = list(create_examples(turns, Rules(**rules), counts=counts))
    return len(examples), dict(counts.dropped)


CONTEXT = _turn("a", "", "what is the answer?")


@pytest.mark.parametrize(
    ("response", "rules", "reason"),
    [
        ({"author": "helper_bot"}, {"drop_bots": True}, "response_by_bot"),
        ({"author": "author a"}, {"drop_self_replies": True}, "self_reply"),
        ({"body": "What is: THE answer"}, {"drop_repeats": True}, "response_repeats_context"),
        ({"score": -1}, {"min_score": 0}, "response_low_score"),
        ({"body": "x" * 40}, {"max_response_length": 39}, "response_too_long"),
        ({"body": "x" * 10}, {"min_response_length": 11}, "response_too_short"),
        ({}, {"max_context_length": 18}, "context_too_long"),
        ({}, {"min_context_length": 20}, "context_too_short"),
    ],
)
def test_each_rule_drops_and_counts(response, rules, reason):
    turns = [CONTEXT, _turn("b", "a", "an answer to it")._replace(**response)]
    assert _dropped(turns, **rules) == (0, {reason: 1})
    assert _dropped(turns) == (1, {})


@pytest.mark.parametrize(
    ("response", "rules"),
    [
        ({"author": ""}, {"drop_self_replies": True}),
        ({"author": "[deleted]"}, {"drop_self_replies": True}),
        ({"score": None}, {"min_score": 5}),
        ({"score": 5}, {"min_score": 5}),
        ({"body": "what is the answer now?"}, {"drop_repeats": True}),
        ({"body": "?!?!?!?!?!"}, {"drop_repeats": True}),
    ],
)
def test_what_the_rules_let_pass(response, rules):
    context = CONTEXT._replace(author=response.get("author", "author a"))
    turns = [context, _turn("b", "a", "an answer to it")._replace(**response)]
    assert _dropped(turns, **rules) == (1, {})


def test_a_bot_is_no_context_but_stays_in_the_history():
    turns = [CONTEXT, _turn("b", "a", "I am a bot, beep boop"), _turn("c", "b", "go away, bot")]
    turns.append(_turn("d", "c", "that was not kind"))
    counts = ThreadCounts()
    (example,) = create_examples(turns, Rules(drop_bots=True), counts=counts)
    assert (example.response_id, example.extra_contexts) == (
        "d",
        ("I am a bot, beep boop", "what is the answer?"),
    )
    assert counts.dropped == {"response_by_bot": 1, "context_by_bot": 1}


@pytest.mark.parametrize(
    ("rules", "is_read"),
    [
        ({}, True),
        ({"subreddits": ("TESTS", "more")}, True),
        ({"subreddits": ("/r/Tests",)}, True),
        ({"subreddits": ("more",)}, False),
        ({"exclude_subreddits": ("Tests",)}, False),
        ({"exclude_subreddits": ("more",)}, True),
    ],
)
def test_subreddits(rules, is_read):
    with pytest.raises(ValueError, match="tests: both subreddits and exclude_subreddits"):
        Rules(subreddits=("Tests",), exclude_subreddits=("r/tests",))
    fields = comment("a", "t3_5h6yvl", "one of them", subreddit="Tests")
    if is_read:
        assert parse_comment(fields, Rules(**rules), changed=Counter()).subreddit == "Tests"
        return
    with pytest.raises(UnusableError, match="other_subreddit") as caught:
        parse_comment(fields, Rules(**rules), changed=Counter())
    assert not caught.value.is_bad


def test_scores_come_from_the_dump():
    line = comment("a", "t3_5h6yvl", "a body of text", score=-3)
    assert parse_comment(line, Rules(), changed=Counter()).score == -3
    assert parse_comment({**line, "score": None}, Rules(), changed=Counter()).score is None
    assert parse_comment({**line, "score": "-3"}, Rules(), changed=Counter()).score == -3
    assert parse_comment({**line, "score": "many"}, Rules(), changed=Counter()).score is None


def test_pair_keys():
    turns = [CONTEXT, _turn("b", "a", "An  answer to it")]
    (one,) = create_examples(turns, Rules(), counts=ThreadCounts())
    other = one._replace(response="an answer to IT ", thread_id="x", response_id="y")
    exact, folded = Rules(deduplicate="exact"), Rules(deduplicate="folded")
    assert pair_key(one, folded) == pair_key(other, folded)
    assert pair_key(one, exact) != pair_key(other, exact)
    assert pair_key(one, exact) == pair_key(one._replace(thread_id="x"), exact)
    shifted = one._replace(context=one.context + "\0", response=one.response)
    assert pair_key(shifted, exact) != pair_key(one, exact)


def test_of_equal_pairs_the_one_of_the_smallest_thread_id_is_kept(write_dump, tmp_path):
    lines = []
    for thread in ("41ar0l", "5h6yvl", "zzz"):  # test, train, train
        link = f"t3_{thread}"
        lines.append(comment(f"{thread}a", link, "the same question", link=link))
        lines.append(comment(f"{thread}b", f"t1_{thread}a", "the same  ANSWER", link=link))
        lines.append(comment(f"{thread}c", f"t1_{thread}a", f"an answer in {thread}", link=link))
    dump = write_dump("RC", lines)
    options = PrepareOptions(rules=Rules(deduplicate="folded"))
    report = prepare([dump], str(tmp_path / "data"), options=options)
    found = [
        (one["thread_id"], one["response"])
        for split in ("train", "test")
        for one in read_examples(list_shards(str(tmp_path / "data"), split))
    ]
    assert sorted(found) == [
        (b"41ar0l", b"an answer in 41ar0l"),
        (b"41ar0l", b"the same  ANSWER"),
        (b"5h6yvl", b"an answer in 5h6yvl"),
        (b"zzz", b"an answer in zzz"),
    ]
    assert report["threads"]["dropped"] == {"duplicate_pair": 2}
    assert report["threads"]["examples"] == 4
    json.dumps(report)


def test_a_conversation_is_a_chain_with_ten_extra_contexts():
    texts = [f"the turn with number {n:02d}" for n in range(14)]
    conversation = Conversation("c", "chats", tuple(Turn(text, "x") for text in texts))
    counts = ThreadCounts()
    comments = comments_of(conversation, Rules(), changed=counts.changed)
    examples = list(
        create_examples(comments, Rules(), counts=counts, source="chats", is_conversation=True)
    )
    assert [one.response for one in examples] == texts[1:]
    assert [one.context for one in examples] == texts[:-1]
    assert examples[12].extra_contexts == tuple(texts[11:1:-1])
    assert examples[3].extra_contexts == tuple(texts[2::-1])
    assert {(one.source, one.thread_id, one.response_author) for one in examples} == {
        ("chats", "c", "x")
    }


def test_limits_of_each_role():
    # 300 characters may be a context, not a response, and are trimmed as an extra context.
    long = "word " * 60
    turns = [_turn("a", "", long), _turn("b", "a", "a short answer"), _turn("c", "b", long)]
    turns.append(_turn("d", "b", "another short one"))
    counts = ThreadCounts()
    rules = Rules(max_context_length=300, max_extra_length=12)
    examples = {one.response_id: one for one in create_examples(turns, rules, counts=counts)}
    assert set(examples) == {"b", "d"}
    assert examples["b"].context == long
    assert examples["d"].extra_contexts == ("word word ",)
    assert counts.dropped == {"response_too_long": 1}
