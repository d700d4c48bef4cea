"""Users' texts in messages, and tables in output."""

import pytest

from convert_tf.storage.messages import aligned, as_markdown, listed, shortened


@pytest.mark.parametrize(
    ("text", "expected"), [("a\n b", "a b"), ("abcde", "abcde"), ("abcdef", "abcd…")]
)
def test_a_text_is_cut_where_it_is_too_long(text, expected):
    assert shortened(text, 5) == expected


def test_five_parts_are_listed_and_the_others_are_counted():
    assert listed("abcde") == "a, b, c, d, e"
    assert listed("abcdef") == "a, b, c, d, e and 1 more"
    assert listed([1, 2, 3], shown=1, separator="; ") == "1; and 2 more"


TABLES = [[["name", "number"], ["a", "10"], ["longer", "2"]], [], [["b", "1"]]]


def test_tables_of_a_terminal_and_of_a_page():
    assert aligned(TABLES) == "name    number\na           10\nlonger       2\n\nb  1"
    assert as_markdown(TABLES) == (
        "| name | number |\n|---|---|\n| a | 10 |\n| longer | 2 |\n\n| b | 1 |\n|---|---|\n"
    )
