"""SHA-256 of bytes, of files, and of folders of files, in hexadecimal digits.

A folder that is read again holds `sha256.json`: the checksum of each of its files by name, or those
that it may have while it is replaced, `""` among them while it may not be there yet.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping

from convert_tf.storage.files import write_file
from convert_tf.storage.json_text import parsed_json, written_json

CHECKSUMS_FILE = "sha256.json"
_NONE = ""  # in place of the checksum of a file that is not there
_PIECE_BYTES = 2**16


def checksum(pieces: Iterable[bytes | memoryview]) -> str:
    """SHA-256 of bytes, one piece behind the other."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def short_digest(content: bytes) -> bytes:
    """Eight bytes that tell texts apart, millions of them in little memory (BLAKE2b)."""
    return hashlib.blake2b(content, digest_size=8).digest()


def file_checksum(*paths: str | os.PathLike[str]) -> str:
    """SHA-256 of what files hold, one behind the other; their names do not count."""
    return checksum(piece for path in paths for piece in _pieces(path))


def fingerprint(files: Iterable[tuple[str, str | os.PathLike[str]]]) -> str:
    """SHA-256 of files with their names and sizes.

    Args:
        files: the name that counts and the path of each, in an order that does not vary.
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
    """Writes files into a folder, each whole, and their checksums.

    A process that is killed between two of them leaves files from before and new ones, of which
    none counts as damaged.

    Args:
        folder: it is there.
        contents: bytes, or text that is written as UTF-8, by the names of files.

    Raises:
        FileWriteError: one could not be written.
        ValueError: the checksums that are there cannot be read.
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
    """Adds what files hold now to the checksums of a folder; names are relative to it."""
    sums = {name: [file_checksum(os.path.join(folder, name))] for name in names}
    _write(folder, _recorded(folder) | sums)


def wrong_files(folder: str | os.PathLike[str]) -> list[str]:
    """Files that are not as written, or missing; none in a folder without checksums.

    Raises:
        ValueError: the checksums cannot be read.
    """
    return [
        name
        for name, sums in sorted(_recorded(folder).items())
        if _checksum_or_none(os.path.join(folder, name)) not in sums
    ]


def check_files(
    folder: str | os.PathLike[str], *names: str, error: type[ValueError] = ValueError
) -> None:
    """Refuses files that are not as written, or missing.

    Args:
        folder: without checksums, as earlier versions wrote it, nothing is refused.
        *names: of files, relative to it; all that have a checksum by default. One without is not
            refused, nor where it is missing.
        error: what is raised.

    Raises:
        ValueError: a file is damaged, was changed or is gone, or the checksums are damaged.
    """
    try:
        recorded = _recorded(folder)
    except ValueError as damage:
        raise error(str(damage)) from damage
    for name in names or recorded:
        path = os.path.join(folder, name)
        found = _checksum_or_none(path) if name in recorded else _NONE
        if name in recorded and found not in recorded[name]:
            reason = (
                f"was damaged or changed: its SHA-256 is not in {CHECKSUMS_FILE}"
                if found
                else f"is missing: its SHA-256 is in {CHECKSUMS_FILE}"
            )
            raise error(f"{path!r} {reason}. Copy it again, or make it anew.")


def _checksum_or_none(path: str) -> str:
    return file_checksum(path) if os.path.isfile(path) else _NONE


def _recorded(folder: str | os.PathLike[str]) -> dict[str, list[str]]:
    path = os.path.join(folder, CHECKSUMS_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            found = parsed_json(file.read())
        return {name: [sums] if isinstance(sums, str) else [*sums] for name, sums in found.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path!r} is damaged: it does not hold checksums in JSON ({error}). Copy the folder "
            "again, or make it anew."
        ) from error


def _write(folder: str | os.PathLike[str], sums: Mapping[str, list[str]]) -> None:
    listed = {name: own if len(own) > 1 else own[0] for name, own in sorted(sums.items())}
    write_file(os.path.join(folder, CHECKSUMS_FILE), written_json(listed))
