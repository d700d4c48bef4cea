import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest

from convert_tf.storage import folders
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
    complete = output / ".new" / "written"
    with pytest.raises(OSError, match=f"Input/output error. The new files .* in '{complete}'"):
        _write(output, {"a.txt": "new", "c.txt": "new"}, overwrite=True)
    assert {name: (output / name).read_text() for name in ("a.txt", "b.txt")} == dict.fromkeys(
        ("a.txt", "b.txt"), "old"
    )
    assert _names(output) == [".new", "a.txt", "b.txt"]
    assert _contents(complete) == {"a.txt": "new", "c.txt": "new"}


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


@pytest.mark.parametrize("is_whole", [False, True])
def test_files_put_aside_are_restored_after_a_parent_was_renamed(tmp_path, is_whole):
    _write(tmp_path / "former" / "out", {"a.txt": "old", "d.txt": "old"})
    killed_at = 1 if is_whole else 3
    _killed_run(tmp_path / "former" / "out", killed_at, tmp_path / "temp", is_whole=is_whole)
    (tmp_path / "former").rename(tmp_path / "renamed")
    output = tmp_path / "renamed" / "out"
    options = {"data_files": None if is_whole else _text_files, "overwrite": True}
    folder = OutputFolder(output, replaceable=("a.txt", "d.txt"), **options)
    with pytest.raises(RuntimeError), folder.open():
        raise RuntimeError
    assert _contents(output) == {"a.txt": "old", "d.txt": "old"}
    assert _names(tmp_path / "renamed") == ["out"]


def test_files_put_aside_are_restored_in_a_copy(tmp_path):
    _write(tmp_path / "out", {"a.txt": "old", "d.txt": "old"})
    _killed_run(tmp_path / "out", 3, tmp_path / "temp")
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    for output in (tmp_path / "copy", tmp_path / "out"):
        with pytest.raises(ValueError, match="Pass --overwrite"):
            _write(output, {"e.txt": "new"})
        assert _contents(output) == {"a.txt": "old", "d.txt": "old"}


def test_absolute_paths_of_an_earlier_version_are_followed_only_in_the_output(tmp_path):
    _write(tmp_path / "out", {"a.txt": "old", "d.txt": "old"})
    _killed_run(tmp_path / "out", 3, tmp_path / "temp")
    work = tmp_path / "out" / ".new"
    moves = json.loads((work / "moves.json").read_text())
    moves = [[os.path.normpath(work / path) for path in move] for move in moves]
    (work / "moves.json").write_text(json.dumps(moves))
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    aside = tmp_path / "copy" / ".new" / "replaced"
    for _ in range(2):
        with pytest.raises(ValueError, match=f"moved or copied from there.*{aside}"):
            _write(tmp_path / "copy", {"e.txt": "new"}, overwrite=True)
    assert _contents(aside) == {"a.txt": "old", "d.txt": "old"}
    with pytest.raises(ValueError, match="Pass --overwrite"):
        _write(tmp_path / "out", {"e.txt": "new"})
    assert _contents(tmp_path / "out") == {"a.txt": "old", "d.txt": "old"}


def test_a_folder_is_replaced_whole(tmp_path):
    options = {"data_files": None, "replaceable": ("a.txt", "b.txt")}
    (tmp_path / "out").mkdir()
    with pytest.raises(ValueError, match="already exists"):  # even if it is empty
        _write(tmp_path / "out", {"a.txt": "old"}, **options)
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


