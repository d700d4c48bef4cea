"""File locks that end with their process and record their holder."""

import contextlib
import fcntl
import os
import socket
from io import FileIO


def opened_lock(place: str | os.PathLike[str]) -> FileIO:
    """Open the file of a lock, or create it. The holder's note is kept."""
    return open(place, "ab+", buffering=0)


def lock_output(lock: FileIO, work: str) -> None:
    """Lock a file until it is closed.

    The file system knows whether the holder is alive, even on a disk that several machines share.
    The host is recorded because a lock may outlive a machine that is down.

    Args:
      lock: from `opened_lock`.
      work: what a holder does, such as "writing 'out.npy'", for the message.

    Raises:
      ValueError: if another process holds the lock, or has just deleted the file. The message names
        the holder, if it is known, and says how to remove the lock.
    """
    refused = f"Another process is {work}. Wait for it, or choose another --output."
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(refused + _holder(lock)) from None
    if not is_still_at_its_place(lock):
        raise ValueError(refused)
    with contextlib.suppress(OSError):  # on a full disk it holds without the note
        lock.truncate(0)
        lock.write(f"{os.getpid()} {socket.gethostname()}\n".encode())


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
