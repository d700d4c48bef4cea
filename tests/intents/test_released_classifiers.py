"""Classifiers on the modules under hub_modules/, as users make them."""

from support.documents import README, ROOT, blocks

from convert_tf.intents.classifier import IntentClassifier

MODULES = ROOT / "hub_modules"


def test_a_dozen_sentences_make_a_classifier():
    (block,) = blocks(README, language="csv")
    lines = block.text.strip().splitlines()[1:]
    texts, labels = zip(*(line.rsplit(",", 1) for line in lines), strict=True)
    assert len(texts) == 12
    classifier = IntentClassifier(str(MODULES / "convert" / "1")).fit(list(texts), list(labels))
    asked = {
        "my package never came": "delivery",
        "the courier left it at the wrong house": "delivery",
        "can you pay me back for this": "refund",
        "I would like to return my jacket": "refund",
        "it says my username is wrong": "login",
        "I cannot sign in to the app": "login",
    }
    found = classifier.predict(list(asked))
    assert sum(own == label for own, label in zip(found, asked.values(), strict=True)) >= 5
