"""Inspection finds the faults that were planted in labelled examples."""

import numpy as np
import pytest
from support.intent_examples import LABELS, TEXTS, Series, WordEncoder

from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.encodings import IntentEncodings
from convert_tf.intents.inspection import compared_examples, inspect_examples, inspection_text
from convert_tf.numerics.vectors import unit_rows


@pytest.fixture
def encodings():
    return IntentEncodings(WordEncoder())


def naive_nearness(vectors, labels, place, intent):
    """Return the mean of the three largest cosines to other examples of an intent."""
    members = [other for other in np.flatnonzero(labels == intent) if other != place]
    cosines = sorted((float(vectors[place] @ vectors[other]) for other in members), reverse=True)
    return np.mean(cosines[:3]) if cosines else -np.inf


@pytest.mark.parametrize("rows_at_once", [3, 2048])
def test_nearness(rows_at_once, monkeypatch):
    monkeypatch.setattr("convert_tf.intents.inspection._ROWS_AT_ONCE", rows_at_once)
    vectors = unit_rows(np.random.default_rng(0).standard_normal((17, 6)).astype(np.float32))
    labels = np.array([0] * 8 + [1] * 6 + [2] * 2 + [3])
    found, _ = compared_examples(vectors, labels[:, None] == np.arange(4))
    expected = [[naive_nearness(vectors, labels, i, j) for j in range(4)] for i in range(17)]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert found[16, 3] == -np.inf  # an intent with one example


def test_a_wrong_label_of_several_is_a_suspect(encodings):
    texts = [*TEXTS, f"{TEXTS[0]} {TEXTS[4]}", f"{TEXTS[1]} {TEXTS[5]}", "no intent at all"]
    labels = [*LABELS, "greet+reset", "order", ""]
    report = inspect_examples(encodings, LabelledTexts(texts, labels), label_separator="+")
    suspects = {row["text"]: row for row in report["suspects"]}
    assert suspects[texts[-2]]["label"] == "order"
    assert suspects[texts[-2]]["nearest"] in ("greet", "reset")
    assert texts[-3] not in suspects
    assert [row["examples"] for row in report["intents"]] == [5, 5, 5]
    twice = LabelledTexts([*texts, texts[-3]], [*labels, "reset"])
    duplicates = inspect_examples(encodings, twice, label_separator="+")["duplicates"]
    assert ["greet + reset", "reset"] in [row["labels"] for row in duplicates]


def test_a_wrong_label_is_the_first_suspect(encodings):
    labels = [*LABELS]
    place = TEXTS.index("when will my order come")
    labels[place] = "greet"
    report = inspect_examples(encodings, LabelledTexts(TEXTS, labels))
    first = report["suspects"][0]
    assert (first["number"], first["label"], first["nearest"]) == (place, "greet", "order")
    assert report["overlaps"][0]["intents"] == ["greet", "order"]
    assert TEXTS[place] in report["overlaps"][0]["texts"]
    worst = report["intents"][0]
    assert (worst["intent"], worst["examples"]) == ("greet", 5) and worst["own"] < 1


def test_columns_in_another_order_are_read_by_position(encodings):
    texts, labels = [*TEXTS, "where IS my order"], [*LABELS, "greet"]
    report = inspect_examples(encodings, LabelledTexts(Series(texts), Series(labels)))
    assert report == inspect_examples(encodings, LabelledTexts(texts, labels))
    assert report["suspects"][0]["text"] == texts[-1]
    with pytest.raises(ValueError, match=r"13 texts and 12 labels\. Pass one"):
        inspect_examples(encodings, LabelledTexts(texts, LABELS))


def test_duplicates_across_intents_are_found(encodings):
    texts = [*TEXTS, "Where IS my order", "reset my password please"]
    labels = [*LABELS, "reset", "reset"]
    report = inspect_examples(encodings, LabelledTexts(texts, labels))
    (pair,) = report["duplicates"]  # the other pair has a single intent
    assert {*pair["labels"]} == {"order", "reset"}
    assert {text.lower() for text in pair["texts"]} == {"where is my order"}
    assert pair["cosine"] == pytest.approx(1, abs=1e-4)


def test_a_copy_does_not_hide_a_wrong_label(encodings):
    texts, labels = [*TEXTS, "Where  IS my order"], [*LABELS, "order"]
    place = TEXTS.index("when will my order come")
    labels[place] = "greet"
    once = inspect_examples(encodings, LabelledTexts(texts, labels))
    copied = LabelledTexts([*texts, TEXTS[place].upper()], [*labels, "greet"])
    assert inspect_examples(encodings, copied) == once
    assert once["suspects"][0]["number"] == place
    assert once["examples"] == len(TEXTS)


def test_copies_may_list_their_labels_in_any_order(encodings):
    texts, labels = [*TEXTS, "hi, reset it", "hi, reset IT"], [*LABELS, "reset+greet"]
    for other in ("reset+greet", "greet + reset", "greet+reset+greet"):
        data = LabelledTexts(texts, [*labels, other])
        report = inspect_examples(encodings, data, label_separator="+")
        assert report["examples"] == len(TEXTS) + 1


def test_cosines_of_several_encoders_are_at_most_1():
    encodings = IntentEncodings([WordEncoder(), WordEncoder(seed=1)])
    texts, labels = [*TEXTS, TEXTS[-1]], [*LABELS, "reset"]
    report = inspect_examples(encodings, LabelledTexts(texts, labels))
    assert [row["cosine"] for row in report["duplicates"]] == [pytest.approx(1, abs=1e-4)]
    assert report["suspects"][0]["margin"] <= 1


def test_one_intent_is_refused(encodings):
    with pytest.raises(ValueError, match=r"at least two intents. Received: only 'x'"):
        inspect_examples(encodings, LabelledTexts(["a", "b"], ["x", "x"]))


def test_an_intent_with_one_example_is_no_suspect(encodings):
    report = inspect_examples(encodings, LabelledTexts([*TEXTS, "knit socks"], [*LABELS, "odd"]))
    assert report["intents"][-1] == {"intent": "odd", "examples": 1, "own": None}
    assert "odd" not in {row["label"] for row in report["suspects"]}


def test_the_text_names_what_was_found(encodings):
    labels = ["greet", *LABELS[1:-1], "greet"]
    text = inspection_text(inspect_examples(encodings, LabelledTexts(TEXTS, labels)), shown=1)
    assert "12 examples of 3 intents" in text
    assert "order → " in text or "greet → order" in text
