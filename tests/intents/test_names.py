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
        ("ÜberweisungÄndern", "überweisungändern"),
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
    assert names_of(classes) == ([3], ["refund"])
    assert names_of([1, 2]) == ([], [])
