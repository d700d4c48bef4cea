"""Locks on files, which end with their process and say whose they are."""

import contextlib
import fcntl
import os
import socket
from io import FileIO


def opened_lock(place: str | os.PathLike[str]) -> FileIO:
    """The file of a lock, made where there is none; what its holder noted in it stays."""
    return open(place, "ab+", buffering=0)


def holder_or_locked(lock: FileIO) -> str | None:
    """Locks a file until it is closed, unless another process has it.

    The file system knows whether that one is alive, also on a disk that several machines share. Its
    host is noted for where it cannot: a machine that is down may be waited for.

    Args:
      lock: from `opened_lock`.

    Returns:
      None where this process has it now; else a sentence for the message of refusal on who has it
      and how to remove it, with a space before it, or "" where nothing was noted, or where a
      process that is done has just deleted the file.
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
    """Whether the file of a lock has its name: not where somebody removed it, as messages tell."""
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
