"""ConveRT dual encoder, single- or multi-context.

Reference: arXiv 1911.03688 §2.1, §2.2.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from convert_tf.config.model import ModelConfig
from convert_tf.layers.block import TransformerBlock
from convert_tf.layers.embedding import SubwordEmbedding
from convert_tf.layers.reduction import SqrtNReduction
from convert_tf.layers.side_network import SideNetwork
from convert_tf.numerics.devices import compiles_feed_forward

# Names of the texts in a batch that are encoded by side networks. Other texts are only reduced.
_TEXTS_WITH_SIDES = ("context", "response", "extra_context", "negative")


def segments_of(segment_lengths: Any, tokens: Any) -> tuple[Any, Any, Any]:
    """Locate the texts in packed rows.

    A packed row consists of several texts, one after another, and then padding.

    Args:
      segment_lengths: number of tokens in each text, int32 `[rows, segments]`. Rows with fewer
        texts than `segments` end with zeros.
      tokens: number of tokens per row, including padding.

    Returns:
      A tuple of three tensors:
      - `segment_ids`, int32 `[rows, tokens]`: s for the tokens of the s-th text, 0 for padding.
      - `positions`, int32 `[rows, tokens]`: positions counted from the start of each text.
      - `attention_mask`, bool `[rows, tokens, tokens]`: true where both tokens belong to the same
        text or both are padding.
    """
    columns = ops.arange(tokens, dtype="int32")[None, :]
    ends = ops.cumsum(segment_lengths, axis=1)  # [rows, segments]
    starts = ends - segment_lengths
    is_after_start = ops.cast(columns[:, :, None] >= starts[:, None, :], "int32")
    is_nonempty = ops.cast(segment_lengths > 0, "int32")[:, None, :]
    segment_index = ops.max(
        is_after_start * is_nonempty * ops.arange(1, ops.shape(segment_lengths)[1] + 1)[None, None],
        axis=-1,
        initial=0,  # a row may have no texts, or only empty texts
    )
    is_real = columns < ends[:, -1:]
    segment_ids = ops.where(is_real, segment_index, 0)
    text_starts = ops.max(is_after_start * is_nonempty * starts[:, None, :], axis=-1, initial=0)
    positions = ops.where(is_real, columns - text_starts, 0)
    attention_mask = segment_ids[:, :, None] == segment_ids[:, None, :]
    return segment_ids, positions, attention_mask


@keras.saving.register_keras_serializable(package="convert_tf")
class Trunk(keras.layers.Layer):
    """Embedding and transformer blocks, which contexts and responses share.

    Masking: `attention_mask` says which tokens attend to each other. The vectors of padding are
    meaningless.

    Args:
      config: configuration of the model.
      embedding_dropout: dropout rate after the embedding.
      attention_dropout: dropout rate after self-attention.

    Call arguments:
      token_ids: ids of the tokens, int32 `[rows, tokens]`, padded with `config.num_ids`.
      positions: position of each token in its text, starting at 0, int32 `[rows, tokens]`.
      attention_mask: bool `[rows, tokens, tokens]`, true where one token attends to the other.

    Returns:
      The outputs of the last block, `[rows, tokens, embedding_dim]`.

    Reference: arXiv 1911.03688 §2.1, Figure 2.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        embedding_dropout: float = 0.0,
        attention_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        self.rates = {
            "embedding_dropout": embedding_dropout,
            "attention_dropout": attention_dropout,
        }
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
        """Compile the feed-forward layers for training if this makes steps faster on this device.

        XLA recompiles for each row length, so call this method only if rows have few different
        lengths.
        """
        is_faster = compiles_feed_forward(self.dtype_policy.name)
        for block in self.blocks:
            block.feed_forward.jit_compile = is_faster

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "config": self.config.to_plain(), **self.rates}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "Trunk":
        return cls(**{**config, "config": ModelConfig.from_dict(config["config"])})

    @property
    def block_variables(self) -> list[Any]:
        """Trainable variables except the subword table."""
        return [v for v in self.trainable_variables if v is not self.embedding.table]

    def call(
        self, token_ids: Any, positions: Any, attention_mask: Any, training: bool = False
    ) -> Any:
        x = self.embedding(token_ids, positions, training=training)
        for block in self.blocks:
            x = block(x, attention_mask=attention_mask, training=training)
        return x


