"""Downloading files of a release from a local web server."""

import concurrent.futures
import errno
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.commands import own_environment
from support.web_server import Quiet, serving

from convert_tf.storage import downloads, files
from convert_tf.storage.checksums import file_checksum
from convert_tf.storage.downloads import DownloadError, fetched, made_once
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
    (folder / "damaged.onnx").write_bytes(b"as it was")
    write_sums(folder)
    (folder / "damaged.onnx").write_bytes(b"something else")
    return folder


@pytest.fixture
def get(tmp_path):
    """Return a function that downloads a file of a release into one cache."""
    return lambda base, name="model.onnx": fetched(base, name, folder=tmp_path / "cache")


def write_sums(folder):
    files = [path for path in folder.iterdir() if path.name != "SHA256SUMS"]
    lines = [f"{file_checksum(path)}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines))


def test_a_file_is_downloaded_once(release, get):
    with serving(release) as served:
        path = get(served.url)
        assert path.read_bytes() == (release / "model.onnx").read_bytes()
        assert get(f"{served.url}/") == path
        assert served.requests == ["/SHA256SUMS", "/model.onnx"]
    assert get(served.url) == path  # works offline too
    assert [p.name for p in path.parent.iterdir() if not p.name.startswith(".")] == ["model.onnx"]


def test_releases_do_not_mix(release, tmp_path, get):
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.onnx").write_bytes(b"other")
    write_sums(other)
    paths = [get(folder.as_uri()) for folder in (release, other)]
    assert [path.read_bytes() == b"other" for path in paths] == [False, True]


class _BreaksOff(Quiet):
    def copyfile(self, source, outputfile):
        outputfile.write(source.read(1000))
        self.close_connection = True


class _Stalls(Quiet):
    def copyfile(self, source, outputfile):
        outputfile.write(source.read(10))
        outputfile.flush()
        self.rfile.read(1)  # until the client gives up


@pytest.mark.parametrize(
    ("name", "handler", "message"),
    [
        ("damaged.onnx", Quiet, "14 bytes have the SHA"),
        ("model.onnx", _BreaksOff, "model.onnx"),
        ("model.onnx", _Stalls, "SHA256SUMS: timed out"),
        ("x.onnx", Quiet, r"has no x\.onnx\. .* lists "),
    ],
)
def test_what_does_not_arrive_leaves_nothing(
    release, tmp_path, monkeypatch, get, name, handler, message
):
    if handler is _Stalls:
        monkeypatch.setattr(downloads, "_TIMEOUT_SECONDS", 0.2)
    with serving(release, handler=handler) as served, pytest.raises(DownloadError, match=message):
        get(served.url, name)
    left = [path for path in (tmp_path / "cache").rglob("*") if path.suffix != ".lock"]
    assert left == [*(tmp_path / "cache").iterdir()]


@pytest.mark.parametrize(
    "address", ["{}/a folder", "nowhere", "http://[", "http://127.0.0.1:x", "http://127.0.0.1:1"]
)
def test_an_address_that_is_none(address, tmp_path, get):
    with serving(tmp_path) as served, pytest.raises(DownloadError, match=r"Cannot read .*SUMS: "):
        get(address.format(served.url))


def test_an_archive_that_does_not_fit_on_the_disk(release, tmp_path, monkeypatch, get):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tarfile.TarFile, "extractall", full)
    with pytest.raises(FileWriteError, match=r"Cannot write '.*model-1': No space left on device"):
        get(release.as_uri(), "model-1.tar.gz")
    assert not [*(tmp_path / "cache").rglob(".new*")]


@pytest.mark.parametrize("start", [b"none", b""], ids=["no archive", "half of one"])
def test_an_archive_that_is_damaged(start, release, get):
    archive = release / "model-1.tar.gz"
    add_archive(archive, {"a.bin": os.urandom(300_000)})
    archive.write_bytes(start + archive.read_bytes()[:150_000])
    write_sums(release)
    with pytest.raises(
        DownloadError, match=r"\AThe archive of .* is damaged: .*Please report it\.\Z"
    ):
        get(release.as_uri(), "model-1.tar.gz")


def test_an_archive_names_nothing_outside_it(release, tmp_path, get):
    with pytest.raises(DownloadError, match="outside"):
        get(release.as_uri(), "evil-1.tar.gz")
    assert not [*tmp_path.rglob("outside.txt")]


