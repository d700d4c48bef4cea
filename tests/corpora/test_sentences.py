import itertools

import pytest

from convert_tf.corpora.threads import (
    first_sentences,
    last_sentences,
    sentence_ends,
    short_texts,
)

TEXT = "One is short. Two is a little longer! Three? The fourth ends here."


def _sentences(text):
    return [text[a:b].strip() for a, b in itertools.pairwise([0, *sentence_ends(text)])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEXT, ["One is short.", "Two is a little longer!", "Three?", "The fourth ends here."]),
        ("Mr. Smith paid. It was e.g. 3.5 euros", ["Mr. Smith paid."]),
        (
            "It is J. R. Hartley. Well... no. Well... No.",
            ["It is J. R. Hartley.", "Well... no.", "Well...", "No."],
        ),
        (
            '"Really?" he said. (Yes.) "So be it." End.',
            ['"Really?"', "he said.", "(Yes.)", '"So be it."', "End."],
        ),
        ("a line\n\n* an item\n* another one", ["a line", "", "* an item"]),
        ("これは文です。次の文です。", ["これは文です。", "次の文です。"]),
        ("no end", []),
    ],
)
def test_where_sentences_end(text, expected):
    assert _sentences(text) == expected


@pytest.mark.parametrize(
    ("max_length", "expected"),
    [
        (100, TEXT),
        (len(TEXT), TEXT),
        (len(TEXT) - 1, "One is short. Two is a little longer! Three?"),
        (37, "One is short. Two is a little longer!"),
        (36, "One is short."),
        (13, "One is short."),
        (12, "One is"),
        (2, "On"),
    ],
)
def test_first_sentences(max_length, expected):
    assert first_sentences(TEXT, max_length) == expected


@pytest.mark.parametrize(
    ("max_length", "expected"),
    [
        (100, TEXT),
        (len(TEXT) - 1, "Two is a little longer! Three? The fourth ends here."),
        (28, "Three? The fourth ends here."),
        (27, "The fourth ends here."),
        (21, "The fourth ends here."),
        (20, "fourth ends here."),
        (3, "re."),
    ],
)
def test_last_sentences(max_length, expected):
    assert last_sentences(TEXT, max_length) == expected


def test_few_characters_of_whole_sentences_are_not_enough():
    assert first_sentences("Yes. And then this goes on and on", 12) == "Yes."
    assert first_sentences("Yes. And then this goes on and on", 12, min_length=9) == "Yes. And"
    assert last_sentences("this goes on and on and ends. Yes.", 12) == "Yes."
    assert last_sentences("this goes on and on and ends. Yes.", 12, min_length=9) == "ends. Yes."


def test_limits_hold_for_any_text():
    for text in (TEXT * 3, "x" * 300, "a b " * 90, ". " * 90, "\n" * 90, "é. É! " * 50):
        for limit in range(1, 60):
            first, last = first_sentences(text, limit), last_sentences(text, limit)
            assert len(first) <= limit
            assert len(last) <= limit
            assert first in text
            assert last in text


def test_short_texts():
    assert list(short_texts("a short\n text", 20)) == ["a short text"]
    assert list(short_texts(TEXT, 25, min_length=9)) == [
        "One is short.",
        "Two is a little longer!",
        "The fourth ends here.",
    ]
    assert list(short_texts("|:--|:--| 12 34 56 78", 100, min_length=9)) == []
    assert list(short_texts("many words without an end to them", 15)) == ["many words"]
