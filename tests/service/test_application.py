"""HTTP requests to a running service."""

import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from support.commands import own_environment

fastapi = pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from support.documents import blocks, run_block  # noqa: E402
from support.services import letter_encoder, running, wait_until  # noqa: E402

from convert_tf import IntentClassifier  # noqa: E402
from convert_tf.service import application  # noqa: E402
from convert_tf.service.application import Model, make_application  # noqa: E402
from convert_tf.service.batching import Limits  # noqa: E402

REFUSAL = r"[A-Za-z_][^\n]*\."  # sentences on one line

TEXTS = ["where is my card?", "", "günstig 🎉 ?", "a" * 300]
LABELLED = {"where is my parcel": "delivery", "has it left": "delivery", "refund me": "refund",
            "money back": "refund"}  # fmt: skip


@pytest.fixture(scope="module")
def encoder():
    return letter_encoder()[0]


@pytest.fixture(scope="module")
def classifier(encoder):
    return IntentClassifier(encoder, head="logistic").fit([*LABELLED], [*LABELLED.values()])


@contextlib.contextmanager
def served(encoder, classifier=None, *, name="letters", **limits):
    """Yield a client of a service that runs while the block does."""
    application = make_application(Model(encoder, name, classifier), Limits(**limits))
    with running(application) as url, httpx.Client(base_url=url, timeout=20) as client:
        yield client


@pytest.fixture(scope="module")
def client(encoder, classifier):
    limits = {"max_texts": 50, "max_characters": 1000, "max_bytes": 100_000}
    with served(encoder, classifier, **limits) as client:
        yield client


@pytest.mark.parametrize("kind", ["sentence", "context", "response"])
def test_encode(client, encoder, kind):
    reply = client.post("/encode", json={"texts": TEXTS, "kind": kind})
    expected = next(encoder.iter_encode(TEXTS, kind=kind))
    assert reply.status_code == 200
    np.testing.assert_allclose(reply.json()["vectors"], expected, atol=1e-6)
    assert reply.json()["dim"] == 32


def test_encode_as_base64_and_without_texts(client, encoder):
    reply = client.post("/encode", json={"texts": TEXTS, "format": "base64"}).json()
    found = [np.frombuffer(base64.b64decode(each), "<f4") for each in reply["vectors"]]
    np.testing.assert_array_equal(found, encoder.encode(TEXTS))
    assert client.post("/encode", json={"texts": []}).json() == {"vectors": [], "dim": 0}


def test_rank(client, encoder):
    def ranked(contexts, responses, **asked):
        body = {"contexts": contexts, "responses": responses, **asked}
        return client.post("/rank", json=body).json()["rankings"]

    responses = ["card where", "zzz", "is my card"]
    for context, found in zip(TEXTS[:2], ranked(TEXTS[:2], responses, top_k=2), strict=True):
        expected = encoder.rank(context, responses, top_k=2)
        assert [(each["response"], each["score"]) for each in found] == [
            (text, pytest.approx(cosine, rel=1e-5)) for text, cosine in expected
        ]
        assert [responses[each["index"]] for each in found] == [text for text, _ in expected]
    many = [f"response {n}" for n in range(30)]
    for asked, number in ({}, 10), ({"top_k": 20}, 20), ({"top_k": 99}, 30):
        assert len(ranked(["a"], many, **asked)[0]) == number


@pytest.mark.parametrize("count", [3, 5, 7, 13, 33])
def test_equal_responses_stay_in_order(count):
    """In float32, BLAS may compute the last columns of a product in another order."""
    context, same = np.random.default_rng(0).standard_normal((2, 1, 512)).astype(np.float32)
    texts = ["same"] * count
    ranked = application._ranked(context, same.repeat(count, axis=0), texts, count)
    for row in json.loads(ranked)["rankings"]:
        assert len({entry["score"] for entry in row}) == 1
        assert [entry["index"] for entry in row] == [*range(count)]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("rank", {"contexts": ["a"] * 8, "responses": ["b"] * 5, "top_k": 9},
         "40 results, but at most 30 are allowed. Lower"),
        ("rank", {"contexts": ["a"] * 6, "responses": ["b" * 10, "c" * 11], "top_k": 1},
         "66 characters in results, but at most 65"),
        ("rank", {"contexts": ["a"], "responses": ["b"] * 51}, "51 texts in a request"),
        ("classify", {"texts": ["a"] * 16, "top_k": 9}, "32 results, but at most 30"),
    ],
)  # fmt: skip
def test_what_would_fill_the_memory_is_refused_before_it_is_computed(
    client, encoder, monkeypatch, path, body, message
):
    monkeypatch.setattr(application, "_MAX_RESULTS", 30)
    monkeypatch.setattr(application, "_MAX_RESULT_CHARACTERS", 65)
    monkeypatch.setattr(encoder._model, "run", None)
    reply = client.post(f"/{path}", json=body)
    assert (reply.status_code, message in reply.json()["error"]["message"]) == (413, True), reply


