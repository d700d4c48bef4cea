"""API keys, request ids, the access log, truncated vectors, and the number of threads."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from support.commands import own_environment

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient
from support.intent_examples import LABELS, TEXTS
from support.services import LetterBackend, letter_encoder

from convert_tf import IntentClassifier, SentenceEncoder
from convert_tf.intents.one_file import export_one_file
from convert_tf.numerics import processor
from convert_tf.service import access
from convert_tf.service.application import Model, make_application, opened_model

BODY = {"texts": ["where is my card?"]}


@pytest.fixture(scope="module")
def encoder():
    return letter_encoder()[0]


def client_of(encoder, **options):
    return TestClient(make_application(Model(encoder, "letters"), **options))


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def test_requests_need_one_of_the_keys(encoder):
    with client_of(encoder, api_keys=("first", "second")) as client:
        for key in ("first", "second"):
            assert client.post("/encode", json=BODY, headers=bearer(key)).status_code == 200
        refused = [
            {}, bearer("third"), bearer(""), bearer("firstsecond"), {"Authorization": "first"},
            {"Authorization": "Basic first"}, {"Authorization": b"Bearer \xff"},
        ]  # fmt: skip
        for headers in refused:
            for path in ("/encode", "/nowhere", "/v1/embeddings"):
                reply = client.post(path, json=BODY, headers=headers)
                assert (reply.status_code, reply.json()["error"]["code"]) == (401, 401), headers
                assert reply.headers["WWW-Authenticate"] == "Bearer"
        assert client.get("/metrics").status_code == client.get("/v1/models").status_code == 401
        assert client.get("/metrics", headers=bearer("first")).status_code == 200
        for path in ("/health", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 200
        assert client.head("/health").status_code == 200


def test_the_description_says_which_requests_need_a_key(encoder):
    paths = make_application(Model(encoder, "letters"), api_keys=("a",)).openapi()
    assert paths["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    described = paths["paths"]
    for path in ("/encode", "/rank", "/classify", "/v1/embeddings"):
        assert described[path]["post"]["security"] == [{"HTTPBearer": []}]
        assert "401" in described[path]["post"]["responses"]
    assert "security" not in described["/health"]["get"]
    without = make_application(Model(encoder, "letters")).openapi()
    assert "securitySchemes" not in without["components"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("one\n\n# a comment\n two \r\n", ("one", "two")),
        ("\ufeffone", ("one",)),
        ("", "has no key"),
        ("# nothing\n", "has no key"),
        ("good\ntwo words\n", "Line 2 of .* has a space"),
        ("schlüssel\n", "Line 1 of .* non-ASCII"),
    ],
)
def test_keys_of_a_file(tmp_path, content, expected):
    path = tmp_path / "keys.txt"
    path.write_text(content, encoding="utf-8", newline="")
    if isinstance(expected, tuple):
        assert access.api_keys(str(path)) == expected
        return
    with pytest.raises(ValueError, match=expected) as caught:
        access.api_keys(str(path))
    assert "two words" not in str(caught.value) and "schlü" not in str(caught.value)


def test_a_file_of_keys_that_is_missing_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"--api_key_file.* cannot be read"):
        access.api_keys(str(tmp_path / "none"))


def test_answers_have_the_id_of_the_request_or_a_new_one(encoder):
    with client_of(encoder, api_keys=("a",)) as client:
        given = {"X-Request-ID": "proxy-1.2_3", **bearer("a")}
        for path in ("/encode", "/nowhere"):
            assert client.post(path, json=BODY, headers=given).headers["X-Request-ID"] == (
                "proxy-1.2_3"
            )
        ids = {client.post("/encode", json=BODY).headers["X-Request-ID"] for _ in range(3)}
        assert len(ids) == 3 and all(len(each) == 32 for each in ids)
        for bad in ("a b", "x" * 129, '"'):
            reply = client.get("/health", headers={"X-Request-ID": bad})
            assert len(reply.headers["X-Request-ID"]) == 32


def test_each_request_is_a_line_of_the_log(encoder, capsys):
    with client_of(encoder, api_keys=("a",), on_access=access.write_access) as client:
        first = client.post("/encode", json=BODY, headers={"X-Request-ID": "1", **bearer("a")})
        client.get("/v1/models?secret=1", headers={"X-Request-ID": "2"})
        client.post("/nowhere%0A", content=b"xyz", headers={"X-Request-ID": "3", **bearer("a")})
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["id"], each["method"], each["path"], each["status"]) for each in lines] == [
        ("1", "POST", "/encode", 200), ("2", "GET", "/v1/models", 401),
        ("3", "POST", "/nowhere\n", 404),
    ]  # fmt: skip
    assert lines[0]["received"] == len(first.request.content)
    assert lines[0]["sent"] == len(first.content)
    assert 0 < lines[0]["seconds"] < 60 and lines[0]["client"]
    assert lines[0]["time"].endswith("+00:00")
    assert not any("card" in str(line) or "secret" in str(line) for line in lines)


def test_an_answer_to_an_error_has_the_id_and_is_logged_with_its_size(capsys):
    encoder, backend = letter_encoder()
    backend.run = None
    app = make_application(Model(encoder, "letters"), on_access=access.write_access)
    with TestClient(app, raise_server_exceptions=False) as client:
        reply = client.post("/encode", json=BODY, headers={"X-Request-ID": "5"})
    assert reply.status_code == 500 and reply.headers["X-Request-ID"] == "5"
    (line,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (line["id"], line["status"], line["sent"]) == ("5", 500, len(reply.content))


class SimilarityBackend(LetterBackend):
    """Also encodes by letters, and has similarity vectors with 8 values."""

    outputs = ("default", "encode_similarity")

    def run(self, output, columns):
        vectors = super().run(output, columns)
        return vectors[:, ::4] if output == "encode_similarity" else vectors


def test_vectors_that_can_be_cut_are_cut():
    encoder = SentenceEncoder(SimilarityBackend())
    texts = ["hello there", "card"]
    body = {"model": "letters", "input": texts}
    with client_of(encoder) as client:

        def embedded(**asked):
            return client.post("/v1/embeddings", json={**body, **asked})

        for dim in (8, 5, 1):
            found = [each["embedding"] for each in embedded(dimensions=dim).json()["data"]]
            np.testing.assert_allclose(found, encoder.encode_similarity(texts, dim), atol=1e-6)
        whole = [each["embedding"] for each in embedded().json()["data"]]
        assert [each["embedding"] for each in embedded(dimensions=32).json()["data"]] == whole
        for dim in (9, 31, 33):
            reply = embedded(dimensions=dim)
            assert reply.status_code == 400
            assert "pass at most 8" in reply.json()["error"]["message"]


def test_the_quota_is_the_default_number_of_threads(monkeypatch, tiny_onnx):
    from convert_tf.encoding.backends.onnx import OnnxBackend

    monkeypatch.setattr(processor, "_threads", [])
    monkeypatch.setattr(processor, "visible_cores", lambda: 64)
    monkeypatch.setattr(processor, "cgroup_quota", lambda: 3.0)
    assert OnnxBackend(tiny_onnx).concurrent_batches == 3
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "")
    processor.use_threads(5)
    assert OnnxBackend(tiny_onnx).concurrent_batches == 5
    assert os.environ["TF_NUM_INTRAOP_THREADS"] == "5"


@pytest.fixture(scope="module")
def intents_file(tiny_onnx, tmp_path_factory):
    classifier = IntentClassifier(str(tiny_onnx), head="logistic").fit(TEXTS, LABELS)
    path = tmp_path_factory.mktemp("file") / "intents.onnx"
    return export_one_file(classifier, path, network_bits=32)


def test_a_classifier_in_one_file_is_the_encoder_too(intents_file):
    path = str(intents_file)
    model = opened_model(path, path, name="intents", compute_dtype="auto", max_texts=10)
    assert model.encoder is model.classifier.sentence_encoder
    with TestClient(make_application(model)) as client:
        vectors = client.post("/encode", json={"texts": TEXTS}).json()["vectors"]
        np.testing.assert_allclose(vectors, SentenceEncoder(path).encode(TEXTS), atol=1e-5)
        found = client.post("/classify", json={"texts": TEXTS}).json()["answers"]
        assert [each["intent"] for each in found] == [*model.classifier.predict(TEXTS)]


def test_one_file_computes_as_it_was_exported(intents_file, tmp_path):
    options = {"name": "a", "max_texts": 10}
    path = str(intents_file)
    with pytest.raises(ValueError, match="compute_dtype='bfloat16' has no effect"):
        opened_model(path, path, compute_dtype="bfloat16", **options)
    folder = str(tmp_path)
    with pytest.raises(ValueError, match="Pass the"):
        opened_model(folder, folder, compute_dtype="auto", **options)


# Starts the command, and stops before it listens.
PROGRAM = """
import sys
sys.modules["tensorflow"] = None
from convert_tf.service import server

class Listener:
    def __init__(self, application, **options):
        self.application = application

    def run(self):
        from fastapi.testclient import TestClient
        with TestClient(self.application) as client:
            health = client.get("/health").json()
        from convert_tf.numerics.processor import allowed_cores
        print(health["model"], allowed_cores())

server.make_server = Listener
from convert_tf.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_the_command_needs_no_other_encoder(intents_file, tmp_path):
    (tmp_path / "keys").write_text("secret\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "serve", f"--intents={intents_file}", "--num_threads=1",
         "--api_key_file=keys", "--access_log"],
        env=own_environment(), cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *log, last = done.stdout.splitlines()
    assert last == "intents 1" and [json.loads(line)["status"] for line in log] == [200]
