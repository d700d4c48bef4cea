"""Models that were opened before a fork: gunicorn --preload, uwsgi, multiprocessing's Pool."""

import json
import os

import numpy as np
import pytest
from support.forked import said_in_fork
from support.made_once import made_once
from support.processes import printed_by
from support.tiny_checkpoint import random_texts

from convert_tf import EncoderClient, IntentClassifier, Ranker, SentenceEncoder
from convert_tf.checkpoints.folder import save_checkpoint
from convert_tf.checkpoints.ranker import initial_ranker
from convert_tf.config.ranker import HeadConfig
from convert_tf.export.hub.writing import export_module

TEXTS = random_texts(8)
LABELS = ["a", "b"] * 4


@pytest.fixture(scope="module")
def rankers(tiny_modules):
    def make(folder):
        model, vocabulary = initial_ranker(tiny_modules["single"][0], HeadConfig(head="bi"))
        save_checkpoint(folder / "run", model, vocabulary=vocabulary, training={})
        export_module(folder / "run", folder / "module")

    folder = made_once("bi_ranker", make)
    return folder / "run", folder / "module"


def calls(kind, path):
    """Calls of a model that this process has opened, and one that opens it anew."""
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
    """TensorFlow is imported before: it starts its threads with its first computation."""
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
    """As gunicorn --preload starts it: the application in the parent, requests in the child."""
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
