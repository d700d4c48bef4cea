"""Files appear complete or not at all; locks and notes show who is writing an output."""

import errno
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time

import pytest

from convert_tf.storage import files
from convert_tf.storage.files import (
    FileWriteError,
    check_replaceable,
    only_writer,
    remove_leftovers,
    write_file,
    write_results,
)
from convert_tf.storage.folders import OutputFolder
from convert_tf.training.loop import only_run_in


@pytest.mark.parametrize("content", ["né\n", "né\n".encode()])
def test_content_is_written_and_replaced(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(b"a longer text that was there before")
    write_file(path, content)
    assert path.read_bytes() == b"n\xc3\xa9\n"
    write_file(str(path), b"")
    assert path.read_bytes() == b""
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("exists", [False, True])
def test_a_link_to_a_file_is_followed_if_wanted(tmp_path, exists):
    """The file is written where the link points to, which may be on another disk."""
    disk = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=disk) as folder:
        target, link = os.path.join(folder, "target"), tmp_path / "link"
        if exists:
            write_file(target, "old")
        link.symlink_to(target)
        with only_writer(link):
            write_file(link, "new", follows_links=True)
        assert link.is_symlink()
        assert link.read_text() == "new"
        assert (os.listdir(folder), os.listdir(tmp_path)) == (["target"], ["link"])


def test_a_link_to_shared_content_is_replaced(tmp_path):
    """A run that was copied as links, or checked out by DVC, shares files with other runs."""
    (tmp_path / "shared").mkdir()
    write_file(tmp_path / "shared" / "file", "shared")
    (tmp_path / "link").symlink_to(tmp_path / "shared" / "file")
    write_file(tmp_path / "link", "new")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "link").read_text() == "new"
    assert (tmp_path / "shared" / "file").read_text() == "shared"


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_failure_leaves_what_was_there(tmp_path, monkeypatch, failing):
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def full(*_):
        assert path.read_bytes() == b"before"
        assert os.listdir(tmp_path) != ["file"]  # the temporary file is in the same folder
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


