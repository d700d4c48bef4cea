"""BERT-like trunks: texts between special tokens, with learned positions and segments.

`BertTrunk` runs on any Keras backend. It takes token ids without special tokens and adds the
special tokens itself.

Reference: arXiv 1905.01969 §4.1.
"""

from typing import Any

import keras
from keras import ops

from convert_tf.config.bert import BertConfig
from convert_tf.layers.bert import BertBlock, BertEmbedding


def surround(
    context_ids: Any, candidate_ids: Any | None = None, *, config: BertConfig
) -> tuple[Any, Any, Any]:
    """Add special tokens: [S] context [S], or [S] context [S] [S] candidate [S], then padding.

    If `config.surrounds_each` is false, a single [S] separates context and candidate.

    If the result is longer than `config.max_positions`, the oldest tokens of the context are cut.
    If the candidate does not fit even without a context, the end of the candidate is cut too.

    Args:
      context_ids: token ids of the contexts, int32 `[batch, context tokens]`, right-padded with
        `config.padding_id`.
      candidate_ids: token ids of the candidates, int32 `[batch, candidate tokens]`, padded in the
        same way. None if there are no candidates.
      config: configuration of the trunk, with the ids of special tokens and `max_positions`.

    Returns:
      A tuple of three tensors. Their number of tokens is the sum of the widths of `context_ids` and
      `candidate_ids` and of the number of special tokens, but at most `max_positions`.
      - `rows`, int32 `[batch, tokens]`: rows of the tokens in the token table; 0 for padding.
      - `segment_ids`, int32 `[batch, tokens]`: 1 for the candidate and its special tokens, 0 for
        all others.
      - `mask`, bool `[batch, tokens]`: true for tokens, including special tokens.

    Reference: arXiv 1905.01969 §4.1 ("Input Representation"), §4.3.
    """
    num_special = 2 if candidate_ids is None else config.num_special
    context, context_length = _with_lengths(context_ids, config.padding_id)
    width = ops.shape(context_ids)[1] + num_special
    room = config.max_positions - num_special
    if candidate_ids is None:
        candidate_length = ops.zeros_like(context_length)
    else:
        candidate, candidate_length = _with_lengths(candidate_ids, config.padding_id)
        candidate_length = ops.minimum(candidate_length, room)
        width = width + ops.shape(candidate_ids)[1]
    if isinstance(width, int):
        width = min(width, config.max_positions)
    else:
        width = ops.minimum(width, config.max_positions)
    skipped = ops.maximum(context_length + candidate_length - room, 0)
    context_end = context_length - skipped + 1  # position of the [S] after the context
    positions = ops.arange(width, dtype="int32")[None, :]
    is_context = (positions >= 1) & (positions < context_end)
    rows = ops.where(is_context, _take(context, positions - 1 + skipped), config.separator_id)
    rows = ops.where(positions == 0, config.start_id, rows)
    end = context_end
    if candidate_ids is not None:
        begin = context_end + config.num_special - 2
        end = begin + candidate_length
        is_candidate = (positions >= begin) & (positions < end)
        rows = ops.where(is_candidate, _take(candidate, positions - begin), rows)
        if config.surrounds_each:
            rows = ops.where(positions == context_end + 1, config.start_id, rows)
    mask = positions <= end
    is_second = (positions > context_end) & mask
    return ops.where(mask, rows, 0), ops.cast(is_second, "int32"), mask


def _with_lengths(token_ids: Any, padding_id: int) -> tuple[Any, Any]:
    """Add a column of padding, so that no row is empty.

    Returns:
      The token ids with the new column, and the lengths of the texts, `[batch, 1]`.
    """
    token_ids = ops.cast(token_ids, "int32")
    is_real = ops.cast(token_ids != padding_id, "int32")
    return ops.pad(token_ids, ((0, 0), (0, 1))), ops.sum(is_real, axis=1, keepdims=True)


def _take(token_ids: Any, indices: Any) -> Any:
    """Return `token_ids[b, indices[b, n]]`. Indices out of range are clipped."""
    return ops.take_along_axis(token_ids, ops.clip(indices, 0, ops.shape(token_ids)[1] - 1), axis=1)


