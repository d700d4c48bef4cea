"""Folding texts that look the same to one form, in plain Python and in a graph."""

import itertools
import time
import unicodedata

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from convert_tf.text import runs
from convert_tf.text.characters import TABLES, fold, ranges_of

SAME = "where is my card?"
WRITTEN = [
    "where\tis\tmy\tcard?", "where\u00a0is\u00a0my\u00a0card?", "where is\nmy card?",
    "where  is   my card?", " where is my card?\n", "\r\nwhere is\r\n\r\nmy card?",
    "where\vis\fmy\x85card?",
    "where\u2003is\u2009my\u202fcard?", "where\u3000is\u2028my\u2029card?",
    "where\u1680is my\u2800card?",
    "wh\u200bere is my ca\u00adrd?", "\ufeffwhere is \u200emy\u200f card?",
    "\u202awhere is my card?\u202c",
    "where \u2060is\u2064 my\u200c card?", "where is\x00 my\x07 card?\x1b",
    "where is my ca\u200drd?\ufe0f",
    "where\U000e0041 is my card?\ufe00", "ｗｈｅｒｅ　ｉｓ　ｍｙ　ｃａｒｄ？", "𝐰𝐡𝐞𝐫𝐞 𝘪𝘴 𝓶𝔂 𝚌𝚊𝚛𝚍?",
    "ⓦⓗⓔⓡⓔ ⓘⓢ ⓜⓨ ⓒⓐⓡⓓ?", "where ıs my card?".replace("ı", "ｉ"),
    "w\u2060here\u2007is\u205fmy card﹖",
]  # fmt: skip
GOLDEN = [
    ("", ""), (" ", ""), ("\u200b\n", ""), ("a", "a"),
    ("office ﬁle", "office file"), ("wait… what‼", "wait... what!!"), ("№ ７", "No 7"),
    ("an e\u2010mail, e\u2011mail", "an e-mail, e-mail"), ("cafe\u0301", "café"),
    ("ａ\u0301", "á"), ("ｶﾞ", "ガ"), ("ﬀ\u0301", "ff\u0301"),
    # Differences in meaning are kept.
    ("10² H₂O ½ ™", "10² H₂O ½ ™"), ("it´s ¯\\_(ツ)_/¯", "it´s ¯\\_(ツ)_/¯"),
    ("don’t “a” – b — c", "don’t “a” – b — c"), ("ㅋㅋ ㅏ", "ㅋㅋ ㅏ"),
    ("naïve Ünal", "naïve Ünal"),
    ("¨\u0301", "\u0385"), ("\U0001ccd6", "\U0001ccd6"),
    # Joiners within emoji are kept, others are removed.
    ("❤\ufe0f 🤷\u200d♀\ufe0f 👩\u200d👩\u200d👧", "❤\ufe0f 🤷\u200d♀\ufe0f 👩\u200d👩\u200d👧"),
    ("a\u200d\ufe0fb \u200d", "ab"), ("❤\u200b\ufe0f‼\ufe0f", "❤\ufe0f!!"),
    ("Ⓜ\ufe0f ㊗\ufe0f ℃\ufe0f 🈂\u200d", "M 祝 °C サ"),
]  # fmt: skip


def members(table):
    return {chr(point) for points in ranges_of(table) for point in points}


CLASSES = {name: members(name) for name in TABLES if name not in ("lower",)}
SPECIAL = sorted(set().union(*(CLASSES[n] for n in ("spaces", "unseen", "joiners", "hyphens"))))
ALL_ALIKE = sorted(CLASSES["alike"] | CLASSES["kept"] | CLASSES["composing"])


def naive_fold(text):
    """Fold a text character by character."""
    found = []
    for character in text:
        if character in CLASSES["spaces"]:
            found.append(" ")
        elif character in CLASSES["joiners"]:
            if found and (found[-1] in CLASSES["pictures"] or found[-1] in CLASSES["joiners"]):
                found.append(character)
        elif character in ("\u2010", "\u2011"):
            found.append("-")
        elif character not in CLASSES["unseen"]:
            found.append(character)
    text = unicodedata.normalize("NFC", naively_cut(found))
    plain = "".join(
        unicodedata.normalize("NFKC", "".join(run)) if is_alike else "".join(run)
        for is_alike, run in itertools.groupby(text, CLASSES["alike"].__contains__)
    )
    words = [word for word in unicodedata.normalize("NFC", plain).split(" ") if word]
    return naively_cut(" ".join(words))


