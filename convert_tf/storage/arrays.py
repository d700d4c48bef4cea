"""Arrays on disk: numpy files, folders of mapped arrays, and arrays that are written in pieces.

Reading a damaged file always raises `ValueError`, whatever is wrong with the file.
"""

import contextlib
import dataclasses
import io
import os
import re
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from convert_tf.storage.files import write_file, writing
from convert_tf.storage.folders import OutputFolder, put_aside
from convert_tf.storage.json_text import parsed_json, written_json
from convert_tf.storage.messages import shortened

# The errors that numpy raises for damaged files. There are many kinds, because numpy parses headers
# as Python and unpacks archives. Wrong sizes in a damaged header cause a MemoryError.
_OF_DAMAGE = (
    EOFError, KeyError, MemoryError, NotImplementedError, OverflowError, RecursionError,
    RuntimeError, SyntaxError, TypeError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip

# An archive that is compressed far better than numbers can be is an attempt to fill memory. Its
# unpacked size may reach the larger of two limits: the first is a multiple of the archive's size,
# the second is in bytes.
_MOST_UNPACKED, _ALWAYS_UNPACKED = 100, 2**28


@contextlib.contextmanager
def _one_kind_of_error() -> Iterator[None]:
    try:
        yield
    except _OF_DAMAGE as error:
        raise ValueError(f"{type(error).__name__}: {_brief(error)}") from error
    except ValueError as error:
        raise ValueError(_brief(error)) from error


def _brief(error: Exception) -> str:
    """Return numpy's message in one short line, without the addresses of objects."""
    return shortened(re.sub(r" at 0x[0-9a-f]+", "", str(error)), 200)


def load_array(path: str | os.PathLike[str], *, is_mapped: bool = False) -> np.ndarray:
    """Load the array in a `.npy` file.

    Args:
      path: the file.
      is_mapped: whether to map the file into memory, so that values are read when they are used.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if it is damaged.
    """
    with _one_kind_of_error():
        array = np.load(path, mmap_mode="r" if is_mapped else None)
        if not isinstance(array, np.ndarray):
            array.close()
            raise ValueError("an archive, where one array was expected")
        return array


def load_arrays(file: str | os.PathLike[str] | BinaryIO) -> dict[str, Any]:
    """Load the arrays in an `.npz` file, by name. The errors are the same as for `load_array`."""
    with _one_kind_of_error():
        archive = np.load(file)
        if isinstance(archive, np.ndarray):
            raise ValueError("one array, where an archive was expected")
        with archive:
            parts = archive.zip.infolist()
            packed, unpacked = (
                sum(getattr(part, size) for part in parts)
                for size in ("compress_size", "file_size")
            )
            if unpacked > max(_ALWAYS_UNPACKED, _MOST_UNPACKED * packed):
                raise ValueError(f"{packed:,} bytes that unpack to {unpacked:,}")
            return dict(archive)


class MappedFile:
    """A `.npy` file mapped into memory. The system keeps recently read parts in memory.

    Args:
      path: the file.
      dtype: the dtype that the array must have.
      shape: the shape that the array must have; −1 for an axis of any size.
      what: name of the kind of folder, for messages.
      remedy: sentence that tells users what to do. Messages end with it.

    Attributes:
      path: the file.
      array: the array. It stays readable if the file is deleted or replaced. Reading past the end
        of a file that became shorter ends the process with SIGBUS; `checked` prevents this.

    Raises:
      ValueError: if the file is missing or damaged, or has another type or shape.
    """

    def __init__(
        self, path: Path, dtype: str, shape: tuple[int, ...], *, what: str, remedy: str
    ) -> None:
        self.path = path
        self._what, self._remedy = what, remedy
        try:
            array = load_array(path, is_mapped=True)
            self._file = open(path, "rb")  # noqa: SIM115 (open as long as the array)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"The {what} is incomplete: cannot read {path} ({error}). {remedy}"
            ) from error
        fits = len(array.shape) == len(shape) and all(
            size in (length, -1) for length, size in zip(array.shape, shape, strict=True)
        )
        if array.dtype != dtype or not fits:
            expected = str(shape).replace("-1", "any")
            raise ValueError(
                f"{path} holds {array.dtype} of shape {array.shape} instead of {dtype} of shape "
                f"{expected}. {remedy}"
            )
        self._size = self._bytes()
        # Slices of a plain array, unlike slices of a memmap, do not keep a reference to the file.
        self.array = np.asarray(array)

    def checked(self) -> np.ndarray:
        """Check the size of the file, and return the array, which should be read immediately.

        Raises:
          ValueError: if the file became shorter.
        """
        size = self._bytes()
        if size < self._size:
            raise ValueError(
                f"{str(self.path)!r} shrank while it was read: {size} of {self._size} bytes are "
                f"left. {self._remedy}"
            )
        return self.array

    def _bytes(self) -> int:
        return os.fstat(self._file.fileno()).st_size