@keras.saving.register_keras_serializable(package="convert_tf")
class BertTrunk(keras.Model):
    """BERT: summed embeddings, then post-norm blocks with full attention and exact GELU.

    Masking: the scores of padded keys are −∞ before each softmax. The outputs for padding are
    meaningless.

    Args:
      config: configuration of the trunk.
      dropout: dropout rate for embeddings, attention weights and the results of sublayers.
      dtype: precision policy: `"float32"`, `"mixed_bfloat16"` or `"mixed_float16"`. Variables are
        always float32.

    Attributes:
      dim: width of the outputs.
      padding_id: id used for padding in the input.
      max_tokens: maximum number of tokens per text, without special tokens. Longer texts are cut.
      embedding: layer with the token table.
      blocks: transformer blocks, starting with the lowest.
      reduction: None, because there is no pre-trained reduction.

    Call arguments:
      rows: row in the token table for each token, int32 `[batch, tokens]`.
      segment_ids: row in the segment table for each token, int32 `[batch, tokens]`.
      mask: bool `[batch, tokens]`, true for tokens and false for padding.

    Returns:
      The outputs of the last block, `[batch, tokens, dim]`.

    Example:
      trunk = BertTrunk(BertConfig())
      sequence, mask = trunk.sequence(token_ids)

    Reference: arXiv 1810.04805 §3; arXiv 1905.01969 §4.1.
    """

    reduction: None = None

    def __init__(self, config: BertConfig, *, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.dim = config.dim
        self.padding_id = config.padding_id
        self.max_tokens = config.max_positions - 2
        self.dropout = dropout
        policy = self.dtype_policy
        common: Any = {"epsilon": config.layer_norm_epsilon, "dropout": dropout, "dtype": policy}
        self.embedding = BertEmbedding(
            config.num_rows,
            config.dim,
            max_positions=config.max_positions,
            num_segments=config.num_segments,
            name="embedding",
            **common,
        )
        self.blocks = [
            BertBlock(
                config.num_heads,
                feed_forward_dim=config.feed_forward_dim,
                name=f"block_{i}",
                **common,
            )
            for i in range(config.num_layers)
        ]
        self.embedding.build((None, None))
        for block in self.blocks:
            block.build((None, None, config.dim))
        self.built = True

    def call(self, rows: Any, segment_ids: Any, mask: Any, training: bool = False) -> Any:
        x = self.embedding(rows, segment_ids, training=training)
        for block in self.blocks:
            x = block(x, mask, training=training)
        return x

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "config": self.config.to_plain(), "dropout": self.dropout}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "BertTrunk":
        return cls(**{**config, "config": BertConfig.from_dict(config["config"])})

    def sequence(self, token_ids: Any, *, training: bool = False) -> tuple[Any, Any]:
        """Return the outputs for [S] text [S]. All tokens are in segment 0, even for candidates.

        Args:
          token_ids: token ids of the texts, int32 `[batch, tokens]`, right-padded with
            `padding_id`. The first tokens of texts longer than `max_tokens` are cut.
          training: whether to apply dropout.

        Returns:
          The outputs, `[batch, tokens + 2, dim]`, and their mask, bool `[batch, tokens + 2]`.

        Reference: arXiv 1905.01969 §4.2.
        """
        return self._encode(surround(token_ids, config=self.config), training)

    def joint_sequence(
        self, context_ids: Any, candidate_ids: Any, *, training: bool = False
    ) -> tuple[Any, Any]:
        """Return the outputs for [S] context [S] [S] candidate [S], with segments 0 and 1.

        Args:
          context_ids: token ids of the contexts, int32 `[pairs, context tokens]`, right-padded with
            `padding_id`.
          candidate_ids: token ids of the candidates, int32 `[pairs, candidate tokens]`, padded in
            the same way.
          training: whether to apply dropout.

        Returns:
          The outputs, `[pairs, tokens, dim]`, and their mask, bool `[pairs, tokens]`. If a joint
          sequence is longer than the position table, the oldest tokens of the context are cut.

        Reference: arXiv 1905.01969 §4.3.
        """
        return self._encode(surround(context_ids, candidate_ids, config=self.config), training)

    def _encode(self, inputs: tuple[Any, Any, Any], training: bool) -> tuple[Any, Any]:
        rows, segment_ids, mask = inputs
        return self(rows, segment_ids, mask, training=training), mask

    def project_context(self, vectors: Any) -> Any:
        """Return the vectors unchanged, because these trunks have no side networks."""
        return vectors

    def project_candidate(self, vectors: Any) -> Any:
        """Return the vectors unchanged, because these trunks have no side networks."""
        return vectors
