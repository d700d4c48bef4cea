"""A data folder that appears complete or not at all, also when the process is killed."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator

_WORK = ".prepare.tmp"
_MOVING = "moving"  # in the work folder, while what was written gets its final names
_REPLACED = ".replaced-"

Lister = Callable[[str], list[str]]


class OutputFolder:
    """Where a run writes before its results get their names.

    Everything is written to `written`, a folder beside the output (inside it where it exists: it
    may be where another disk is mounted), and `publish` renames it. What a killed run left behind
    is deleted by the next run with the same output.

    Args:
        output: the data folder.
        data_files: lists the files of a folder that belong to a run, and no others.
        temp_dir: where `scratch` is; beside the output when empty.
        overwrite: whether files that an earlier run completed may be replaced.

    Raises:
        ValueError: the output is a file, holds the results of an earlier run, or is being
            written by another process.
    """

    def __init__(
        self, output: str, *, data_files: Lister, temp_dir: str = "", overwrite: bool = False
    ) -> None:
        self.output = os.path.realpath(output)  # temporary folders go to the disk behind a link
        self.data_files = data_files
        self.overwrite = overwrite
        if os.path.exists(self.output) and not os.path.isdir(self.output):
            raise ValueError(
                f"The output is a folder. Received: {output!r}, a file. Pass another --output."
            )
        parent, name = os.path.split(self.output)
        os.makedirs(parent, exist_ok=True)
        self._is_inside = os.path.isdir(self.output)
        self._work = (
            os.path.join(self.output, _WORK)
            if self._is_inside
            else os.path.join(parent, f".{name}{_WORK}")
        )
        self.written = os.path.join(self._work, "records")
        self.scratch = os.path.join(self._work, "scratch")
        if temp_dir:
            place = hashlib.md5(self.output.encode("utf-8", "surrogateescape")).hexdigest()[:12]
            self.scratch = os.path.join(os.path.abspath(temp_dir), f".{name}-{place}{_WORK}")

    @contextlib.contextmanager
    def open(self) -> Iterator["OutputFolder"]:
        """Makes `written` and `scratch`, and deletes them at the end."""
        os.makedirs(self._work, exist_ok=True)
        with open(os.path.join(self._work, "lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ValueError(
                    "One process writes a data folder at a time. "
                    f"Received: {self.output!r}, which another process is writing. "
                    "Wait for it, or pass another --output."
                ) from error
            was_moving = os.path.exists(os.path.join(self._work, _MOVING))
            try:
                if not self.overwrite and not was_moving and self.data_files(self.output):
                    raise ValueError(
                        "The output folder must not hold records of an earlier run. "
                        f"Received: {self.output!r}. Pass --overwrite or another --output."
                    )
                for folder in (self.written, self.scratch):
                    shutil.rmtree(folder, ignore_errors=True)
                    os.makedirs(folder)
                yield self
            finally:
                shutil.rmtree(self.scratch, ignore_errors=True)
                shutil.rmtree(self._work, ignore_errors=True)

    def publish(self) -> None:
        """Gives what was written its final name, or replaces the files of an earlier run."""
        if not self._is_inside:
            os.rename(self.written, self.output)
            return
        with open(os.path.join(self._work, _MOVING), "w"):
            pass
        # Not in the work folder: should old files fail to come back, they are still there.
        aside = tempfile.mkdtemp(prefix=_REPLACED, dir=self.output)
        sources = [(path, aside) for path in self.data_files(self.output)]
        sources += [(path, self.output) for path in self.data_files(self.written)]
        moves = [(path, os.path.join(folder, os.path.basename(path))) for path, folder in sources]
        moved = []
        try:
            for source, target in moves:
                moved.append((source, target))
                os.rename(source, target)
        except BaseException:
            for source, target in reversed(moved):
                if not os.path.exists(source):
                    os.rename(target, source)
            os.rmdir(aside)
            raise
        for name in os.listdir(self.output):
            if name.startswith(_REPLACED):  # also of a run that was killed while it moved
                shutil.rmtree(os.path.join(self.output, name), ignore_errors=True)
