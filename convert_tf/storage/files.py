"""Write files atomically, and acquire file locks.

A lock is released when its process ends. The lock file records which process holds the lock. On a
file system without locks, commands print a warning and continue.
"""

import contextlib
import errno
import fcntl
import os
import re
import socket
import stat
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import FileIO, IOBase

# Name of a temporary file. In earlier versions, it did not contain the host.
_TEMPORARY = re.compile(r"\.new-(?:(?P<host>[0-9a-f]{8})-)?(?P<process>\d+)\.(?P<name>.+)")

_DAY = 86_400.0  # seconds
DISK_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Errors from file systems without locks, such as NFS without its lock daemon, Lustre without its
# option `flock`, and many mounted buckets.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


class FileWriteError(OSError):
    """Error: the file `filename` could not be written. `errno` and `strerror` say why."""

    def __str__(self) -> str:
        return (
            f"Cannot write {self.filename!r}: {self.strerror}. Nothing new was left under that "
            "name. Free some space or choose another place, and run the same command again."
        )


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise a `FileWriteError` that names the file if the block raises an `OSError`.

    Raises:
      FileWriteError: if the block raised an `OSError`.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileWriteError(error.errno, reason, os.fspath(path)) from error


@contextlib.contextmanager
def whole_file(path: str | os.PathLike[str], *, follows_links: bool = False) -> Iterator[str]:
    """Yield a hidden path for the block to write to. At the end, rename it to the final path.

    The hidden path is in the same folder. Partial copies of the file from dead processes on this
    host are deleted.

    Args:
      path: the final path. An existing file is replaced, but no folder, device or pipe.
      follows_links: whether to follow a link at `path`, as for a path that a user named. If not,
        the link itself is replaced, and the file that it points to does not change.

    Raises:
      FileWriteError: if the file could not be written or renamed. An existing file at `path` is
        then unchanged.
    """
    target = os.path.realpath(path) if follows_links else os.fspath(path)
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".new-{_host()}-{os.getpid()}.{name}")
    try:
        with writing(path):
            _check_is_no_device(target)
            open(temporary, "wb").close()
        remove_leftovers(folder or ".", name, only_dead=True)
        yield temporary
        with writing(path):
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
    finally:
        # On a read-only file system, even removing a missing file raises an error.
        with contextlib.suppress(OSError):
            os.remove(temporary)


def _check_is_no_device(path: str) -> None:
    """Raise an error if renaming a file to this path would replace a device, a pipe or a socket."""
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(path).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
            raise OSError(errno.EINVAL, "It is a device or a pipe, not a file")


