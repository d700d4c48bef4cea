"""Our modules in a client of the original ones: the calls of Rasa 2.x still work.

`tests/clients/real/` runs Rasa and whatlies themselves.
"""

import shutil
import unicodedata

import numpy as np
import pytest
from clients.rasa import FILES, RasaClient, Word, joined, whitespace_words
from hypothesis import given, settings
from hypothesis import strategies as st

from convert_tf import SentenceEncoder

ENGLISH = ["how do i reset my password", "The Cat sat on the MAT", "i'm lost: where's my card?"]
PUNCTUATED = [
    '"how are you?" she said', "...", "?!", "wait - what", "(no) [yes] {maybe}", "50% off!",
    "a_b __c", "mail me at some.one@example.com", "see http://x.org/a?b=c#d", "10.000,50 euro",
    "¿qué tal?", "  two  spaces ", "\n\nnewlines\n", "tab\tbed", " ",
]  # fmt: skip
UNKNOWN = [
    "éclair ñandú ŝipo", "привет как дела", "你好 世界", "日本語のテキスト", "안녕 하세요", "สวัสดี",
    "😀", "hello 😀 you 👩‍👩‍👧 🇩🇪", "e\u0301 cafe\u0301 \u0301", "ﷺ ﬁne",
    "İstanbul ΣΑΣ", "שלום עולם",
    "﹏", "a﹏b ﹏c ﹎", "\u200d", "zero\u200bwidth", "a\u00a0b",
]  # fmt: skip
TEXTS = [*ENGLISH, *PUNCTUATED, *UNKNOWN]


@pytest.fixture(scope="module")
def rasa(tiny_modules):
    return RasaClient(str(tiny_modules["single"][1]))


def test_rasa_wants_all_its_files(tiny_modules, tmp_path):
    for number, name in enumerate(FILES):
        folder = shutil.copytree(tiny_modules["single"][1], tmp_path / str(number))
        (folder / name).unlink()
        with pytest.raises(FileNotFoundError, match=name.split("/")[-1]):
            RasaClient(str(folder))


def test_words_as_rasa_cuts_them():
    assert [w.text for w in whitespace_words("hi, i'm @bob :) 10.000 c#")] == [
        "hi", "i", "m", "@bob", "10.000", "c#",
    ]  # fmt: skip
    assert [w.text for w in whitespace_words("cafe\u0301 देखो")] == ["cafe\u0301", "देखो"]
    assert whitespace_words("😀") == [Word("😀", 0)]  # the whole text, if no word is left
    assert joined(whitespace_words('"yes, no')) == " yes no"


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_as_many_vectors_as_tokens(rasa, text):
    tokens = rasa.subwords(text)
    assert len(tokens) == len(rasa.tokens_read(text)) == rasa.sequence([text]).shape[1]
    assert tokens == rasa.tokens_read(text)
    assert rasa.sequence([text])[0, : len(tokens)].any(axis=-1)[:20].all()  # 20 tokens are read


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40))
@pytest.mark.slow
def test_any_text_has_as_many_vectors_as_tokens(rasa, text):
    assert rasa.subwords(text) == rasa.tokens_read(text)


def is_mark(character: str) -> bool:
    """Return whether the tokenizer treats a character as punctuation or a space."""
    return unicodedata.category(character)[0] in "PZ"


def has_plain_edges(words) -> bool:
    return not any(is_mark(w.text[0]) or is_mark(w.text[-1]) for w in words)


def check_words(rasa, text):
    """Check that the subwords of single words are the tokens of the joined text."""
    words = whitespace_words(text)
    apart = [token for word in words for token in rasa.subwords(word.text)]
    assert apart == rasa.tokens_read(joined(words))


@pytest.mark.parametrize("text", [t for t in TEXTS if has_plain_edges(whitespace_words(t))])
def test_words_align(rasa, text):
    check_words(rasa, text)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from([*"abcé你ßσΣ", "\u0301", "how", "cat", "😀", "9"])
        | st.text(st.characters(codec="utf-8", exclude_categories=("P", "Z", "C")), max_size=5),
        max_size=8,
    ),
    st.sampled_from([" ", "  ", ", ", " - ", '"', "\n", "'"]),
    st.sampled_from(["", " ", '"', "¿", "...", "\n"]),
)
@pytest.mark.slow
def test_any_words_align(rasa, words, between, before):
    text = before + between.join(words)
    if text and has_plain_edges(whitespace_words(text)):
        check_words(rasa, text)


def test_word_features_are_means_over_their_subwords(rasa):
    texts = ["reset my password, please!", "Zebra 你好 42", "how"]
    features = rasa.word_features(texts)
    for text, own in zip(texts, features, strict=True):
        words = whitespace_words(text)
        assert own.shape == (len(words), 64)
        row, place = rasa.sequence([joined(words)])[0], 0
        for word, feature in zip(words, own, strict=True):
            count = len(rasa.subwords(word.text))
            np.testing.assert_allclose(feature, row[place : place + count].mean(axis=0), atol=1e-5)
            place += count
        assert place == len(row)


@pytest.mark.slow
def test_sentence_features_are_r(rasa, tiny_modules):
    texts = [*ENGLISH, ""]
    features = rasa.sentence(texts)
    assert features.shape == (4, 1, 128)
    encoder = SentenceEncoder(tiny_modules["single"][1], compute_dtype="float32")
    np.testing.assert_allclose(features[:, 0], encoder.encode(texts), atol=1e-5)
