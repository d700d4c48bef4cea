"""Encoders in pickles, copies and the processes of scikit-learn."""

import copy
import json
import os
import pickle
import shutil
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from support.processes import printed_by
from support.tiny_checkpoint import random_texts

from convert_tf import EncoderClient, IntentClassifier, SentenceEncoder
from convert_tf.encoding.backends import pickling

TEXTS = random_texts(24)
LABELS = ["a" if index % 2 else "b" for index in range(24)]


@pytest.fixture(scope="module")
def models(tiny_modules, tiny_onnx):
    """Paths of a module, the folder of a run and an `.onnx` file."""
    checkpoint, module = tiny_modules["single"]
    return {"module": str(module), "run": str(checkpoint), "onnx": str(tiny_onnx)}


@pytest.fixture(autouse=True)
def _nothing_is_open():
    pickling._open.cache_clear()


@pytest.mark.parametrize("kind", ["module", "run", "onnx"])
def test_an_encoder_is_pickled_as_its_path_and_options(models, kind, monkeypatch):
    monkeypatch.chdir(Path(models[kind]).parent)
    encoder = SentenceEncoder(os.path.basename(models[kind]), batch_size=3, numbers_turns=True)
    pickled = pickle.dumps(encoder)
    assert len(pickled) < 1000
    monkeypatch.chdir("/")
    again = pickle.loads(pickled)
    assert (again.batch_size, again.numbers_turns) == (3, True)
    np.testing.assert_allclose(again.encode(TEXTS), encoder.encode(TEXTS), atol=1e-6)


def test_options_of_a_model_are_pickled(models):
    encoder = SentenceEncoder(models["module"], compute_dtype="bfloat16")
    assert pickle.loads(pickle.dumps(encoder))._model.compute_dtype == "bfloat16"


def test_copies_share_the_model(models):
    encoder = SentenceEncoder(models["onnx"])
    for copied in (copy.copy(encoder), copy.deepcopy(encoder)):
        assert copied is not encoder
        assert copied._model is encoder._model
        copied.batch_size = 1
    assert encoder.batch_size == 256


def test_a_model_is_opened_once_in_a_process(models):
    pickled = pickle.dumps(SentenceEncoder(models["onnx"]))
    assert pickle.loads(pickled)._model is pickle.loads(pickled)._model


@pytest.mark.parametrize("damage", ["gone", "another"])
def test_the_model_that_was_pickled_must_be_there(models, tmp_path, damage):
    path = tmp_path / "moved.onnx"
    shutil.copy(models["onnx"], path)
    pickled = pickle.dumps(SentenceEncoder(path))
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ValueError, match="does not exist" if damage == "gone" else "differ"):
        pickle.loads(pickled)


def test_a_fitted_classifier_in_another_process(models, tmp_path):
    classifier = IntentClassifier(SentenceEncoder(models["onnx"]), epochs=2).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(
        copy.deepcopy(classifier).predict_proba(TEXTS), classifier.predict_proba(TEXTS)
    )
    joblib.dump(classifier, tmp_path / "classifier.joblib")
    statements = (
        "import joblib, json, sys\n"
        "print(json.dumps(joblib.load(sys.argv[1]).predict_proba(sys.argv[2:]).tolist()))"
    )
    found = json.loads(printed_by(statements, tmp_path / "classifier.joblib", *TEXTS[:3]))
    np.testing.assert_allclose(found, classifier.predict_proba(TEXTS[:3]), atol=1e-6)


def _estimators(encoder):
    return {
        "classifier": IntentClassifier(encoder, epochs=2),
        "pipeline": make_pipeline(FunctionTransformer(encoder.encode), LogisticRegression()),
    }


@pytest.mark.parametrize("name", ["classifier", "pipeline"])
def test_two_processes_of_scikit_learn(models, name):
    estimator = _estimators(SentenceEncoder(models["onnx"]))[name]
    one, two = (
        cross_val_predict(estimator, TEXTS, LABELS, cv=2, n_jobs=jobs) for jobs in (None, 2)
    )
    np.testing.assert_array_equal(one, two)


def test_a_client_is_pickled_without_what_it_has_cached(models):
    client = EncoderClient(models["onnx"])
    vectors = client.encode_sentences(TEXTS)
    client.encode_sentences(TEXTS)
    encode = pickle.loads(pickle.dumps(client.encode_sentences))
    assert (client.encode_sentences.cache_hits(), encode.cache_hits()) == (len({*TEXTS}), 0)
    np.testing.assert_array_equal(encode(TEXTS), vectors)
    encode(TEXTS[:2])
    assert encode.cache_hits() == 2
    assert copy.deepcopy(client).encode_sentences(TEXTS[:1]).shape == (1, vectors.shape[1])