def test_encode_with_earlier_turns():
    encoder, _ = letter_encoder(reads_history=True)
    contexts, extra = ["sure where to", "x"], [["hello", "a taxi please"], ""]
    body = {"texts": contexts, "kind": "context"}
    with served(encoder) as client:
        reply, few, plain = (
            client.post("/encode", json={**body, "extra_contexts": earlier})
            for earlier in (extra, [""], None)
        )
    expected = encoder.encode_contexts(contexts, extra)
    np.testing.assert_allclose(reply.json()["vectors"], expected, atol=1e-6)
    assert not np.allclose(plain.json()["vectors"], expected)
    assert few.status_code == 422 and "2 texts but 1 extra_contexts" in few.text


def test_classify(client, classifier):
    texts = [*LABELLED, " "]
    found = client.post("/classify", json={"texts": texts, "top_k": 2}).json()["answers"]
    assert [each["intent"] for each in found[:-1]] == [*classifier.predict([*LABELLED])]
    assert found[-1] == {"text": " ", "intent": None, "confidence": 0.0}
    assert all(sum(each["intents"].values()) == pytest.approx(1, abs=1e-3) for each in found[:-1])


@pytest.mark.parametrize(
    ("path", "body", "optional"),
    [
        ("encode", {"texts": TEXTS}, ("kind", "extra_contexts", "format")),
        ("rank", {"contexts": TEXTS, "responses": ["a", "b"]}, ("extra_contexts", "top_k")),
        ("classify", {"texts": TEXTS}, ("top_k",)),
        ("v1/embeddings", {"model": "letters", "input": "a"}, ("encoding_format", "user")),
    ],
)
def test_optional_fields_that_are_null_are_their_defaults(client, path, body, optional):
    expected = client.post(f"/{path}", json=body)
    for names in (optional, *([name] for name in optional)):
        reply = client.post(f"/{path}", json={**body, **dict.fromkeys(names)})
        assert (reply.status_code, reply.json()) == (200, expected.json())
    for needed in body:
        reply = client.post(f"/{path}", json={**body, needed: None})
        assert reply.status_code == 422
        assert f"body.{needed}" in reply.json()["error"]["message"]


