"""TF-IDF and its regression, compared with scikit-learn."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_union
from support.alike_texts import OtherWriter
from support.intent_examples import LABELS, TEXTS

from convert_tf.intents import lexical
from convert_tf.intents.head import softmax
from convert_tf.intents.serving import LexicalModule

Y = np.unique(LABELS, return_inverse=True)[1]
QUERIES = [
    "Where is the ORDER, the order?!",
    "a new pass-word",
    "zzz",
    "...",
    "l'été à 10€ und ßtraße",
]


def probabilities(model, texts=QUERIES):
    return softmax(model.logits(texts))


def test_words_and_runs_of_letters_are_what_they_say():
    assert lexical.plain_words("  Where's my £10 Ünicode_card?? ") == "where s my 10 ünicode_card"
    assert lexical.word_terms("to be, or not to be") == ["to", "be", "or", "not", "to", "be"]
    assert lexical.character_terms("A be") == [" a ", "a b", " be", "be ", " a b", "a be", " be "]
    assert lexical.plain_words("Ｗｈｅｒｅ\u00a0is my\nca\u00adrd?") == "where is my card"
    assert lexical.word_terms("...") == []
    assert lexical.character_terms("...") == []


def test_it_is_the_tf_idf_and_the_regression_of_scikit_learn():
    vectorizer = make_union(
        TfidfVectorizer(analyzer=lexical.word_terms, sublinear_tf=True),
        TfidfVectorizer(analyzer=lexical.character_terms, sublinear_tf=True),
    )
    expected = vectorizer.fit_transform(TEXTS)
    model = lexical.train_lexical(TEXTS, Y)
    for text, row in zip(TEXTS, expected.toarray(), strict=True):
        for places, weights in model.term_weights(text):
            np.testing.assert_allclose(weights, row[places], atol=1e-6)
            row[places] = 0
        assert not row.any()
    regression = LogisticRegression(C=10.0, max_iter=2000, tol=1e-6).fit(expected, Y)
    found = probabilities(model)
    theirs = regression.predict_proba(vectorizer.transform(QUERIES))
    np.testing.assert_allclose(found, theirs, atol=2e-3)


def test_a_graph_reads_folded_texts_too():
    model = lexical.train_lexical(TEXTS, Y)
    writer = OtherWriter(seed=2)
    texts = [*TEXTS, *map(writer.spaced, TEXTS), *map(writer.shaped, TEXTS)]
    expected = np.tile(model.logits(TEXTS), (3, 1))
    np.testing.assert_allclose(model.logits(texts), expected, atol=1e-6)
    logits = LexicalModule(model)(tf.constant(texts)).numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_many_examples_are_regressed_in_the_space_of_terms(monkeypatch):
    few = probabilities(lexical.train_lexical(TEXTS, Y))
    monkeypatch.setattr(lexical, "_FEW_EXAMPLES", 3)
    many = probabilities(lexical.train_lexical(TEXTS, Y))
    np.testing.assert_allclose(many, few, atol=2e-3)


def test_the_commonest_terms_are_kept(monkeypatch):
    monkeypatch.setattr(lexical, "_MOST_TERMS", 2)
    model = lexical.train_lexical(TEXTS, Y)
    assert {*model.words} < {"my", "order", "password", "the"}  # all four are equally frequent
    assert len(model.characters) == 2


def test_texts_without_words_say_nothing():
    model = lexical.train_lexical(["...", "??"], np.array([0, 1]))
    np.testing.assert_allclose(probabilities(model, ["x", "..."]), 0.5)
    again = lexical.lexical_of_arrays(lexical.lexical_arrays(model))
    assert (again.words, again.characters) == ([], [])


def test_weights_count():
    weights = np.where(Y == 0, 1e-6, 1.0)
    assert probabilities(lexical.train_lexical(TEXTS, Y, weights), TEXTS)[:, 0].max() < 0.1


def test_a_model_becomes_arrays_and_comes_back():
    model = lexical.train_lexical([*TEXTS, "köttbullar 日本語"], np.append(Y, 0))
    arrays = lexical.lexical_arrays(model)
    again = lexical.lexical_of_arrays(arrays)
    assert (again.words, again.characters) == (model.words, model.characters)
    np.testing.assert_array_equal(again.logits(QUERIES), model.logits(QUERIES))
    assert lexical.lexical_of_arrays({"kernel_0": np.ones(1)}) is None
    del arrays["rarity"]
    with pytest.raises(KeyError, match="rarity"):
        lexical.lexical_of_arrays(arrays)
