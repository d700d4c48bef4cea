"""The ConveRT dual encoder, single- and multi-context.

Reference: arXiv 1911.03688 §2.1, §2.2.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from convert_tf.config.model import ModelConfig
from convert_tf.layers.reduction import SqrtNReduction
from convert_tf.layers.side_network import SideNetwork
from convert_tf.models.trunk import Trunk, segments_of


class DualEncoder(keras.Model):
    """ConveRT: one trunk and reduction for all texts, one side network for each kind of encoding.

    Texts come either one to a row (`encode_context`, `encode_response`, `reduce`,
    `encode_sequence`), or packed, several to a row, so that training pays for few padded positions
    (`call`). Both give the same encodings.

    The side networks start from the same values (they are trained apart from the first step on):
    contexts and responses then share a space before training, which the paper leaves open.

    A multi-context model reads the earlier turns too, joined into one text, the most recent first.
    They have a side network of their own, and so has the encoding of both texts, which starts from
    the mean of the two encodings. An empty text is no history: the encoding of both is then that of
    the context. The first layer of the network of both is narrower than the others', and starts
    from its own values.

    Args:
      config: the model.
      embedding_dropout, attention_dropout: drop rates in training.
      quantizer_update_steps: training calls between updates of the embedding range.
      dtype: precision policy: `"float32"`, `"mixed_bfloat16"` or `"mixed_float16"`. Variables are
        float32 in each.

    Call arguments:
      inputs: dict of `token_ids` int32 `[rows, tokens]`, `segment_lengths` int32
        `[rows, segments]`, and `context_slots`, `response_slots` and, for a multi-context model,
        `extra_context_slots`, int32 `[batch]`: text s of row r has the slot `r * segments + s`,
        from 0. There may be `negative_slots`, int32 `[batch × k]`, of further responses.

    Returns:
      dict of `context_encoding`, `response_encoding`, float32 `[batch, encoding_dim]`, of length 1,
      and what they are made of, `reduced_context`, `reduced_response`, `[batch, reduced_dim]`.
      A multi-context model adds `extra_context_encoding`, zeros where there is no history,
      `both_encoding`, and `has_extra_context`, bool `[batch]`. Further responses have
      `negative_encoding`, `[batch × k, encoding_dim]`.

    Raises:
      ValueError: a multi-context model gets no `extra_context_slots`.

    Example:
      encoder = DualEncoder(model_preset("tiny", vocab_size=1000))
      h = encoder.encode_context(token_ids)

    Reference: arXiv 1911.03688 §2.1, §2.2, Figure 3. There the mean is of h_x and h_z; that the
    encoding of both has a network behind it is from the size in §1 (73 MB; 59 MB without).
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
                    # Through numpy: on JAX the two would share a buffer, which cannot be donated.
                    variable.assign(ops.convert_to_numpy(first))

    @property
    def network_variables(self) -> list[Any]:
        """What is trained, without the subword table: trunk, reduction, then side networks."""
        sequence = [*self.trunk.block_variables, *self.reduction.trainable_variables]
        seen = {id(v) for v in (*sequence, self.trunk.embedding.table)}
        return [*sequence, *(v for v in self.trainable_variables if id(v) not in seen)]

    def start_from(self, other: "DualEncoder") -> None:
        """Takes the weights of a single-context or a shallower model over.

        Blocks that the other one does not have keep their own initial values: they change little of
        what they are given, so that the deeper model starts about as good as the other one. The
        networks of the earlier turns and of both start as that of the context, where shapes allow,
        if the other one has none.

        Raises:
          ValueError: the other model has more blocks or other shapes.

        Reference: Chen et al., "Net2Net", ICLR 2016 (there exactly the same function).
        """
        blocks = other.trunk.blocks
        if len(blocks) > len(self.trunk.blocks):
            raise ValueError(
                "A model starts from one with as many blocks or fewer. Received: "
                f"{len(blocks)} blocks for {len(self.trunk.blocks)}."
            )
        own: list[Any] = [self.trunk.embedding, *self.trunk.blocks[: len(blocks)]]
        known: list[Any] = [other.trunk.embedding, *blocks]
        names = ["reduction", "context_side", "response_side"]
        if other.config.multi_context and self.config.multi_context:
            names += ["extra_context_side", "both_side"]
        own += [getattr(self, name) for name in names]
        known += [getattr(other, name) for name in names]
        for layer, source in zip(own, known, strict=True):
            layer.set_weights(source.get_weights())
        if self.config.multi_context and not other.config.multi_context:
            self._start_as_context_side([self.extra_context_side, self.both_side])

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

    def encode_extra_context(self, token_ids: Any) -> Any:
        """h of earlier turns: int32 `[batch, tokens]` → float32 `[batch, encoding_dim]`.

        Empty texts have zeros.

        Raises:
          ValueError: the model is a single-context one.
        """
        self._check_multi_context()
        has_extra_context = self.lengths(token_ids)[:, 0] > 0
        return self._extra_context_encoding(self.reduce(token_ids), has_extra_context)

    def encode_both(self, context_ids: Any, extra_context_ids: Any) -> Any:
        """h of contexts with their earlier turns.

        Args:
          context_ids: int32 `[batch, tokens]`, right-padded with `config.num_ids`.
          extra_context_ids: int32 `[batch, other tokens]`, likewise; an empty text is no history.

        Returns:
          float32 `[batch, encoding_dim]`, of length 1.

        Raises:
          ValueError: the model is a single-context one.
        """
        self._check_multi_context()
        return self.combine(
            self.encode_context(context_ids), self.encode_extra_context(extra_context_ids)
        )

    def combine(self, context_encoding: Any, extra_context_encoding: Any) -> Any:
        """h of both from the two encodings, float32 `[batch, encoding_dim]`.

        Of zeros, which are no history, that of the context.
        """
        self._check_multi_context()
        both = self.both_side((context_encoding + extra_context_encoding) / 2.0)
        has_extra_context = ops.any(extra_context_encoding != 0, axis=1, keepdims=True)
        return ops.where(has_extra_context, both, context_encoding)

    def freeze_all_but_history(self) -> None:
        """Has training change the networks of the earlier turns and of both alone.

        Raises:
          ValueError: the model is a single-context one.
        """
        self._check_multi_context()
        for layer in (self.trunk, self.reduction, self.context_side, self.response_side):
            layer.trainable = False

    def _extra_context_encoding(self, reduced: Any, has_extra_context: Any) -> Any:
        return ops.where(has_extra_context[:, None], self.extra_context_side(reduced), 0.0)

    def _check_multi_context(self) -> None:
        if not self.config.multi_context:
            raise ValueError(
                "Earlier turns are encoded by multi-context models. Received: a model with "
                "multi_context=False. Use the preset convert_multi_context."
            )

    def call(self, inputs: dict[str, Any], training: bool = False) -> dict[str, Any]:
        reduced = self.reduce(inputs["token_ids"], inputs["segment_lengths"], training=training)

        def reduced_of(name: str) -> Any:
            return ops.take(reduced, inputs[f"{name}_slots"], axis=0)

        reduced_context, reduced_response = reduced_of("context"), reduced_of("response")
        encodings = {
            "reduced_context": reduced_context,
            "reduced_response": reduced_response,
            "context_encoding": self.context_side(reduced_context),
            "response_encoding": self.response_side(reduced_response),
        }
        if "negative_slots" in inputs:
            encodings["negative_encoding"] = self.response_side(reduced_of("negative"))
        if "utterance_slots" in inputs:
            encodings["reduced_utterance"] = reduced_of("utterance")
        if not self.config.multi_context:
            return encodings
        if "extra_context_slots" not in inputs:
            raise ValueError(
                "A multi-context model needs the slots of the earlier turns. Received: "
                f"{sorted(inputs)}. Add extra_context_slots; texts without tokens are no history."
            )
        lengths = ops.reshape(inputs["segment_lengths"], (-1,))
        has_extra_context = ops.take(lengths, inputs["extra_context_slots"], axis=0) > 0
        extra_context_encoding = self._extra_context_encoding(
            reduced_of("extra_context"), has_extra_context
        )
        both_encoding = self.combine(encodings["context_encoding"], extra_context_encoding)
        return {
            **encodings,
            "extra_context_encoding": extra_context_encoding,
            "both_encoding": both_encoding,
            "has_extra_context": has_extra_context,
        }


def count_parameters(encoder: DualEncoder) -> dict[str, int]:
    """Trainable numbers: the subword and position tables, and the rest of the network."""
    total = sum(int(np.prod(v.shape)) for v in encoder.trainable_variables)
    embedding = encoder.trunk.embedding
    tables = [embedding.table, *embedding.position_tables]
    embedding_total = sum(int(np.prod(v.shape)) for v in tables)
    return {"embedding": embedding_total, "network": total - embedding_total}
