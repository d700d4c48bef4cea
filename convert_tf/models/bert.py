"""BERT-shaped trunks: texts between special tokens, learned positions and segments.

`BertTrunk` is our own, on any Keras backend; `BackboneTrunk` puts any other Keras 3 model, one of
keras-hub's say, in its place. Both carry the heads in the same way: they take the ids of texts
alone and put the special tokens around them.

Reference: arXiv 1905.01969 §4.1.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from convert_tf.config.bert import BertConfig
from convert_tf.layers.bert import BertBlock, BertEmbedding


def surrounded(
    context_ids: Any, candidate_ids: Any | None = None, *, config: BertConfig
) -> tuple[Any, Any, Any]:
    """[S] context [S], or [S] context [S] [S] candidate [S], with padding behind.

    Without `config.surrounds_each` one token is between the two, that behind the context.

    Where that is longer than `config.max_positions`, the context loses its oldest tokens; only a
    candidate that fills the sequence alone is cut, at its end.

    Args:
      context_ids: int32 `[batch, context tokens]`, right-padded with `config.padding_id`.
      candidate_ids: int32 `[batch, candidate tokens]`, likewise; None for one text.
      config: reads the special ids and `max_positions`.

    Returns:
      `rows` int32 `[batch, tokens]`, with the token table's row 0 for padding; `segment_ids` int32
      `[batch, tokens]`, 1 for the candidate and what surrounds it; `mask` bool
      `[batch, tokens]`, true where there is a token. `tokens` is the sum of the widths and of the
      special tokens.

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
    context_end = context_length - skipped + 1  # where the [S] behind the context stands
    places = ops.arange(width, dtype="int32")[None, :]
    is_context = (places >= 1) & (places < context_end)
    rows = ops.where(is_context, _read(context, places - 1 + skipped), config.separator_id)
    rows = ops.where(places == 0, config.start_id, rows)
    end = context_end
    if candidate_ids is not None:
        begin = context_end + config.num_special - 2
        end = begin + candidate_length
        is_candidate = (places >= begin) & (places < end)
        rows = ops.where(is_candidate, _read(candidate, places - begin), rows)
        if config.surrounds_each:
            rows = ops.where(places == context_end + 1, config.start_id, rows)
    mask = places <= end
    is_second = (places > context_end) & mask
    return ops.where(mask, rows, 0), ops.cast(is_second, "int32"), mask


def _with_lengths(token_ids: Any, padding_id: int) -> tuple[Any, Any]:
    """The ids with a column of padding, so that there is one to read, and lengths `[batch, 1]`."""
    token_ids = ops.cast(token_ids, "int32")
    is_real = ops.cast(token_ids != padding_id, "int32")
    return ops.pad(token_ids, ((0, 0), (0, 1))), ops.sum(is_real, axis=1, keepdims=True)


def _read(token_ids: Any, places: Any) -> Any:
    """`token_ids[b, places[b, n]]`, with places behind either end read at that end."""
    return ops.take_along_axis(token_ids, ops.clip(places, 0, ops.shape(token_ids)[1] - 1), axis=1)