def test_requests_of_curl_and_of_load_balancers(client):
    """Requests without a JSON Content-Type, without a length and with HEAD get useful answers."""
    for headers, received in (
        ({"Content-Type": "application/x-www-form-urlencoded"}, "Received: application/x-www-form"),
        ({}, "It has no such header"),
    ):
        reply = client.post("/encode", content=b'{"texts": ["hi"]}', headers=headers)
        if not headers and fastapi.__version__.startswith("0.115."):
            continue  # this version accepts a body without a JSON Content-Type
        assert reply.status_code == 422
        message = reply.json()["error"]["message"]
        assert "header Content-Type: application/json" in message and received in message
    reply = client.head("/health")
    assert (reply.status_code, reply.content) == (200, b"")
    with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
        connection.sendall(b"POST /encode HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(10_000), b""))
    assert answer.startswith(b"HTTP/1.1 400") and b"neither Content-Length" in answer


def test_models_by_name_and_no_intents(encoder):
    with served(encoder, name="us/letters") as client:
        (listed,) = client.get("/v1/models").json()["data"]
        for name in ("us/letters", "us%2Fletters"):
            assert client.get(f"/v1/models/{name}").json() == listed
        reply = client.post("/classify", json={"texts": ["a"]})
    assert reply.status_code == 404
    assert "Start convert-tf serve with --intents" in reply.json()["error"]["message"]


def test_the_description_says_what_is_answered(encoder):
    described = make_application(Model(encoder, "letters")).openapi()
    for path in ("/encode", "/rank", "/classify", "/v1/embeddings"):
        answers = described["paths"][path]["post"]["responses"]
        assert {*answers} >= {"200", "400", "404", "413", "422", "500", "503"}
        for status in ("400", "422"):
            said = answers[status]["content"]["application/json"]["schema"]
            assert said == {"$ref": "#/components/schemas/Refusal"}
    assert [*described["paths"]["/metrics"]["get"]["responses"]["200"]["content"]] == ["text/plain"]


def test_embeddings_of_a_real_client(client, encoder):
    """The unmodified OpenAI client, which asks for base64 by itself, gets correct vectors."""
    openai = pytest.importorskip("openai")
    vectors = encoder.encode(["hello there", "card"])
    expected = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    with openai.OpenAI(base_url=f"{client.base_url}/v1", api_key="none", max_retries=0) as own:
        reply = own.embeddings.create(model="letters", input=["hello there", "card"])
        np.testing.assert_allclose([each.embedding for each in reply.data], expected, atol=1e-6)
        one = own.embeddings.create(model="letters", input="card", encoding_format="float")
        np.testing.assert_allclose(one.data[0].embedding, expected[1], atol=1e-6)
        assert [model.id for model in own.models.list()] == ["letters"]
        assert own.models.retrieve("letters").id == "letters"
        with pytest.raises(openai.NotFoundError, match="has the model 'letters'"):
            own.models.retrieve("text-embedding-3-small")
        with pytest.raises(openai.NotFoundError, match="has the model 'letters'"):
            own.embeddings.create(model="text-embedding-3-small", input="card")
        with pytest.raises(openai.BadRequestError, match="vectors have 32 dimensions"):
            own.embeddings.create(model="letters", input="card", dimensions=7)


def test_the_client_of_the_page(encoder):
    pytest.importorskip("openai")
    (block,) = blocks("docs/service.md", language="python", section="Clients of OpenAI")
    with running(make_application(Model(encoder, "convert_small"))) as url:
        found = run_block(block, {"http://127.0.0.1:8000": url})
        found["client"].close()
    expected = encoder.encode("where is my card?")
    np.testing.assert_allclose(found["vector"], expected / np.linalg.norm(expected), atol=1e-6)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("encode", {"texts": ["a"] * 51}, 413, "51 texts in a request, but at most 50"),
        ("encode", {"texts": ["a" * 1001]}, 413, "1,001 characters in a text, but at most 1,000"),
        ("encode", {"texts": ["a"] * 40 + ["b" * 200_000]}, 413, "at most 100,000 are"),
        ("encode", {"texts": "a"}, 422, "body.texts"),
        ("encode", {"texts": [1]}, 422, "body.texts.0"),
        ("encode", {"texts": ["a"], "kind": "similarity"}, 422, "kinds: sentence, context"),
        ("encode", {"texts": ["a"], "txts": []}, 422, "body.txts"),
        ("encode", {"texts": ["a"], "extra_contexts": [""]}, 422, "do not include earlier turns"),
        ("rank", {"contexts": ["a"], "responses": []}, 422, "body.responses"),
        ("rank", {"contexts": ["a"], "responses": ["b"], "extra_contexts": ["c"]}, 422,
         "does not read earlier turns"),
        ("rank", {"contexts": ["a"], "responses": ["b"], "top_k": True}, 422, "body.top_k"),
        ("classify", {"texts": ["a " * 499] * 21, "explain": True}, 413, "2,100 words to explain"),
        ("v1/embeddings", {"model": "letters", "input": [[1, 2]]}, 422,
         "body.input: these are token ids of another vocabulary"),
        ("encode", b'{"texts": [', 400, "not valid JSON: Expecting value at character 11"),
        ("encode", b'{"texts": ["\xff"]}', 400, "JSON in UTF-8"),
        ("nowhere", {}, 404, "has no POST /nowhere"),
        ("health", {}, 405, "has no POST /health"),
    ],
)  # fmt: skip
def test_what_is_refused_is_refused_in_a_line(client, path, body, status, message):
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    reply = client.post(f"/{path}", **sent, headers={"Content-Type": "application/json"})
    said = reply.json()["error"]
    assert (reply.status_code, message in said["message"]) == (status, True), reply.text
    assert re.fullmatch(REFUSAL, said["message"])
    assert said["type"] == "invalid_request_error"


def test_a_body_without_a_length_is_refused_as_it_comes(client):
    def endless():
        yield b'{"texts": ["'
        for _ in range(1000):
            yield b"a" * 1000

    reply = client.post("/encode", content=endless())
    assert reply.status_code == 413


def test_a_full_queue_is_said():
    encoder, backend = letter_encoder()
    backend.may_go.clear()
    with served(encoder, max_queue=2) as client, ThreadPoolExecutor(4) as pool:
        waiting = []
        for number in range(3):  # one is computed, two wait
            waiting.append(pool.submit(client.post, "/encode", json={"texts": [f"{number}"]}))
            assert backend.has_begun.wait(10)
            wait_until(lambda: client.get("/health").json()["queued"] == len(waiting) - 1)
        refused = client.post("/encode", json={"texts": ["late"]})
        backend.may_go.set()
        assert [each.result().status_code for each in waiting] == [200] * 3
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "1"
    said = refused.json()["error"]
    assert re.fullmatch(REFUSAL, said["message"]) and said["type"] == "server_error"
    assert "2 of at most 2 texts are waiting, and this request has 1." in said["message"]


