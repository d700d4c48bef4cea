"""The tokenizer without TensorFlow gives the ids of the one in the graph, for any bytes."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from convert_tf.text import plain_tokenizer
from convert_tf.text.plain_tokenizer import TABLES, PlainTokenizer
from convert_tf.text.tokenizer import SubwordTokenizer
from convert_tf.text.vocabulary import write_vocabulary
from scripts.derive_unicode_tables import derive

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
    for got, expected in zip(plain.token_ids(texts), graph_ids(texts), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("keeps_last", [False, True])
def test_texts_that_are_too_long_lose_an_end(vocabulary, plain, keeps_last):
    texts = ["how are you, the other thing?", "", "a", "the the the the"]
    expected = SubwordTokenizer(vocabulary, num_oov_buckets=97).flat_ids(
        texts, 3, keeps_last=keeps_last
    )
    for got, wanted in zip(plain.flat_ids(texts, 3, keeps_last=keeps_last), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert [len(own) for own in plain.flat_ids([], 3, keeps_last=keeps_last)] == [0, 1]


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


def test_tables_are_tensorflows():
    assert derive() == TABLES, "Run scripts.derive_unicode_tables again."


def test_cut_texts_begin_as_whole_ones(plain):
    rng = np.random.default_rng(0)
    texts = ["", *("".join(rng.choice(list(LETTERS + "  é"), 400)) for _ in range(20))]
    ids, splits = plain.token_ids(texts)
    for max_tokens in (1, 2, 9, 100):
        cut, cut_splits = plain.token_ids(texts, max_tokens=max_tokens)
        for i in range(len(texts)):
            whole = ids[splits[i] : splits[i + 1]]
            np.testing.assert_array_equal(
                cut[cut_splits[i] : cut_splits[i + 1]], whole[:max_tokens]
            )


def test_a_megabyte_and_ten_thousand_accents(plain, graph_ids):
    texts = [
        b"the other " * 100_000,
        "e\u0301".encode() + "\u0301".encode() * 10_000,
        b"a" * 50_000,
    ]
    assert_same(plain, graph_ids, texts)
    splits = plain.token_ids(texts, max_tokens=512)[1]
    assert np.diff(splits).tolist() == [512, 512, 512]


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(plain_tokenizer, "CACHED_RUNS", 50)
    tokenizer = PlainTokenizer(SUBWORDS, num_oov_buckets=97)
    words = [f"word{i}" for i in range(300)]
    first = tokenizer.token_ids([*words, "x" * 1000, "a b"])
    again = tokenizer.token_ids([*words, "x" * 1000, "a b"])
    np.testing.assert_array_equal(first[0], again[0])
    assert len(tokenizer._runs) <= 50
    assert max(map(len, tokenizer._runs)) <= plain_tokenizer.LONGEST_CACHED_RUN
