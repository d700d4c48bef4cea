"""Names of intents in plain words."""

import pytest

from convert_tf.intents.names import name_in_words, names_of


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("card_arrival", "card arrival"),
        ("Refund_not_showing_up", "refund not showing up"),
        ("reverted_card_payment?", "reverted card payment"),
        ("BookRestaurant", "book restaurant"),
        ("faq/ask_opening-hours", "faq ask opening hours"),
        ("top2Tracks", "top2 tracks"),
        ("FAQ", "faq"),
        ("HTTPError", "http error"),
        ("ÜberweisungÄndern", "überweisung ändern"),
        ("cafe\u0301_order", "caf\xe9 order"),
        ("मौसम_जानकारी", "मौसम जानकारी"),
        ("don't_know", "don't know"),
        ("注文", "注文"),
        ("17", ""),
        ("_-_", ""),
        ("", ""),
        (17, ""),
        (True, ""),
    ],
)
def test_a_name_is_words(label, words):
    assert name_in_words(label) == words


def test_names_of_several_or_of_nothing_are_left_out():
    classes = ["3", "card_lost", "cardLost", "refund"]
    assert names_of(classes) == {3: "refund"}
    assert names_of([1, 2]) == {}
    classes = ["oos", "refund", "top_up"]
    assert names_of(classes, left_out="oos", known=["refund"]) == {2: "top up"}
