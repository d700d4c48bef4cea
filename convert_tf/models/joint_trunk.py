"""ConveRT as the trunk of a ranker.

Reference: arXiv 1911.03688 §2.1; arXiv 1905.01969 §4.
"""

from typing import Any

import keras
from keras import ops

from convert_tf.layers.reduction import SqrtNReduction
from convert_tf.models.encoder import DualEncoder
from convert_tf.models.trunk import segments_of

# Initial bias of attention between the two texts. Pre-trained blocks never saw a second text, so a
# low bias keeps their outputs close to those for each text alone.
ACROSS_BIAS = -2.0


class ConvertTrunk(keras.layers.Layer):
    """Trunk of a ranker that wraps a ConveRT dual encoder.

    Contexts and candidates share the trunk of the dual encoder. Their vectors then go through the
    side network for contexts or for responses. The side networks expect a reduced encoding r, so a
    vector as wide as one output is first repeated to the width of r. The encodings have length 1.

    Joint sequences are [S] context [S] candidate [S]. Within a text, the pre-trained windows and
    biases apply. Between the texts, and to and from each [S], attention has no window and one
    learned bias per block and head. Positions restart at the candidate, as in pre-training. Segment
    vectors and the three vectors of [S] start at zero, so [S] at first attends to the mean of all
    tokens.

    Masking: padding is never read. The reduced encoding of an empty text is zeros.

    Args:
      encoder: the dual encoder.
      reads_jointly: whether to add the weights for joint sequences, which cross-encoders need.

    Example:
      trunk = ConvertTrunk(encoder)
      sequence, mask = trunk.sequence(token_ids)

    Reference: arXiv 1911.03688 §2.1; arXiv 1905.01969 §4.1 to §4.3.
    """

    def __init__(self, encoder: DualEncoder, *, reads_jointly: bool = False, **kwargs: Any):
        super().__init__(dtype=encoder.dtype_policy, **kwargs)
        self.encoder = encoder
        self.reads_jointly = reads_jointly
        self.dim = encoder.config.embedding_dim
        self.padding_id = encoder.config.num_ids
        self.build()

    def build(self, input_shape: Any = None) -> None:
        if not self.reads_jointly:
            return
        config = self.encoder.config
        self.special_vectors = self.add_weight(
            shape=(3, self.dim), initializer="zeros", name="special_vectors"
        )
        self.segment_table = self.add_weight(
            shape=(2, self.dim), initializer="zeros", name="segment_table"
        )
        self.across_bias = self.add_weight(
            shape=(len(self.blocks), config.num_heads),
            initializer=keras.initializers.Constant(ACROSS_BIAS),
            autocast=False,
            name="across_bias",
        )

    @property
    def embedding(self) -> keras.layers.Layer:
        return self.encoder.trunk.embedding

    @property
    def embedding_table(self) -> Any:
        return self.encoder.trunk.embedding.table

    @property
    def blocks(self) -> list[keras.layers.Layer]:
        return self.encoder.trunk.blocks

    @property
    def reduction(self) -> SqrtNReduction:
        return self.encoder.reduction

    def train_only(self, *, sides: tuple[str, ...], reduction: bool) -> None:
        """Freeze the parts of the dual encoder that the head does not read.

        Args:
          sides: names of the side networks to train, from `context_side` and `response_side`.
          reduction: whether to train the pre-trained reduction.
        """
        for name in ("context_side", "response_side", "extra_context_side", "both_side"):
            if (side := getattr(self.encoder, name)) is not None:
                side.trainable = name in sides
        self.encoder.reduction.trainable = reduction

    def sequence(self, token_ids: Any, *, training: bool = False) -> tuple[Any, Any]:
        """Return the outputs for texts: int32 `[B, T]` → `[B, T, dim]` and the mask `[B, T]`."""
        lengths = self.encoder.lengths(token_ids)
        _, positions, attention_mask = segments_of(lengths, ops.shape(token_ids)[1])
        sequence = self.encoder.trunk(token_ids, positions, attention_mask, training=training)
        return sequence, token_ids != self.padding_id

    def joint_sequence(
        self, context_ids: Any, candidate_ids: Any, *, training: bool = False
    ) -> tuple[Any, Any]:
        """Return the outputs for joint sequences, and their mask; see `BertTrunk`.

        Raises:
          ValueError: if the trunk was made without `reads_jointly`.
        """
        if not self.reads_jointly:
            raise ValueError(
                "This trunk has no weights for joint sequences. Make it with reads_jointly=True."
            )
        special_vectors, segments = (
            ops.cast(table, self.compute_dtype)
            for table in (self.special_vectors, self.segment_table)
        )
        parts, masks, texts = [], [], []
        for number, token_ids in enumerate((context_ids, candidate_ids)):
            embedded = self.embedding(token_ids, training=training)
            is_real = token_ids != self.padding_id
            special = ops.ones_like(embedded[:, :1]) * special_vectors[number]
            parts += [special, embedded + segments[number]]
            masks += [ops.ones_like(token_ids[:, :1], dtype="bool"), is_real]
            texts += [ops.zeros_like(token_ids[:1, :1]), ops.full_like(token_ids[:1], number + 1)]
        parts.append(ops.ones_like(parts[0]) * special_vectors[2])
        masks.append(masks[0])
        texts.append(texts[0])
        x, mask, text = (ops.concatenate(pieces, axis=1) for pieces in (parts, masks, texts))
        is_across = ops.logical_or(text[:, :, None] != text[:, None, :], text[:, None, :] == 0)
        biases = ops.convert_to_tensor(self.across_bias)
        for number, block in enumerate(self.blocks):
            x = block(
                x,
                attention_mask=mask[:, None, :],
                across_mask=is_across,
                across_bias=biases[number],
                training=training,
            )
        return x, mask

    def project_context(self, vectors: Any) -> Any:
        """Encode `[…, dim]` or `[…, reduced_dim]` as float32 `[…, encoding_dim]` of length 1."""
        return self._project(vectors, self.encoder.context_side)

    def project_candidate(self, vectors: Any) -> Any:
        """Encode candidates; see `project_context`."""
        return self._project(vectors, self.encoder.response_side)

    def _project(self, vectors: Any, side: keras.layers.Layer) -> Any:
        *leading, width = ops.shape(vectors)
        flat = ops.reshape(vectors, (-1, width))
        if width != self.encoder.config.reduced_dim:
            flat = ops.tile(flat, (1, self.encoder.config.reduction_heads))
        return ops.reshape(side(flat), (*leading, self.encoder.config.encoding_dim))
