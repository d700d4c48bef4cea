"""Arrays on disk that a run reads until it ends."""

import os
from pathlib import Path

import numpy as np


class MappedFile:
    """A `.npy` file, mapped; the system keeps in memory what is read again.

    Args:
      path: the file.
      dtype: of its values.
      shape: of its array; −1 for any number.
      what: what the folder of the file is called in messages.
      remedy: the last sentence of messages.

    Attributes:
      path: the file.
      array: what it holds. It stays readable when the file is deleted or another one gets its
        name; reading behind the end of a file that was cut ends the process with SIGBUS, which
        `checked` prevents.

    Raises:
      ValueError: the file is missing, damaged, or of another type or shape.
    """

    def __init__(self, path: Path, dtype: str, shape: tuple[int, ...], *, what: str, remedy: str):
        self.path = path
        self._what, self._remedy = what, remedy
        try:
            array = np.load(path, mmap_mode="r")
            self._file = open(path, "rb")  # noqa: SIM115 (as long as the array)
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(
                f"A {what} must be whole. Received: {path} ({error}). {remedy}"
            ) from error
        fits = len(array.shape) == len(shape) and all(
            size in (own, -1) for own, size in zip(array.shape, shape, strict=True)
        )
        if array.dtype != dtype or not fits:
            expected = str(shape).replace("-1", "any")
            raise ValueError(
                f"{path.name} must be {dtype} of shape {expected}. Received: {array.dtype} of "
                f"shape {array.shape} in {path}. {remedy}"
            )
        self._size = self._bytes()
        # As a plain array, whose slices are not subclasses with a file to keep.
        self.array = np.asarray(array)

    def checked(self) -> np.ndarray:
        """The array, to be read now.

        Raises:
          ValueError: the file is shorter than it was.
        """
        size = self._bytes()
        if size < self._size:
            raise ValueError(
                f"A {self._what} must be whole. Received: {size} of {self._size} bytes, in "
                f"{str(self.path)!r}. {self._remedy}"
            )
        return self.array

    def _bytes(self) -> int:
        return os.fstat(self._file.fileno()).st_size
