"""Read numpy's files. Every kind of damage is a `ValueError`."""

import contextlib
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

# The errors that numpy raises for damaged files. It parses headers as Python and unpacks archives.
# A MemoryError comes from the sizes in a damaged header.
_OF_DAMAGE = (
    EOFError, KeyError, MemoryError, NotImplementedError, OverflowError, RecursionError,
    RuntimeError, SyntaxError, TypeError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip

# Arrays that are compressed much better than numbers can be are attempts to fill the memory.
_MOST_UNPACKED, _ALWAYS_UNPACKED = 100, 2**28  # times their bytes, and bytes


@contextlib.contextmanager
def _one_kind_of_error() -> Iterator[None]:
    try:
        yield
    except _OF_DAMAGE as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def load_array(path: str | os.PathLike[str], *, is_mapped: bool = False) -> np.ndarray:
    """Load the array of a `.npy` file.

    Args:
      path: the file.
      is_mapped: whether to map the file, so that values are read when they are used.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if it is damaged.
    """
    with _one_kind_of_error():
        found = np.load(path, mmap_mode="r" if is_mapped else None)
        if not isinstance(found, np.ndarray):
            found.close()
            raise ValueError("an archive, where one array was expected")
        return found


def load_arrays(file: str | os.PathLike[str] | BinaryIO) -> dict[str, Any]:
    """Load the arrays of an `.npz` file by name. Raises as `load_array`."""
    with _one_kind_of_error():
        found = np.load(file)
        if isinstance(found, np.ndarray):
            raise ValueError("one array, where an archive was expected")
        with found:
            parts = found.zip.infolist()
            packed, unpacked = (
                sum(getattr(part, size) for part in parts)
                for size in ("compress_size", "file_size")
            )
            if unpacked > max(_ALWAYS_UNPACKED, _MOST_UNPACKED * packed):
                raise ValueError(f"{packed:,} bytes that unpack to {unpacked:,}")
            return dict(found)
