import dataclasses
import signal
from collections import Counter

import pytest
from support.dump_files import comment

from convert_tf.corpora.comments import (
    POST_ID,
    PRESETS,
    TITLE_ID,
    Rules,
    clean_text,
    is_removal_notice,
    parse_comment,
    parse_submission,
    trim,
)
from convert_tf.readers.files import UnusableError

RULES = Rules(unescape_html=True)


def _parsed(fields, rules=RULES):
    return parse_comment(fields, rules, changed=Counter())


def test_comment_is_normalised():
    fields = comment("c14", "t1_c13", "some body text", link="t3_17866", score=3)
    expected = ("c14", "17866", "c13", "some body text", False, "author of c14", "tests", 3, "")
    assert _parsed(fields) == expected
    for number in (123, 123.0):  # ids are written in base 36
        assert _parsed(fields | {"id": number, "link_id": number})[:2] == ("3f", "3f")


@pytest.mark.parametrize(
    ("fields", "parent"),
    [
        ({"parent_id": "t3_abc"}, TITLE_ID),
        ({"parent_id": "t1_c0"}, "c0"),
        ({"parent_id": "c0", "link_id": "abc"}, "c0"),
        ({"parent_id": "abc", "link_id": "abc"}, TITLE_ID),
        # A comment may have the same id as its thread; neither of them is its own parent.
        ({"parent_id": "t3_abc", "id": "abc"}, TITLE_ID),
        ({"parent_id": "t1_abc"}, "abc"),
        # A parent in another thread is never found, so the comment is an orphan.
        ({"parent_id": "t3_other"}, "t3_other"),
        # Values of older dumps.
        *(({"parent_id": nothing}, TITLE_ID) for nothing in (None, float("nan"))),
        ({"parent_id": 33592320}, "k0000"),  # 20 · 36⁴
        ({"parent_id": 33592321.0}, "k0001"),
        ({"parent_id": 0}, "0"),
        # The number of a comment that is also the id of another thread.
        ({"parent_id": 13368, "link_id": "t3_5h6yvl"}, "abc"),
    ],
)
def test_parent(fields, parent):
    assert _parsed(comment("c1", "", "text", link="t3_abc") | fields).parent_id == parent


def test_submission_is_the_title():
    fields = {"id": "abc", "title": "A &amp; B", "selftext": "…", "author": "x", "subreddit": "s"}
    title = (TITLE_ID, "abc", None, "A & B", False, "x", "s", None, "")
    assert parse_submission(fields, RULES, changed=Counter()) == [title]
    with_post = Rules(unescape_html=True, more_pairs=True)
    post = (POST_ID, "abc", TITLE_ID, "…", False, "x", "s", 7, "")
    assert parse_submission(fields | {"score": 7}, with_post, changed=Counter()) == [title, post]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        *((name, None, "missing") for name in ("id", "link_id", "body")),
        ("body", 17, "wrong_type"),
        ("id", True, "wrong_type"),
        ("link_id", -1, "wrong_type"),
        *((name, ["x"], "wrong_type") for name in ("id", "link_id", "parent_id", "body")),
        *(("parent_id", n, "wrong_type") for n in (True, -1, 7.5, 2**64, float("inf"))),
        *((name, ..., "missing") for name in ("id", "link_id", "parent_id", "body")),
    ],
)
def test_missing_and_wrong_fields(name, value, reason):
    fields = comment("c1", "t3_5h6yvl", "text") | {name: value}
    if value is ...:
        del fields[name]
    with pytest.raises(UnusableError) as caught:
        _parsed(fields)
    assert caught.value.reason == f"{reason}_{name}"


@pytest.mark.parametrize("value", ["", "a b", "a\tb", "t3_", "é", "x" * 65])
@pytest.mark.parametrize("name", ["id", "link_id", "parent_id"])
def test_malformed_ids(name, value):
    fields = comment("c1", "t1_c0", "text")
    fields[name] = value
    if (name, value) == ("parent_id", "t3_"):
        assert _parsed(fields).parent_id == "t3_"  # an id that never occurs
        return
    with pytest.raises(UnusableError, match=f"malformed_{name}"):
        _parsed(fields)


def test_unknown_author_and_subreddit_are_empty():
    fields = comment("c1", "t3_5h6yvl", "text", author=None)
    del fields["subreddit"]
    parsed = _parsed(fields)
    assert (parsed.author, parsed.subreddit) == ("", "")
    for author, reason in (("x" * 201, "too_long"), (5, "wrong_type")):
        with pytest.raises(UnusableError, match=f"{reason}_author"):
            _parsed({**fields, "author": author})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a &gt; b &amp;&amp; c &#39;d&#x27;", "a > b && c 'd'"),
        ("AT&T &copy=2 &amp;copy=2", "AT&T &copy=2 &copy=2"),
        ("&amp;#x200B; twice", "twice"),
        ("&#xD800; &#0; &unknown;", "\ufffd \ufffd &unknown;"),
        ("lone \ud83d surrogate", "lone \ufffd surrogate"),
    ],
)
def test_text_is_cleaned(body, expected):
    parsed = _parsed(comment("c1", "t3_5h6yvl", body))
    assert parsed.body == expected
    parsed.body.encode("utf-8")