def test_a_mount_point_is_not_replaced_as_a_whole(tmp_path, monkeypatch):
    """This is known before the work, which takes hours."""
    output = tmp_path / "out"
    output.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == str(output))
    with pytest.raises(ValueError, match=r"is a mount point.* Choose a folder in it"):
        OutputFolder(output, replaceable=("a.txt",), overwrite=True)
    _write(output, {"a.txt": "new"}, overwrite=True)  # files in it can be replaced
    _write(output / "in it", {"a.txt": "new"}, data_files=None)


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("code", [errno.EBUSY, errno.ENOSPC])
def test_complete_files_are_kept_if_they_cannot_get_their_names(
    tmp_path, monkeypatch, exists, code
):
    """For instance, `ismount` does not recognise a folder of the same disk that is mounted."""
    output = tmp_path / "out"
    if exists:
        _write(output, {"a.txt": "old"})

    def busy(source, target):
        raise OSError(code, os.strerror(code), source)

    monkeypatch.setattr(os, "rename", busy)
    options = {"data_files": None, "replaceable": ("a.txt",), "overwrite": True}
    complete = tmp_path / ".out.new" / "written"
    reason = f"{os.strerror(code)}. The new files .* in '{complete}'"
    with pytest.raises(OSError, match=reason) as caught:
        _write(output, {"a.txt": "new"}, **options)
    assert "run the same command again" not in str(caught.value)
    assert _contents(complete) == {"a.txt": "new"}
    assert output.exists() == exists
    monkeypatch.undo()
    _write(output, {"a.txt": "newer"}, **options)
    assert _contents(output) == {"a.txt": "newer"}
    assert _names(tmp_path) == ["out"]


def test_a_relative_link_that_was_put_aside_is_restored(tmp_path, monkeypatch):
    output = tmp_path / "out"
    _write(output, {"a.txt": "old", "b.txt": "old"})
    (output / "a.txt").rename(tmp_path / "shared.txt")
    (output / "a.txt").symlink_to("../shared.txt")
    moved, rename = [], os.rename

    def fail_at_the_third(source, target):
        moved.append(source)
        if len(moved) == 3:
            raise OSError(errno.EIO, "Input/output error", source)
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_at_the_third)
    with pytest.raises(OSError, match="Input/output error"):
        _write(output, {"a.txt": "new", "b.txt": "new"}, overwrite=True)
    assert [(output / name).read_text() for name in ("a.txt", "b.txt")] == ["old", "old"]
    assert (output / "a.txt").is_symlink()


def _finish_while_there_are(output, names, **options):
    """Write an output that did not exist at the start. Other files appear in it meanwhile."""
    with OutputFolder(output, **options).open() as written:
        (written / "a.txt").write_text("new")
        Path(output).mkdir()
        for name in names:
            (Path(output) / name).write_text("theirs")


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("data_files", [None, _text_files])
def test_files_that_appear_during_a_run_are_kept(tmp_path, data_files, overwrite):
    output = tmp_path / "out"
    options = {"data_files": data_files, "replaceable": ("a.txt",), "overwrite": overwrite}
    if data_files:
        _finish_while_there_are(output, ["notes"], **options, is_own=True)
        assert _contents(output) == {"a.txt": "new", "notes": "theirs"}
        assert _names(tmp_path) == ["out"]
        return
    with pytest.raises(ValueError, match=r"changed since .* complete, in '(.*)'\.") as caught:
        _finish_while_there_are(output, ["a.txt", "notes"], **options)
    assert _contents(output) == {"a.txt": "theirs", "notes": "theirs"}
    complete = tmp_path / ".out.new" / "written"
    assert repr(str(complete)) in str(caught.value)
    assert _contents(complete) == {"a.txt": "new"}
    assert _names(tmp_path / ".out.new") == ["lock", "written"]


@pytest.mark.parametrize("data_files", [None, _text_files])
def test_a_result_that_appears_during_a_run_is_replaced_only_when_told(tmp_path, data_files):
    options = {"data_files": data_files, "replaceable": ("a.txt",)}
    with pytest.raises(ValueError, match=r"Pass --overwrite.* complete, in"):
        _finish_while_there_are(tmp_path / "out", ["a.txt"], **options)
    assert _contents(tmp_path / "out") == {"a.txt": "theirs"}
    assert _contents(tmp_path / ".out.new" / "written") == {"a.txt": "new"}
    for name, there in (("overwritten", ["a.txt"]), ("empty", [])):
        _finish_while_there_are(tmp_path / name, there, **options, overwrite=name != "empty")
        assert _contents(tmp_path / name) == {"a.txt": "new"}
    assert _names(tmp_path) == [".out.new", "empty", "out", "overwritten"]
    with pytest.raises(ValueError, match="Pass --overwrite"):
        _write(tmp_path / "out", {"a.txt": "newer"}, **options)
    assert _contents(tmp_path / ".out.new" / "written") == {"a.txt": "new"}
    _write(tmp_path / "out", {"a.txt": "newer"}, **options, overwrite=True)
    assert _contents(tmp_path / "out") == {"a.txt": "newer"}
    assert _names(tmp_path) == ["empty", "out", "overwritten"]


