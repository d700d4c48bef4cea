"""The server for the web page. The page itself is tested in a browser (`make test-web`)."""

import http.client
import os
import socket
import tarfile
import threading
import urllib.error
import urllib.request

import pytest
from support.commands import call_command

from convert_tf.service import page
from convert_tf.service.page import PAGE_ARCHIVE, page_folder, page_server
from convert_tf.storage.checksums import file_checksum

FILES = page._FILES
ASSETS = '{"files": {"model.onnx.gz": {"bytes": 13, "hash": "12"}}}'


@pytest.fixture
def folder(tmp_path):
    for name in FILES:
        (tmp_path / name).write_text(name)
    (tmp_path / "assets.json").write_text(ASSETS)
    return tmp_path


def test_files_come_with_what_the_page_needs(folder):
    with page_server(folder, host="127.0.0.1", port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        names = (*FILES, "", "model.onnx.gz?v=12")
        replies = {name: urllib.request.urlopen(f"{url}/{name}") for name in names}
        bodies = {name: reply.read().decode() for name, reply in replies.items()}
        server.shutdown()
    assert bodies[""] == "index.html"
    expected = {name: name for name in FILES} | {"assets.json": ASSETS}
    assert {name: bodies[name] for name in FILES} == expected
    # The page, not the browser, must decompress these files. Scripts need the correct type.
    assert replies["model.onnx.gz"].headers["Content-Type"] == "application/octet-stream"
    assert replies["model.onnx.gz"].headers["Content-Encoding"] is None
    # Only files requested by checksum never change, so only these are cached.
    assert "max-age" in replies["model.onnx.gz?v=12"].headers["Cache-Control"]
    assert replies["model.onnx.gz"].headers["Cache-Control"] == "no-cache"
    assert replies["main.js"].headers["Cache-Control"] == "no-cache"
    assert replies["main.js"].headers["Content-Type"] == "text/javascript"


def test_files_of_different_versions_are_not_mixed(folder):
    """Files from a release have the time 0, in all versions. Earlier versions had no checksums."""
    for name in FILES:
        os.utime(folder / name, (0, 0))
    paths = ("main.js", "assets.json", "model.onnx.gz", "model.onnx.gz?v=12", "model.onnx.gz?v=11")
    statuses = {}
    with page_server(folder, host="127.0.0.1", port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for path in (*paths, "tokenizer.json.gz?v=12", "tokenizer.json.gz?v=undefined"):
            connection = http.client.HTTPConnection(*server.server_address[:2])
            known = {"If-Modified-Since": "Thu, 01 Jan 1970 00:00:00 GMT"}
            connection.request("GET", f"/{path}", headers=known)
            reply = connection.getresponse()
            statuses[path] = reply.status
            assert ("max-age" in reply.headers["Cache-Control"]) == (path == "model.onnx.gz?v=12")
            connection.close()
        server.shutdown()
    assert [*statuses.values()] == [200, 200, 200, 304, 404, 404, 200]


def test_a_malformed_request_is_answered_and_a_missing_file_is_not_cached(folder, capfd):
    with page_server(folder, host="127.0.0.1", port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = server.server_address[:2]
        with socket.create_connection(address) as connection:
            connection.sendall(b"\x16\x03\x01\r\n\r\n")
            answer = connection.recv(1000)
        (folder / "model.onnx.gz").unlink()
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            urllib.request.urlopen("http://{}:{}/model.onnx.gz?v=12".format(*address))
        server.shutdown()
    assert b"400" in answer and "Traceback" not in capfd.readouterr().err
    assert missing.value.headers["Cache-Control"] == "no-cache"


def test_a_folder_without_the_page_is_refused(folder):
    (folder / "main.js").unlink()
    with pytest.raises(SystemExit, match=r"lacks main\.js\. Run make web"):
        call_command("demo", "--folder", folder, "--port", 0)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An installation outside a clone, with an empty cache."""
    monkeypatch.setattr(page, "BUILT_PAGE", tmp_path / "none")
    monkeypatch.setenv("CONVERT_TF_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CONVERT_TF_MODULES_URL", raising=False)


def test_the_page_that_was_built_comes_first(folder, elsewhere, monkeypatch):
    monkeypatch.setattr(page, "BUILT_PAGE", folder)
    assert page_folder() == folder


def test_without_a_clone_the_page_is_that_of_the_release(folder, elsewhere, tmp_path, monkeypatch):
    release = tmp_path / "release"
    release.mkdir()
    archive = release / PAGE_ARCHIVE
    with tarfile.open(archive, "w:gz") as tar:
        for name in FILES:
            tar.add(folder / name, name)
    (release / "SHA256SUMS").write_text(f"{file_checksum(archive)}  {PAGE_ARCHIVE}\n")
    monkeypatch.setenv("CONVERT_TF_MODULES_URL", release.as_uri())
    found = page_folder()
    page_server(found, host="127.0.0.1", port=0).server_close()
    assert (found / "main.js").read_text() == "main.js"


def test_without_a_release_demo_says_what_to_do(elsewhere):
    with pytest.raises(SystemExit, match=r"CONVERT_TF_MODULES_URL is not set\. Run make web"):
        call_command("demo", "--port", 0)
