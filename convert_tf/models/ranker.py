"""Rankers: models that consist of a trunk and a head, and score candidates for contexts.

Reference: arXiv 1905.01969 §4; arXiv 1911.03688 §2.1 (the ConveRT trunk).
"""

from typing import Any

import keras
from keras import ops

from convert_tf.config.bert import BertConfig
from convert_tf.config.ranker import RankerConfig
from convert_tf.layers.reduction import SqrtNReduction
from convert_tf.models.bert import BertTrunk
from convert_tf.models.encoder import DualEncoder, segments_of
from convert_tf.models.heads import CrossHead, PolyHead, RankerHead, make_head

# Initial bias for attention between the context and the candidate of a joint sequence. The blocks
# were pre-trained on single texts. With a low bias, their outputs for each text are initially close
# to the outputs for this text alone.
_ACROSS_BIAS = -2.0


class ConvertTrunk(keras.layers.Layer):
    """A ranker's trunk, which wraps a ConveRT dual encoder.

    Contexts and candidates share the trunk of the dual encoder. The reduced vectors then go through
    the side network for contexts or for responses. The side networks expect a reduced encoding r,
    so a vector that is only as wide as a single output is repeated to the width of r. The encodings
    have length 1.

    Joint sequences are [S] context [S] candidate [S]. Within a text, the pre-trained windows and
    biases apply. From one text to the other, and to and from each [S], attention is not limited to
    a window, and it has one learned bias per block and head. Positions restart at the candidate, as
    in pre-training. Segment vectors and the three vectors for [S] start at zero, so [S] initially
    attends to all tokens equally.

    Masking: padding is never read. The reduced encoding of an empty text is zeros.

    Args:
      encoder: the dual encoder.
      reads_jointly: whether to add the weights for joint sequences, which cross-encoders need.

    Example:
      trunk = ConvertTrunk(encoder)
      sequence, mask = trunk.sequence(token_ids)

    Reference: arXiv 1911.03688 §2.1; arXiv 1905.01969 §4.1 to §4.3.
    """

    def __init__(self, encoder: DualEncoder, *, reads_jointly: bool = False, **kwargs: Any) -> None:
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
        self.special_vectors, self.segment_table = (
            self.add_weight(shape=(rows, self.dim), initializer="zeros", name=name)
            for name, rows in (("special_vectors", 3), ("segment_table", 2))
        )
        self.across_bias = self.add_weight(
            shape=(len(self.blocks), config.num_heads),
            initializer=keras.initializers.Constant(_ACROSS_BIAS),
            autocast=False,
            name="across_bias",
        )

    @property
    def embedding(self) -> keras.layers.Layer:
        return self.encoder.trunk.embedding

    @property
    def blocks(self) -> list[keras.layers.Layer]:
        return self.encoder.trunk.blocks

    @property
    def reduction(self) -> SqrtNReduction:
        return self.encoder.reduction

    def train_only(self, *, sides: tuple[str, ...], reduction: bool) -> None:
        """Freeze the parts of the dual encoder that the head does not read.

        Args:
          sides: names of the side networks to train, among `context_side` and `response_side`.
          reduction: whether to train the pre-trained reduction.
        """
        for name in ("context_side", "response_side", "extra_context_side", "both_side"):
            if (side := getattr(self.encoder, name)) is not None:
                side.trainable = name in sides
        self.encoder.reduction.trainable = reduction

    def sequence(self, token_ids: Any, *, training: bool = False) -> tuple[Any, Any]:
        """Return the outputs for texts, `[B, T, dim]`, and the mask of tokens, bool `[B, T]`.

        Args:
          token_ids: token ids of the texts, int32 `[B, T]`, right-padded.
          training: whether to apply dropout and update quantization ranges.
        """
        lengths = self.encoder.lengths(token_ids)
        _, positions, attention_mask = segments_of(lengths, ops.shape(token_ids)[1])
        sequence = self.encoder.trunk(token_ids, positions, attention_mask, training=training)
        return sequence, token_ids != self.padding_id

    def joint_sequence(
        self, context_ids: Any, candidate_ids: Any, *, training: bool = False
    ) -> tuple[Any, Any]:
        """Return the outputs for joint sequences and their mask, as in `BertTrunk`."""
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
        """Encode candidates, as `project_context` encodes contexts."""
        return self._project(vectors, self.encoder.response_side)

    def _project(self, vectors: Any, side: keras.layers.Layer) -> Any:
        *leading, width = ops.shape(vectors)
        flat = ops.reshape(vectors, (-1, width))
        if width != self.encoder.config.reduced_dim:
            flat = ops.tile(flat, (1, self.encoder.config.reduction_heads))
        return ops.reshape(side(flat), (*leading, self.encoder.config.encoding_dim))


RankerTrunk = ConvertTrunk | BertTrunk


