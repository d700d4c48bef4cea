"""Files of a release, from a web server on this machine."""

import errno
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.commands import own_environment
from support.web_server import Quiet, serving

from convert_tf.storage import downloads
from convert_tf.storage.checksums import file_checksum
from convert_tf.storage.downloads import DownloadError, fetched
from convert_tf.storage.files import FileWriteError


def add_archive(path, files):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


@pytest.fixture
def release(tmp_path):
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(os.urandom(300_000))
    add_archive(folder / "model-1.tar.gz", {"a.txt": b"one", "sub/b.txt": b"two"})
    add_archive(folder / "evil-1.tar.gz", {"../../outside.txt": b"x"})
    write_sums(folder)
    return folder


def write_sums(folder):
    files = [path for path in folder.iterdir() if path.name != "SHA256SUMS"]
    lines = [f"{file_checksum(path)}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines))


def test_a_file_is_downloaded_once(release, tmp_path):
    with serving(release) as served:
        path = fetched(served.url, "model.onnx", folder=tmp_path / "cache")
        assert path.read_bytes() == (release / "model.onnx").read_bytes()
        assert fetched(f"{served.url}/", "model.onnx", folder=tmp_path / "cache") == path
        assert served.requests == ["/SHA256SUMS", "/model.onnx"]
    # Without a network, too.
    assert fetched(served.url, "model.onnx", folder=tmp_path / "cache") == path
    assert [p.name for p in path.parent.iterdir() if not p.name.startswith(".")] == ["model.onnx"]


def test_releases_do_not_mix(release, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.onnx").write_bytes(b"other")
    write_sums(other)
    paths = [fetched(f.as_uri(), "model.onnx", folder=tmp_path / "cache") for f in (release, other)]
    assert [path.read_bytes() == b"other" for path in paths] == [False, True]


def test_what_was_damaged_on_its_way_is_refused(release, tmp_path):
    (release / "model.onnx").write_bytes(b"something else")
    with (
        serving(release) as served,
        pytest.raises(DownloadError, match="14 bytes have the SHA"),
    ):
        fetched(served.url, "model.onnx", folder=tmp_path / "cache")
    assert not [*(tmp_path / "cache").rglob("model.onnx"), *(tmp_path / "cache").rglob(".new*")]


class _BreaksOff(Quiet):
    def copyfile(self, source, outputfile):
        outputfile.write(source.read(1000))
        self.close_connection = True


def test_a_connection_that_breaks_leaves_nothing(release, tmp_path):
    with serving(release, handler=_BreaksOff) as served, pytest.raises(DownloadError):
        fetched(served.url, "model.onnx", folder=tmp_path / "cache")
    with serving(release) as served:
        path = fetched(served.url, "model.onnx", folder=tmp_path / "cache")
    assert path.stat().st_size == 300_000


def test_what_a_release_does_not_list_is_refused(release, tmp_path):
    with (
        serving(release) as served,
        pytest.raises(DownloadError, match=r"has no x\.onnx\. .* lists "),
    ):
        fetched(served.url, "x.onnx", folder=tmp_path / "cache")


@pytest.mark.parametrize(
    "address", ["{}/a folder", "nowhere", "http://[", "http://127.0.0.1:x", "http://127.0.0.1:1"]
)
def test_an_address_that_is_none(address, tmp_path):
    with serving(tmp_path) as served, pytest.raises(DownloadError, match=r"Cannot read .*SUMS: "):
        fetched(address.format(served.url), "model.onnx", folder=tmp_path / "cache")


class _Stalls(Quiet):
    def copyfile(self, source, outputfile):
        outputfile.write(source.read(10))
        outputfile.flush()
        self.rfile.read(1)  # until the other side gives up


def test_a_list_that_stops_on_its_way(release, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "_TIMEOUT_SECONDS", 0.2)
    with (
        serving(release, handler=_Stalls) as served,
        pytest.raises(DownloadError, match=r"SHA256SUMS: timed out"),
    ):
        fetched(served.url, "model.onnx", folder=tmp_path / "cache")


def test_an_archive_that_does_not_fit_on_the_disk(release, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tarfile.TarFile, "extractall", full)
    with pytest.raises(FileWriteError, match=r"Cannot write '.*model-1': No space left on device"):
        fetched(release.as_uri(), "model-1.tar.gz", folder=tmp_path / "cache")
    assert not [*(tmp_path / "cache").rglob(".new*")]


@pytest.mark.parametrize("start", [b"none", b""], ids=["no archive", "half of one"])
def test_an_archive_that_is_damaged(start, release, tmp_path):
    archive = release / "model-1.tar.gz"
    add_archive(archive, {"a.bin": os.urandom(300_000)})
    archive.write_bytes(start + archive.read_bytes()[:150_000])
    write_sums(release)
    with pytest.raises(
        DownloadError, match=r"\AThe archive of .* is damaged: .*Please report it\.\Z"
    ):
        fetched(release.as_uri(), "model-1.tar.gz", folder=tmp_path / "cache")


def test_an_archive_names_nothing_outside_it(release, tmp_path):
    with pytest.raises(DownloadError, match="outside"):
        fetched(release.as_uri(), "evil-1.tar.gz", folder=tmp_path / "cache" / "deep")
    assert not [*tmp_path.rglob("outside.txt")]


def test_several_processes_download_once(release, tmp_path):
    program = (
        "import sys; from pathlib import Path\n"
        "from convert_tf.storage.downloads import fetched\n"
        "sys.stdin.readline()\n"
        "print(fetched(sys.argv[1], 'model-1.tar.gz', folder=Path(sys.argv[2])))"
    )
    with serving(release) as served:
        running = [
            subprocess.Popen(
                [sys.executable, "-c", program, served.url, str(tmp_path / "cache")],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own_environment(),
            )
            for _ in range(4)
        ]  # fmt: skip
        for process in running:
            process.stdin.write("\n")
            process.stdin.flush()
        said = {process.communicate()[0].strip() for process in running}
    assert served.requests == ["/SHA256SUMS", "/model-1.tar.gz"]
    (folder,) = said
    assert Path(folder).name == "model-1"
    assert [(Path(folder) / name).read_text() for name in ("a.txt", "sub/b.txt")] == ["one", "two"]


def test_what_a_killed_process_left_is_removed(release, tmp_path):
    with serving(release) as served:
        path = fetched(served.url, "model.onnx", folder=tmp_path / "cache")
        left = path.parent / ".new-model.onnx-abc"
        left.mkdir()
        path.unlink()
        fetched(served.url, "model.onnx", folder=tmp_path / "cache")
        assert not left.exists()


def test_where_downloads_are_kept(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.delenv("CONVERT_TF_CACHE", raising=False)
    assert downloads.cache_folder() == Path("/xdg/convert_tf")
    monkeypatch.setenv("CONVERT_TF_CACHE", "/own")
    assert downloads.cache_folder() == Path("/own")
