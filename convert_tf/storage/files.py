"""Files that are written whole or not at all."""

import contextlib
import os
import re
import socket
import time
import zlib
from collections.abc import Callable, Iterator

from convert_tf.storage.locks import holder_or_locked, is_still_at_its_place, opened_lock

# Earlier versions did not say whose process it is.
_TEMPORARY = re.compile(r"\.new-(?:(?P<host>[0-9a-f]{8})-)?(?P<process>\d+)\.(?P<name>.+)")

_DAY = 86_400.0  # seconds


class FileWriteError(OSError):
    """A file that could not be written; `errno`, `strerror` and `filename` say why and where."""

    def __str__(self) -> str:
        return (
            f"Cannot write {self.filename!r}: {self.strerror}. Nothing new was left under that "
            "name. Free some space or choose another place, and run the same command again."
        )


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Says which file is written where the block meets an error of the disk.

    Raises:
      FileWriteError: the block raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileWriteError(error.errno, reason, os.fspath(path)) from error


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[str]:
    """Gives a hidden name beside that of a file, for the block to write to, and then renames it.

    What processes of this host that are no more had begun of the same file is deleted.

    Args:
      path: the file; one that is there is replaced.

    Raises:
      FileWriteError: it could not be made or renamed; what was at `path` is as it was.
    """
    folder, name = os.path.split(os.fspath(path))
    temporary = os.path.join(folder, f".new-{_host()}-{os.getpid()}.{name}")
    try:
        with writing(path):
            open(temporary, "wb").close()
        remove_leftovers(folder or ".", name, only_dead=True)
        yield temporary
        with writing(path):
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


@contextlib.contextmanager
def only_writer(path: str | os.PathLike[str]) -> Iterator[None]:
    """Keeps other processes from writing the same output while the block lasts.

    Two that take minutes for it would otherwise both be done, and the later one's would stay. What
    killed ones left under temporary names (`whole_file`) is deleted.

    Args:
      path: a file or folder that is written at the end; its parents are made.

    Raises:
      ValueError: another process is in such a block for it.
      FileWriteError: there is no place for the lock.
    """
    path = os.path.realpath(path)
    folder, name = os.path.split(path)
    place = os.path.join(folder, f".{name}.lock")
    with writing(path):
        os.makedirs(folder, exist_ok=True)
        lock = opened_lock(place)
    with lock:
        holder = holder_or_locked(lock)
        if holder is not None:
            raise ValueError(
                f"Another process is writing {path!r}. Wait for it, or choose another "
                f"--output.{holder}"
            )
        try:
            remove_leftovers(folder, name)
            yield
        finally:
            if is_still_at_its_place(lock):
                os.remove(place)


def remove_leftovers(
    folder: str | os.PathLike[str], name: str | None = None, *, only_dead: bool = False
) -> None:
    """Deletes what killed processes left of files that they had begun (`whole_file`).

    What another host has begun is deleted when nothing was written to it for a day: where nobody
    else may write, and nobody here can tell whether its process lives.

    Args:
      folder: in which nobody else writes these files now, unless `only_dead`.
      name: of the file; None for all.
      only_dead: whether those of processes that run now are kept.
    """
    for entry in os.listdir(folder):
        found = _TEMPORARY.fullmatch(entry)
        if not found or name not in (None, found["name"]):
            continue
        path = os.path.join(folder, entry)
        with contextlib.suppress(OSError):
            if found["host"] not in (None, _host()):
                is_left = not only_dead and time.time() - os.path.getmtime(path) > _DAY
            else:
                is_left = not (only_dead and _is_alive(int(found["process"])))
            if is_left:
                os.remove(path)


def _host() -> str:
    """This machine in eight characters, as a temporary name has room for."""
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's, or no number of a process
        pass
    return True


def check_replaceable(
    path: str | os.PathLike[str],
    is_own: Callable[[str], bool],
    *,
    overwrite: bool,
    error: type[ValueError] = ValueError,
) -> None:
    """Refuses an output that is there and may not be replaced.

    Args:
      path: a file that will be written.
      is_own: whether a file is such as the same command writes.
      overwrite: whether such a one is replaced.
      error: what is raised.

    Raises:
      ValueError: there is a file and `overwrite` is false, or something else.
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        return
    if not overwrite:
        raise error(
            f"{path!r} already exists. Pass --overwrite to replace it, or choose another --output."
        )
    if not os.path.isfile(path) or not is_own(path):
        raise error(
            f"This command did not write {path!r}, so --overwrite does not replace it. Choose "
            "another --output, or remove it."
        )


def write_file(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Writes a file that appears whole or not at all.

    Args:
      path: the file; one that is there is replaced.
      content: bytes, or text that is written as UTF-8.

    Raises:
      FileWriteError: it could not be written; what was at `path` is as it was.
    """
    content = content.encode("utf-8") if isinstance(content, str) else content
    with whole_file(path) as temporary, writing(path), open(temporary, "wb") as file:
        file.write(content)
