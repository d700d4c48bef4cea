"""Who holds an output is told by the file system, and named by a note."""

import errno
import fcntl
import os
import re

import pytest

from convert_tf.storage import files as locks
from convert_tf.storage.files import only_writer
from convert_tf.storage.folders import OutputFolder
from convert_tf.training.run import only_run_in

HOLDERS = {
    ".out.lock": only_writer,
    ".out.new/lock": lambda output: OutputFolder(output, overwrite=True).open(),
    "out/.lock": only_run_in,
}


def _refused(hold, output):
    with (
        pytest.raises(ValueError, match=r"Another process is (writing|training in)") as caught,
        hold(output),
    ):
        pytest.fail("two hold one output")
    return str(caught.value)


@pytest.fixture(params=HOLDERS)
def place(request):
    return request.param


@pytest.fixture
def hold(place):
    return HOLDERS[place]


def test_the_holder_is_named(tmp_path, place, hold):
    with hold(tmp_path / "out"):
        assert _refused(hold, tmp_path / "out").endswith(f" It is process {os.getpid()}.")
    with hold(tmp_path / "out"):
        pass


def test_another_hosts_lock_is_kept_until_somebody_removes_it(tmp_path, monkeypatch, place, hold):
    with monkeypatch.context() as there:
        there.setattr(locks.socket, "gethostname", lambda: "node-3")
        there.setattr(locks.os, "getpid", lambda: 12)
        held = hold(tmp_path / "out")
        held.__enter__()
    said = _refused(hold, tmp_path / "out")
    told = re.search(r"It is process 12 on node-3; if that machine is down, remove '(.*)'\.$", said)
    assert told and told[1] == str(tmp_path / place)
    os.remove(told[1])
    with hold(tmp_path / "out"):
        # The machine was not down.
        if hold is only_writer:
            held.__exit__(None, None, None)
        elif hold is not only_run_in:
            with pytest.raises(ValueError, match=r"was removed while .*Run the command again"):
                held.__exit__(None, None, None)
        assert f"process {os.getpid()}" in _refused(hold, tmp_path / "out")


def test_a_note_of_a_dead_process_keeps_nobody_out(tmp_path, place, hold):
    """Not even one of another host, as a run that goes on in a new container finds it."""
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("12 node-3\n")
    with hold(tmp_path / "out"):
        assert path.read_text() == f"{os.getpid()} {locks.socket.gethostname()}\n"


def test_locks_of_earlier_versions_name_nobody(tmp_path, place, hold):
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert _refused(hold, tmp_path / "out").endswith("choose another --output.")


def test_a_lock_that_was_given_back_is_not_taken(tmp_path):
    """One that opened it before and locks it after its holder has deleted it."""
    with locks.opened_lock(tmp_path / "lock") as late:
        os.remove(tmp_path / "lock")
        with pytest.raises(ValueError, match=r"Another process is writing\..*--output\.$"):
            locks.lock_output(late, "writing")


def test_a_full_disk_only_takes_the_note(tmp_path, monkeypatch):
    class OnAFullDisk(locks.FileIO):
        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device")

    with OnAFullDisk(str(tmp_path / "lock"), "a+") as lock:
        locks.lock_output(lock, "writing")
        with (
            locks.opened_lock(tmp_path / "lock") as second,
            pytest.raises(ValueError, match=r"Another process is writing\..*--output\.$"),
        ):
            locks.lock_output(second, "writing")