def naively_cut(characters):
    """Keep at most 30 combining marks in a row."""
    text, marks = "", 0
    for character in characters:
        marks = marks + 1 if character in CLASSES["combining"] else 0
        text += character if marks <= 30 else ""
    return text


def in_graph(texts):
    return [text.decode() for text in runs.fold_strings(tf.constant(texts, tf.string)).numpy()]


@pytest.mark.parametrize("written", WRITTEN)
def test_what_a_person_reads_as_the_same(written):
    assert fold(written) == SAME
    assert in_graph([written]) == [SAME]


@pytest.mark.parametrize(("text", "expected"), GOLDEN)
def test_what_changes_and_what_stays(text, expected):
    assert fold(text) == expected
    assert in_graph([text]) == [expected]


def test_a_text_without_such_characters_stays_next_to_one_with_them():
    texts = ["It’s 5.0, ok? naïve — ü ß 你好 😀", "a\tb", "", "Plain."]
    assert in_graph(texts) == [texts[0], "a b", "", "Plain."]


def test_invalid_bytes_are_characters_of_replacement():
    (text,) = runs.fold_strings(tf.constant([b"a\xffb\tc"])).numpy()
    assert text.decode() == "a\ufffdb c"


def test_every_character_between_letters():
    others = [chr(c) for c in range(32, 0x110000, 83) if not 0xD800 <= c < 0xE000]
    texts = [f"a{character}b" for character in (*SPECIAL, *ALL_ALIKE, *others)]
    folded = [fold(text) for text in texts]
    assert in_graph(texts) == folded == [naive_fold(text) for text in texts]


def test_joiners_after_any_character_are_folded_once():
    texts = [f"{c}\ufe0f" for c in (*ALL_ALIKE, *sorted(CLASSES["pictures"]))]
    folded = [fold(text) for text in texts]
    assert in_graph(texts) == folded == [fold(text) for text in folded]


def test_what_disappears_has_no_shape():
    categories = {unicodedata.category(c) for c in CLASSES["unseen"]}
    assert categories <= {"Cc", "Cf", "Mn", "Cn"}
    unseen_by_unicode = set("\u00ad\u200b\u200c\u200e\u202e\u2060\u2069\ufeff\U000e0100\0\x7f")
    assert unseen_by_unicode <= CLASSES["unseen"]


ACUTE, BELOW = "\u0301", "\u0323"  # NFC swaps a mark above and a following mark below


@pytest.mark.parametrize("marks", [ACUTE + BELOW, BELOW, "\u0344", "\uff9e\u0301", "\u0f73\u0344"])
@pytest.mark.parametrize("letter", ["", "e", "\u30ab", "\u0958", "\ufcf2", " "])
def test_at_most_thirty_marks_stay_in_a_row(letter, marks):
    texts = [f"a {letter}{marks * number}z" for number in (1, 7, 14, 15, 16, 30, 31, 40)]
    folded = [fold(text) for text in texts]
    assert folded == [naive_fold(text) for text in texts] == in_graph(texts)
    assert folded == [fold(text) for text in folded]
    assert all(len(text) < 40 for text in folded)


def test_a_long_run_of_marks_is_folded_at_once():
    text = f"a{(ACUTE + BELOW) * 60_000}b"
    for fold_one in (fold, lambda text: in_graph([text])[0]):
        start = time.perf_counter()
        folded = fold_one(text)
        assert time.perf_counter() - start < 1
        assert folded[-1] == "b" and len(folded) == 31


ANY_TEXT = st.text(
    st.characters(codec="utf-8")
    | st.sampled_from("a b  .e1\u0301\u0308❤👩")
    | st.sampled_from(SPECIAL)
    | st.sampled_from(ALL_ALIKE),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ANY_TEXT, min_size=1, max_size=30))
def test_any_text(texts):
    # Characters unknown to this Python version are not compared.
    texts = ["".join(c for c in text if unicodedata.category(c) != "Cn") for text in texts]
    folded = [fold(text) for text in texts]
    assert folded == [naive_fold(text) for text in texts] == in_graph(texts)
    assert folded == [fold(text) for text in folded]
