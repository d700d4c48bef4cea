"""Convert arrays to bytes with scales, in numpy. `quantization` contains the Keras version."""

from typing import Any

import numpy as np

HIGHEST_CODE = 255


def pack_table(table: Any, range_min: Any, range_max: Any) -> tuple[np.ndarray, float, float]:
    """Pack an embedding table into bytes.

    Args:
      table: the table, a float array `[rows, dim]`.
      range_min: lowest value that the bytes can represent, ≤ 0.
      range_max: highest value that the bytes can represent, ≥ 0.

    Returns:
      A tuple `(codes, offset, step)`: codes, uint8 `[rows, dim]`, and two floats. In float32,
      `offset + step * codes` equals the result of `quantization.fake_quantize` with the same range.

    Raises:
      ValueError: if the table or the range has values that are not finite.
    """
    # All constants are float32, because numpy 1 would otherwise compute scalars in float64.
    half, zero, highest = (np.float32(number) for number in (0.5, 0, HIGHEST_CODE))
    values, low, high = (
        np.asarray(numbers, np.float32) for numbers in (table, range_min, range_max)
    )
    if not all(np.isfinite(numbers).all() for numbers in (values, low, high)):
        raise ValueError("The table cannot be rounded to bytes, because it has non-finite values.")
    step = np.float32((high - low) / highest)
    zero_code = np.clip(np.floor(np.float32(-low / step) + half), zero, highest)
    offset = np.float32(-zero_code * step)
    codes = np.clip(np.floor((values - offset) / step + half), zero, highest)
    return codes.astype(np.uint8), float(offset), float(step)


def pack_kernel(kernel: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pack a matrix into signed bytes, with a scale for each output channel.

    Args:
      kernel: the matrix, a float array `[inputs, outputs]`.

    Returns:
      A tuple `(codes, scales)`: codes from -127 to 127, int8 `[inputs, outputs]`, and a scale for
      each output, float32 `[outputs]`. `codes * scales` differs from the kernel by at most half a
      scale.

    Reference: arXiv 1712.05877 §2; arXiv 1806.08342 §3 (a scale per channel).
    """
    kernel = np.asarray(kernel, np.float32)
    scales = np.abs(kernel).max(axis=0) / 127
    # For a column of zeros, the scale and the codes are 0.
    codes = np.rint(kernel / np.where(scales > 0, scales, 1))
    return codes.astype(np.int8), scales
