"""File locks that end with their process and record their holder."""

import contextlib
import fcntl
import os
import socket
from io import FileIO


def opened_lock(place: str | os.PathLike[str]) -> FileIO:
    """Open the file of a lock, or create it. The holder's note is kept."""
    return open(place, "ab+", buffering=0)


def holder_or_locked(lock: FileIO) -> str | None:
    """Lock a file until it is closed, unless another process holds it.

    The file system knows whether the holder is alive, even on a disk that several machines share.
    The host is recorded because a lock may outlive a machine that is down.

    Args:
      lock: from `opened_lock`.

    Returns:
      None if this process now holds the lock. Otherwise a sentence, with a space before it, that
      names the holder and says how to remove the lock; `""` if the holder is unknown or has just
      deleted the file.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(lock)
    if not is_still_at_its_place(lock):
        return ""
    with contextlib.suppress(OSError):  # on a full disk it holds without the note
        lock.truncate(0)
        lock.write(f"{os.getpid()} {socket.gethostname()}\n".encode())
    return None


def is_still_at_its_place(lock: FileIO) -> bool:
    """Return whether the lock's file still has its name; a user may have removed it."""
    try:
        return os.path.samestat(os.stat(lock.name), os.fstat(lock.fileno()))
    except FileNotFoundError:
        return False


def _holder(lock: FileIO) -> str:
    process, _, host = os.pread(lock.fileno(), 1000, 0).decode("utf-8", "replace").partition(" ")
    host = host.strip()
    if not host:  # earlier versions noted nothing
        return ""
    if host == socket.gethostname():
        return f" It is process {process}."
    place = os.path.abspath(os.fspath(lock.name))
    return f" It is process {process} on {host}; if that machine is down, remove {place!r}."
