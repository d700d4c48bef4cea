"""Archives of arrays rounded to 8 bits. They take a quarter of the space of float32 arrays.

An `.npz` archive contains an array `a` either unchanged or as `a.codes` (bytes), `a.scales` and
optionally `a.offset`. In the second case, the values of the array are codes · scales + offset.
"""

import io
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from convert_tf.numerics.byte_codes import pack_kernel
from convert_tf.storage.arrays import load_arrays

_CODES, _SCALES, _OFFSET = ".codes", ".scales", ".offset"
SMALLEST_SIDE = 64  # smaller matrices stay unchanged, because they need few bytes anyway


def rounded_archive(
    arrays: Mapping[str, np.ndarray],
    tables: Mapping[str, tuple[np.ndarray, float, float]] | None = None,
) -> bytes:
    """Return the bytes of an archive.

    Args:
      arrays: arrays by name. Float matrices of at least 64 × 64 are rounded to 8 bits, with a scale
        for each column.
      tables: arrays that are already rounded, by name: uint8 codes, an offset and a step, as from
        `byte_codes.pack_table`.

    Raises:
      ValueError: if a matrix has values that are not finite.
    """
    parts: dict[str, Any] = {}
    for name, array in arrays.items():
        if array.ndim == 2 and min(array.shape) >= SMALLEST_SIDE and array.dtype.kind == "f":
            if not np.isfinite(array).all():
                raise ValueError(f"{name} cannot be rounded, because it has non-finite values.")
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
    """Return the arrays in an archive, by name. Rounded arrays are returned as float32.

    Raises:
      OSError: if the file cannot be read.
      KeyError: if an array has codes but no scales.
      ValueError: if the file is damaged.
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
