"""Slow, silent and numerous clients, and shutting down the service."""

import contextlib
import json
import logging
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.commands import own_environment

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from support.services import letter_encoder, running  # noqa: E402

from convert_tf.service import middleware, server  # noqa: E402
from convert_tf.service.application import Model, make_application  # noqa: E402

HALF_A_BODY = (
    b"POST /encode HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b'Content-Length: 100\r\n\r\n{"te'
)
HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture
def encoder_and_backend():
    return letter_encoder()


@pytest.fixture
def stack():
    with contextlib.ExitStack() as opened:
        yield opened


@contextlib.contextmanager
def served(encoder):
    with running(make_application(Model(encoder, "letters"))) as url:
        yield url


def connected(url, first=b""):
    address = urlsplit(url)
    connection = socket.create_connection((address.hostname, address.port), timeout=20)
    connection.sendall(first)
    return connection


def received(connection):
    """Return all bytes received until the service closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(10_000):
            parts.append(part)
    return b"".join(parts)


def answer_to(connection, request):
    """Send a request, and return the answer up to the end of a JSON object."""
    connection.sendall(request)
    answer = b""
    while b"}" not in answer:
        part = connection.recv(10_000)
        assert part, answer
        answer += part
    return answer


@pytest.mark.parametrize("sent", [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: a\r\n"])
def test_a_client_without_a_request_is_left(encoder_and_backend, monkeypatch, sent):
    monkeypatch.setattr(server, "_FOR_HEAD", 0.3)
    with served(encoder_and_backend[0]) as url, connected(url, sent) as connection:
        assert received(connection) == b""


def test_bytes_one_by_one_do_not_prolong_the_time(encoder_and_backend, monkeypatch, stack):
    monkeypatch.setattr(server, "_FOR_HEAD", 0.5)
    url = stack.enter_context(served(encoder_and_backend[0]))
    connection = stack.enter_context(connected(url))
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        for byte in HEALTH * 10:
            time.sleep(0.05)
            connection.sendall(bytes([byte]))
    # The same applies to the second request on a connection.
    connection = stack.enter_context(connected(url))
    assert answer_to(connection, HEALTH).startswith(b"HTTP/1.1 200")
    time.sleep(1)  # idle connections stay open
    assert answer_to(connection, HEALTH).startswith(b"HTTP/1.1 200")
    connection.sendall(b"GET /hea")
    assert received(connection) == b""


def test_a_connection_stays_open_if_the_body_ends_after_the_answer(
    encoder_and_backend, monkeypatch, stack
):
    monkeypatch.setattr(server, "_FOR_HEAD", 0.5)
    monkeypatch.setattr(server, "_KEEP_ALIVE", 3)
    application = make_application(Model(encoder_and_backend[0], "letters"), api_keys=("key",))
    url = stack.enter_context(running(application))
    rest = b'xts": ["a"]}' + b" " * 84
    for _ in range(2):
        connection = stack.enter_context(connected(url))
        assert b"401" in answer_to(connection, HALF_A_BODY).partition(b"\r\n")[0]
        connection.sendall(rest)
        time.sleep(1)  # idle connections stay open
        assert answer_to(connection, HEALTH).startswith(b"HTTP/1.1 200")
    # There is still a time limit for the next head, and for an idle connection.
    assert b"401" in answer_to(connection, HALF_A_BODY).partition(b"\r\n")[0]
    connection.sendall(rest + b"GET /hea")
    begin = time.monotonic()
    assert received(connection) == b"" and time.monotonic() - begin < 2
    idle = stack.enter_context(connected(url))
    assert b"401" in answer_to(idle, HALF_A_BODY).partition(b"\r\n")[0]
    idle.sendall(rest)
    assert received(idle) == b""


def test_half_a_body_is_refused_after_a_while(encoder_and_backend, monkeypatch):
    monkeypatch.setattr(middleware, "_FOR_BODY", 0.3)
    monkeypatch.setattr(server, "_FOR_HEAD", 0.3)
    with served(encoder_and_backend[0]) as url, connected(url, HALF_A_BODY) as connection:
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 408")
    assert "did not arrive" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


def test_silent_connections_make_room(encoder_and_backend, monkeypatch):
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 5)
    with served(encoder_and_backend[0]) as url, contextlib.ExitStack() as opened:
        client = opened.enter_context(httpx.Client(base_url=url))
        assert client.get("/health").status_code == 200
        silent = [opened.enter_context(connected(url)) for _ in range(20)]
        with connected(url) as connection:
            assert answer_to(connection, HEALTH).startswith(b"HTTP/1.1 200")
        assert answer_to(silent[-1], HEALTH).startswith(b"HTTP/1.1 200")
        assert received(silent[0]) == b""


def test_more_requests_than_connections_are_refused(encoder_and_backend, monkeypatch):
    encoder, backend = encoder_and_backend
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 2)
    body = b'{"texts": ["a"]}'
    post = HALF_A_BODY.partition(b"Content-Length")[0]
    post += b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    with served(encoder) as url, contextlib.ExitStack() as opened:
        backend.may_go.clear()
        busy = [opened.enter_context(connected(url, post)) for _ in range(2)]
        assert backend.has_begun.wait(20)
        time.sleep(0.2)
        with connected(url, post) as connection:
            assert connection.recv(10_000).startswith(b"HTTP/1.1 503")
        backend.may_go.set()
        for connection in busy:
            assert connection.recv(10_000).startswith(b"HTTP/1.1 200")


def test_a_taken_port_is_an_error_that_names_it(encoder_and_backend):
    application = make_application(Model(encoder_and_backend[0], "letters"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=f"{port}.*--port"):
            server.make_server(application, port=port, log_config=None).run()


def test_failed_accepts_are_logged_once_a_minute(caplog, monkeypatch):
    said = server._FailedAccepts()
    context = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(24, "full"),
    }
    with caplog.at_level(logging.WARNING, "uvicorn.error"):
        for _ in range(1000):
            said(None, context)
        assert len(caplog.records) == 1 and "full" in caplog.text
        now = time.monotonic()
        monkeypatch.setattr(server.time, "monotonic", lambda: now + 61)
        said(None, context)
    assert len(caplog.records) == 2
    other = []

    class Loop:
        default_exception_handler = other.append

    said(Loop, {"message": "another"})
    assert other == [{"message": "another"}]


_SERVICE = """
import sys
from support.services import letter_encoder
from convert_tf.cli.main import main
from convert_tf.encoding import sentence_encoder

