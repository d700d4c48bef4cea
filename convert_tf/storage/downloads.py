"""Download, check and cache the files of a release, even from several processes at once."""

import gzip
import http.client
import itertools
import os
import re
import shutil
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from convert_tf.storage.checksums import checksum, file_checksum
from convert_tf.storage.files import lock_file, writing
from convert_tf.storage.progress import Progress

SUMS_FILE = "SHA256SUMS"
ARCHIVE_SUFFIX = ".tar.gz"
_TIMEOUT_SECONDS = 30.0
_PIECE_BYTES = 2**16
_MAX_SUMS_PIECES = 16
_SUMS_LINE = re.compile(r"([0-9a-f]{64}) [ *](\S+)")


class DownloadError(ValueError):
    """Error: a release file could not be downloaded. The message says which file and why."""


def cache_folder() -> Path:
    """Return the folder for downloads: `CONVERT_TF_CACHE`, or `convert_tf` in the user's cache.

    For a user without a home folder, `convert_tf` is in the folder for temporary files.
    """
    chosen = os.environ.get("CONVERT_TF_CACHE")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if home.startswith("~"):  # no home folder is known
        home = tempfile.gettempdir()
    return Path(home) / "convert_tf"


def fetched(base: str, name: str, *, folder: Path | None = None) -> Path:
    """Return the path of a release file, which is downloaded if it is not in the cache.

    A file is checked when it is downloaded. It is not checked again, because files of a release
    never change. If several processes need the same file, one downloads it and the others wait. A
    process that is killed leaves no partial file.

    Args:
      base: address of the release, without the file name; http, https or file.
      name: name of the file. For an archive, such as `x.tar.gz`, the folder with its unpacked files
        is returned.
      folder: folder for downloads; None for `cache_folder()`.

    Returns:
      The path of a file or folder.

    Raises:
      DownloadError: if the release has no such file, or the file could not be downloaded or is
        damaged.
      FileWriteError: if the file could not be written.
    """
    base = base.rstrip("/")
    place = (folder or cache_folder()) / checksum([base.encode()])[:16]
    target = place / name.removesuffix(ARCHIVE_SUFFIX)

    def download(work: Path) -> Path:
        file = work / "file"
        _download(f"{base}/{name}", file, expected=_listed(base, name))
        return _unpacked(file) if name.endswith(ARCHIVE_SUFFIX) else file

    return made_once(target, download)


def made_once(target: Path, make: Callable[[Path], Path]) -> Path:
    """Return the path of a file or folder in the cache, which is made first if it is missing.

    If several processes need the file, one makes it and the others wait. A process that is killed
    leaves no partial file.

    Args:
      target: path of the file or folder in the cache.
      make: function that gets an empty folder, writes the file or folder into it, and returns the
        path of what it wrote.

    Raises:
      FileWriteError: if the file or folder could not be written.
    """
    if target.exists():
        return target
    place = target.parent
    with writing(target):
        place.mkdir(parents=True, exist_ok=True)
        with open(place / f".{target.name}.lock", "a") as lock:
            is_locked = lock_file(lock, waits=True)
            if target.exists():  # another process was first
                return target
            if is_locked:  # without a lock, these folders may belong to a running process
                for left in place.glob(f".new-{target.name}-*"):  # left by a killed process
                    shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(
                prefix=f".new-{target.name}-", dir=place, ignore_cleanup_errors=True
            ) as work:
                new = make(Path(work))
                try:
                    os.replace(new, target)
                except OSError:
                    # Without locks, another process may have put the same folder there.
                    if is_locked or not target.exists():
                        raise
    return target


def _listed(base: str, name: str) -> str:
    """Return a file's checksum, as listed in the release."""
    url = f"{base}/{SUMS_FILE}"
    pieces = itertools.islice(_downloaded(url), _MAX_SUMS_PIECES)
    text = b"".join(pieces).decode("utf-8", "replace")
    sums = {match[2]: match[1] for line in text.splitlines() if (match := _SUMS_LINE.match(line))}
    if name not in sums:
        raise DownloadError(
            f"The release has no {name}. {url} lists {', '.join(sorted(sums)) or 'no files'}. "
            "Use one of these."
        )
    return sums[name]


def _download(url: str, path: Path, *, expected: str) -> None:
    with open(path, "wb") as file:
        file.writelines(_downloaded(url))
    received = file_checksum(path)
    if received != expected:
        raise DownloadError(
            f"The download of {url} is damaged: its {path.stat().st_size:,} bytes have the SHA-256 "
            f"{received[:12]}…, but {SUMS_FILE} says {expected[:12]}…. Try again. If the error "
            "persists, the release itself is damaged."
        )


def _downloaded(url: str) -> Iterator[bytes]:
    """Yield the bytes of a file, with progress on standard error."""
    done = 0
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as reply:
            size = int(reply.headers.get("Content-Length") or 0)
            with Progress(f"kB of {url.rpartition('/')[2]}", total_bytes=size) as progress:
                while piece := reply.read(_PIECE_BYTES):
                    done += len(piece)
                    progress.add(len(piece) // 1000, bytes_done=done)
                    yield piece
    except (OSError, ValueError, http.client.HTTPException) as error:  # URLError is an OSError
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"Cannot read {url}: {reason}.") from error


def _unpacked(archive: Path) -> Path:
    """Unpack an archive and return the folder. Paths that lead out of the folder are refused."""
    folder = archive.with_name("unpacked")
    try:
        with tarfile.open(archive, "r:gz") as tar:
            _extract(tar, folder)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DownloadError(
            f"The archive of the release is damaged: {error}. Please report it."
        ) from error
    return folder


def _extract(tar: tarfile.TarFile, folder: Path) -> None:
    """Write the files and folders of an archive to a folder.

    Raises:
      TarError: if a member is neither a file nor a folder, or its path leads out of the folder.
    """
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, filter="data")
        return
    # Python before 3.10.12 and 3.11.4 has no filters.
    for member in tar.getmembers():
        parts = re.split(r"[/\\]", member.name)
        if os.path.isabs(member.name) or ".." in parts:
            raise tarfile.TarError(f"{member.name!r} would be extracted outside the folder")
        if not (member.isreg() or member.isdir()):
            raise tarfile.TarError(f"{member.name!r} is neither a file nor a folder")
    tar.extractall(folder)
