"""Lower-casing text, splitting it into runs, and restoring it."""

import re
import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from support.alike_texts import OtherWriter, sample_texts
from support.processes import printed_by

from convert_tf.text import plain_tokenizer, runs
from convert_tf.text.characters import TABLES
from convert_tf.text.plain_tokenizer import BETWEEN_TEXTS, PlainTokenizer, restored_texts
from convert_tf.text.subwords import WORD_START
from convert_tf.text.tokenizer import SubwordTokenizer
from convert_tf.text.vocabulary import write_vocabulary
from scripts.derive_unicode_tables import derive

ALL = [chr(point) for point in range(1, sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
NASTY = "a b  .,\n\0\ufe4e\ufe4f\ufe4d\ufe4cΑΣΣςİI'\u0301é\u3000\U00012000"


@pytest.fixture(scope="module")
def newer_characters():
    """Characters that either TensorFlow's or Python's Unicode tables do not know."""
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
    """Return the runs of lower-cased text, found character by character."""
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
        # ICU may replace invalid bytes by more or fewer characters than Python does.
        squeezed = re.sub("\ufffd+", "\ufffd", text)
        expected = content.decode("utf-8", "replace").lower()
        assert squeezed == re.sub("\ufffd+", "\ufffd", expected)


@pytest.mark.parametrize("locale", ["tr_TR", "lt_LT"])
def test_a_locale_changes_nothing(locale):
    text = "I WILL İSTANBUL ΟΔΟΣ ÌÍĨ Į\u0301 J\u0301 I\u0307 I\u0323\u0300"
    code = (
        "import tensorflow as tf; from convert_tf.text import runs\n"
        f"print(runs.lower(tf.constant([{text!r}])).numpy()[0].hex())"
    )
    printed = printed_by(code, LC_ALL=f"{locale}.UTF-8", TF_CPP_MIN_LOG_LEVEL="3")
    assert bytes.fromhex(printed.strip()).decode() == text.lower()


LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?' ςσ"
SUBWORDS = [
    *(f"\ufe4f{c}" for c in LETTERS), *LETTERS,
    "\ufe4fthe", "\ufe4fth", "ing", "in", "\ufe4fhow", "\ufe4f. ", "ther", "\ufe4fi\u0307x",
]  # fmt: skip


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "vocab.txt"
    write_vocabulary(path, SUBWORDS)
    return path


@pytest.fixture(scope="module")
def graph_ids(vocabulary):
    tokenizer = SubwordTokenizer(vocabulary, num_oov_buckets=97)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def ids(strings):
        found = tokenizer.token_ids(strings)
        return found.flat_values, found.row_splits

    return lambda texts: [part.numpy() for part in ids(tf.constant(texts, tf.string))]


@pytest.fixture(scope="module")
def plain():
    return PlainTokenizer(SUBWORDS, num_oov_buckets=97)


def assert_same(plain, graph_ids, texts):
    for got, expected in zip(plain.flat_ids(texts), graph_ids(texts), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("keeps_last", [False, True])
def test_texts_that_are_too_long_lose_an_end(vocabulary, plain, keeps_last):
    rng = np.random.default_rng(0)
    texts = ["", "a", *("".join(rng.choice(list(LETTERS + "  é"), 400)) for _ in range(20))]
    in_graph = SubwordTokenizer(vocabulary, num_oov_buckets=97)
    for max_tokens in (1, 2, 9, 100):
        expected = in_graph.flat_ids(texts, max_tokens, keeps_last=keeps_last)
        found = plain.flat_ids(texts, max_tokens, keeps_last=keeps_last)
        for got, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(got, wanted)
    assert [len(part) for part in plain.flat_ids([], 3, keeps_last=keeps_last)] == [0, 1]


PIECES = [
    *(c.encode() for c in ("Σ", "ΑΣ", "İ", "I", " ", "  ", "\0", "\ufe4e", "\ufe4f", "\ufeff")),
    *(c.encode() for c in ("the", "Other", "!", "。", "\u200d", "👩", "\u0301", "·", "Ꭰ")),
    *(c.encode() for c in ("ẞ", "ﬁ", "ǅ", "你好", "\u2028", "\u3000", "Ａ Ⅷ Ⓐ 𐐀 𞤀", "Ω K Å")),
    "\U0010ffff".encode(),
    b"\xff", b"\xed\xa0\x80", b"\xf0\x9f", b"\xe2\x82", b"\xc0\x80", b"\xf4\x90\x80\x80", b"\xc4",
]  # fmt: skip
ANY_BYTES = st.one_of(
    st.binary(max_size=40),
    st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join),
    st.text(max_size=20).map(lambda text: text.encode("utf-8")),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ANY_BYTES, min_size=1, max_size=40))
def test_any_bytes(plain, graph_ids, texts):
    assert_same(plain, graph_ids, texts)


def test_texts_that_a_person_reads_as_the_same_have_the_same_ids(plain, graph_ids):
    writer, texts = OtherWriter(), sample_texts(2000)
    assert_same(plain, graph_ids, [writer.mixed(text) for text in texts])
    expected = plain.flat_ids(texts)
    for way in (writer.spaced, writer.shaped):
        written = [way(" ".join(text.split())) for text in texts]
        assert written != texts
        for ids in (plain.flat_ids(written), graph_ids(written)):
            for got, wanted in zip(ids, expected, strict=True):
                np.testing.assert_array_equal(got, wanted)


@pytest.mark.skipif(
    tuple(map(int, tf.__version__.split(".")[:2])) < (2, 21),
    reason="earlier versions have tables of an earlier Unicode",
)
def test_tables_are_tensorflows():
    assert derive() == TABLES, "Run scripts.derive_unicode_tables again."


def test_a_megabyte_and_ten_thousand_accents(plain, graph_ids):
    texts = [
        b"the other " * 100_000,
        "e\u0301".encode() + "\u0301".encode() * 10_000,
        b"a" * 50_000,
    ]
    assert_same(plain, graph_ids, texts)
    splits = plain.flat_ids(texts, max_tokens=512)[1]
    # Folding keeps 30 accents in a row. The first one joins the "e".
    assert np.diff(splits).tolist() == [512, 30, 512]


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(plain_tokenizer, "CACHED_RUNS", 50)
    tokenizer = PlainTokenizer(SUBWORDS, num_oov_buckets=97)
    words = [f"word{i}" for i in range(300)]
    first = tokenizer.flat_ids([*words, "x" * 1000, "a b"])
    again = tokenizer.flat_ids([*words, "x" * 1000, "a b"])
    np.testing.assert_array_equal(first[0], again[0])
    assert len(tokenizer._runs) <= 50
    assert max(map(len, tokenizer._runs)) <= plain_tokenizer.LONGEST_CACHED_RUN
