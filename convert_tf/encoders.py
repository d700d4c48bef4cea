"""The single-context ConveRT dual encoder.

Reference: arXiv 1911.03688 §2.1.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from convert_tf.config import ModelConfig
from convert_tf.layers import SideNetwork, SqrtNReduction, SubwordEmbedding, TransformerBlock


def segments_of(segment_lengths: Any, tokens: Any) -> tuple[Any, Any, Any]:
    """Where each text of a packed row is.

    Args:
      segment_lengths: int32 `[rows, segments]`: lengths, in tokens, of the texts that stand one
        behind the other in a row, padding last; 0 where a row has fewer texts.
      tokens: row length.

    Returns:
      `segment_ids` int32 `[rows, tokens]`, s for the s-th text and 0 for padding; `positions` int32
      `[rows, tokens]`, counted from the start of each text; `attention_mask` bool `[rows, tokens,
      tokens]`, true where both tokens are of one text, or both padding.
    """
    places = ops.arange(tokens, dtype="int32")[None, :]
    ends = ops.cumsum(segment_lengths, axis=1)  # [rows, segments]
    starts = ends - segment_lengths
    is_after_start = ops.cast(places[:, :, None] >= starts[:, None, :], "int32")
    is_nonempty = ops.cast(segment_lengths > 0, "int32")[:, None, :]
    segment_index = ops.max(
        is_after_start * is_nonempty * ops.arange(1, ops.shape(segment_lengths)[1] + 1)[None, None],
        axis=-1,
    )
    is_real = places < ends[:, -1:]
    segment_ids = ops.where(is_real, segment_index, 0)
    start_of_own = ops.max(is_after_start * is_nonempty * starts[:, None, :], axis=-1)
    positions = ops.where(is_real, places - start_of_own, 0)
    attention_mask = segment_ids[:, :, None] == segment_ids[:, None, :]
    return segment_ids, positions, attention_mask


class Trunk(keras.layers.Layer):
    """Embedding and transformer blocks, shared by contexts and responses.

    Masking: `attention_mask` says which tokens see each other; padded positions hold values that
    nothing may read.

    Args:
      config: the model.
      embedding_dropout, attention_dropout: drop rates.
      quantizer_update_steps: training calls between updates of the embedding range.

    Call arguments:
      token_ids: int32 `[rows, tokens]`, padded with `config.num_ids`.
      positions: int32 `[rows, tokens]`.
      attention_mask: bool `[rows, tokens, tokens]`.

    Returns:
      `[rows, tokens, embedding_dim]`.

    Reference: arXiv 1911.03688 §2.1, Figure 2.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        embedding_dropout: float = 0.0,
        attention_dropout: float = 0.0,
        quantizer_update_steps: int = 100,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.embedding = SubwordEmbedding(
            config.num_ids,
            config.embedding_dim,
            position_table_sizes=config.position_table_sizes,
            bits=config.embedding_bits,
            quantizer_update_steps=quantizer_update_steps,
            dropout=embedding_dropout,
            dtype=policy,
            name="embedding",
        )
        self.blocks = [
            TransformerBlock(
                config.attention_dim,
                max_distance,
                feed_forward_dim=config.feed_forward_dim,
                num_heads=config.num_heads,
                use_relative_bias=config.use_relative_bias,
                use_value_projection=config.use_value_projection,
                dropout=attention_dropout,
                dtype=policy,
                name=f"block_{i}",
            )
            for i, max_distance in enumerate(config.max_relative_attention)
        ]

    def build(
        self, token_ids_shape: Any, positions_shape: Any = None, attention_mask_shape: Any = None
    ) -> None:
        self.embedding.build(token_ids_shape)
        for block in self.blocks:
            block.build((*token_ids_shape, self.embedding.dim))

    def call(
        self, token_ids: Any, positions: Any, attention_mask: Any, training: bool = False
    ) -> Any:
        x = self.embedding(token_ids, positions, training=training)
        for block in self.blocks:
            x = block(x, attention_mask=attention_mask, training=training)
        return x


