"""Lower-casing, cutting into runs and putting together again."""

import re
import sys
import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from support.processes import printed_by

from convert_tf.text import runs
from convert_tf.text.plain_tokenizer import BETWEEN_TEXTS, restored_texts
from convert_tf.text.subwords import WORD_START

ALL = [chr(point) for point in range(1, sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
NASTY = "a b  .,\n\0\ufe4e\ufe4f\ufe4d\ufe4cΑΣΣςİI'\u0301é\u3000\U00012000"


@pytest.fixture(scope="module")
def newer_characters():
    """Characters that TensorFlow's Unicode tables and Python's do not both know."""
    lowered = runs.lower(tf.constant(ALL)).numpy()
    marks = tf.strings.regex_full_match(tf.constant(ALL), r"[\p{P}\p{Z}]").numpy()
    return {
        character
        for character, low, mark in zip(ALL, lowered, marks, strict=True)
        if low.decode() != character.lower() or mark != is_mark(character)
    }


def is_mark(character):
    return unicodedata.category(character)[0] in "PZ"


def naive_runs(text):
    """The runs of lower-cased text, character by character."""
    for character, escaped in (("\ufe4e", "\ufe4e\ufe4e"), ("\ufe4f", "\ufe4e\ufe4d")):
        text = text.replace(character, escaped)
    text = text.replace("\0", "\ufe4e\ufe4c").lower()
    found = []
    for character in text:
        if found and is_mark(found[-1][-1]) == is_mark(character):
            found[-1] += character
        else:
            found.append(character)
    inner = range(1, len(found) - 1)
    return [
        WORD_START + run for index, run in enumerate(found) if not (run == " " and index in inner)
    ]


def restore(tokens):
    (text,) = restored_texts("".join(tokens))
    return text


def split(text):
    return [run.decode() for run in runs.split_runs(tf.constant([text])).values.numpy()]


def test_tables_differ_only_in_characters_of_late_unicode_versions(newer_characters):
    assert len(newer_characters) < 300
    assert min(newer_characters, default="\uffff") > "\u2c00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ", ["﹏ "]),
        ("   ", ["﹏   "]),
        ("Hello World", ["﹏hello", "﹏world"]),
        ("a b c d", ["﹏a", "﹏b", "﹏c", "﹏d"]),
        (" a  b ", ["﹏ ", "﹏a", "﹏  ", "﹏b", "﹏ "]),
        ("It's 5.0, ok?", ["﹏it", "﹏'", "﹏s", "﹏5", "﹏.", "﹏0", "﹏, ", "﹏ok", "﹏?"]),
        ("a\u00a0b\nc", ["﹏a", "﹏\u00a0", "﹏b\nc"]),
        ("a\ufe4fb", ["﹏a", "﹏\ufe4e\ufe4d", "﹏b"]),
    ],
)
def test_golden_runs(text, expected):
    assert split(text) == expected
    assert restore(expected) == text.lower()


ANY_TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from(NASTY), max_size=40)
FEW_CHARACTERS = st.text(st.sampled_from("a .\ufe4e\ufe4f\ufe4d\0"), max_size=12)


@settings(max_examples=40, deadline=None)
@given(st.lists(ANY_TEXT | FEW_CHARACTERS, min_size=1, max_size=30))
def test_runs_equal_the_naive_cut_and_come_back(newer_characters, texts):
    known = ["".join(c for c in text if c not in newer_characters) for text in texts]
    for text, found in zip(known, runs.split_runs(tf.constant(known)).to_list(), strict=True):
        found = [run.decode() for run in found]
        assert found == naive_runs(text)
        assert restore(found) == text.lower()
    joined = BETWEEN_TEXTS.join("".join(naive_runs(text)) for text in known)
    assert restored_texts(joined) == [text.lower() for text in known]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_any_bytes_give_valid_text(contents):
    rows = runs.split_runs(tf.constant(contents)).to_list()
    for content, row in zip(contents, rows, strict=True):
        found = [run.decode("utf-8") for run in row]
        assert all(run[0] == WORD_START and WORD_START not in run[1:] for run in found)
        text = restore(found)
        # ICU may replace an invalid stretch by more or fewer characters than Python does.
        squeezed = re.sub("\ufffd+", "\ufffd", text)
        expected = content.decode("utf-8", "replace").lower()
        assert squeezed == re.sub("\ufffd+", "\ufffd", expected)


def test_a_turkish_locale_changes_nothing():
    code = (
        "import tensorflow as tf; from convert_tf.text import runs\n"
        "print(runs.lower(tf.constant(['I WILL İSTANBUL ΟΔΟΣ'])).numpy()[0].hex())"
    )
    printed = printed_by(code, LC_ALL="tr_TR.UTF-8", TF_CPP_MIN_LOG_LEVEL="3")
    assert bytes.fromhex(printed.strip()).decode() == "I WILL İSTANBUL ΟΔΟΣ".lower()