@keras.saving.register_keras_serializable(package="convert_tf")
class DualEncoder(keras.Model):
    """ConveRT: one trunk and reduction for all texts, and a side network for each kind of encoding.

    `encode_context`, `encode_response`, `reduce` and `encode_sequence` take one text per row.
    `call` takes either one text per row, for use as a layer in a Keras model, or packed rows with
    several texts each. Packed rows need less padding, so training uses them. Both give the same
    encodings.

    All side networks start from the same values, so that contexts and responses share a space
    before training. The paper does not say how side networks are initialised.

    A multi-context model also reads the earlier turns, joined into one text with the most recent
    turn first. A third side network encodes the earlier turns. A fourth one maps the mean of this
    encoding and the encoding of the context to a joint encoding. If there are no earlier turns (an
    empty text), the joint encoding equals the encoding of the context. The first layer of the
    fourth side network has a narrower input, so this layer has its own initial values.

    Args:
      config: configuration of the model.
      embedding_dropout: dropout rate after the embedding in training.
      attention_dropout: dropout rate after self-attention in training.
      dtype: precision policy: `"float32"`, `"mixed_bfloat16"` or `"mixed_float16"`. Variables are
        always float32.

    Call arguments:
      inputs: token ids with one text per row, int32 `[batch, tokens]`, as in `reduce`; or a dict:
        `token_ids`: token ids of packed rows, int32 `[rows, tokens]`;
        `segment_lengths`: lengths of the texts in each row, int32 `[rows, segments]`;
        `context_slots`, `response_slots`: slots of contexts and responses, int32 `[batch]`. A slot
          is the position of a text: text s of row r has the slot `r * segments + s`, where r and s
          start at 0;
        `extra_context_slots`: slots of the earlier turns, int32 `[batch]` (multi-context models);
        `negative_slots`: slots of additional responses, int32 `[batch × k]` (optional);
        `{name}_slots`: slots of other texts, which are only reduced, int32 `[texts]` (optional).

    Returns:
      For one text per row, the reduced encodings r, `[batch, reduced_dim]`. For packed rows, a dict
      with these entries:
        `context_encoding`, `response_encoding`: encodings of length 1, float32 `[batch,
          encoding_dim]`;
        `reduced_context`, `reduced_response`: reduced encodings r, `[batch, reduced_dim]`;
        `extra_context_encoding`: encodings of the earlier turns, float32 `[batch, encoding_dim]`;
          zeros where there are none (multi-context models);
        `both_encoding`: joint encodings of context and earlier turns, float32 `[batch,
          encoding_dim]` (multi-context models);
        `has_extra_context`: whether there are earlier turns, bool `[batch]` (multi-context models);
        `negative_encoding`: encodings of the texts in `negative_slots`, `[batch × k,
          encoding_dim]`;
        `reduced_{name}`: reduced encodings of the texts in each other `{name}_slots`, `[texts,
          reduced_dim]`.

    Raises:
      ValueError: if a multi-context model gets no `extra_context_slots`.

    Example:
      encoder = DualEncoder(model_preset("tiny", vocab_size=1000))
      h = encoder.encode_context(token_ids)

    Reference: arXiv 1911.03688 §2.1, §2.2, Figure 3. The fourth side network is inferred from the
    size of the model in §1, 73 MB. Without this network, the size would be 59 MB.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        embedding_dropout: float = 0.0,
        attention_dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config = config
        policy = self.dtype_policy
        self.trunk = Trunk(
            config,
            embedding_dropout=embedding_dropout,
            attention_dropout=attention_dropout,
            dtype=policy,
            name="trunk",
        )
        self.reduction = SqrtNReduction(
            config.reduction_heads, config.reduction_dim, dtype=policy, name="reduction"
        )

        def side_network(name: str) -> SideNetwork:
            return SideNetwork(
                config.side_layers,
                config.side_hidden_dim,
                encoding_dim=config.encoding_dim,
                use_skip=config.use_side_skip,
                dtype=policy,
                name=name,
            )

        self.context_side = side_network("context_side")
        self.response_side = side_network("response_side")
        self.extra_context_side: Any = None
        self.both_side: Any = None
        if config.multi_context:
            self.extra_context_side = side_network("extra_context_side")
            self.both_side = side_network("both_side")
        self._build_weights()

    def _build_weights(self) -> None:
        shape = (None, None)
        self.trunk.build(shape)
        self.reduction.build((*shape, self.config.embedding_dim))
        sides = [self.context_side, self.response_side]
        if self.config.multi_context:
            sides.append(self.extra_context_side)
        for side in sides:
            side.build((None, self.config.reduced_dim))
        if self.config.multi_context:
            self.both_side.build((None, self.config.encoding_dim))
            sides.append(self.both_side)
        self._start_as_context_side(sides[1:])
        self.built = True

    def _start_as_context_side(self, sides: list[SideNetwork]) -> None:
        for side in sides:
            for first, variable in zip(self.context_side.weights, side.weights, strict=True):
                if first.shape == variable.shape:
                    # The copy goes through numpy, because JAX cannot donate a buffer that two
                    # variables share.
                    variable.assign(ops.convert_to_numpy(first))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "config": self.config.to_plain(), **self.trunk.rates}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> "DualEncoder":
        return cls(**{**config, "config": ModelConfig.from_dict(config["config"])})

    @property
    def network_variables(self) -> list[Any]:
        """Trainable variables except the subword table: trunk, reduction, then side networks."""
        sequence = [*self.trunk.block_variables, *self.reduction.trainable_variables]
        seen = {id(v) for v in (*sequence, self.trunk.embedding.table)}
        return [*sequence, *(v for v in self.trainable_variables if id(v) not in seen)]

    def start_from(self, other: "DualEncoder") -> None:
        """Copy the weights of another model, which may be single-context or have fewer blocks.

        Additional blocks keep their initial values. Untrained blocks are close to the identity, so
        a deeper model starts out about as good as the other model. If only this model is
        multi-context, its two additional side networks get the weights of the network for contexts
        where the shapes allow it.

        Raises:
          ValueError: if the other model has more blocks, or weights with other shapes.

        Reference: Chen et al., "Net2Net", ICLR 2016. In that paper, the deeper model initially
        computes exactly the same function as the original model.
        """
        blocks = other.trunk.blocks
        if len(blocks) > len(self.trunk.blocks):
            raise ValueError(
                f"Cannot copy {len(blocks)} blocks into a model with {len(self.trunk.blocks)} "
                "blocks. Start from a model with at most as many blocks."
            )
        targets: list[Any] = [self.trunk.embedding, *self.trunk.blocks[: len(blocks)]]
        sources: list[Any] = [other.trunk.embedding, *blocks]
        names = ["reduction", "context_side", "response_side"]
        if other.config.multi_context and self.config.multi_context:
            names += ["extra_context_side", "both_side"]
        targets += [getattr(self, name) for name in names]
        sources += [getattr(other, name) for name in names]
        for target, source in zip(targets, sources, strict=True):
            target.set_weights(source.get_weights())
        if self.config.multi_context and not other.config.multi_context:
            self._start_as_context_side([self.extra_context_side, self.both_side])

    def lengths(self, token_ids: Any) -> Any:
        """Return the lengths of right-padded texts.

        Args:
          token_ids: token ids of the texts, int32 `[batch, tokens]`.

        Returns:
          The number of tokens in each text, int32 `[batch, 1]`.
        """
        is_real = ops.cast(token_ids != self.config.num_ids, "int32")
        return ops.sum(is_real, axis=1, keepdims=True)

    def encode_sequence(self, token_ids: Any) -> Any:
        """Encode each token: int32 `[batch, tokens]` → `[batch, tokens, embedding_dim]`.

        The vectors for padding are meaningless.
        """
        return self._sequence(token_ids, None, False)[0]

    def _sequence(
        self, token_ids: Any, segment_lengths: Any, training: bool
    ) -> tuple[Any, tuple[Any, Any, Any]]:
        if segment_lengths is None:
            segment_lengths = self.lengths(token_ids)
        segment_ids, positions, mask = segments_of(segment_lengths, ops.shape(token_ids)[1])
        sequence = self.trunk(token_ids, positions, mask, training=training)
        return sequence, (segment_ids, segment_lengths, mask)

    def reduce(self, token_ids: Any, segment_lengths: Any = None, *, training: bool = False) -> Any:
        """Return the reduced encodings r.

        Args:
          token_ids: token ids, int32 `[rows, tokens]`, right-padded with `config.num_ids`.
          segment_lengths: number of tokens in each text of packed rows, int32 `[rows, segments]`.
            None if every row contains one text.
          training: whether to apply dropout and update quantization ranges.

        Returns:
          The encodings r in the order of slots, `[rows * segments, reduced_dim]`. An empty text is
          encoded as zeros.
        """
        sequence, (segment_ids, segment_lengths, mask) = self._sequence(
            token_ids, segment_lengths, training
        )
        reduced = self.reduction(sequence, segment_ids, segment_lengths, mask)
        return ops.reshape(reduced, (-1, self.config.reduced_dim))

    def encode_context(self, token_ids: Any) -> Any:
        """Encode contexts: int32 `[batch, tokens]` → float32 `[batch, encoding_dim]`."""
        return self.context_side(self.reduce(token_ids))

    def encode_response(self, token_ids: Any) -> Any:
        """Encode responses: int32 `[batch, tokens]` → float32 `[batch, encoding_dim]`."""
        return self.response_side(self.reduce(token_ids))

    def encode_extra_context(self, token_ids: Any) -> Any:
        """Encode earlier turns: int32 `[batch, tokens]` → float32 `[batch, encoding_dim]`.

        Empty texts are encoded as zeros.

        Raises:
          ValueError: if the model is single-context.
        """
        self._check_multi_context()
        has_extra_context = self.lengths(token_ids)[:, 0] > 0
        return self._extra_context_encoding(self.reduce(token_ids), has_extra_context)

    def encode_both(self, context_ids: Any, extra_context_ids: Any) -> Any:
        """Encode contexts together with the turns before them.

        Args:
          context_ids: token ids of the contexts, int32 `[batch, tokens]`, right-padded with
            `config.num_ids`.
          extra_context_ids: token ids of the earlier turns, int32 `[batch, other tokens]`, padded
            in the same way. An empty text means that there are no earlier turns.

        Returns:
          The joint encodings, float32 `[batch, encoding_dim]`, of length 1.

        Raises:
          ValueError: if the model is single-context.
        """
        return self.combine(
            self.encode_context(context_ids), self.encode_extra_context(extra_context_ids)
        )

    def combine(self, context_encoding: Any, extra_context_encoding: Any) -> Any:
        """Combine the encodings of contexts with those of earlier turns.

        All encodings are float32 `[batch, encoding_dim]`. If there are no earlier turns, their
        encoding is zeros, and the result is the encoding of the context.
        """
        self._check_multi_context()
        both = self.both_side((context_encoding + extra_context_encoding) / 2.0)
        has_extra_context = ops.any(extra_context_encoding != 0, axis=1, keepdims=True)
        return ops.where(has_extra_context, both, context_encoding)

    def freeze_all_but_history(self) -> None:
        """Freeze all layers except the two side networks that only multi-context models have.

        Raises:
          ValueError: if the model is single-context.
        """
        self._check_multi_context()
        for layer in (self.trunk, self.reduction, self.context_side, self.response_side):
            layer.trainable = False

    def _extra_context_encoding(self, reduced: Any, has_extra_context: Any) -> Any:
        return ops.where(has_extra_context[:, None], self.extra_context_side(reduced), 0.0)

    def _check_multi_context(self) -> None:
        if not self.config.multi_context:
            raise ValueError(
                "This model is single-context, so it cannot encode earlier turns. Use a "
                "multi-context model, for example the preset convert_multi_context."
            )

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not isinstance(inputs, dict):
            return self.reduce(inputs, training=training)
        reduced = self.reduce(inputs["token_ids"], inputs["segment_lengths"], training=training)

        def take_reduced(name: str) -> Any:
            return ops.take(reduced, inputs[f"{name}_slots"], axis=0)

        reduced_context, reduced_response = take_reduced("context"), take_reduced("response")
        encodings = {
            "reduced_context": reduced_context,
            "reduced_response": reduced_response,
            "context_encoding": self.context_side(reduced_context),
            "response_encoding": self.response_side(reduced_response),
        }
        if "negative_slots" in inputs:
            encodings["negative_encoding"] = self.response_side(take_reduced("negative"))
        for name in sorted(inputs):
            text = name.removesuffix("_slots")
            if text not in (name, *_TEXTS_WITH_SIDES):
                encodings[f"reduced_{text}"] = take_reduced(text)
        if not self.config.multi_context:
            return encodings
        if "extra_context_slots" not in inputs:
            raise ValueError(
                "A multi-context model needs extra_context_slots, the slots of the earlier turns. "
                f"Received: {sorted(inputs)}."
            )
        lengths = ops.reshape(inputs["segment_lengths"], (-1,))
        has_extra_context = ops.take(lengths, inputs["extra_context_slots"], axis=0) > 0
        extra_context_encoding = self._extra_context_encoding(
            take_reduced("extra_context"), has_extra_context
        )
        both_encoding = self.combine(encodings["context_encoding"], extra_context_encoding)
        return {
            **encodings,
            "extra_context_encoding": extra_context_encoding,
            "both_encoding": both_encoding,
            "has_extra_context": has_extra_context,
        }


def count_parameters(encoder: DualEncoder) -> dict[str, int]:
    """Return the numbers of trainable parameters.

    The result is a dict with `embedding`, for the token and position tables, and `network`, for all
    other parameters.
    """
    total = sum(int(np.prod(v.shape)) for v in encoder.trainable_variables)
    embedding = encoder.trunk.embedding
    tables = [embedding.table, *embedding.position_tables]
    embedding_total = sum(int(np.prod(v.shape)) for v in tables)
    return {"embedding": embedding_total, "network": total - embedding_total}
