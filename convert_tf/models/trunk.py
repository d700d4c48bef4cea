"""Trunk of a dual encoder: embeds token ids and gives a vector for each token.

Reference: arXiv 1911.03688 §2.1.
"""

from typing import Any

import keras
from keras import ops

from convert_tf.config.model import ModelConfig
from convert_tf.layers.block import TransformerBlock
from convert_tf.layers.embedding import SubwordEmbedding
from convert_tf.numerics.devices import compiles_feed_forward


def segments_of(segment_lengths: Any, tokens: Any) -> tuple[Any, Any, Any]:
    """Locate the texts of packed rows.

    A packed row holds several texts one after another, then padding.

    Args:
      segment_lengths: int32 `[rows, segments]`, the length of each text in tokens; 0 if a row has
        fewer texts.
      tokens: row length.

    Returns:
      `segment_ids` int32 `[rows, tokens]`, s for the s-th text and 0 for padding; `positions` int32
      `[rows, tokens]`, counted from the start of each text; `attention_mask` bool `[rows, tokens,
      tokens]`, true where both tokens belong to the same text or both are padding.
    """
    columns = ops.arange(tokens, dtype="int32")[None, :]
    ends = ops.cumsum(segment_lengths, axis=1)  # [rows, segments]
    starts = ends - segment_lengths
    is_after_start = ops.cast(columns[:, :, None] >= starts[:, None, :], "int32")
    is_nonempty = ops.cast(segment_lengths > 0, "int32")[:, None, :]
    segment_index = ops.max(
        is_after_start * is_nonempty * ops.arange(1, ops.shape(segment_lengths)[1] + 1)[None, None],
        axis=-1,
        initial=0,  # a row may have no text, or only empty ones
    )
    is_real = columns < ends[:, -1:]
    segment_ids = ops.where(is_real, segment_index, 0)
    text_starts = ops.max(is_after_start * is_nonempty * starts[:, None, :], axis=-1, initial=0)
    positions = ops.where(is_real, columns - text_starts, 0)
    attention_mask = segment_ids[:, :, None] == segment_ids[:, None, :]
    return segment_ids, positions, attention_mask


class Trunk(keras.layers.Layer):
    """Embedding and transformer blocks, shared by contexts and responses.

    Masking: `attention_mask` says which tokens attend to each other. The vectors of padding are
    meaningless.

    Args:
      config: configuration of the model.
      embedding_dropout, attention_dropout: drop rates.

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
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.embedding = SubwordEmbedding(
            config.num_ids,
            config.embedding_dim,
            position_table_sizes=config.position_table_sizes,
            bits=config.embedding_bits,
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

    def jit_compile_feed_forward(self) -> None:
        """Compile the feed-forward layers in training, if that makes steps faster on this device.

        XLA compiles for each row length, so call this only if rows have few different lengths.
        """
        is_faster = compiles_feed_forward(self.dtype_policy.name)
        for block in self.blocks:
            block.feed_forward.jit_compile = is_faster

    @property
    def block_variables(self) -> list[Any]:
        """Trainable variables without the subword table."""
        return [v for v in self.trainable_variables if v is not self.embedding.table]

    def call(
        self, token_ids: Any, positions: Any, attention_mask: Any, training: bool = False
    ) -> Any:
        x = self.embedding(token_ids, positions, training=training)
        for block in self.blocks:
            x = block(x, attention_mask=attention_mask, training=training)
        return x