def test_a_python_without_filters_unpacks_archives(release, tmp_path, monkeypatch, get):
    extractall = tarfile.TarFile.extractall
    # As in Python 3.11.3, nothing is checked while members are extracted.
    options = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    monkeypatch.setattr(
        tarfile.TarFile, "extractall", lambda tar, folder: extractall(tar, folder, **options)
    )
    add_archive(release / "absolute-1.tar.gz", {f"{tmp_path}/outside.txt": b"x"})
    with tarfile.open(release / "link-1.tar.gz", "w:gz") as tar:
        entry = tarfile.TarInfo("link")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/"
        tar.addfile(entry)
    write_sums(release)
    folder = get(release.as_uri(), "model-1.tar.gz")
    assert (folder / "a.txt").read_bytes() == b"one"
    assert (folder / "sub" / "b.txt").read_bytes() == b"two"
    for name, message in (("evil", "outside"), ("absolute", "outside"), ("link", "neither a file")):
        with pytest.raises(DownloadError, match=message):
            get(release.as_uri(), f"{name}-1.tar.gz")
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


def test_what_a_killed_process_left_is_removed(release, get):
    path = get(release.as_uri())
    left = path.parent / ".new-model.onnx-abc"
    left.mkdir()
    path.unlink()
    get(release.as_uri())
    assert not left.exists()


def test_what_is_in_the_way_does_not_stop_a_download(release, get):
    path = get(release.as_uri())
    left = path.parent / ".new-model.onnx-abc"
    left.write_text("not a folder")
    path.unlink()
    assert get(release.as_uri()) == path


def test_what_is_made_once_is_made_in_new_folders_and_old_ones(tmp_path):
    def make(folder):
        (folder / "new").write_text("made")
        return folder / "new"

    for name in ("one", "two"):  # the second call finds an existing folder
        assert made_once(tmp_path / "a" / "b" / name, make).read_text() == "made"
    assert made_once(tmp_path / "a" / "b" / "one", pytest.fail).read_text() == "made"


def test_a_second_maker_waits_for_the_first(tmp_path):
    target = tmp_path / "file"
    with (
        open(tmp_path / ".file.lock", "a") as lock,
        concurrent.futures.ThreadPoolExecutor() as threads,
    ):
        files.lock_file(lock, waits=True)
        second = threads.submit(made_once, target, pytest.fail)
        with pytest.raises(concurrent.futures.TimeoutError):
            second.result(timeout=0.3)
        target.write_text("made")  # by the first process
        lock.close()
        assert second.result() == target


def test_a_temporary_folder_that_stays_does_not_stop_the_work(tmp_path, monkeypatch):
    """A folder that cannot be deleted, as with open files on NFS, does not stop the work."""

    def busy(path, onerror=None, onexc=None, **_):
        error = OSError(errno.EBUSY, "Device or resource busy")
        if onexc:
            onexc(os.rmdir, path, error)
        else:
            onerror(os.rmdir, path, (OSError, error, None))

    def make(folder):
        (folder / "new").write_text("made")
        return folder / "new"

    monkeypatch.setattr(shutil, "rmtree", busy)
    assert made_once(tmp_path / "file", make).read_text() == "made"


def test_without_locks_what_another_process_writes_is_kept(release, tmp_path, monkeypatch, get):
    """If both processes install the same folder, the first one is kept."""

    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    unpacked = downloads._unpacked

    def unpacked_late(archive):
        with monkeypatch.context() as other:
            other.setattr(downloads, "_unpacked", unpacked)
            assert (get(release.as_uri(), "model-1.tar.gz") / "a.txt").read_bytes() == b"one"
        assert archive.exists()
        return unpacked(archive)

    monkeypatch.setattr(files.fcntl, "flock", flock)
    monkeypatch.setattr(downloads, "_unpacked", unpacked_late)
    with pytest.warns(UserWarning, match="has no locks"):
        folder = get(release.as_uri(), "model-1.tar.gz")
    assert (folder / "sub" / "b.txt").read_bytes() == b"two"


def test_where_downloads_are_kept(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.delenv("CONVERT_TF_CACHE", raising=False)
    assert downloads.cache_folder() == Path("/xdg/convert_tf")
    monkeypatch.setenv("CONVERT_TF_CACHE", "/own")
    assert downloads.cache_folder() == Path("/own")