def test_a_file_added_to_a_folder_that_is_replaced_is_kept(tmp_path):
    output = tmp_path / "out"
    options = {"data_files": None, "replaceable": ("a.txt",), "overwrite": True}
    _write(output, {"a.txt": "old"}, **options)
    with (
        pytest.raises(ValueError, match=r"did not write, such as NOTES.* complete, in"),
        OutputFolder(output, **options).open() as written,
    ):
        (written / "a.txt").write_text("new")
        (output / "NOTES.md").write_text("mine")
    assert _contents(output) == {"a.txt": "old", "NOTES.md": "mine"}
    (output / "NOTES.md").unlink()
    _write(output, {"a.txt": "newer"}, **options)
    assert _contents(output) == {"a.txt": "newer"}
    assert _names(tmp_path) == ["out"]


def test_two_processes_do_not_write_one_output_that_appears_in_between(tmp_path):
    output = tmp_path / "out"
    with OutputFolder(output, data_files=_text_files).open() as written:
        (written / "a.txt").write_text("first")
        output.mkdir()
        with pytest.raises(ValueError, match=f"Another process is .* process {os.getpid()}"):
            _write(output, {"a.txt": "second"}, overwrite=True)
    assert _contents(output) == {"a.txt": "first"}
    assert _names(tmp_path) == ["out"]


def test_a_run_killed_in_an_output_that_appeared_loses_no_files(tmp_path, monkeypatch):
    """The next run uses the hidden folder next to the output again, and restores the old files."""
    output = tmp_path / "out"
    with monkeypatch.context() as killed:
        killed.setattr(OutputFolder, "_undo_moves", lambda _: None)
        killed.setattr(folders, "_clean_up", lambda _: None)
        rename = os.rename

        def fails(source, target):
            if Path(target).parent == output:
                raise KeyboardInterrupt
            rename(source, target)

        killed.setattr(os, "rename", fails)
        with pytest.raises(KeyboardInterrupt):
            _finish_while_there_are(output, ["a.txt"], data_files=_text_files, overwrite=True)
    assert _contents(output) == {}
    with pytest.raises(ValueError, match="Pass --overwrite"):
        _write(output, {"a.txt": "newer"})
    assert _contents(output) == {"a.txt": "theirs"}
    assert _names(tmp_path) == ["out"]


@pytest.mark.parametrize("problem", [errno.EACCES, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR])
def test_another_users_lock_in_the_other_place_does_not_stop_a_run(tmp_path, monkeypatch, problem):
    output = tmp_path / "out"
    output.mkdir()
    place = str(tmp_path / ".out.new" / "lock")

    def refusing(path, *arguments, **options):
        if str(path) == place:
            raise OSError(problem, os.strerror(problem), path)
        return open(path, *arguments, **options)

    monkeypatch.setattr(folders, "open", refusing, raising=False)
    _write(output, {"a.txt": "new"})
    assert _contents(output) == {"a.txt": "new"}


def test_a_lock_in_the_other_place_needs_no_write_access(tmp_path, monkeypatch):
    output, modes = tmp_path / "out", []
    with OutputFolder(output, data_files=_text_files).open():  # the lock of another process
        output.mkdir()
        lock = tmp_path / ".out.new" / "lock"
        note = lock.read_text()

        def recording(path, mode="r", **options):
            modes.append(mode)
            return open(path, mode, **options)

        monkeypatch.setattr(folders, "open", recording, raising=False)
        with pytest.raises(ValueError, match="Another process is"):
            _write(output, {"a.txt": "new"})
        assert modes == ["rb"]
        assert lock.read_text() == note


