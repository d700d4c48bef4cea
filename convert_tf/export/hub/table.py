"""The token table inside a saved module: rows are made floats when they have been gathered."""

from typing import Any

import keras
import tensorflow as tf

from convert_tf.export.hub.weights import float16_values
from convert_tf.numerics.quantization import pack_kernel, pack_table


class StoredTable(tf.Module):
    """The token table of an embedding layer, for a module that computes with that layer.

    A table that was trained in 8 bits is stored so, as training has seen it. Another one is stored
    in 16 bits; or, with `bits=8`, in signed bytes with a scale for each row. It is not trainable.

    Args:
      embedding: a built layer with a `table`, and a `quantizer` where it was trained in 8 bits.
      bits: 16 or 8.

    Raises:
      ValueError: an entry is no number or too large for 16 bits.

    Example:
      stored = StoredTable(embedding)
      embedding.gather_rows = stored.gather_rows

    Reference: arXiv 1911.03688 §2.1, "Quantization".
    """

    def __init__(self, embedding: Any, *, bits: int = 16):
        super().__init__(name="stored_table")
        values: Any = float16_values(embedding.table)  # refuses what bytes would hide
        self._offset = self._scale = self._row_scales = None
        if getattr(embedding, "quantizer", None) is not None:
            ranges = embedding.quantizer_weights
            values, *code = pack_table(embedding.table, ranges["range_min"], ranges["range_max"])
            self._offset, self._scale = (
                tf.Variable(number, trainable=False, dtype=tf.float32, name=name)
                for number, name in zip(code, ("offset", "scale"), strict=True)
            )
        elif bits == 8:
            codes, scales = pack_kernel(keras.ops.convert_to_numpy(embedding.table).T)
            values = codes.T
            self._row_scales = tf.Variable(scales[:, None], trainable=False, name="row_scales")
        self._values = tf.Variable(values, trainable=False, name="table")

    def gather_rows(self, token_ids: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        """float32 `[…, dim]` for int `[…]`; as the layer's own, which always is in training."""
        rows = tf.cast(tf.gather(self._values, token_ids), tf.float32)
        if self._row_scales is not None:
            return rows * tf.gather(self._row_scales, token_ids)
        return rows if self._offset is None else self._offset + rows * self._scale
