import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from convert_tf.data.output_folder import OutputFolder


def _text_files(folder):
    return sorted(str(path) for path in Path(folder).glob("*.txt"))


def _names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def _write(output, contents, **options):
    folder = OutputFolder(str(output), data_files=_text_files, **options)
    with folder.open():
        for name, text in contents.items():
            (Path(folder.written) / name).write_text(text)
        folder.publish()


def _contents(output):
    return {path.name: path.read_text() for path in Path(output).iterdir()}


def test_files_get_their_names_together(tmp_path):
    folder = OutputFolder(str(tmp_path / "out"), data_files=_text_files)
    with folder.open():
        (Path(folder.written) / "a.txt").write_text("a")
        assert not (tmp_path / "out").exists()
        folder.publish()
    assert _contents(tmp_path / "out") == {"a.txt": "a"}
    assert _names(tmp_path) == ["out"]


def test_a_failure_leaves_nothing(tmp_path):
    folder = OutputFolder(str(tmp_path / "out"), data_files=_text_files)
    with pytest.raises(RuntimeError), folder.open():
        (Path(folder.written) / "a.txt").write_text("a")
        raise RuntimeError
    assert _names(tmp_path) == []


def test_files_of_an_earlier_run_are_replaced_only_when_told(tmp_path):
    output = tmp_path / "out"
    _write(output, {"a.txt": "old", "b.txt": "old"})
    (output / "notes").write_text("mine")
    with pytest.raises(ValueError, match="Pass --overwrite"):
        _write(output, {"a.txt": "new"})
    assert _contents(output) == {"a.txt": "old", "b.txt": "old", "notes": "mine"}
    _write(output, {"a.txt": "new"}, overwrite=True)
    assert _contents(output) == {"a.txt": "new", "notes": "mine"}


# Two old files go aside, then two new ones come: the fifth move is never made.
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


def test_one_process_at_a_time(tmp_path):
    first = OutputFolder(str(tmp_path / "out"), data_files=_text_files)
    second = OutputFolder(str(tmp_path / "out"), data_files=_text_files)
    with first.open():
        with pytest.raises(ValueError, match="another process is writing"), second.open():
            pass
        assert os.path.isdir(first.written)


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from convert_tf.data.output_folder import OutputFolder

    output, killed_at = sys.argv[1], int(sys.argv[2])
    rename, moves = os.rename, iter(range(1000))

    def dies(source, target):
        if next(moves) == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    os.rename = dies
    folder = OutputFolder(
        output, data_files=lambda f: sorted(map(str, Path(f).glob("*.txt"))), temp_dir=sys.argv[3]
    )
    with folder.open():
        Path(folder.scratch, "rows").write_text("spilled")
        for name in ("a.txt", "b.txt", "c.txt"):
            Path(folder.written, name).write_text("of the killed run")
        folder.publish()
"""


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("killed_at", range(3))
def test_a_killed_run_is_cleaned_up_by_the_next(tmp_path, exists, killed_at):
    output, temp_dir = tmp_path / "out", tmp_path / "temp"
    if exists:
        output.mkdir()
    elif killed_at:
        pytest.skip("A folder that is new is moved in one step.")
    arguments = [str(output), str(killed_at), str(temp_dir)]
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), *arguments], check=False)
    assert done.returncode == -signal.SIGKILL
    assert list(temp_dir.iterdir())
    _write(output, {"a.txt": "whole", "d.txt": "whole"}, temp_dir=str(temp_dir))
    assert _contents(output) == {"a.txt": "whole", "d.txt": "whole"}
    assert _names(tmp_path) == ["out", "temp"]
    assert list(temp_dir.iterdir()) == []


def test_the_output_is_a_folder(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(ValueError, match="a file"):
        OutputFolder(str(tmp_path / "out"), data_files=_text_files)