encoder, backend = letter_encoder()
sentence_encoder.SentenceEncoder = lambda *_, **__: encoder
sys.exit(main(["serve", "--encoder=letters", "--port=0"]))
"""


@contextlib.contextmanager
def started(tmp_path, **options):
    """Run the command in a separate process, and yield it with its address and log."""
    path = os.pathsep.join([str(Path(__file__).resolve().parents[1]), os.getcwd()])
    log = tmp_path / "log"
    with open(log, "w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVICE], stderr=file, stdout=subprocess.DEVNULL,
            env={**own_environment(), "PYTHONPATH": path}, **options,
        )  # fmt: skip
    try:
        for _ in range(600):
            if match := re.search(r"running on (http://\S+)", log.read_text()):
                break
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield process, match[1], log
    finally:
        process.kill()
        process.wait()


def test_half_a_body_does_not_hold_up_the_end(tmp_path):
    with started(tmp_path) as (process, url, log):
        half, idle = connected(url, HALF_A_BODY), connected(url)
        assert answer_to(idle, HEALTH).startswith(b"HTTP/1.1 200")
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        half.close()
        idle.close()
        assert "Traceback" not in log.read_text()


def test_the_last_answers_close_their_connections(tmp_path):
    with started(tmp_path) as (process, url, _):
        with connected(url, HALF_A_BODY) as connection:
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            connection.sendall(b'xts": ["a"]}' + b" " * 84)
            answer = received(connection)
        process.wait(20)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and b"\r\nconnection: close" in head.lower()
    assert json.loads(body)["dim"] == 32


def test_what_the_end_leaves_unanswered_may_be_sent_again(encoder_and_backend, monkeypatch, stack):
    monkeypatch.setattr(server, "GRACE", 1)
    encoder, backend = encoder_and_backend
    backend.may_go.clear()
    pool = stack.enter_context(ThreadPoolExecutor())
    with served(encoder) as url:
        body = b'{"texts": ["a"]}'
        head = HALF_A_BODY.partition(b"\r\n\r\n")[0].replace(b"100", b"%d" % len(body))
        connection = stack.enter_context(connected(url, head + b"\r\n\r\n" + body))
        answer = pool.submit(received, connection)
        answer.add_done_callback(lambda _: backend.may_go.set())
        assert backend.has_begun.wait(30)
    head, _, body = answer.result(30).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503") and b"\r\nretry-after: " in head.lower()
    assert "stopping" in json.loads(body)["error"]["message"]


def test_silent_connections_leave_health_and_the_log(tmp_path):
    """With 300 silent connections and 256 file descriptors, the service still answers."""

    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))

    with started(tmp_path, preexec_fn=few_files) as (process, url, log):
        with contextlib.ExitStack() as opened:
            for _ in range(300):
                opened.enter_context(connected(url))
            for _ in range(3):
                assert httpx.get(f"{url}/health", timeout=20).status_code == 200
        assert process.poll() is None
        assert log.stat().st_size < 10_000