@pytest.mark.parametrize("deleted_before", ["makedirs", "opened_lock"])
def test_a_hidden_folder_that_another_process_deletes_is_created_again(
    tmp_path, monkeypatch, deleted_before
):
    place, calls = tmp_path / ".out.new", []
    makedirs, opened_lock = os.makedirs, folders.opened_lock

    def failing_makedirs(folder, **options):
        calls.append(folder)
        if len(calls) == 1 and deleted_before == "makedirs":
            raise FileExistsError(errno.EEXIST, "File exists", folder)
        makedirs(folder, **options)

    def late_lock(path):
        if len(calls) == 1:
            place.rmdir()
        return opened_lock(path)

    monkeypatch.setattr(folders.os, "makedirs", failing_makedirs)
    monkeypatch.setattr(folders, "opened_lock", late_lock)
    _write(tmp_path / "out", {"a.txt": "new"})
    assert _contents(tmp_path / "out") == {"a.txt": "new"}
    assert _names(tmp_path) == ["out"]


def test_a_lock_of_the_next_process_survives_the_end_of_a_run(tmp_path, monkeypatch):
    """The hidden folder is not deleted with its content, because the next process may use it."""
    place, remove = tmp_path / ".out.new", os.remove

    def then_the_next_starts(path):
        remove(path)
        if str(path) == str(place / "lock"):
            place.mkdir(exist_ok=True)
            (place / "lock").write_text("the next")

    monkeypatch.setattr(folders.os, "remove", then_the_next_starts)
    _write(tmp_path / "out", {"a.txt": "new"})
    assert _contents(place) == {"lock": "the next"}


def test_leftovers_that_cannot_be_deleted_are_named_before_the_work(tmp_path, monkeypatch):
    left = tmp_path / ".out.new" / "replaced"
    left.mkdir(parents=True)
    with monkeypatch.context() as kept:
        kept.setattr(folders.shutil, "rmtree", lambda *_, **__: None)
        with (
            pytest.raises(ValueError, match=f"{str(left)!r} is left .* cannot be deleted"),
            OutputFolder(tmp_path / "out").open(),
        ):
            pytest.fail("the work has begun")
    _write(tmp_path / "out", {"a.txt": "new"})
    assert _names(tmp_path) == ["out"]


def test_a_link_in_place_of_a_leftover_does_not_change_its_target(tmp_path):
    target = tmp_path / "theirs"
    target.mkdir()
    target.chmod(0o750)
    left = tmp_path / ".out.new" / "written"
    left.parent.mkdir()
    left.symlink_to(target)
    with pytest.raises(ValueError, match=f"{str(left)!r} is left .* cannot be deleted"):
        _write(tmp_path / "out", {"a.txt": "new"})
    assert target.stat().st_mode & 0o777 == 0o750


def test_the_last_listed_file_is_moved_away_first(tmp_path, monkeypatch):
    """The facts are listed last. Without them, no command reads what a killed run left."""
    output = tmp_path / "out"
    _write(output, {"a.txt": "old", "facts.txt": "old"})
    rename, moved = os.rename, []

    def recording(source, target):
        moved.append(Path(source).name)
        rename(source, target)

    monkeypatch.setattr(os, "rename", recording)
    _write(output, {"a.txt": "new", "facts.txt": "new"}, overwrite=True)
    assert moved == ["facts.txt", "a.txt", "a.txt", "facts.txt"]


READ_ONLY = """
    import os, shutil, sys
    from convert_tf.storage.folders import OutputFolder

    os.chdir(sys.argv[1])
    if not os.getuid():
        os.setgid(65534)
        os.setuid(65534)
    for number in "123":
        output = OutputFolder("out", replaceable=("a.txt", "module/*"), overwrite=True)
        with output.open() as written:
            (written / "a.txt").write_text(number)
            shutil.copytree("source", written / "module")
    print(sorted(os.listdir()), open("out/a.txt").read())
    os.chmod("out/module", 0o700)
"""


def test_read_only_folders_in_an_earlier_result_are_deleted():
    """A module that was copied from a read-only folder is read-only itself."""
    with tempfile.TemporaryDirectory() as folder:  # other users cannot open pytest's folder
        source = Path(folder) / "source"
        source.mkdir()
        (source / "model.pb").write_text("x")
        source.chmod(0o555)
        Path(folder).chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(READ_ONLY), folder],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == ("['out', 'source'] 3\n", "")
