"""Write folders atomically, even if the process is killed."""

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from pathlib import Path

from convert_tf.storage.checksums import checksum
from convert_tf.storage.files import (
    DISK_IS_FULL,
    FileWriteError,
    is_still_at_its_place,
    lock_output,
    opened_lock,
    write_file,
    writing,
)
from convert_tf.storage.json_text import parsed_json

_JOURNAL = "moves.json"
_REPLACED = "replaced"
_WRITTEN = "written"
_SCRATCH = "scratch"
_LOCK = "lock"
_ATTEMPTS = 100

Lister = Callable[[str], list[str]]


class OutputFolder:
    """A folder that is written under a hidden name and renamed when it is complete.

    An existing folder is replaced as a whole. With `data_files`, only the files that this function
    lists are replaced. If a process was killed while it moved files, the next process with the same
    output undoes the moves. When the new files are complete, the output is checked again. If it may
    no longer be replaced, the new files stay in the hidden folder, and the error names this folder.

    Args:
      output: path of the folder. Its parents are created, and a link is followed.
      data_files: function that lists the files in a folder that belong to a run. If it is given and
        the folder exists, temporary files are created inside the folder, which may be on a
        different disk from its parent. If None, the folder is replaced as a whole.
      replaceable: patterns of relative paths. A folder may be replaced as a whole if each of its
        files matches one of the patterns and at least one file matches the first pattern. An empty
        folder needs no such file. Any existing folder needs `overwrite`.
      is_own: with `data_files`, whether a folder that contains none of the listed files must be
        empty, except for hidden files.
      temp_dir: folder in which `scratch` is created; if empty, `scratch` is next to the output.
      overwrite: whether results of an earlier run may be replaced.

    Attributes:
      scratch: folder for temporary files, which exists during `open`.

    Raises:
      ValueError: if the output is a file, or contains other files or results that may not be
        replaced; or if it is a mount point and would be replaced as a whole.

    Example:
      with OutputFolder("module/1").open() as folder:
        (folder / "README.md").write_text("…")
    """

    def __init__(
        self,
        output: str | os.PathLike[str],
        *,
        data_files: Lister | None = None,
        replaceable: Sequence[str] = (),
        is_own: bool = False,
        temp_dir: str = "",
        overwrite: bool = False,
    ) -> None:
        self.output = os.path.realpath(output)  # for a link, work on the disk of its target
        self._data_files = data_files
        self._replaceable = replaceable
        self._is_own = is_own
        self._overwrite = overwrite
        self._is_kept = False  # whether complete files stay in the hidden folder
        parent, name = os.path.split(self.output)
        places = [os.path.join(parent, f".{name}.new"), os.path.join(self.output, ".new")]
        if self._moves_files() and not os.path.exists(os.path.join(places[0], _JOURNAL)):
            places.reverse()
        # If the output is created during the run, later processes use the other place.
        self._work, self._other_work = places
        self._written = os.path.join(self._work, _WRITTEN)
        self._replaced = os.path.join(self._work, _REPLACED)
        self._journal = os.path.join(self._work, _JOURNAL)
        self.scratch = os.path.join(self._work, _SCRATCH)
        if temp_dir:
            place = checksum([self.output.encode("utf-8", "surrogateescape")])[:12]
            self.scratch = os.path.join(os.path.abspath(temp_dir), f".{name}-{place}.new")
        # If there is a journal, `open` first undoes the moves of a killed run and then checks.
        if not os.path.exists(self._journal):
            self._check()

    @contextlib.contextmanager
    def open(self) -> Iterator[Path]:
        """Yield the folder to write to. At the end of the block, its files get their final names.

        Raises:
          ValueError: as for the class, or if another process writes the same output, the lock was
            removed, or files of an earlier run cannot be deleted; or if the moves of a killed run
            cannot be undone, because a file exists again under its former name, or because an
            earlier version of convert_tf recorded them for a folder with another path.
          FileWriteError: if the disk is full.
          OSError: if the new files cannot get their final names. They stay in the hidden folder,
            which the message names.
        """
        with self._opened_lock() as lock:
            with _removed_if_empty(self._work):
                lock_output(lock, f"writing {self.output!r}")
            self._is_kept = False
            try:
                self._begin()
                yield Path(self._written)
                if not is_still_at_its_place(lock):
                    raise ValueError(
                        f"The lock {lock.name!r} was removed while {self.output!r} was written. "
                        "Run the command again when no other process writes there."
                    )
                self._is_kept = True
                self._check_again()
                self._is_kept = False
                self._publish()
            except OSError as error:
                if self._is_kept:  # the message says where the complete files are
                    raise
                where = str(error.filename or self.output)
                if os.path.commonpath([self._written, os.path.abspath(where)]) == self._written:
                    where = self.output  # users do not know the temporary name
                elif isinstance(error, FileWriteError):
                    raise
                if error.errno not in DISK_IS_FULL and not isinstance(error, FileWriteError):
                    raise
                raise FileWriteError(error.errno, error.strerror, where) from error
            finally:
                if is_still_at_its_place(lock):  # otherwise another process uses the folder
                    self._undo_moves()
                    _delete(self.scratch)
                    # The next run finds the lock, and deletes files that are kept.
                    if not self._is_kept:
                        _clean_up(self._work)

    def _opened_lock(self) -> FileIO:
        attempts = _ATTEMPTS
        with _removed_if_empty(self._work), writing(self.output):
            while True:
                try:
                    os.makedirs(self._work, exist_ok=True)
                    return opened_lock(os.path.join(self._work, _LOCK))
                except (FileExistsError, FileNotFoundError):  # another process has just deleted it
                    attempts -= 1
                    if not attempts:
                        raise

    def _begin(self) -> None:
        """Undo the moves of a killed run, check the output, and create empty folders."""
        with contextlib.ExitStack() as stack:
            other_lock = None
            with contextlib.suppress(OSError):  # usually there is no such lock
                # The lock may belong to another user, who does not let others write to it.
                place = os.path.join(self._other_work, _LOCK)
                other_lock = stack.enter_context(open(place, "rb", buffering=0))
            if other_lock:
                lock_output(other_lock, f"writing {self.output!r}")
            self._undo_moves()
            self._check()
            if other_lock and not os.path.exists(os.path.join(self._other_work, _JOURNAL)):
                _clean_up(self._other_work)
        for folder in (self._replaced, self._written, self.scratch):
            _delete(folder)
            if os.path.lexists(folder):
                raise ValueError(
                    f"{folder!r} is left from an earlier run and cannot be deleted completely. "
                    "Delete it, and run the command again."
                )
        for folder in (self._written, self.scratch):
            os.makedirs(folder)

    def _moves_files(self) -> bool:
        """Return whether only files in the output are replaced, instead of the whole folder."""
        return self._data_files is not None and os.path.isdir(self.output)

    def _check_again(self) -> None:
        """Check, when the new files are complete, whether the output may still be replaced."""
        try:
            self._check(is_complete=True)
        except ValueError as error:
            raise ValueError(
                f"{error} It has changed since this command started. {self._where_kept()}."
            ) from error

    def _where_kept(self) -> str:
        return (
            f"The new files are complete, in {self._written!r}. Move them before the next run with "
            "this --output deletes them"
        )

    def _check(self, *, is_complete: bool = False) -> None:
        if not os.path.exists(self.output):
            return
        if not os.path.isdir(self.output):
            raise ValueError(
                f"{self.output!r} is a file, but --output must be a folder. Choose another path."
            )
        if self._data_files is None and os.path.ismount(self.output):
            raise ValueError(
                f"{self.output!r} is a mount point, so it cannot be replaced as a whole. Choose a "
                "folder in it."
            )
        if is_complete and not os.listdir(self.output):
            return
        old = [self.output] if self._data_files is None else self._data_files(self.output)
        if old and not self._overwrite:
            raise ValueError(
                f"{self.output!r} already exists. Pass --overwrite to replace it, or choose "
                "another --output."
            )
        if self._data_files is None:
            stranger = self._stranger()
        else:
            # Other files that have appeared since the start are kept.
            others = [] if old or is_complete or not self._is_own else os.listdir(self.output)
            stranger = min((name for name in others if name[0] != "."), default="")
        if stranger:
            raise ValueError(
                f"{self.output!r} contains files that this command did not write, such as "
                f"{stranger}. Choose another --output, or empty the folder."
            )

    def _stranger(self) -> str:
        """Return a path that keeps the folder from being replaced; `""` if there is none."""
        folder = Path(self.output)
        files = {path for path in folder.rglob("*") if _is_leaf(path)}
        known = [{*folder.glob(pattern)} for pattern in self._replaceable]
        if known and not files.isdisjoint(known[0]):
            files.difference_update(*known)
        return str(min(files).relative_to(folder)) if files else ""

    def _publish(self) -> None:
        for folder, _, names in os.walk(self._written):
            for path in (*(os.path.join(folder, name) for name in names), folder):
                self._sync(path)
        try:
            self._move()
        except OSError as error:
            self._is_kept = True
            reason = f"{self.output!r} could not be written: {error.strerror or error}"
            raise OSError(error.errno, f"{reason}. {self._where_kept()}") from error
        # A folder that may be written but not read cannot be opened.
        with contextlib.suppress(PermissionError):
            self._sync(os.path.dirname(self.output))
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._journal)  # the moves are not undone after this

    def _move(self) -> None:
        """Give the new files their final names, after moving the previous files away."""
        moves = [(self._written, self.output)]
        if self._moves_files():
            assert self._data_files is not None
            os.makedirs(self._replaced)
            # `data_files` lists the JSON file last, but it is moved away first. Without it, no
            # command reads the remaining files, or adds files whose names would be in use.
            old = reversed(self._data_files(self.output))
            moves = [(path, self._replaced) for path in old]
            moves += [(path, self.output) for path in self._data_files(self._written)]
            moves = [(path, os.path.join(to, os.path.basename(path))) for path, to in moves]
        elif self._overwrite and os.path.exists(self.output):
            moves.insert(0, (self.output, self._replaced))
        if len(moves) > 1:  # a single move cannot be left half done
            # With relative paths, the moves can be undone after a parent folder was renamed.
            relative = [[os.path.relpath(path, self._work) for path in move] for move in moves]
            write_file(self._journal, json.dumps(relative))
        for source, target in moves:
            os.rename(source, target)

    def _sync(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            with writing(self.output):
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _undo_moves(self) -> None:
        """Undo the moves of an interrupted run, so that files get their old names back."""
        if os.path.exists(self._journal):
            for source, target in reversed(self._recorded_moves()):
                # A relative link that was put aside points nowhere.
                if not os.path.lexists(target):
                    continue
                if not os.path.lexists(source):
                    os.rename(target, source)
                elif Path(target).is_relative_to(self._replaced):
                    raise ValueError(
                        f"A killed run moved {source!r} to {target!r}, and the former name is now "
                        "in use again. Remove or rename one of them."
                    )
            os.remove(self._journal)

    def _recorded_moves(self) -> list[tuple[str, str]]:
        """Return the moves in the journal, as absolute paths before and after each move."""
        moves = []
        for move in parsed_json(Path(self._journal).read_text()):
            # A journal of an earlier version has absolute paths, which `join` does not change.
            source, target = (os.path.normpath(os.path.join(self._work, path)) for path in move)
            for path in map(Path, (source, target)):
                if not path.is_relative_to(self.output) and not path.is_relative_to(self._work):
                    raise ValueError(
                        f"A killed run moved {source!r} to {target!r}, and {self.output!r} was "
                        "moved or copied from there. Move the previous files from "
                        f"{self._replaced!r} to where they belong, and delete {self._work!r}."
                    )
            moves.append((source, target))
        return moves


def _clean_up(work: str) -> None:
    """Delete what a run left in its hidden folder. The caller holds the lock of this folder."""
    for name in (_SCRATCH, _REPLACED, _WRITTEN):
        _delete(os.path.join(work, name))
    # The lock is removed last. Another process may already have created a new one.
    with contextlib.suppress(OSError):
        os.remove(os.path.join(work, _LOCK))
        os.rmdir(work)


def _delete(folder: str) -> None:
    """Delete a folder as far as possible, including read-only folders such as a copied module."""
    if os.path.islink(folder):
        return  # otherwise the permissions of the link's target would change
    for inside, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            os.chmod(inside, stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _removed_if_empty(folder: str) -> Iterator[None]:
    """Remove an empty folder if the block raises `FileWriteError`."""
    try:
        yield
    except FileWriteError:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
        raise


def put_aside(output: str | os.PathLike[str]) -> str:
    """Return where a killed run left the previous files, and how to restore them.

    Args:
      output: a folder in which a file is missing.

    Returns:
      Sentences for an error message. They replace other advice, because building the folder again
      would delete the previous files. `""` if no run was killed.
    """
    parent, name = os.path.split(os.path.realpath(output))
    for work in (os.path.join(parent, f".{name}.new"), os.path.join(parent, name, ".new")):
        if os.path.exists(os.path.join(work, _JOURNAL)):
            return (
                f"A killed run left the previous contents in {os.path.join(work, _REPLACED)!r}. "
                f"Run the command that wrote {os.fspath(output)!r} again, with the same --output: "
                "it first restores them."
            )
    return ""


def _is_leaf(path: Path) -> bool:
    """Return whether a path is a file. Links and empty folders count as files."""
    return path.is_symlink() or not path.is_dir() or not any(path.iterdir())
