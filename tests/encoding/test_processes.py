"""Encoders in other processes: pickling, copying, scikit-learn workers and forks.

Forks are created by gunicorn --preload, uwsgi and multiprocessing's Pool.
"""

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
from support.forked import said_in_fork
from support.made_once import made_once
from support.processes import printed_by
from support.tiny_checkpoint import random_texts

from convert_tf import EncoderClient, IntentClassifier, Ranker, SentenceEncoder
from convert_tf.checkpoints.folder import save_checkpoint
from convert_tf.checkpoints.loading import initial_ranker
from convert_tf.config.ranker import HeadConfig
from convert_tf.encoding.backends import pickling
from convert_tf.export.hub.writing import export_module

TEXTS = random_texts(24)
LABELS = ["b", "a"] * 12


@pytest.fixture(scope="module")
def models(tiny_modules, tiny_onnx):
    """Paths of a module, a run folder and an `.onnx` file."""
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


@pytest.fixture(scope="module")
def rankers(tiny_modules):
    def make(folder):
        model, vocabulary = initial_ranker(tiny_modules["single"][0], HeadConfig(head="bi"))
        save_checkpoint(folder / "run", model, vocabulary=vocabulary, training={})
        export_module(folder / "run", folder / "module")

    folder = made_once("bi_ranker", make)
    return folder / "run", folder / "module"


def calls(kind, path):
    """Return calls of models opened in this process, and one that opens the model again."""
    if kind == "encoder":
        encoder, client = SentenceEncoder(path), EncoderClient(path)
        return [
            lambda: encoder.encode(["a"]),
            lambda: encoder.encode([]),
            lambda: next(encoder.iter_encode(["a"], kind="response")),
            lambda: encoder.rank("a", ["b"]),
            lambda: client.encode_contexts(["a"]),
            lambda: SentenceEncoder(path),
        ]
    if kind == "ranker":
        ranker = Ranker(path)
        return [
            lambda: ranker.rank("a", ["b"]),
            lambda: ranker.candidate_scores(["a", "b"], [["c"], ["d", "e"]]),
            lambda: Ranker(path),
        ]
    classifier = IntentClassifier(path, epochs=2).fit(TEXTS, LABELS)
    return [
        lambda: classifier.predict(["a text that it has not seen"]),
        lambda: IntentClassifier(path).fit(["a text", "another"], ["a", "b"]),
    ]


@pytest.mark.parametrize("form", ["run", "module"])
@pytest.mark.parametrize("kind", ["encoder", "ranker", "classifier"])
def test_what_was_opened_before_a_fork_says_so_in_the_child(tiny_modules, rankers, kind, form):
    models = rankers if kind == "ranker" else tiny_modules["single"]
    path = models[form == "module"]
    for call in calls(kind, path):
        said = said_in_fork(call)
        assert said.startswith(f"ForkedError: '{path}' cannot compute in process "), said
        assert f"process {os.getpid()} had opened a model" in said
        assert "after the fork" in said and "spawn" in said and ".onnx" in said


def test_an_onnx_file_answers_after_a_fork(tiny_onnx):
    path = tiny_onnx
    encoder, client = SentenceEncoder(path), EncoderClient(path)
    classifier = IntentClassifier(encoder, epochs=2).fit(TEXTS, LABELS)
    texts = ["how are you", *TEXTS, "one text of many words " * 9]
    expected = encoder.encode(texts)[:, :5]
    for call in (
        lambda: encoder.encode(texts)[:, :5].tolist(),
        lambda: SentenceEncoder(path).encode(texts)[:, :5].tolist(),
        lambda: client.encode_sentences(texts)[:, :5].tolist(),
    ):
        np.testing.assert_allclose(json.loads(said_in_fork(call)), expected, atol=1e-5)
    told = said_in_fork(lambda: classifier.predict(["where is it"]).tolist())
    assert told == repr(classifier.predict(["where is it"]).tolist())


def test_a_model_that_is_opened_after_the_fork_answers(tiny_modules):
    """TensorFlow may be imported before the fork: it starts threads only when it computes."""
    program = (
        "import sys\n"
        "import numpy as np, tensorflow_text\n"
        "from support.forked import said_in_fork\n"
        "from convert_tf import SentenceEncoder\n"
        "def work():\n"
        "    return SentenceEncoder(sys.argv[1]).encode(['a']).tolist()\n"
        "print(said_in_fork(work, seconds=100))\n"
    )
    module = tiny_modules["single"][1]
    printed = printed_by(program, module)
    expected = SentenceEncoder(module).encode(["a"])
    np.testing.assert_allclose(json.loads(printed), expected, atol=0.05)


def test_a_service_that_was_loaded_before_a_fork_says_so(tiny_modules):
    """As with gunicorn --preload, the parent loads the application and a child gets requests."""
    pytest.importorskip("httpx")
    testclient = pytest.importorskip("fastapi.testclient")
    from convert_tf.service.application import Model, make_application

    path = tiny_modules["single"][1]
    application = make_application(Model(SentenceEncoder(path), "tiny"))

    def asked():
        with testclient.TestClient(application, raise_server_exceptions=False) as client:
            replies = [
                client.post("/encode", json={"texts": ["a"]}),
                client.post("/rank", json={"contexts": ["a"], "responses": ["b"]}),
                client.post("/v1/embeddings", json={"model": "tiny", "input": "a"}),
            ]
        return [(reply.status_code, reply.json()["error"]["message"]) for reply in replies]

    said = said_in_fork(asked)
    assert said.count("(500, ") == 3, said
