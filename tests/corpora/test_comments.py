from collections import Counter

import pytest
from support.dump_files import comment

from convert_tf.corpora.comments import (
    TITLE_ID,
    Rules,
    UnusableLineError,
    parse_comment,
    parse_submission,
    trim,
)

RULES = Rules(unescape_html=True)


def test_comment_is_normalised():
    fields = comment("c14", "t1_c13", "some body text", link="t3_17866", score=3)
    parsed = parse_comment(fields, RULES, changed=Counter())
    assert parsed == ("c14", "17866", "c13", "some body text", False, "author of c14", "tests", 3)


@pytest.mark.parametrize(
    ("comment_id", "parent", "link", "expected"),
    [
        ("c1", "t3_abc", "t3_abc", TITLE_ID),
        ("c1", "t1_c0", "t3_abc", "c0"),
        ("c1", "c0", "abc", "c0"),
        ("c1", "abc", "abc", TITLE_ID),
        # The id of a comment may be that of its thread: neither is its own parent.
        ("abc", "t3_abc", "t3_abc", TITLE_ID),
        ("c1", "t1_abc", "t3_abc", "abc"),
        # A parent in another thread is never found: an orphan.
        ("c1", "t3_other", "t3_abc", "t3_other"),
    ],
)
def test_parent(comment_id, parent, link, expected):
    assert (
        parse_comment(
            comment(comment_id, parent, "text", link=link), RULES, changed=Counter()
        ).parent_id
        == expected
    )


def test_submission_is_the_title():
    fields = {"id": "abc", "title": "A &amp; B", "selftext": "…", "author": "x", "subreddit": "s"}
    assert parse_submission(fields, RULES, changed=Counter()) == (
        TITLE_ID,
        "abc",
        None,
        "A & B",
        False,
        "x",
        "s",
        None,
    )


@pytest.mark.parametrize("name", ["id", "link_id", "parent_id", "body"])
@pytest.mark.parametrize(
    ("value", "reason"), [(None, "missing"), (17, "wrong_type"), (["x"], "wrong_type")]
)
def test_missing_and_wrong_fields(name, value, reason):
    fields = comment("c1", "t3_5h6yvl", "text")
    fields[name] = value
    with pytest.raises(UnusableLineError) as caught:
        parse_comment(fields, RULES, changed=Counter())
    assert caught.value.reason == f"{reason}_{name}"
    if value is None:
        del fields[name]
        with pytest.raises(UnusableLineError, match=f"missing_{name}"):
            parse_comment(fields, RULES, changed=Counter())


@pytest.mark.parametrize("value", ["", "a b", "a\tb", "t3_", "é", "x" * 65])
@pytest.mark.parametrize("name", ["id", "link_id", "parent_id"])
def test_malformed_ids(name, value):
    fields = comment("c1", "t1_c0", "text")
    fields[name] = value
    if (name, value) == ("parent_id", "t3_"):
        assert parse_comment(fields, RULES, changed=Counter()).parent_id == "t3_"  # found nowhere
        return
    with pytest.raises(UnusableLineError, match=f"malformed_{name}"):
        parse_comment(fields, RULES, changed=Counter())


def test_unknown_author_and_subreddit_are_empty():
    fields = comment("c1", "t3_5h6yvl", "text", author=None)
    del fields["subreddit"]
    parsed = parse_comment(fields, RULES, changed=Counter())
    assert (parsed.author, parsed.subreddit) == ("", "")
    with pytest.raises(UnusableLineError, match="too_long_author"):
        parse_comment({**fields, "author": "x" * 201}, RULES, changed=Counter())
    with pytest.raises(UnusableLineError, match="wrong_type_author"):
        parse_comment({**fields, "author": 5}, RULES, changed=Counter())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a &gt; b &amp;&amp; c &#39;d&#x27;", "a > b && c 'd'"),
        ("AT&T &copy=2 &amp;copy=2", "AT&T &copy=2 &copy=2"),
        ("&amp;#x200B; once", "&#x200B; once"),
        ("&#xD800; &#0; &unknown;", "\ufffd \ufffd &unknown;"),
        ("lone \ud83d surrogate", "lone \ufffd surrogate"),
    ],
)
def test_text_is_cleaned_once(body, expected):
    parsed = parse_comment(comment("c1", "t3_5h6yvl", body), RULES, changed=Counter())
    assert parsed.body == expected
    parsed.body.encode("utf-8")


def test_html_stays_unless_told():
    parsed = parse_comment(comment("c", "t3_5h6yvl", "a &gt; b"), Rules(), changed=Counter())
    assert parsed.body == "a &gt; b"


def test_length_is_measured_in_characters_after_unescaping():
    body = "&gt;" * 127
    assert not parse_comment(comment("c", "t1_b", body), RULES, changed=Counter()).is_trimmed
    assert parse_comment(comment("c", "t1_b", body + "x"), RULES, changed=Counter()).is_trimmed
    assert not parse_comment(comment("c", "t1_b", "😀" * 127), RULES, changed=Counter()).is_trimmed


def test_megabyte_body_is_kept_short():
    parsed = parse_comment(comment("c", "t1_b", "word " * 200_000), RULES, changed=Counter())
    assert parsed.is_trimmed
    assert len(parsed.body) <= 127


@pytest.mark.parametrize(
    ("text", "max_length", "expected"),
    [
        ("one two three", 13, "one two three"),
        ("one two three", 12, "one two "),
        ("one two three", 8, "one two "),
        ("one two three", 7, "one two"),
        ("one two three", 6, "one "),
        ("one, two", 4, "one,"[:3]),
        ("a" * 20, 5, "aaaaa"),
        ("!" * 20, 5, "!!!!!"),
        ("", 5, ""),
    ],
)
def test_trim(text, max_length, expected):
    assert trim(text, max_length) == expected


@pytest.mark.parametrize("options", [{"min_context_length": 0}, {"min_response_length": 128}])
def test_impossible_lengths(options):
    with pytest.raises(ValueError, match="Lengths must satisfy"):
        Rules(**options)


@pytest.mark.parametrize("length", [1, 12])
def test_impossible_path_length(length):
    with pytest.raises(ValueError, match=f"Received: max_path_length={length}"):
        Rules(max_path_length=length)