class DualEncoder(keras.Model):
    """ConveRT: one trunk and reduction for both sides, one side network for each.

    Texts come either one to a row (`encode_context`, `encode_response`, `reduce`,
    `encode_sequence`), or packed, several to a row, so that training pays for few padded positions
    (`call`). Both give the same encodings.

    Both side networks start from the same values (they are trained apart from the first step on):
    contexts and responses then share a space before training, which the paper leaves open.

    Args:
      config: the model.
      embedding_dropout, attention_dropout: drop rates in training.
      quantizer_update_steps: training calls between updates of the embedding range.
      dtype: precision policy: `"float32"`, `"mixed_bfloat16"` or `"mixed_float16"`. Variables are
        float32 in each.

    Call arguments:
      inputs: dict of `token_ids` int32 `[rows, tokens]`, `segment_lengths` int32
        `[rows, segments]`, and `context_slots`, `response_slots` int32 `[batch]`: text s of row r
        has the slot `r * segments + s`, from 0.

    Returns:
      dict of `context_encoding`, `response_encoding`, float32 `[batch, encoding_dim]`, of length 1.

    Example:
      encoder = DualEncoder(model_preset("tiny", vocab_size=1000))
      h = encoder.encode_context(token_ids)

    Reference: arXiv 1911.03688 §2.1.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        embedding_dropout: float = 0.0,
        attention_dropout: float = 0.0,
        quantizer_update_steps: int = 100,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.config = config
        policy = self.dtype_policy
        self.trunk = Trunk(
            config,
            embedding_dropout=embedding_dropout,
            attention_dropout=attention_dropout,
            quantizer_update_steps=quantizer_update_steps,
            dtype=policy,
            name="trunk",
        )
        self.reduction = SqrtNReduction(
            config.reduction_heads, config.reduction_dim, dtype=policy, name="reduction"
        )
        self.context_side, self.response_side = (
            SideNetwork(
                config.side_layers,
                config.side_hidden_dim,
                encoding_dim=config.encoding_dim,
                use_skip=config.use_side_skip,
                dtype=policy,
                name=name,
            )
            for name in ("context_side", "response_side")
        )
        self._build_weights()

    def _build_weights(self) -> None:
        shape = (None, None)
        self.trunk.build(shape)
        self.reduction.build((*shape, self.config.embedding_dim))
        for side in (self.context_side, self.response_side):
            side.build((None, self.config.reduced_dim))
        self.response_side.set_weights(self.context_side.get_weights())
        self.built = True

    def lengths(self, token_ids: Any) -> Any:
        """Tokens of each right-padded text: int32 `[batch, tokens]` → int32 `[batch, 1]`."""
        is_real = ops.cast(token_ids != self.config.num_ids, "int32")
        return ops.sum(is_real, axis=1, keepdims=True)

    def encode_sequence(
        self, token_ids: Any, segment_lengths: Any = None, *, training: bool = False
    ) -> Any:
        """The trunk's result for each token.

        Args:
          token_ids: int32 `[rows, tokens]`, right-padded with `config.num_ids`.
          segment_lengths: int32 `[rows, segments]` of packed rows; None for one text to a row.
          training: whether dropout and range updates are on.

        Returns:
          `[rows, tokens, embedding_dim]`; padded positions hold values without meaning.
        """
        return self._sequence(token_ids, segment_lengths, training)[0]

    def _sequence(
        self, token_ids: Any, segment_lengths: Any, training: bool
    ) -> tuple[Any, tuple[Any, Any, Any]]:
        if segment_lengths is None:
            segment_lengths = self.lengths(token_ids)
        segment_ids, positions, mask = segments_of(segment_lengths, ops.shape(token_ids)[1])
        sequence = self.trunk(token_ids, positions, mask, training=training)
        return sequence, (segment_ids, segment_lengths, mask)

    def reduce(self, token_ids: Any, segment_lengths: Any = None, *, training: bool = False) -> Any:
        """The reduced encodings r.

        Args:
          token_ids: int32 `[rows, tokens]`, right-padded with `config.num_ids`.
          segment_lengths: int32 `[rows, segments]` of packed rows; None for one text to a row.
          training: whether dropout and range updates are on.

        Returns:
          `[rows * segments, reduced_dim]`, by slot; zeros for empty texts.
        """
        sequence, (segment_ids, segment_lengths, mask) = self._sequence(
            token_ids, segment_lengths, training
        )
        reduced = self.reduction(sequence, segment_ids, segment_lengths, mask)
        return ops.reshape(reduced, (-1, self.config.reduced_dim))

    def encode_context(self, token_ids: Any) -> Any:
        """h of contexts: int32 `[batch, tokens]` → float32 `[batch, encoding_dim]`."""
        return self.context_side(self.reduce(token_ids))

    def encode_response(self, token_ids: Any) -> Any:
        """h of responses: int32 `[batch, tokens]` → float32 `[batch, encoding_dim]`."""
        return self.response_side(self.reduce(token_ids))

    def call(self, inputs: dict[str, Any], training: bool = False) -> dict[str, Any]:
        reduced = self.reduce(inputs["token_ids"], inputs["segment_lengths"], training=training)
        return {
            "context_encoding": self.context_side(
                ops.take(reduced, inputs["context_slots"], axis=0)
            ),
            "response_encoding": self.response_side(
                ops.take(reduced, inputs["response_slots"], axis=0)
            ),
        }


def count_parameters(encoder: DualEncoder) -> dict[str, int]:
    """Trainable numbers: the subword and position tables, and the rest of the network."""
    total = sum(int(np.prod(v.shape)) for v in encoder.trainable_variables)
    embedding = encoder.trunk.embedding
    tables = [embedding.table, *embedding.position_tables]
    embedding_total = sum(int(np.prod(v.shape)) for v in tables)
    return {"embedding": embedding_total, "network": total - embedding_total}
