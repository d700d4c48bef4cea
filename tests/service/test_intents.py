"""The classifier of a service: its choice of encoder, and its cache."""

import json
import os
import shutil

import numpy as np
import pytest
from fastapi.testclient import TestClient
from support.commands import call_command
from support.intent_examples import LABELS, TEXTS

from convert_tf import IntentClassifier, MultiIntentClassifier, SentenceEncoder, load_classifier
from convert_tf.intents import encodings
from convert_tf.intents.one_file import export_one_file
from convert_tf.intents.predictor import answer_texts
from convert_tf.service.application import Model, make_application, served_classifier


class Counting:
    """An encoder that counts the texts that it receives."""

    def __init__(self, encoder):
        self._encoder = encoder
        self.kinds = getattr(encoder, "kinds", [])
        self.calls = []

    def encode(self, texts):
        self.calls.append(len(texts))
        return self._encoder.encode(texts)


@pytest.fixture(scope="module")
def made(tiny_modules, tmp_path_factory):
    """The folder of a classifier, the path of its module, and the classifier."""
    folder = tmp_path_factory.mktemp("intents") / "model"
    module = str(tiny_modules["single"][1])
    classifier = IntentClassifier(module, head="logistic").fit(TEXTS, LABELS)
    classifier.save(folder)
    return str(folder), module, classifier


def test_the_module_that_is_served_is_loaded_once(made, monkeypatch):
    folder, module, classifier = made
    encoder = Counting(SentenceEncoder(module))

    def encode_function(each, kind):
        assert each is encoder, "another encoder is loaded"
        return each.encode

    monkeypatch.setattr(encodings, "encode_function", encode_function)
    served = os.path.relpath(module)
    found = served_classifier(folder, module=served, encoder=encoder, max_texts=100)
    assert answer_texts(found, TEXTS) == answer_texts(classifier, TEXTS)
    assert encoder.calls == [len(TEXTS)]


def test_another_module_is_read_from_its_own_place(made, tiny_modules):
    folder, _, classifier = made
    other = str(tiny_modules["multi"][1])
    found = served_classifier(folder, module=other, encoder=Counting(None), max_texts=100)
    assert answer_texts(found, TEXTS) == answer_texts(classifier, TEXTS)


def test_the_module_that_is_served_may_have_been_moved(made, tiny_modules, tmp_path):
    folder, module, classifier = made
    copy = shutil.copytree(folder, tmp_path / "model")
    described = json.loads((copy / "intent.json").read_text())
    described["encoders"][0]["path"] = "/gone"
    (copy / "intent.json").write_text(json.dumps(described))
    (copy / "sha256.json").unlink()
    encoder = Counting(SentenceEncoder(module))
    found = served_classifier(str(copy), module=module, encoder=encoder, max_texts=100)
    assert answer_texts(found, TEXTS) == answer_texts(classifier, TEXTS)
    assert encoder.calls == [len(TEXTS)]
    other = str(tiny_modules["multi"][1])
    with pytest.raises(ValueError, match=r"encoder of '\S+model' is '/gone', which does not exist"):
        served_classifier(str(copy), module=other, encoder=Counting(None), max_texts=100)


def test_what_is_kept_is_what_is_asked_for_at_once(made, tmp_path):
    folder, module, classifier = made
    encoder = Counting(SentenceEncoder(module))
    found = served_classifier(folder, module=module, encoder=encoder, max_texts=2)
    for _ in range(2):
        for text in TEXTS[:3]:
            assert found.predict([text])[0] == classifier.predict([text])[0]
    assert encoder.calls == [1] * 6
    pytest.importorskip("onnx")
    file = export_one_file(classifier, tmp_path / "model.onnx", network_bits=32)
    found = served_classifier(str(file), module=module, encoder=encoder, max_texts=2)
    np.testing.assert_allclose(
        found.predict_proba(TEXTS), classifier.predict_proba(TEXTS), atol=0.01
    )
    assert len(found._encodings._kept.kept()[0]) == 2


def test_a_folder_of_several_intents_is_served(tiny_modules, tmp_path):
    module = str(tiny_modules["single"][1])
    sets = [[label, "polite"] if i % 2 else [label] for i, label in enumerate(LABELS)]
    classifier = MultiIntentClassifier(module).fit(TEXTS, sets)
    classifier.save(tmp_path / "model")
    encoder = Counting(SentenceEncoder(module))
    found = served_classifier(str(tmp_path / "model"), module=module, encoder=encoder, max_texts=99)
    assert answer_texts(found, TEXTS) == answer_texts(classifier, TEXTS)
    assert encoder.calls == [len(TEXTS)]
    with TestClient(make_application(Model(encoder, "tiny", found))) as client:
        given = client.post("/classify", json={"texts": TEXTS}).json()["answers"]
        assert [a["intent"] for a in given] == [a.intent for a in answer_texts(classifier, TEXTS)]
        refused = client.post("/classify", json={"texts": ["hi"], "explain": True})
        assert refused.status_code == 422 and "several intents" in refused.text


def test_a_service_for_english_tells_other_languages(made):
    pytest.importorskip("py3langid")
    model = Model(Counting(None), "tiny", made[2])
    german = "Ich habe meine Karte verloren"
    with TestClient(make_application(model, english_only=True)) as client:
        for more in ({}, {"explain": True}):
            asked = {"texts": [german, TEXTS[0]], **more}
            first, second = client.post("/classify", json=asked).json()["answers"]
            told = {"text": german, "intent": None, "confidence": 0.0, "language": "de"}
            assert first == told and second["intent"] is not None
    with TestClient(make_application(model)) as client:
        (first,) = client.post("/classify", json={"texts": [german]}).json()["answers"]
        assert first["intent"] is not None and "language" not in first


def test_a_service_without_intents_refuses_english_only():
    with pytest.raises(SystemExit, match="--english_only has no effect without --intents"):
        call_command("serve", "--english_only")


def test_python_and_commands_open_every_kind(made, tmp_path):
    folder, _, classifier = made
    assert answer_texts(load_classifier(folder), TEXTS) == answer_texts(classifier, TEXTS)
    pytest.importorskip("onnx")
    file = export_one_file(classifier, tmp_path / "model.onnx", network_bits=32)
    assert load_classifier(file).predict(TEXTS).tolist() == classifier.predict(TEXTS).tolist()
    with pytest.raises(ValueError, match="contains its encoder"):
        load_classifier(file, encoder=folder)