class SpecialTokenTrunk(keras.Model):
    """What BERT-shaped trunks share: texts in, special tokens around them, vectors out.

    Args:
      config: the trunk.

    Attributes:
      dim: width of the vectors.
      padding_id: id of padding in the texts that come in.
      max_tokens: longest text that is read whole, in tokens.
      embedding: the layer that holds the token table; None where a backbone has none by name.
      embedding_table: the table's variable, or None.
      blocks: the layers, the lowest first.
      reduction: None; there is no pre-trained one.
    """

    embedding: Any
    embedding_table: Any
    blocks: list[keras.layers.Layer]
    reduction: None = None

    def __init__(self, config: BertConfig, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config
        self.dim = config.dim
        self.padding_id = config.padding_id
        self.max_tokens = config.max_positions - 2

    def sequence(self, token_ids: Any, *, training: bool = False) -> tuple[Any, Any]:
        """The vectors of [S] text [S]; the segment is 0 for contexts and candidates alike.

        Args:
          token_ids: int32 `[batch, tokens]`, right-padded with `padding_id`. Of texts longer than
            `max_tokens` the last tokens are read.
          training: whether dropout is on.

        Returns:
          `[batch, tokens + 2, dim]` and its mask, bool `[batch, tokens + 2]`, never all false.

        Reference: arXiv 1905.01969 §4.2.
        """
        return self._encoded(surrounded(token_ids, config=self.config), training)

    def joint_sequence(
        self, context_ids: Any, candidate_ids: Any, *, training: bool = False
    ) -> tuple[Any, Any]:
        """The vectors of [S] context [S] [S] candidate [S], with segments 0 and 1.

        Args:
          context_ids: int32 `[pairs, context tokens]`, right-padded with `padding_id`.
          candidate_ids: int32 `[pairs, candidate tokens]`, likewise.
          training: whether dropout is on.

        Returns:
          `[pairs, tokens, dim]` and its mask, bool `[pairs, tokens]`. Where both texts do not fit
          into the position table, the context loses its oldest tokens.

        Reference: arXiv 1905.01969 §4.3.
        """
        return self._encoded(surrounded(context_ids, candidate_ids, config=self.config), training)

    def _encoded(self, arranged: tuple[Any, Any, Any], training: bool) -> tuple[Any, Any]:
        rows, segment_ids, mask = arranged
        return self(rows, segment_ids, mask, training=training), mask

    def project_context(self, vectors: Any) -> Any:
        """`vectors`: these trunks have no side networks."""
        return vectors

    def project_candidate(self, vectors: Any) -> Any:
        """`vectors`: these trunks have no side networks."""
        return vectors


class BertTrunk(SpecialTokenTrunk):
    """BERT: summed embeddings, post-norm blocks with full attention and exact GELU.

    Masking: padded keys get −∞ before each softmax; padded positions hold values that nothing may
    read.

    Args:
      config: the trunk.
      dropout: drop rate "on all layers": embeddings, attention weights and sublayers.
      dtype: precision policy: `"float32"`, `"mixed_bfloat16"` or `"mixed_float16"`. Variables are
        float32 in each.

    Call arguments:
      rows: int32 `[batch, tokens]`, rows of the token table.
      segment_ids: int32 `[batch, tokens]`.
      mask: bool `[batch, tokens]`, true where there is a token.

    Returns:
      `[batch, tokens, dim]`.

    Example:
      trunk = BertTrunk(BertConfig())
      sequence, mask = trunk.sequence(token_ids)

    Reference: arXiv 1810.04805 §3; arXiv 1905.01969 §4.1. The paper does not state the layers'
    order; BERT's is post-norm.
    """

    def __init__(self, config: BertConfig, *, dropout: float = 0.0, **kwargs: Any):
        super().__init__(config, **kwargs)
        self.dropout = dropout
        policy = self.dtype_policy
        self.embedding = BertEmbedding(
            config.num_rows,
            config.dim,
            max_positions=config.max_positions,
            num_segments=config.num_segments,
            epsilon=config.layer_norm_epsilon,
            dropout=dropout,
            dtype=policy,
            name="embedding",
        )
        self.blocks = [
            BertBlock(
                config.num_heads,
                feed_forward_dim=config.feed_forward_dim,
                epsilon=config.layer_norm_epsilon,
                dropout=dropout,
                dtype=policy,
                name=f"block_{i}",
            )
            for i in range(config.num_layers)
        ]
        self.embedding.build((None, None))
        self.embedding_table = self.embedding.table
        for block in self.blocks:
            block.build((None, None, config.dim))
        self.built = True

    def call(self, rows: Any, segment_ids: Any, mask: Any, training: bool = False) -> Any:
        x = self.embedding(rows, segment_ids, training=training)
        for block in self.blocks:
            x = block(x, mask, training=training)
        return x


def keras_hub_call(backbone: Any, rows: Any, segment_ids: Any, mask: Any, training: bool) -> Any:
    """Calls a keras-hub backbone: inputs by name, as many as it has, and its sequence output."""
    inputs = {"token_ids": rows, "segment_ids": segment_ids, "padding_mask": mask}
    outputs = backbone(
        {name: ops.cast(inputs[name], "int32") for name in backbone.input}, training=training
    )
    return outputs["sequence_output"] if isinstance(outputs, dict) else outputs


def use_exact_gelu(backbone: Any) -> int:
    """Puts the exact GELU in the place of keras-hub's, which is approximated by tanh.

    BERT was trained with the exact one. The two differ by up to 5e-4, and so do embeddings.

    Args:
      backbone: changed in place, before its first compiled call.

    Returns:
      Layers that were changed.
    """
    found = [
        layer
        for layer in backbone._flatten_layers()
        if getattr(getattr(layer, "activation", None), "__name__", "") == "gelu_approximate"
        and isinstance(layer, keras.layers.Dense)
    ]
    for layer in found:
        layer.activation = keras.activations.gelu
    return len(found)


class BackboneTrunk(SpecialTokenTrunk):
    """A Keras 3 model that maps ids and mask to `[batch, tokens, dim]`, as a trunk for the heads.

    Masking: is the backbone's; it gets the mask.

    Args:
      backbone: the model. Its weights are the trunk's.
      config: what the trunk needs to know of it: the vocabulary, the special ids, `dim` and
        `max_positions`.
      call_backbone: `(backbone, rows, segment_ids, mask, training) → [batch, tokens, dim]`.

    Call arguments and returns: see `BertTrunk`.

    Example:
      backbone = keras_hub.models.BertBackbone.from_preset("a/local/folder")
      use_exact_gelu(backbone)
      trunk = BackboneTrunk(backbone, bert_config_of("a/local/folder"))
      sequence, mask = trunk.sequence(token_ids)
    """

    def __init__(
        self,
        backbone: keras.Model,
        config: BertConfig,
        *,
        call_backbone: Callable[..., Any] = keras_hub_call,
        **kwargs: Any,
    ):
        super().__init__(config, **kwargs)
        self.backbone = backbone
        self.call_backbone = call_backbone
        self.embedding = getattr(backbone, "token_embedding", None)  # keras-hub's names
        self.embedding_table = getattr(self.embedding, "embeddings", None)
        self.blocks = list(getattr(backbone, "transformer_layers", []))
        self.built = True

    def call(self, rows: Any, segment_ids: Any, mask: Any, training: bool = False) -> Any:
        return self.call_backbone(self.backbone, rows, segment_ids, mask, training)
