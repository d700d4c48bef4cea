import errno
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest

from convert_tf.storage.arrays import GrowingArray
from convert_tf.storage.files import FileWriteError
from convert_tf.storage.folders import OutputFolder, put_aside


def _text_files(folder):
    return sorted(str(path) for path in Path(folder).glob("*.txt"))


def _names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def _write(output, contents, *, data_files=_text_files, **options):
    folder = OutputFolder(output, data_files=data_files, **options)
    with folder.open() as written:
        for name, text in contents.items():
            (written / name).write_text(text)


def _contents(output):
    return {path.name: path.read_text() for path in Path(output).iterdir()}


def test_files_get_their_names_together(tmp_path):
    folder = OutputFolder(str(tmp_path / "out"), data_files=_text_files)
    with pytest.raises(RuntimeError), folder.open() as written:
        (written / "a.txt").write_text("a")
        raise RuntimeError
    assert _names(tmp_path) == []
    with folder.open() as written:
        (written / "a.txt").write_text("a")
        assert not (tmp_path / "out").exists()
    assert _contents(tmp_path / "out") == {"a.txt": "a"}
    assert _names(tmp_path) == ["out"]


def test_files_of_an_earlier_run_are_replaced_only_when_told(tmp_path):
    output = tmp_path / "out"
    _write(output, {"a.txt": "old", "b.txt": "old"})
    (output / "notes").write_text("mine")
    with pytest.raises(ValueError, match="Pass --overwrite"):
        _write(output, {"a.txt": "new"})
    assert _contents(output) == {"a.txt": "old", "b.txt": "old", "notes": "mine"}
    _write(output, {"a.txt": "new"}, overwrite=True)
    assert _contents(output) == {"a.txt": "new", "notes": "mine"}


# Two old files are moved away, then two new ones are moved in; the fifth move does not occur.
@pytest.mark.parametrize("failing", range(5))
def test_a_failing_move_brings_the_old_files_back(tmp_path, monkeypatch, failing):
    output = tmp_path / "out"
    _write(output, {"a.txt": "old", "b.txt": "old"})
    moves = iter(range(1000))
    rename = os.rename

    def fails_once(source, target):
        if next(moves) == failing:
            raise OSError(errno.EIO, "Input/output error", source)
        rename(source, target)

    monkeypatch.setattr(os, "rename", fails_once)
    if failing == 4:
        _write(output, {"a.txt": "new", "c.txt": "new"}, overwrite=True)
        assert _contents(output) == {"a.txt": "new", "c.txt": "new"}
        return
    with pytest.raises(OSError, match="Input/output error"):
        _write(output, {"a.txt": "new", "c.txt": "new"}, overwrite=True)
    assert _contents(output) == {"a.txt": "old", "b.txt": "old"}


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from convert_tf.storage.folders import OutputFolder

    output, killed_at, temp_dir, is_whole = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
    rename, moves = os.rename, iter(range(1000))

    def dies(source, target):
        if next(moves) == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    os.rename = dies
    list_files = None if is_whole else lambda f: sorted(map(str, Path(f).glob("*.txt")))
    own = ("a.txt", "d.txt")
    folder = OutputFolder(
        output, data_files=list_files, replaceable=own, temp_dir=temp_dir, overwrite=True
    )
    with folder.open() as written:
        Path(folder.scratch, "rows").write_text("spilled")
        for name in ("a.txt", "b.txt", "c.txt"):
            (written / name).write_text("of the killed run")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def _killed_run(output, killed_at, temp_dir, *, is_whole=False):
    arguments = [str(output), str(killed_at), str(temp_dir), "whole" if is_whole else ""]
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), *arguments], check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_killed_run_is_cleaned_up_by_the_next(tmp_path):
    output, temp_dir = tmp_path / "out", tmp_path / "temp"
    _killed_run(output, 0, temp_dir)
    assert list(temp_dir.iterdir())
    _write(output, {"a.txt": "whole", "d.txt": "whole"}, temp_dir=str(temp_dir))
    assert _contents(output) == {"a.txt": "whole", "d.txt": "whole"}
    assert _names(tmp_path) == ["out", "temp"]
    assert list(temp_dir.iterdir()) == []


