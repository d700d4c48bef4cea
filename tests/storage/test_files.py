"""Files appear whole or not at all."""

import errno
import os
import pickle
import subprocess
import sys
import time

import pytest

from convert_tf.storage import files
from convert_tf.storage.files import (
    FileWriteError,
    only_writer,
    remove_leftovers,
    write_file,
)


@pytest.mark.parametrize("content", ["né\n", "né\n".encode()])
def test_content_is_written_and_replaced(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(b"a longer text that was there before")
    write_file(path, content)
    assert path.read_bytes() == b"n\xc3\xa9\n"
    write_file(str(path), b"")
    assert path.read_bytes() == b""
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_failure_leaves_what_was_there(tmp_path, monkeypatch, failing):
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def full(*_):
        assert path.read_bytes() == b"before"
        assert os.listdir(tmp_path) != ["file"]  # the temporary file is beside the final one
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, failing, full)
    with pytest.raises(FileWriteError, match=r"Cannot write .*: No space left on device") as caught:
        write_file(path, "after")
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == str(path)
    assert str(path) in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["file"]


def test_interruption_leaves_no_temporary_file(tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "file", "text")
    assert os.listdir(tmp_path) == []


def test_places_where_no_file_can_be(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileWriteError, match="Is a directory"):
        write_file(tmp_path / "folder", "text")
    with pytest.raises(
        FileWriteError, match=r"Cannot write '.*nowhere/file': No such file or directory"
    ):
        write_file(tmp_path / "nowhere" / "file", "text")
    assert os.listdir(tmp_path) == ["folder"]


def test_two_processes_write_under_different_temporary_names(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(files.os, "replace", lambda source, _: seen.append(source))
    write_file(tmp_path / "file", "text")
    monkeypatch.setattr(files.os, "getpid", lambda: 123)
    write_file(tmp_path / "file", "text")
    assert len(set(seen)) == 2


def test_writers_of_two_files_of_a_new_folder(tmp_path):
    output = tmp_path / "new" / "file"
    with only_writer(output), only_writer(tmp_path / "new" / "other"):
        write_file(output, "text")
    assert os.listdir(tmp_path / "new") == ["file"]


def test_what_killed_processes_left_is_deleted(tmp_path):
    for name in (".new-12.file", ".new-123.file", ".new-12.other", ".new-.file", "file"):
        (tmp_path / name).write_text("begun")
    with only_writer(tmp_path / "file"):
        assert sorted(os.listdir(tmp_path)) == [".file.lock", ".new-.file", ".new-12.other", "file"]
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".new-.file", "file"]


def test_what_a_dead_process_left_of_a_file_is_deleted_by_the_next(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    here = files._host()
    left = [f".new-{here}-{dead.pid}.other", f".new-{here}-{os.getppid()}.file"]
    for name in (f".new-{dead.pid}.file", f".new-{here}-{dead.pid}.file", *left):
        (tmp_path / name).write_text("begun")
    write_file(tmp_path / "file", "text")
    assert sorted(os.listdir(tmp_path)) == sorted([*left, "file"])


def test_what_another_host_has_begun_stays_for_a_day(tmp_path, monkeypatch):
    """Its processes have numbers that here nobody has."""
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    seen = []
    with monkeypatch.context() as there:
        there.setattr(files.socket, "gethostname", lambda: "node-3")
        there.setattr(files.os, "getpid", lambda: dead.pid)
        there.setattr(files.os, "replace", lambda source, _: seen.append(source))
        there.setattr(files.os, "remove", lambda _: None)
        write_file(tmp_path / "file", "theirs")
    write_file(tmp_path / "file", "ours")
    with only_writer(tmp_path / "file"):
        remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted([os.path.basename(seen[0]), "file"])
    os.utime(seen[0], (time.time() - 90_000,) * 2)
    remove_leftovers(tmp_path, only_dead=True)
    assert os.path.exists(seen[0])
    with only_writer(tmp_path / "file"):
        assert not os.path.exists(seen[0])
