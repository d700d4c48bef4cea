"""Files of a release: fetched, checked, and kept where several processes may fill the place."""

import contextlib
import fcntl
import gzip
import http.client
import os
import re
import shutil
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convert_tf.storage.checksums import checksum, file_checksum
from convert_tf.storage.files import writing
from convert_tf.storage.progress import Progress

SUMS_FILE = "SHA256SUMS"
ARCHIVE_SUFFIX = ".tar.gz"
_TIMEOUT_SECONDS = 30.0
_PIECE_BYTES = 2**16
_MAX_SUMS_BYTES = 2**20
_SUMS_LINE = re.compile(r"([0-9a-f]{64}) [ *](\S+)")


class DownloadError(ValueError):
    """A file of a release that could not be had; the message says which, and why."""


def cache_folder() -> Path:
    """Where downloads are kept: `CONVERT_TF_CACHE`, else `convert_tf` in the user's cache."""
    own = os.environ.get("CONVERT_TF_CACHE")
    if own:
        return Path(own)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "convert_tf"


def fetched(base: str, name: str, *, folder: Path | None = None) -> Path:
    """A file of a release, downloaded unless it is there already.

    What is there was checked when it was downloaded, and no file of a release ever changes.
    Processes that want the same one wait for the first; one that is killed leaves nothing that
    counts.

    Args:
      base: address of the release, without the name; http, https or file.
      name: of the file. Of an archive, `x.tar.gz`, the folder of what is in it is returned.
      folder: where downloads are kept; None for `cache_folder()`.

    Returns:
      A file, or a folder.

    Raises:
      DownloadError: the release has no such file, it could not be had, or it is damaged.
      FileWriteError: it could not be written.
    """
    base = base.rstrip("/")
    place = (folder or cache_folder()) / checksum([base.encode()])[:16]
    target = place / name.removesuffix(ARCHIVE_SUFFIX)
    if target.exists():
        return target
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
    with _only_one(place / f".{target.name}.lock"):
        if target.exists():  # another process was first
            return target
        for left in place.glob(f".new-{target.name}-*"):  # of one that was killed
            shutil.rmtree(left, ignore_errors=True)
        with writing(place):
            work = Path(tempfile.mkdtemp(prefix=f".new-{target.name}-", dir=place))
        try:
            file = work / "file"
            _download(f"{base}/{name}", file, expected=_listed(base, name))
            with writing(target):
                os.replace(_unpacked(file) if name.endswith(ARCHIVE_SUFFIX) else file, target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return target


@contextlib.contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Lets one process at a time in; the lock of one that ends is free."""
    with writing(lock):
        file = open(lock, "a")  # noqa: SIM115 (closed below)
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _listed(base: str, name: str) -> str:
    """The checksum of a file, as the release lists it."""
    url = f"{base}/{SUMS_FILE}"
    with _opened(url) as reply:
        text = _read(reply, url, _MAX_SUMS_BYTES).decode("utf-8", "replace")
    sums = {match[2]: match[1] for line in text.splitlines() if (match := _SUMS_LINE.match(line))}
    if name not in sums:
        raise DownloadError(
            f"The release has no {name}. {url} lists {', '.join(sorted(sums)) or 'no files'}. "
            "Use one of these."
        )
    return sums[name]


def _download(url: str, path: Path, *, expected: str) -> None:
    """Writes a file, with a line of progress on standard error."""
    with _opened(url) as reply, writing(path), open(path, "wb") as file:
        size = int(reply.headers.get("Content-Length") or 0)
        with Progress(f"kB of {url.rpartition('/')[2]}", total_bytes=size) as progress:
            while piece := _read(reply, url):
                file.write(piece)
                progress.add(len(piece) // 1000, bytes_done=file.tell())
    received = file_checksum(path)
    if received != expected:
        raise DownloadError(
            f"The download of {url} is damaged: its {path.stat().st_size:,} bytes have the SHA-256 "
            f"{received[:12]}…, and {SUMS_FILE} says {expected[:12]}…. Try again. If the error "
            "stays, the release itself is damaged."
        )


def _opened(url: str) -> Any:
    try:
        return urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS)
    except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
        raise _unreachable(url, error) from error


def _read(reply: Any, url: str, size: int = _PIECE_BYTES) -> bytes:
    try:
        return reply.read(size)
    except (OSError, http.client.HTTPException) as error:  # the connection broke
        raise _unreachable(url, error) from error


def _unreachable(url: str, error: Exception) -> DownloadError:
    reason = getattr(error, "reason", None) or error
    return DownloadError(f"Cannot read {url}: {reason}.")


def _unpacked(archive: Path) -> Path:
    """The folder of an archive's files, which may name nothing outside it."""
    folder = archive.with_name("unpacked")
    try:
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DownloadError(
            f"The archive of the release is damaged: {error}. Please report it."
        ) from error
    return folder