# The notices in docs/data.md, as quoted by public programs that read Reddit dumps and pages.
NOTICES = [
    "[deleted]", r"\[removed\]", "[deleted by user]", "[ Removed by Reddit ]", "[redacted]",
    "[Comment removed by user]", "&#x200B;\n\n[removed]", "&#91; Removed by Reddit &#93;",
    "[removed: rule 3]", "[removed in protest]", "Comment removed by moderator", "<removed>",
    "[ Censored by Reddit ]", "[removed too many subs]", "[Post title removed]",
    "[This user has deleted this comment]", "[Removed by Reddit].", "Moderator removed post",
    "[removed by a moderator . ]", "Hello! Thanks! Sorry, this post has been removed.",
    "Comment removed as per rule 4. Thanks", "Removed. Rule 3.",
    "Removed by Reddit's spam filters.",
    "[ Removed by Reddit on account of violating the [content policy](/help/contentpolicy). ]",
    "We have removed your post because it is about eggs.",
    "Thank you for your submission! Unfortunately, it has been removed for being too short.",
    "This content was deleted by its author in protest of new prices.",
    "Comment removed (using Power Delete Suite) as I no longer like eggs",
    "Sorry, this post has been removed by the moderators of r/cooking.",
    "Your submission has been removed for the following reason:\n\n* Rule 3: no eggs.",
    "Hi u/cook, unfortunately your post was removed because it breaks rule 2.",
    "This comment has been overwritten by an open source script to protect this user's privacy.",
    "worm office frighten\n\n*This post was mass deleted and anonymized with [Redact](x://y)*",
]  # fmt: skip
# Comments that people write about removals.
ABOUT_REMOVALS = [
    "removed", "Why was my comment removed?", "Your comment was removed? Mine, too.",
    "This comment was deleted, wasn't it?", "[removed from sale] but I have one left",
    "I saw the [deleted] comment before it was [removed] by a moderator.", "[Deleted scenes]",
    "The post was removed and nobody knows why.", "Thanks, I removed it.",
    "Removed my eggs from the heat, and they were perfect.", "He deleted the eggs by accident.",
    "(deleted scenes are on the disc)", "[redacted] is what the letter said in every line",
]  # fmt: skip


@pytest.mark.parametrize("preset", [Rules(), Rules(**PRESETS["clean"])])
@pytest.mark.parametrize("text", NOTICES)
def test_notices_of_removal_are_deleted_bodies_and_titles(text, preset):
    body = _parsed(comment("c1", "t1_c0", text), preset).body
    assert body in ("[deleted]", "[removed]")
    submission = {"id": "a", "title": text, "selftext": text}
    rules = dataclasses.replace(preset, more_pairs=True)
    (title,) = parse_submission(submission, rules, changed=Counter())
    assert title.body == body


@pytest.mark.parametrize("text", ABOUT_REMOVALS)
def test_what_is_said_about_removals_stays(text):
    assert not is_removal_notice(text)
    assert _parsed(comment("c1", "t1_c0", text), Rules()).body == text


def test_answers_elsewhere_may_be_about_removals():
    answer = "Your post was removed because it broke a rule."
    assert is_removal_notice(answer)
    assert not is_removal_notice(answer, is_reddit=False)
    assert is_removal_notice("[ Removed by Reddit ]", is_reddit=False)


@pytest.mark.parametrize(
    "text",
    [
        "Thank you " * 13 + "! (edited)",
        "hey " * 3_000 + "deleted scene",
        ("hi" + " " * 3_000) * 3 + "deleted",
        "[removed by" + " " * 5_000 + "x",
    ],
)
def test_matching_notices_takes_little_time(text):
    def too_slow(*_):
        raise AssertionError("more than 20 seconds of processor time")

    before = signal.signal(signal.SIGVTALRM, too_slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, 20)  # the patterns need less than a second
    try:
        assert not is_removal_notice(text)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def test_length_is_measured_in_characters_after_unescaping():
    body = "&gt;" * 127
    bodies = {body: False, body + "x": True, "😀" * 127: False, "word " * 200_000: True}
    for text, is_trimmed in bodies.items():
        parsed = _parsed(comment("c", "t1_b", text))
        assert parsed.is_trimmed == is_trimmed
        assert len(parsed.body) <= 127
    assert _parsed(comment("c", "t1_b", "a &gt; b"), Rules()).body == "a &gt; b"  # not requested