class RankerModel(keras.Model):
    """Ranker: a trunk that reads texts, and a head that scores candidates for contexts.

    All rankers have `score`. Bi- and poly-encoders can also encode candidates once and score them
    later (`encode_contexts`, `encode_candidates`, `score_encoded`), but cross-encoders cannot.

    A score depends only on the context and the candidate, not on padding or other rows.

    Args:
      trunk: a `ConvertTrunk` or a `BertTrunk`.
      head: a `BiHead`, `PolyHead` or `CrossHead`.
      config: configuration of trunk and head.
      candidate_trunk: a second trunk of the same kind for candidates, or None to use `trunk` for
        contexts and candidates.

    Call arguments:
      inputs: dict of `context_ids` and `candidate_ids`, the token ids of contexts and candidates.
        `context_ids` is int32 `[B, T]`. `candidate_ids` is int32 `[C, T]` if all contexts have the
        same candidates, and otherwise `[B, C, T]`. One of the two may be missing.

    Returns:
      The result of `score`. If one of the inputs is missing, the result of `encode_contexts` or
      `encode_candidates`.

    Example:
      ranker = make_ranker(config)
      scores = ranker.score(context_ids, candidate_ids)

    Reference: arXiv 1905.01969 §4.2 to §4.4.
    """

    def __init__(
        self,
        trunk: RankerTrunk,
        head: RankerHead,
        *,
        config: RankerConfig,
        candidate_trunk: RankerTrunk | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.trunk = trunk
        self.head = head
        self.config = config
        self.candidate_trunk = candidate_trunk
        self.padding_id = trunk.padding_id
        self.is_joint = isinstance(head, CrossHead)
        self.output_factor = self.add_weight(
            shape=(), initializer="ones", trainable=False, autocast=False, name="output_factor"
        )
        self.head.build((None, None, trunk.dim))
        self.built = True

    def _sequence(self, trunk: RankerTrunk, token_ids: Any, training: bool) -> tuple[Any, Any]:
        sequence, mask = trunk.sequence(token_ids, training=training)
        return self._rescale(sequence), mask

    def _rescale(self, sequence: Any) -> Any:
        return sequence * ops.cast(ops.convert_to_tensor(self.output_factor), sequence.dtype)

    def rescale_outputs(self, token_ids: Any, output_std: float) -> float:
        """Rescale the trunks' outputs so that their standard deviation is `output_std`.

        Large outputs saturate the softmaxes of a poly-encoder and of the loss. The paper rescales
        the last linear layer of the transformer. Multiplying the outputs of that layer by a factor
        has the same effect. The factor is stored as a weight that is not trained.

        Args:
          token_ids: token ids of the texts to measure the outputs on, int32 `[B, T]`.
          output_std: desired standard deviation of all entries of all outputs.

        Returns:
          The factor that the outputs are multiplied by.

        Reference: arXiv 1905.01969 §5.3.
        """
        sequence, mask = self.trunk.sequence(token_ids)
        outputs = ops.convert_to_numpy(ops.cast(sequence, "float32"))[ops.convert_to_numpy(mask)]
        factor = output_std / max(float(outputs.std()), 1e-12)
        self.output_factor.assign(factor)
        return factor

    def encode_contexts(self, token_ids: Any, *, training: bool = False) -> tuple[Any, Any]:
        """Encode contexts: int32 `[B, T]` → `(vectors [B, M, dim], vector_mask bool [B, M])`.

        M is the number of vectors per context, which may depend on T. Vectors for which the mask is
        false are never read.

        Raises:
          ValueError: if the ranker is a cross-encoder.
        """
        self._refuse_joint()
        vectors, mask = self.head.context_vectors(*self._sequence(self.trunk, token_ids, training))
        return self.trunk.project_context(vectors), mask

    def encode_candidates(self, token_ids: Any, *, training: bool = False) -> Any:
        """Encode candidates: int32 `[C, T]` → `[C, dim]`.

        If a candidate is longer than a BERT-like trunk's `max_tokens`, its end is cut.

        Raises:
          ValueError: if the ranker is a cross-encoder.
        """
        self._refuse_joint()
        trunk = self.candidate_trunk or self.trunk
        if isinstance(trunk, BertTrunk):  # It would keep the last tokens, as it does for contexts.
            token_ids = token_ids[:, : trunk.max_tokens]
        vector = self.head.candidate_vector(*self._sequence(trunk, token_ids, training))
        return trunk.project_candidate(vector)

    def _refuse_joint(self) -> None:
        if self.is_joint:
            raise ValueError(
                "A cross-encoder cannot encode contexts or candidates separately. Call score, or "
                "use a bi- or poly-encoder."
            )

    def score_encoded(self, vectors: Any, vector_mask: Any, candidates: Any) -> Any:
        """Score encoded candidates.

        Args:
          vectors, vector_mask: encoded contexts, from `encode_contexts`.
          candidates: encoded candidates, from `encode_candidates`. `[C, dim]` if all contexts have
            the same candidates, and otherwise `[B, C, dim]`.

        Returns:
          The score of each candidate, float32 `[B, C]`.
        """
        return self.head.score_encoded(vectors, vector_mask, candidates)

    def score(self, context_ids: Any, candidate_ids: Any, *, training: bool = False) -> Any:
        """Score candidates for contexts.

        Args:
          context_ids: token ids of the contexts, int32 `[B, T]`.
          candidate_ids: token ids of the candidates, int32 `[C, T]` if all contexts have the same
            candidates, and otherwise `[B, C, T]`.
          training: whether to apply dropout and update quantization ranges.

        Returns:
          The score of each candidate, float32 `[B, C]`.
        """
        is_shared = len(candidate_ids.shape) == 2
        if self.is_joint:
            # Adding zeros broadcasts contexts and candidates to one row per pair.
            candidates = candidate_ids[None] if is_shared else candidate_ids
            contexts = context_ids[:, None] + ops.zeros_like(candidates[:, :, :1])
            candidates = candidates + ops.zeros_like(context_ids[:, None, :1])
            sequence, mask = self.trunk.joint_sequence(
                _flatten_rows(contexts), _flatten_rows(candidates), training=training
            )
            scores = self.head.joint_score(self._rescale(sequence), mask)
            return ops.reshape(scores, ops.shape(candidates)[:2])
        vectors, vector_mask = self.encode_contexts(context_ids, training=training)
        flat_ids = candidate_ids if is_shared else _flatten_rows(candidate_ids)
        candidates = self.encode_candidates(flat_ids, training=training)
        if not is_shared:
            shape = (*ops.shape(candidate_ids)[:2], candidates.shape[-1])
            candidates = ops.reshape(candidates, shape)
        return self.score_encoded(vectors, vector_mask, candidates)

    def call(self, inputs: dict[str, Any], training: bool = False) -> Any:
        if "candidate_ids" not in inputs:
            return self.encode_contexts(inputs["context_ids"], training=training)
        if "context_ids" not in inputs:
            return self.encode_candidates(inputs["candidate_ids"], training=training)
        return self.score(inputs["context_ids"], inputs["candidate_ids"], training=training)


def _flatten_rows(token_ids: Any) -> Any:
    """Reshape `[B, C, T]` to `[B * C, T]`."""
    return ops.reshape(token_ids, (-1, ops.shape(token_ids)[-1]))


def _make_trunk(config: RankerConfig, *, dtype: str = "float32", **rates: float) -> RankerTrunk:
    if isinstance(config.model, BertConfig):  # BERT has one dropout rate: the larger of the two
        dropout = max(rates.values(), default=0.0)
        return BertTrunk(config.model, dropout=dropout, dtype=dtype, name="trunk")
    encoder = DualEncoder(config.model, dtype=dtype, **rates)
    return ConvertTrunk(encoder, reads_jointly=config.head.head == "cross", name="trunk")


def make_ranker(config: RankerConfig, **options: Any) -> RankerModel:
    """Return an untrained ranker.

    If the trunk has a pre-trained reduction, the reduction `sqrt_n` uses it.

    Args:
      config: configuration of the ranker.
      **options: dropout rates (`embedding_dropout`, `attention_dropout`) and `dtype`.

    Raises:
      ValueError: if context vectors and candidate vectors would have different widths.
    """
    trunk = _make_trunk(config, **options)
    candidate_trunk = _make_trunk(config, **options) if config.head.separate_trunks else None
    shared = trunk.reduction if config.head.reduction == "sqrt_n" else None
    head = make_head(config.head, shared_reduction=shared, dtype=trunk.dtype_policy)
    if isinstance(trunk, ConvertTrunk):
        reads_reduction = config.head.reduction == "sqrt_n"
        sides = () if config.head.head == "cross" else ("context_side", "response_side")
        trunk.train_only(sides=sides[: 1 if candidate_trunk else 2], reduction=reads_reduction)
        if isinstance(candidate_trunk, ConvertTrunk):
            candidate_trunk.train_only(sides=sides[1:], reduction=False)
    elif isinstance(head, PolyHead) and head.reduce.width(trunk.dim) != trunk.dim:
        raise ValueError(
            "A poly-encoder on a trunk without side networks cannot use the reduction sqrt_n, "
            "because candidate vectors would be wider than context vectors. Use first or mean."
        )
    return RankerModel(
        trunk,
        head,
        config=config,
        candidate_trunk=candidate_trunk,
        dtype=trunk.dtype_policy,
        # Files with 8-bit weights contain the paths of variables. Keras would number later models.
        name="ranker_model",
    )
