"""Texts in other languages are recognised and rejected."""

import sys

import numpy as np
import pytest
from support.alike_texts import OtherWriter
from support.intent_examples import LABELS, TEXTS, WordEncoder

from convert_tf import IntentClassifier
from convert_tf.extras import MissingLibraryError
from convert_tf.intents.languages import _identifier, other_languages
from convert_tf.intents.predictor import answer_texts

OTHERS = {
    "de": "Ich habe meine Karte verloren und brauche eine neue",
    "es": "¿dónde está mi pedido? todavía no ha llegado",
    "fr": "je voudrais annuler ma commande s'il vous plaît",
    "ja": "カードを紛失しました",
    "el": "έχασα την κάρτα μου",
    "pl": "gdzie jest moja przesyłka, zamówiłem ją tydzień temu",
}
# Short texts, numbers, names and misspelt texts are never recognised as another language.
SHORT = ["hi", "ok thx", "no", "", "12345", "😊", "£20 a@b.com", "wheres my parcl", "pin", "Berlin"]
ENGLISH = [*SHORT, *TEXTS]


@pytest.fixture(scope="module")
def classifier():
    return IntentClassifier(WordEncoder(), names=None, lexical=None).fit(TEXTS, LABELS)


def test_texts_that_are_surely_in_another_language():
    pytest.importorskip("py3langid")
    assert other_languages([*OTHERS.values()]) == [*OTHERS]
    assert other_languages(ENGLISH) == [None] * len(ENGLISH)


def test_the_language_does_not_depend_on_look_alike_characters():
    pytest.importorskip("py3langid")
    writer = OtherWriter(seed=3)
    for write in (writer.spaced, writer.shaped, writer.mixed):
        assert other_languages([write(text) for text in OTHERS.values()]) == [*OTHERS]
        assert other_languages([write(text) for text in TEXTS]) == [None] * len(TEXTS)


def test_texts_in_another_language_are_told_and_not_answered(classifier):
    pytest.importorskip("py3langid")
    texts = [TEXTS[0], OTHERS["de"], "", TEXTS[5], OTHERS["ja"]]
    first, german, empty, second, japanese = answer_texts(
        classifier, texts, english_only=True, explains=True
    )
    assert [first, second] == answer_texts(classifier, [TEXTS[0], TEXTS[5]], explains=True)
    assert german.described(3) == {
        "text": OTHERS["de"], "intent": None, "confidence": 0.0, "language": "de",
    }  # fmt: skip
    assert "language" not in first.described() and "language" not in empty.described()
    assert (japanese.intent, japanese.language) == (None, "ja")
    (alone,) = answer_texts(classifier, [OTHERS["ja"]], english_only=True)
    assert alone == japanese
    assert all(answer.intent for answer in answer_texts(classifier, [*OTHERS.values()]))


def test_without_the_library_an_error_says_what_to_install(classifier, monkeypatch):
    monkeypatch.setitem(sys.modules, "py3langid", None)
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    _identifier.cache_clear()
    with pytest.raises(MissingLibraryError, match=r"extra \[languages\]"):
        answer_texts(classifier, TEXTS, english_only=True)
    assert np.array_equal([a.intent for a in answer_texts(classifier, TEXTS)], LABELS)
