"""Arrays in 8 bits, in one file: a quarter of their size, to carry them from machine to machine.

An `.npz` archive holds an array `a` as it is, or as `a.codes` (bytes), `a.scales` and, for codes
that do not count from 0, `a.offset`; its values are then codes · scales + offset.
"""

import io
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from convert_tf.numerics.quantization import pack_kernel
from convert_tf.storage.arrays import load_arrays

_CODES, _SCALES, _OFFSET = ".codes", ".scales", ".offset"
SMALLEST_SIDE = 64  # matrices with a shorter side are kept as they are: they are few bytes


def rounded_archive(
    arrays: Mapping[str, np.ndarray],
    tables: Mapping[str, tuple[np.ndarray, float, float]] | None = None,
) -> bytes:
    """The bytes of an archive.

    Args:
      arrays: by name; float matrices of at least 64 × 64 get 8 bits, with a scale for each column.
      tables: arrays that have 8 bits already: uint8 codes, an offset and a step, as of
        `quantization.pack_table`.

    Raises:
      ValueError: a matrix has values that are not finite.
    """
    parts: dict[str, Any] = {}
    for name, array in arrays.items():
        if array.ndim == 2 and min(array.shape) >= SMALLEST_SIDE and array.dtype.kind == "f":
            if not np.isfinite(array).all():
                raise ValueError(f"{name} has values that are not finite, so it cannot be rounded.")
            parts[name + _CODES], parts[name + _SCALES] = pack_kernel(array)
        else:
            parts[name] = array
    for name, (codes, offset, step) in (tables or {}).items():
        parts[name + _CODES] = codes
        parts[name + _SCALES], parts[name + _OFFSET] = np.float32(step), np.float32(offset)
    content = io.BytesIO()
    np.savez(content, **parts)
    return content.getvalue()


def rounded_arrays(file: str | os.PathLike[str] | BinaryIO) -> dict[str, np.ndarray]:
    """The arrays of an archive, those of 8 bits as float32.

    Raises:
      OSError: the file cannot be read.
      KeyError: an array has codes and no scales.
      ValueError: it is damaged.
    """
    parts = load_arrays(file)
    arrays = {}
    for part, array in parts.items():
        if part.endswith(_CODES):
            name = part.removesuffix(_CODES)
            values = array.astype(np.float32) * parts[name + _SCALES]
            arrays[name] = values + parts.get(name + _OFFSET, np.float32(0))
        elif not part.endswith((_SCALES, _OFFSET)):
            arrays[part] = array
    return arrays
