"""SHA-256 checksums of bytes, files and folders, in hexadecimal digits.

Folders that other commands read have a file `sha256.json`, which gives the checksum of each file by
name. While a file is being replaced, `sha256.json` lists all checksums that the file may have, and
`""` if the file may be missing.

Only one process at a time may write `sha256.json`. A file that any process may add to a folder has
its checksum in a file of its own, such as `a.index.sha256` for `a.index`.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping

from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import parsed_json, written_json

CHECKSUMS_FILE = "sha256.json"
_SUFFIX = ".sha256"  # of files that contain the checksum of a single file
_NONE = ""  # stands for the checksum of a missing file
_PIECE_BYTES = 2**16


def checksum(pieces: Iterable[bytes | memoryview]) -> str:
    """Return the SHA-256 of concatenated bytes."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def short_digest(content: bytes) -> bytes:
    """Return an eight-byte digest (BLAKE2b). Even millions of digests take little memory."""
    return hashlib.blake2b(content, digest_size=8).digest()


def file_checksum(*paths: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of the concatenated contents of files, without their names."""
    return checksum(piece for path in paths for piece in _pieces(path))


def fingerprint(files: Iterable[tuple[str, str | os.PathLike[str]]]) -> str:
    """Return the SHA-256 of files, including their names and sizes.

    Args:
      files: the name and the path of each file, in a fixed order. The result depends on the names,
        but not on the paths.
    """

    def pieces() -> Iterator[bytes]:
        for name, path in files:
            yield f"{name}:{os.path.getsize(path)}:".encode()
            yield from _pieces(path)

    return checksum(pieces())


def _pieces(path: str | os.PathLike[str]) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def write_files(folder: str | os.PathLike[str], contents: Mapping[str, bytes | str]) -> None:
    """Write files and their checksums into a folder. Each file is written atomically.

    If the process is killed between two files, the folder contains old and new files. `check_files`
    accepts both.

    Args:
      folder: an existing folder.
      contents: bytes, or text to write as UTF-8, by file name.

    Raises:
      FileWriteError: if a file could not be written.
      ValueError: if the existing checksums cannot be read.
    """
    encoded = {
        name: content.encode("utf-8") if isinstance(content, str) else content
        for name, content in contents.items()
    }
    before = _recorded(folder)
    for name in encoded.keys() - before.keys():
        if os.path.isfile(os.path.join(folder, name)):
            before[name] = [file_checksum(os.path.join(folder, name))]
    new = {name: [checksum([content])] for name, content in encoded.items()}
    _write(folder, before | {name: [*before.get(name, [_NONE]), *new[name]] for name in new})
    for name, content in encoded.items():
        write_file(os.path.join(folder, name), content)
    _write(folder, before | new)


def record_checksums(folder: str | os.PathLike[str], names: Iterable[str]) -> None:
    """Record the checksums of files in a folder. Names are relative to the folder."""
    sums = {name: [file_checksum(os.path.join(folder, name))] for name in names}
    _write(folder, _recorded(folder) | sums)


def check_files(folder: str | os.PathLike[str], *names: str) -> None:
    """Raise an error if files were changed or are missing.

    Args:
      folder: a folder. A folder without checksums, from an earlier version, is not checked.
      *names: files, relative to the folder; by default all files that have a checksum. A file
        without a checksum is not checked, even if it is missing.

    Raises:
      ValueError: if a file is damaged, changed or missing, or the checksums are damaged.
    """
    for name, sums in _recorded(folder).items():
        if names and name not in names:
            continue
        path = os.path.join(folder, name)
        actual = file_checksum(path) if os.path.isfile(path) else _NONE
        if actual not in sums:
            reason = (
                f"was damaged or changed: its SHA-256 is not in {CHECKSUMS_FILE}"
                if actual
                else f"is missing: its SHA-256 is in {CHECKSUMS_FILE}"
            )
            raise ValueError(f"{path!r} {reason}. Copy it again, or create it again.")


def write_checksum(path: str | os.PathLike[str], content: str | os.PathLike[str]) -> None:
    """Write the checksum of a single file next to it.

    Args:
      path: the final path of the file. `.sha256` is appended for the checksum.
      content: the path of the file's content, which may still have a temporary name.

    Raises:
      FileWriteError: if the checksum could not be written.
    """
    write_file(f"{os.fspath(path)}{_SUFFIX}", file_checksum(content))


def check_file(path: str | os.PathLike[str]) -> None:
    """Raise an error if a file was changed.

    Args:
      path: the file, with a checksum from `write_checksum`. Without it, the file is checked as in
        `check_files`.

    Raises:
      ValueError: if the file or its checksum is damaged.
      OSError: if the file or its checksum cannot be read.
    """
    path = os.fspath(path)
    try:
        with open(f"{path}{_SUFFIX}", encoding="ascii") as file:
            expected = file.read()
    except FileNotFoundError:
        check_files(*os.path.split(path))
        return
    if file_checksum(path) != expected:
        raise ValueError(
            f"{path!r} was damaged or changed: its SHA-256 is not the one in {path + _SUFFIX!r}."
        )


def _recorded(folder: str | os.PathLike[str]) -> dict[str, list[str]]:
    path = os.path.join(folder, CHECKSUMS_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            recorded = parsed_json(file.read())
        return {
            name: [sums] if isinstance(sums, str) else [*sums] for name, sums in recorded.items()
        }
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path!r} is damaged: it does not contain checksums in JSON ({error}). Copy the "
            "folder again, or create it again."
        ) from error


def _write(folder: str | os.PathLike[str], sums: Mapping[str, list[str]]) -> None:
    listed = {
        name: known_sums if len(known_sums) > 1 else known_sums[0]
        for name, known_sums in sorted(sums.items())
    }
    write_file(os.path.join(folder, CHECKSUMS_FILE), written_json(listed))