# Three new files follow after two old ones are moved away, or one folder after one.
@pytest.mark.parametrize(("is_whole", "num_moves"), [(False, 5), (True, 2)])
def test_a_run_killed_at_any_move_loses_no_files_of_an_earlier_one(tmp_path, is_whole, num_moves):
    """The next run restores them, and so needs --overwrite to replace them."""
    data_files = None if is_whole else _text_files
    for killed_at in range(num_moves + 1):
        output = tmp_path / str(killed_at)
        _write(output, {"a.txt": "old", "d.txt": "old"})
        _killed_run(output, killed_at, tmp_path / "temp", is_whole=is_whole)
        with pytest.raises(ValueError, match="Pass --overwrite"):
            _write(output, {"e.txt": "new"}, data_files=data_files, temp_dir=str(tmp_path / "temp"))
        if killed_at == num_moves:
            assert set(_contents(output)) == {"a.txt", "b.txt", "c.txt"}
        else:
            assert _contents(output) == {"a.txt": "old", "d.txt": "old"}
    assert _names(tmp_path) == [*map(str, range(num_moves + 1)), "temp"]


@pytest.mark.parametrize("is_whole", [False, True])
def test_files_put_aside_are_kept_where_others_have_their_names(tmp_path, is_whole):
    """Old files that a killed run moved away survive, even if new files have their names."""
    output = tmp_path / "out"
    options = {"data_files": None if is_whole else _text_files, "temp_dir": str(tmp_path / "temp")}
    options |= {"replaceable": ("a.txt", "d.txt"), "overwrite": True}
    _write(output, {"a.txt": "old", "d.txt": "old"})
    _killed_run(output, 1 if is_whole else 2, tmp_path / "temp", is_whole=is_whole)
    aside = (tmp_path / ".out.new" if is_whole else output / ".new") / "replaced"
    assert put_aside(output) == (
        f"A killed run left the previous contents in {str(aside)!r}. Run the command that wrote "
        f"{str(output)!r} again, with the same --output: it first restores them."
    )
    output.mkdir(exist_ok=True)
    (output / "a.txt").write_text("mine")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"A killed run moved .*Remove or rename"):
            _write(output, {"e.txt": "new"}, **options)
    assert (output / "a.txt").read_text() == "mine"
    (output / "a.txt").unlink()
    if is_whole:
        output.rmdir()
    with pytest.raises(ValueError, match="Pass --overwrite"):
        _write(output, {"e.txt": "new"}, **{**options, "overwrite": False})
    assert _contents(output) == {"a.txt": "old", "d.txt": "old"}
    assert put_aside(output) == ""


def test_a_folder_is_replaced_whole(tmp_path):
    options = {"data_files": None, "replaceable": ("a.txt", "b.txt")}
    (tmp_path / "out").mkdir()  # empty folders may always be replaced
    _write(tmp_path / "out", {"a.txt": "old", "b.txt": "old"}, **options, overwrite=True)
    with pytest.raises(ValueError, match="already exists"):
        _write(tmp_path / "out", {"a.txt": "new"}, **options)
    _write(tmp_path / "out", {"a.txt": "new"}, **options, overwrite=True)
    assert _contents(tmp_path / "out") == {"a.txt": "new"}
    assert _names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    "stranger",
    ["notes", ".git/config", "sub/a.txt", "link", "b.txt", "sub/vocab.d/mine", "sub/sub/vocab.txt"],
)
def test_a_folder_with_something_else_is_not_replaced(tmp_path, stranger):
    """Folders with additional files, or without the command's first file, are not replaced."""
    path = tmp_path / "out" / stranger
    path.parent.mkdir(parents=True)
    if stranger == "link":
        path.symlink_to(tmp_path)
    else:
        path.write_text("mine")
    if stranger != "b.txt":
        (tmp_path / "out" / "a.txt").write_text("old")
    own = ("a.txt", "b.txt", "sub/vocab*")
    options = {"data_files": None, "replaceable": own, "overwrite": True}
    with pytest.raises(ValueError, match=f"did not write.*{stranger}"):
        _write(tmp_path / "out", {"a.txt": "new"}, **options)
    assert path.exists()


