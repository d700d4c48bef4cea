"""Models that are opened from a path.

A pickle of such a model stores the path, and unpickling opens the model again.
"""

import functools
import os
from collections.abc import Mapping
from typing import Any, TypeVar

from convert_tf.checkpoints.facts import module_form
from convert_tf.checkpoints.kinds import files_that_count
from convert_tf.storage.checksums import fingerprint

# Number of unpickled models that stay open, because a worker receives the pickle with each task.
_STAY_OPEN = 2

_Self = TypeVar("_Self", bound="OpenedFromPath")


class OpenedFromPath:
    """A model whose pickle contains its path instead of its weights.

    Sessions, graphs and locks belong to one process. A pickle therefore contains only the absolute
    path, the options and a fingerprint of the model's files. Copying a model returns the model
    itself, because it never changes.

    Args:
      path: path of the model.
      **options: keyword arguments of the constructor.

    Attributes:
      path: the path as it was passed.
      weights_path: the absolute path.
    """

    _REMEDY: str  # what to do if the model cannot be used: a sentence

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self.path = os.fspath(path)
        self.weights_path = os.path.abspath(path)
        self._options = options

    def __reduce__(self) -> tuple[Any, ...]:
        path = self.weights_path
        return _open_again, (type(self), path, self._options, _fingerprint(path))

    def _unusable(self, reason: object) -> ValueError:
        """Return the exception for a model that cannot be opened, or cannot compute.

        Args:
          reason: an error or a text. Only the first line is used, because many libraries add
            details of their implementation in further lines.
        """
        first_line = next(iter(str(reason).splitlines()), type(reason).__name__)
        return ValueError(f"{self.path!r} cannot be used: {first_line}. {self._REMEDY}")

    def __copy__(self: _Self) -> _Self:
        return self

    def __deepcopy__(self: _Self, memo: dict[int, Any]) -> _Self:
        return self


def _fingerprint(path: str) -> str:
    files = files_that_count(path)
    weights = fingerprint((os.path.relpath(file, path), file) for file in files)
    return weights + module_form(path)


def _open_again(kind: Any, path: str, options: Mapping[str, Any], expected: str) -> OpenedFromPath:
    """Open the model that a pickle refers to.

    Raises:
      ValueError: if there is no model at the path, or a different model.
    """
    if not os.path.exists(path):
        raise ValueError(
            f"The pickle refers to an encoder at {path!r}, which does not exist. Put the encoder "
            "there, or open the encoder from its new path and create the pickle again."
        )
    if _fingerprint(path) != expected:
        raise ValueError(
            f"The weights, the vocabulary or the maximum length of texts of {path!r} differ from "
            "those of the pickled encoder. Put the old encoder there, or create the pickle again."
        )
    return _open(kind, path, tuple(sorted(options.items())), expected)


@functools.lru_cache(maxsize=_STAY_OPEN)
def _open(
    kind: type[OpenedFromPath],
    path: str,
    options: tuple[tuple[str, Any], ...],
    expected: str,  # part of the cache's key, so that changed files at the same path are opened
) -> OpenedFromPath:
    return kind(path, **dict(options))