@dataclasses.dataclass(frozen=True)
class FolderFormat:
    """A kind of folder with arrays and a JSON file that describes them.

    Args:
      what: name of the kind of folder, for messages.
      facts_file: name of the JSON file.
      version: version of the format, which must be the version in the JSON file.
      kinds: required entries of the JSON file, with their types.
      dtypes: allowed values for the entry `dtype` in the JSON file.
      remedy: sentence that tells users what to do. Messages end with it.
      other_files: regular expression for the names of the other files, for `files` and `output`.
    """

    what: str
    facts_file: str
    kinds: Mapping[str, Any]
    dtypes: Collection[str]
    remedy: str
    other_files: str = ""
    version: int = 1

    def facts(self, folder: str | os.PathLike[str]) -> dict[str, Any]:
        """Return the content of the JSON file.

        Raises:
          ValueError: if the file is missing, or its content does not fit the format.
        """
        path = Path(folder) / self.facts_file
        try:
            facts = parsed_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            remedy = put_aside(folder) or self.remedy
            raise ValueError(f"Cannot read {path} of the {self.what}: {error}. {remedy}") from error
        version = facts.get("version") if isinstance(facts, dict) else None
        if version != self.version:
            raise ValueError(
                f"{path} has version {version!r} of its format, but this version of convert_tf "
                f"reads version {self.version}. {self.remedy}"
            )
        wrong = [name for name, kind in self.kinds.items() if not isinstance(facts.get(name), kind)]
        if wrong or facts.get("dtype") not in self.dtypes:
            raise ValueError(
                f"{path} lacks entries or has entries with a wrong value: "
                f"{', '.join(wrong or ['dtype'])}. {self.remedy}"
            )
        return facts

    def write_facts(
        self, folder: str | os.PathLike[str], facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write the JSON file, which marks a folder as complete, and return its content."""
        content = {"version": self.version, **facts}
        write_file(Path(folder) / self.facts_file, written_json(content))
        return content

    def files(self, folder: str) -> list[str]:
        """Return the files in a folder, the JSON file last; `[]` if the JSON file is missing."""
        if not os.path.isfile(os.path.join(folder, self.facts_file)):
            return []
        names = sorted(name for name in os.listdir(folder) if re.fullmatch(self.other_files, name))
        return [os.path.join(folder, name) for name in (*names, self.facts_file)]

    def output(self, folder: str | os.PathLike[str], *, overwrite: bool) -> OutputFolder:
        """Return an output folder that may only replace a folder of the same kind."""
        return OutputFolder(folder, data_files=self.files, is_own=True, overwrite=overwrite)

    def mapped(
        self, folder: str | os.PathLike[str], name: str, dtype: str, shape: tuple[int, ...]
    ) -> MappedFile:
        """Return one of the folder's arrays as a mapped file; see `MappedFile`."""
        return MappedFile(Path(folder) / name, dtype, shape, what=self.what, remedy=self.remedy)


class GrowingArray:
    """A `.npy` file that is written in pieces.

    Args:
      path: the file to write.
      dtype: dtype of the array.
      row_shape: shape of each entry; `()` for an array with one dimension.

    Attributes:
      size: number of entries that have been written so far.

    Raises:
      FileWriteError: if the file could not be written. All methods may raise it.

    Example:
      with GrowingArray("vectors.npy", "float32", row_shape=(512,)) as array:
          array.append(vectors)
    """

    def __init__(
        self, path: str | os.PathLike[str], dtype: str, *, row_shape: tuple[int, ...] = ()
    ) -> None:
        self._dtype = np.dtype(dtype)
        self._row_shape = row_shape
        self.size = 0
        self._path = path
        with writing(path):
            self._file: BinaryIO = open(path, "wb")  # noqa: SIM115 (closed by close)
            self._file.write(self._header())

    def append(self, values: np.ndarray) -> None:
        """Append entries, which are converted to the array's dtype."""
        with writing(self._path):
            self._file.write(values.astype(self._dtype, copy=False).tobytes())
        self.size += len(values)

    def __enter__(self) -> "GrowingArray":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(OSError):  # a full disk has already been reported
                self._file.close()

    def close(self) -> None:
        """Write the number of entries into the header, and flush everything to disk."""
        if self._file.closed:
            return
        with writing(self._path), self._file as file:
            file.seek(0)
            file.write(self._header())
            file.flush()
            os.fsync(file.fileno())

    def _header(self) -> bytes:
        # numpy pads the header so that any number of entries fits. The header can therefore be
        # overwritten in place when the number is known.
        header = io.BytesIO()
        shape = (self.size, *self._row_shape)
        description = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, description)
        return header.getvalue()