@pytest.mark.parametrize(
    ("text", "max_length", "expected"),
    [
        ("one two three", 13, "one two three"), ("one two three", 12, "one two "),
        ("one two three", 8, "one two "), ("one two three", 7, "one two"),
        ("one two three", 6, "one "), ("one, two", 4, "one"), ("a" * 20, 5, "aaaaa"),
        ("!" * 20, 5, "!!!!!"), ("", 5, ""),
    ],
)  # fmt: skip
def test_trim(text, max_length, expected):
    assert trim(text, max_length) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_response_length": 128}, "at most max_response_length, 127"),
        ({"max_response_length": 5}, "at most max_response_length, 5"),
    ],
)
def test_impossible_rules(options, message):
    with pytest.raises(ValueError, match=message):
        Rules(**options)


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
        ("unescape_html", "a &gt; b &amp;amp; c", "a > b & c"),
        (
            "unescape_html",
            "Tom &amp;amp; Jerry is a &amp;lt;show&amp;gt;",
            "Tom & Jerry is a <show>",
        ),
        ("unescape_html", "One\n\n&amp;#x200B;\n\ntwo", "One\n\ntwo"),
        ("unescape_html", "One\n\n&#x200B;\n\n&nbsp;\n\ntwo", "One\n\ntwo"),
        ("unescape_html", "&amp;nbsp;\n\nbegins here\ufeff", "begins here"),
        ("strip_urls", "so true ![gif](giphy|3o7abc123XYZ)", "so true"),
        ("strip_urls", "up ![img](emote|t5_2th52|4271)![img](emote|t5_2th52|4271)", "up"),
        ("strip_urls", "![img](emote|free_emotes_pack|heart_eyes) hi", "hi"),
        ("strip_urls", 'mine ![img](abc123def456 "my caption") is', "mine is"),
        ("strip_urls", "!\\[gif\\](giphy\\|abc) lol", "lol"),
        ("strip_urls", "!\\[img\\]\\(emote\\|t5\\_2th52\\|4271\\) lol", "lol"),
        ("strip_urls", "![img](ab(c)d) hi", "hi"),
        ("strip_urls", "this\\_is\\_it ![gif](unclosed", "this\\_is\\_it ![gif](unclosed"),
        ("strip_urls", "Look at *Processing img abc123def456...*", "Look at"),
        ("strip_urls", "Which?\n\n[View Poll](https://www.reddit.com/poll/abc123)", "Which?"),
        ("strip_urls", "see ![my cat](https://i.redd.it/a.jpg) now", "see my cat now"),
        ("strip_urls", "Processing images takes long", "Processing images takes long"),
        ("unescape_html", "AT&T; &nosuch; &", "AT&T; &nosuch; &"),
        ("strip_quotes", "> what you said\nmy answer", "my answer"),
        ("strip_quotes", "&gt;what you said\n\nmy answer\n  > more\n", "my answer"),
        ("strip_quotes", "a > b\n>! a spoiler\n>:(", "a > b\n>! a spoiler\n>:("),
        ("strip_quotes", "> only a quote", ""),
        ("strip_urls", "see http://a.b/c?d=e#f now", "see now"),
        ("strip_urls", "see [the docs](https://a.b/c_(d)) now", "see the docs now"),
        ("strip_urls", "WWW.Example.com is down", "is down"),
        ("strip_urls", "<https://a.b>, ftp://c.d/e", ","),
        ("strip_urls", "a [note](no link) and  spaces", "a [note](no link) and  spaces"),
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


@pytest.mark.parametrize(
    "text", ["\u200b" * 12, " \t\n\u00a0", "\u2800\u3164\u034f", "\u202e\u2066\ufe0f\U000e0001"]
)
def test_a_text_of_nothing_visible_is_empty(text):
    assert clean_text(text, Rules(), changed=Counter()) == ""
    assert clean_text(f"{text}a", Rules(), changed=Counter()) == f"{text}a"


def test_entities_become_characters_before_quotes_and_urls_are_looked_for():
    text = "&gt; http://quoted.example\nread http://a.b/?c&amp;d please"
    assert clean_text(text, CLEAN, changed=Counter()) == "read please"


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
    with pytest.raises(ValueError, match="subreddits and exclude_subreddits both contain tests"):
        Rules(subreddits=("Tests",), exclude_subreddits=("r/tests",))
    fields = comment("a", "t3_5h6yvl", "one of them", subreddit="Tests")
    if is_read:
        assert parse_comment(fields, Rules(**rules), changed=Counter()).subreddit == "Tests"
        return
    with pytest.raises(UnusableError, match="other_subreddit") as caught:
        parse_comment(fields, Rules(**rules), changed=Counter())
    assert not caught.value.is_bad


def test_scores_come_from_the_dump():
    for score, expected in (
        (-3, -3), ("-3", -3), (-3.0, -3), ("-3.0", -3),
        (None, None), ("many", None), (float("nan"), None), ("inf", None),
    ):  # fmt: skip
        assert _parsed(comment("a", "t3_5h6yvl", "a body", score=score)).score == expected


@pytest.mark.parametrize("name", ["author", "subreddit"])
def test_names_that_pandas_wrote_as_nan_are_missing(name):
    fields = comment("a", "t3_5h6yvl", "a body", **{name: float("nan")})
    assert getattr(_parsed(fields), name) == ""