def test_a_folder_of_its_own_holds_nothing_else_and_is_a_folder(tmp_path):
    (tmp_path / "notes").write_text("mine")
    for place, message in ((tmp_path, "did not write"), (tmp_path / "notes", "a file")):
        with pytest.raises(ValueError, match=message):
            OutputFolder(place, data_files=_text_files, is_own=True, overwrite=True)


def test_a_full_disk_is_named(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")
    expected = pytest.raises(FileWriteError, match=r"Cannot write '.*out': No space left on device")
    with expected, OutputFolder(tmp_path / "out").open():
        raise full
    assert _names(tmp_path) == []


@pytest.mark.parametrize("nth", [1, 2, 3])  # a file, its folder, the folder with the output
def test_a_disk_that_does_not_keep_what_was_written_is_named(tmp_path, monkeypatch, nth):
    calls, fsync = [], os.fsync

    def failing(descriptor):
        calls.append(descriptor)
        if len(calls) == nth:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(FileWriteError, match=r"Cannot write '.*out': Input/output error"):
        _write(tmp_path / "out", {"a.txt": "a"}, data_files=None)
    assert not [name for name in _names(tmp_path) if name != "out"]


def test_a_disk_that_fails_under_an_array_is_named_by_the_output(tmp_path, monkeypatch):
    def failing(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    expected = pytest.raises(FileWriteError, match=r"Cannot write '.*out': Input/output error")
    with (
        expected,
        OutputFolder(tmp_path / "out").open() as written,
        GrowingArray(written / "ids.npy", "int32") as array,
    ):
        array.append(np.arange(3))
    assert _names(tmp_path) == []


def test_nothing_is_left_where_no_lock_can_be_made(tmp_path):
    """If the lock's name is too long, nothing is left, although the hidden folder's name fits."""
    deep = tmp_path
    while (rest := 4095 - len("/.out.new") - len(str(deep))) > 1:
        deep /= "a" * min(200, rest - 1 if rest < 203 else rest - 3)
    deep.mkdir(parents=True)
    with pytest.raises(FileWriteError, match="File name too long"):
        _write(deep / "out", {"a.txt": "a"})
    assert _names(deep) == []


@pytest.mark.parametrize("exists", [False, True])
def test_a_link_to_another_disk_is_followed(tmp_path, exists):
    if not os.access("/dev/shm", os.W_OK) or os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("/dev/shm is not another disk.")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other_disk:
        target = Path(other_disk) / "out"
        (tmp_path / "out").symlink_to(target)
        if exists:
            _write(target, {"a.txt": "old"})
        _write(tmp_path / "out", {"b.txt": "new"}, overwrite=True)
        assert _contents(target) == {"b.txt": "new"}
        assert _names(other_disk) == _names(tmp_path) == ["out"]


@pytest.mark.parametrize("function", ["rename", "replace"])
def test_a_mount_point_is_written_without_moves_to_another_disk(tmp_path, monkeypatch, function):
    output = tmp_path / "out"
    _write(output, {"a.txt": "old"})
    move = getattr(os, function)

    def within_one_disk(source, target):
        assert Path(source).is_relative_to(output) == Path(target).is_relative_to(output)
        move(source, target)

    monkeypatch.setattr(os, function, within_one_disk)
    _write(output, {"b.txt": "new"}, overwrite=True)
    assert _contents(output) == {"b.txt": "new"}