def test_what_clients_that_left_asked_for_is_not_computed():
    encoder, backend = letter_encoder()
    backend.may_go.clear()
    with served(encoder) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.post, "/encode", json={"texts": ["first"]})
        assert backend.has_begun.wait(10)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{client.base_url}/encode", json={"texts": ["gone"] * 7}, timeout=0.3)
        wait_until(lambda: client.get("/health").json()["queued"] == 0)
        backend.may_go.set()
        assert first.result().status_code == 200
        assert client.post("/encode", json={"texts": ["a", "b"]}).status_code == 200
        assert 'path="/encode",status="499"} 1' in client.get("/metrics").text
    assert backend.batches == [1, 2]


def test_others_are_answered_while_an_answer_is_written(encoder, monkeypatch):
    may_write = threading.Event()

    def waits(vector, form):
        assert may_write.wait(10)
        return [0.0]

    monkeypatch.setattr(application, "_written", waits)
    with served(encoder) as client, ThreadPoolExecutor(1) as pool:
        large = pool.submit(client.post, "/encode", json={"texts": ["a"]})
        wait_until(lambda: 'texts_total{kind="sentence"}' in client.get("/metrics").text)
        time.sleep(0.1)
        assert client.get("/health", timeout=5).status_code == 200
        may_write.set()
        assert large.result().json()["vectors"] == [[0.0]]


def test_an_error_of_the_model_is_an_answer():
    encoder, backend = letter_encoder()
    backend.run = None
    with served(encoder) as client:
        reply = client.post("/encode", json={"texts": ["a"]})
        # Uvicorn closes the connection after an error.
        assert 'path="/encode",status="500"} 1' in httpx.get(f"{client.base_url}/metrics").text
    assert reply.status_code == 500
    said = reply.json()["error"]
    assert re.fullmatch(REFUSAL, said["message"]) and said["type"] == "server_error"
    assert "TypeError" in said["message"] and "callable" not in said["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/encode", {"texts": ["a"]}),
        ("/encode", {"texts": ["a"], "format": "base64"}),
        ("/rank", {"contexts": ["a"], "responses": ["b"]}),
        ("/v1/embeddings", {"input": "a", "model": "letters"}),
    ],
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_an_error(caplog, path, body, value):
    encoder, backend = letter_encoder()
    backend.run = lambda output, columns: np.full((len(columns[0]), 32), value, np.float32)
    with served(encoder) as client:
        reply = client.post(path, json=body)
    assert reply.status_code == 500
    said = reply.json()["error"]
    assert (said["type"], said["code"]) == ("server_error", 500)
    assert re.fullmatch(REFUSAL, said["message"]) and "ValueError" in said["message"]
    assert "NaN or infinite vectors" in caplog.text  # the log says what is wrong


def test_health_and_metrics(encoder):
    with served(encoder) as client:
        assert client.get("/health").json()["status"] == "ok"
        client.post("/encode", json={"texts": ["a", "b"]})
        client.post("/encode", json={})
        for path in ("nowhere", "else"):
            assert client.get(f"/{path}").status_code == 404
        text = client.get("/metrics").text
    for line in (
        'convert_tf_requests_total{path="/encode",status="200"} 1.0',
        'convert_tf_requests_total{path="/encode",status="422"} 1.0',
        'convert_tf_requests_total{path="other",status="404"} 2.0',
        'convert_tf_request_seconds_bucket{le="+Inf",path="/encode"} 2.0',
        'convert_tf_request_seconds_bucket{le="10.0",path="/encode"} 2.0',
        'convert_tf_request_seconds_count{path="/encode"} 2.0',
        'convert_tf_texts_total{kind="sentence"} 2.0',
        "convert_tf_queued_texts 0.0",
    ):
        assert line in text.splitlines(), text
    for line in text.splitlines():
        number = r'\w+(\{\w+="[^"]*"(,\w+="[^"]*")*\})? [\d.e+-]+'
        assert re.fullmatch(f"# (HELP|TYPE) .+|{number}", line)