def test_a_clean_up_that_fails_too_does_not_hide_the_error(tmp_path, monkeypatch):
    """On a read-only file system, removing temporary files and locks fails as well."""

    def fail(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with only_writer(tmp_path / "file"):
        monkeypatch.setattr(files, "open", fail, raising=False)
        monkeypatch.setattr(files.os, "remove", fail)
        with pytest.raises(FileWriteError, match=r"Cannot write .*/file': Read-only file system\."):
            write_file(tmp_path / "file", "text")


def test_a_lock_that_cannot_be_closed_does_not_hide_the_error(tmp_path):
    with pytest.raises(ValueError, match="the error"), files.opened_lock(tmp_path / "lock") as lock:
        os.close(lock.fileno())  # closing it again fails
        raise ValueError("the error")


def test_results_get_a_folder_and_leave_other_files(tmp_path):
    folder = tmp_path / "new" / "results"
    write_results(folder, {"a": "é", "b": b"2"})
    (folder / "c").write_text("another file")
    write_results(str(folder), {"a": "changed"})
    contents = {name: (folder / name).read_text() for name in os.listdir(folder)}
    assert contents == {"a": "changed", "b": "2", "c": "another file"}


def test_only_what_the_command_wrote_is_replaced_and_only_when_told(tmp_path):
    path = tmp_path / "file"
    check_replaceable(path, pytest.fail, overwrite=False)  # no file exists
    path.write_text("written")
    with pytest.raises(ValueError, match=r"already exists\. Pass --overwrite"):
        check_replaceable(path, pytest.fail, overwrite=False)
    check_replaceable(path, lambda name: name == str(path), overwrite=True)
    with pytest.raises(ValueError, match="This command did not write"):
        check_replaceable(path, lambda _: False, overwrite=True)
    with pytest.raises(ValueError, match="is not a file"):
        check_replaceable(tmp_path, pytest.fail, overwrite=True)


def test_places_where_no_file_can_be(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileWriteError, match="Is a directory"):
        write_file(tmp_path / "folder", "text")
    with pytest.raises(
        FileWriteError, match=r"Cannot write '.*nowhere/file': No such file or directory"
    ):
        write_file(tmp_path / "nowhere" / "file", "text")
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("is_link", [False, True])
def test_a_pipe_is_not_replaced(tmp_path, is_link):
    """Nor is a device, such as /dev/null, which root could replace."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    if is_link:
        path = tmp_path / "link"
        path.symlink_to("pipe")
    with pytest.raises(FileWriteError, match=f"Cannot write '{path}': It is a device or a pipe"):
        write_file(path, "text", follows_links=True)
    assert (tmp_path / "pipe").is_fifo()
    assert path.is_symlink() == is_link


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
    """Files of another host are kept for a day, because its process ids mean nothing here."""
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


def _refused(hold, output):
    with (
        pytest.raises(ValueError, match=r"Another process is (writing|training in)") as caught,
        hold(output),
    ):
        pytest.fail("two hold one output")
    return str(caught.value)


at_each_place = pytest.mark.parametrize(
    ("place", "hold"),
    [
        (".out.lock", only_writer),
        (".out.new/lock", lambda output: OutputFolder(output, overwrite=True).open()),
        ("out/.lock", only_run_in),
    ],
)


@at_each_place
def test_the_holder_is_named(tmp_path, place, hold):
    with hold(tmp_path / "out"):
        assert _refused(hold, tmp_path / "out").endswith(f" It is process {os.getpid()}.")
    with hold(tmp_path / "out"):
        pass


@at_each_place
def test_another_hosts_lock_is_kept_until_somebody_removes_it(tmp_path, monkeypatch, place, hold):
    with monkeypatch.context() as there:
        there.setattr(files.socket, "gethostname", lambda: "node-3")
        there.setattr(files.os, "getpid", lambda: 12)
        held = hold(tmp_path / "out")
        held.__enter__()
    said = _refused(hold, tmp_path / "out")
    told = re.search(r"It is process 12 on node-3; if that machine is down, remove '(.*)'\.$", said)
    assert told and told[1] == str(tmp_path / place)
    os.remove(told[1])
    with hold(tmp_path / "out"):
        # The other machine was still running.
        if hold is only_writer:
            held.__exit__(None, None, None)
        elif hold is not only_run_in:
            with pytest.raises(ValueError, match=r"was removed while .*Run the command again"):
                held.__exit__(None, None, None)
        assert f"process {os.getpid()}" in _refused(hold, tmp_path / "out")


@at_each_place
def test_a_note_of_a_dead_process_keeps_nobody_out(tmp_path, place, hold):
    """Even a dead process of another host, such as a replaced container, keeps nobody out."""
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("12 node-3\n")
    with hold(tmp_path / "out"):
        assert path.read_text() == f"{os.getpid()} {files.socket.gethostname()}\n"


def _failing_flock(number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    return flock


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
@at_each_place
def test_without_locks_the_work_goes_on_with_a_warning(tmp_path, monkeypatch, place, hold, number):
    monkeypatch.setattr(files.fcntl, "flock", _failing_flock(number))
    folder = (tmp_path / place).parent
    with pytest.warns(UserWarning, match=rf"'{folder}' has no locks"), hold(tmp_path / "out"):
        pass


@at_each_place
def test_a_lock_that_fails_names_its_file(tmp_path, monkeypatch, place, hold):
    monkeypatch.setattr(files.fcntl, "flock", _failing_flock(errno.EIO))
    with (
        pytest.raises(FileWriteError, match=rf"Cannot write '{tmp_path / place}': Input"),
        hold(tmp_path / "out"),
    ):
        pytest.fail("it is not locked")
    assert not list(tmp_path.rglob(".*"))
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("1 another")
    with pytest.raises(FileWriteError), hold(tmp_path / "out"):
        pytest.fail("it is not locked")
    assert (tmp_path / place).read_text() == "1 another"  # the other holder may be alive


def test_a_lock_that_was_given_back_is_not_taken(tmp_path):
    """A lock file that its holder deleted cannot be locked by a process that opened it earlier."""
    with files.opened_lock(tmp_path / "lock") as late:
        os.remove(tmp_path / "lock")
        with pytest.raises(ValueError, match=r"Another process is writing\..*--output\.$"):
            files.lock_output(late, "writing")


def test_a_full_disk_only_takes_the_note(tmp_path, monkeypatch):
    class OnAFullDisk(files.FileIO):
        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device")

    with OnAFullDisk(str(tmp_path / "lock"), "a+") as lock:
        files.lock_output(lock, "writing")
        with (
            files.opened_lock(tmp_path / "lock") as second,
            pytest.raises(ValueError, match=r"Another process is writing\..*--output\.$"),
        ):
            files.lock_output(second, "writing")


def test_interruption_leaves_no_temporary_file(tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "file", "text")
    assert os.listdir(tmp_path) == []
