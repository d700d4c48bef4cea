"""Subword and position embeddings."""

import math
from typing import Any

import keras
from keras import ops

from convert_tf.layers.block import Dropout, LayerNorm
from convert_tf.numerics.initializers import truncated_normal
from convert_tf.numerics.quantization import GrowingRangeQuantizer


@keras.saving.register_keras_serializable(package="convert_tf")
class SubwordEmbedding(keras.layers.Layer):
    """Token embeddings × √dim plus two position embeddings, layer-normalised.

    For position i, row `i mod n` of one table and row `i mod m` of the other are added. The sizes n
    and m are coprime, so the sums for the first n·m positions all differ. The paper mentions
    neither the factor √dim nor the layer norm. Both are in the graph that its authors published.

    Masking: the padding id `num_ids` has no row. Padding gets the vector of id 0, so later layers
    must mask padding.

    Args:
      num_ids: number of rows in the token table, including hash buckets.
      dim: width of the embeddings.
      position_table_sizes: number of rows in each of the two position tables.
      bits: 8 for quantization-aware training of the token table, 32 for no quantization.
      dropout: dropout rate for the result.

    Call arguments:
      token_ids: ids of the tokens, int32 `[batch, tokens]`, from 0 to `num_ids`. The id `num_ids`
        is padding.
      positions: position of each token in its text, starting at 0, int32 `[batch, tokens]`. If
        None, each row is one text, with the positions 0, 1, 2, ….

    Returns:
      The embeddings, `[batch, tokens, dim]`, in the compute dtype.

    Example:
      embedding = SubwordEmbedding(32_476, 512)
      vectors = embedding(token_ids)

    Reference: arXiv 1911.03688 §2.1.
    """

    def __init__(
        self,
        num_ids: int,
        dim: int,
        *,
        position_table_sizes: tuple[int, int] = (47, 11),
        bits: int = 8,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_ids = num_ids
        self.dim = dim
        self.position_table_sizes = tuple(position_table_sizes)
        self.bits = bits
        self._initial_stddev = 1.0 / math.sqrt(self.dim)
        self.quantizer: GrowingRangeQuantizer | None = None
        if bits < 32:
            # A truncated normal distribution ends at two standard deviations, so this range
            # contains all initial values.
            limit = 2.0 * self._initial_stddev
            self.quantizer = GrowingRangeQuantizer(initial_range=(-limit, limit))
        self.norm = LayerNorm(epsilon=1e-6, dtype="float32", name="norm")
        self.drop = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, token_ids_shape: Any, positions_shape: Any = None) -> None:
        # Tables stay in float32, because casting the whole token table at every step costs more
        # than casting the rows that a batch reads.
        def table(name: str, size: int, stddev: float) -> Any:
            initializer = truncated_normal(stddev)
            shape = (size, self.dim)
            return self.add_weight(shape=shape, initializer=initializer, autocast=False, name=name)

        self.table = table("table", self.num_ids, self._initial_stddev)
        self.position_tables = [
            table(f"positions_{size}", size, 0.02) for size in self.position_table_sizes
        ]
        if self.quantizer is not None:
            self.quantizer_weights = self.quantizer.build(self.table.shape, "table", self)
        self.norm.build((*token_ids_shape, self.dim))

    def get_config(self) -> dict[str, Any]:
        # The sizes are a list, because Keras would turn a tuple into a special object, which no
        # constructor accepts.
        return {
            **super().get_config(),
            "num_ids": self.num_ids,
            "dim": self.dim,
            "position_table_sizes": [*self.position_table_sizes],
            "bits": self.bits,
            "dropout": self.drop.rate,
        }

    def start_from(self, rows: Any) -> None:
        """Replace the first n rows of the token table with `rows`, float32 `[n, dim]`."""
        table = ops.convert_to_numpy(self.table).copy()
        table[: len(rows)] = rows
        self.table.assign(table)

    def gather_rows(self, token_ids: Any, *, training: bool = False) -> Any:
        """Return the quantized rows of the tokens. Exported modules override this method.

        Args:
          token_ids: ids of the tokens, int32 `[batch, tokens]`, each in `[0, num_ids)`.
          training: whether to update the quantization range.

        Returns:
          The rows, float32 `[batch, tokens, dim]`.
        """
        rows = ops.take(self.table, token_ids, axis=0)
        if self.quantizer is not None:
            # The range of a frozen table is not updated.
            updates_range = training and self.trainable
            rows = self.quantizer(rows, updates_range, self.quantizer_weights, table=self.table)
        return rows

    def call(self, token_ids: Any, positions: Any = None, training: bool = False) -> Any:
        if positions is None:
            positions = ops.arange(ops.shape(token_ids)[1], dtype="int32")[None, :]
        safe_ids = ops.where(token_ids < self.num_ids, token_ids, 0)
        vectors = self.gather_rows(safe_ids, training=training) * math.sqrt(self.dim)
        for size, table in zip(self.position_table_sizes, self.position_tables, strict=True):
            vectors = vectors + ops.take(table, positions % size, axis=0)
        vectors = ops.cast(self.norm(vectors, training=training), self.compute_dtype)
        return self.drop(vectors, training=training)