def test_the_command_serves_a_module_until_it_is_told_to_end(tiny_modules, tmp_path):
    from convert_tf import SentenceEncoder

    command = [sys.executable, "-m", "convert_tf", "serve", "--port=0", "--compute_dtype=float32",
               f"--encoder={tiny_modules['multi'][1]}"]  # fmt: skip
    log = tmp_path / "log"
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, stderr=file, env={**own_environment(), "CUDA_VISIBLE_DEVICES": "-1"}
        )
    try:
        while not (match := re.search(r"running on (http://\S+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        url = match[1]
        body = {"texts": TEXTS, "kind": "response"}
        found = httpx.post(f"{url}/encode", json=body, timeout=60).json()["vectors"]
        assert httpx.get(f"{url}/health").json()["model"] == "multi"
        address = httpx.URL(url)
        with socket.create_connection((address.host, address.port)) as connection:
            for pause in (6, 0):  # seconds; longer than the 5 after which clients close connections
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: service\r\n\r\n")
                assert connection.recv(9) == b"HTTP/1.1 "
                time.sleep(pause)
                connection.recv(10_000)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.wait(30)
    expected = SentenceEncoder(tiny_modules["multi"][1], compute_dtype="float32")
    np.testing.assert_allclose(found, expected.encode_responses(TEXTS), atol=1e-5)
    assert process.returncode in (0, -signal.SIGTERM), log.read_text()


def test_only_words_that_are_explained_count(client):
    reply = client.post("/classify", json={"texts": ["a " * 499] * 5, "explain": True})
    assert reply.status_code == 200, reply.text
    assert [row["explanation"]["words_left_out"] for row in reply.json()["answers"]] == [399] * 5


def test_other_requests_are_answered_between_explanations(encoder, monkeypatch):
    """Requests are explained one text at a time."""
    fitted = IntentClassifier(encoder, head="logistic").fit([*LABELLED], [*LABELLED.values()])
    order, may_go, is_answered = [], threading.Event(), threading.Event()
    explain = fitted.explain

    def slow(text):
        order.append(text)
        # All calls but the first wait for the other request.
        assert (may_go if len(order) == 1 else is_answered).wait(30)
        return explain(text)

    monkeypatch.setattr(fitted, "explain", slow)
    with served(encoder, fitted) as client, ThreadPoolExecutor(3) as pool:
        asked = {"texts": ["refund", "money", "parcel"], "explain": True}
        explained = [pool.submit(client.post, "/classify", json=asked) for _ in range(2)]
        wait_until(lambda: order)
        other = pool.submit(client.post, "/encode", json={"texts": ["a"]})
        wait_until(lambda: client.get("/health").json()["queued"])
        other.add_done_callback(lambda _: is_answered.set())
        may_go.set()
        answers = [reply.result() for reply in explained]
        assert other.result().status_code == 200
    assert [reply.status_code for reply in answers] == [200, 200]
    assert [row["text"] for row in answers[0].json()["answers"]] == asked["texts"]
    assert len(order) == 6


_SLOW_SERVICE = """
import sys
from support.services import letter_encoder
from convert_tf.cli.main import main
from convert_tf.encoding import sentence_encoder

encoder, backend = letter_encoder()
computed = backend.run

def run(output, columns):
    if b"slow" in columns[0]:
        print("begun", flush=True)
        sys.stdin.readline()
    return computed(output, columns)

backend.run = run
sentence_encoder.SentenceEncoder = lambda *_, **__: encoder
sys.exit(main(["serve", "--encoder=letters", "--port=0"]))
"""


def test_what_was_asked_before_the_end_is_answered():
    path = os.pathsep.join([str(Path(__file__).resolve().parents[1]), os.getcwd()])
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW_SERVICE], text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**own_environment(), "PYTHONPATH": path},
    )  # fmt: skip
    try:
        url = next(m[1] for line in process.stderr if (m := re.search(r"on (http://\S+)", line)))
        with ThreadPoolExecutor(2) as pool, httpx.Client(base_url=url, timeout=30) as client:
            asked = [pool.submit(client.post, "/encode", json={"texts": ["slow"]})]
            assert process.stdout.readline() == "begun\n"
            asked.append(pool.submit(client.post, "/encode", json={"texts": ["b"]}))
            wait_until(lambda: httpx.get(f"{url}/health").json()["queued"] == 1)
            process.send_signal(signal.SIGTERM)

            def is_refused():
                try:
                    httpx.get(f"{url}/health")
                except httpx.HTTPError:
                    return True
                return False

            wait_until(is_refused)
            time.sleep(0.5)
            process.stdin.write("\n")
            process.stdin.flush()
            assert [each.result().status_code for each in asked] == [200, 200]
        process.wait(30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode in (0, -signal.SIGTERM)