@contextlib.contextmanager
def only_writer(path: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other processes from writing the same output during the block.

    Otherwise two processes could work for minutes, and the later result would replace the earlier
    one. Temporary files (`whole_file`) of killed processes are deleted.

    Args:
      path: the file or folder that the block writes. Its parents are created.

    Raises:
      ValueError: if another process is writing the same output.
      FileWriteError: if the lock cannot be created.
    """
    path = os.path.realpath(path)
    folder, name = os.path.split(path)
    place = os.path.join(folder, f".{name}.lock")
    with writing(path):
        os.makedirs(folder, exist_ok=True)
        lock = opened_lock(place)
    with lock:
        lock_output(lock, f"writing {path!r}")
        try:
            remove_leftovers(folder, name)
            yield
        finally:
            # The disk may have become read-only. An error here would hide that of the block.
            with contextlib.suppress(OSError):
                if is_still_at_its_place(lock):
                    os.remove(place)


def remove_leftovers(
    folder: str | os.PathLike[str], name: str | None = None, *, only_dead: bool = False
) -> None:
    """Delete partial files (`whole_file`) of killed processes.

    Partial files from another host are deleted if nothing was written to them for a day, because
    this host cannot tell whether the other process is alive.

    Args:
      folder: the folder of the files. Unless `only_dead` is set, no other process may be writing
        these files.
      name: final name of the files to delete; None for all partial files in the folder.
      only_dead: whether to keep the files of running processes.
    """
    for entry in os.listdir(folder):
        temporary = _TEMPORARY.fullmatch(entry)
        if not temporary or name not in (None, temporary["name"]):
            continue
        path = os.path.join(folder, entry)
        with contextlib.suppress(OSError):
            if temporary["host"] not in (None, _host()):
                is_left = not only_dead and time.time() - os.path.getmtime(path) > _DAY
            else:
                is_left = not (only_dead and _is_alive(int(temporary["process"])))
            if is_left:
                os.remove(path)


def _host() -> str:
    """Return eight characters that identify this machine in temporary names."""
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # another user's process, or not a process number
        pass
    return True


def check_replaceable(
    path: str | os.PathLike[str], is_own: Callable[[str], bool], *, overwrite: bool
) -> None:
    """Raise an error if an output exists and may not be replaced.

    Args:
      path: the file to write.
      is_own: function that returns whether the file at a path was written by the same command.
      overwrite: whether a file from the same command may be replaced.

    Raises:
      ValueError: if the file exists and `overwrite` is false, or if the existing file was not
        written by the same command, or is a folder, a device or a pipe.
    """
    path = os.fspath(path)
    if not os.path.exists(path):
        return
    if not os.path.isfile(path):
        raise ValueError(f"{path!r} exists and is not a file. Choose another --output.")
    if not overwrite:
        raise ValueError(
            f"{path!r} already exists. Pass --overwrite to replace it, or choose another --output."
        )
    if not is_own(path):
        raise ValueError(
            f"This command did not write {path!r}, so --overwrite does not replace it. Choose "
            "another --output, or remove it."
        )


def write_file(
    path: str | os.PathLike[str], content: bytes | str, *, follows_links: bool = False
) -> None:
    """Write a file atomically: it appears in full or not at all.

    Args:
      path: the file. An existing file is replaced.
      content: bytes, or text to write as UTF-8.
      follows_links: as in `whole_file`.

    Raises:
      FileWriteError: if the file could not be written. An existing file at `path` is then
        unchanged.
    """
    content = content.encode("utf-8") if isinstance(content, str) else content
    with (
        whole_file(path, follows_links=follows_links) as temporary,
        writing(path),
        open(temporary, "wb") as file,
    ):
        file.write(content)


def write_results(folder: str | os.PathLike[str], contents: Mapping[str, bytes | str]) -> None:
    """Write the files of a result into a folder. Each file is written atomically.

    Args:
      folder: the folder, which is created if necessary. Other files in it are not changed.
      contents: bytes, or text to write as UTF-8, by file name.

    Raises:
      FileWriteError: if the folder cannot be created, or a file could not be written.
    """
    with writing(folder):
        os.makedirs(folder, exist_ok=True)
    for name, content in contents.items():
        write_file(os.path.join(folder, name), content)


class _LockFile(FileIO):
    def close(self) -> None:
        """Close the file. NFS may report an error, which would hide that of a block."""
        with contextlib.suppress(OSError):
            super().close()


def opened_lock(place: str | os.PathLike[str]) -> FileIO:
    """Open or create a lock file. A note in the file about the lock's holder is kept."""
    return _LockFile(place, "ab+")


def lock_file(lock: IOBase, *, waits: bool) -> bool:
    """Lock a file until it is closed or its process ends.

    Args:
      lock: an open file that has a name. If it is opened read-only, the lock is shared with other
        processes that opened it read-only.
      waits: whether to wait while another process holds the lock.

    Returns:
      Whether the file is locked. If not, the file system has no locks, and a warning names the
      folder.

    Raises:
      BlockingIOError: if another process holds the lock and `waits` is false.
      FileWriteError: if the lock failed for another reason.
    """
    # On NFS, an exclusive lock needs a writable file.
    kind = fcntl.LOCK_EX if lock.writable() else fcntl.LOCK_SH
    try:
        fcntl.flock(lock, kind | (0 if waits else fcntl.LOCK_NB))
    except BlockingIOError:
        raise
    except OSError as error:
        name = os.path.abspath(lock.name)  # type: ignore[attr-defined]
        if error.errno not in _NO_LOCKS:
            raise FileWriteError(error.errno, error.strerror, name) from error
        warnings.warn(
            f"The file system of {os.path.dirname(name)!r} has no locks ({error.strerror}). Make "
            "sure that no other process writes the same output.",
            stacklevel=2,
        )
        return False
    return True


def lock_output(lock: FileIO, work: str) -> None:
    """Lock a file until it is closed. If the file system has no locks, only print a warning.

    The file system knows whether the holder is alive, even on a disk that several machines share.
    The host is recorded because a lock may remain after its machine has gone down.

    Args:
      lock: a lock file from `opened_lock`, or one opened read-only, so that its note stays.
      work: description of what the holder does, for the message, such as "writing 'out.npy'".

    Raises:
      ValueError: if another process holds the lock, or has just deleted the file. The message names
        the holder, if known, and says how to remove the lock.
      FileWriteError: if the lock failed for another reason.
    """
    refused = f"Another process is {work}. Wait for it, or choose another --output."
    try:
        lock_file(lock, waits=False)
    except BlockingIOError:
        raise ValueError(refused + _holder(lock)) from None
    except FileWriteError:
        if not os.fstat(lock.fileno()).st_size:  # nobody has held the lock
            os.remove(lock.name)
        raise
    if not is_still_at_its_place(lock):
        raise ValueError(refused)
    with contextlib.suppress(OSError):  # on a full disk, the lock works without the note
        lock.truncate(0)
        lock.write(f"{os.getpid()} {socket.gethostname()}\n".encode())


def is_still_at_its_place(lock: FileIO) -> bool:
    """Return whether the lock file still exists under its name. A user may have removed it."""
    try:
        return os.path.samestat(os.stat(lock.name), os.fstat(lock.fileno()))
    except FileNotFoundError:
        return False


def _holder(lock: FileIO) -> str:
    process, _, host = os.pread(lock.fileno(), 1000, 0).decode("utf-8", "replace").partition(" ")
    host = host.strip()
    if not host:  # on a full disk there is no note
        return ""
    if host == socket.gethostname():
        return f" It is process {process}."
    place = os.path.abspath(os.fspath(lock.name))
    return f" It is process {process} on {host}; if that machine is down, remove {place!r}."
