"""Rankers: a head on a trunk, from token ids to scores of candidates.

Reference: arXiv 1905.01969 §4; arXiv 1911.03688 §2.1 (the ConveRT trunk).
"""

import dataclasses
import json
from typing import Any, Protocol

import keras
from keras import ops

from convert_tf.config import HeadConfig, ModelConfig
from convert_tf.encoders import DualEncoder, segments_of
from convert_tf.heads import BiHead, CrossHead, PolyHead
from convert_tf.layers import SqrtNReduction

# What attention to the other text starts with: as much lower than within a text that pre-trained
# blocks, which never saw another one, begin close to what they are.
ACROSS_BIAS = -2.0


class RankerTrunk(Protocol):
    """What a head can stand on: a `keras.layers.Layer`, built, with these attributes.

    Attributes:
      dim: width of the outputs.
      padding_id: id of padding, which comes last in each row.
      embedding: the layer that holds the token table.
      embedding_table: the table's variable, or None.
      blocks: its layers, the lowest first.
      reduction: the pre-trained `SqrtNReduction`, or None.
    """

    dim: int
    padding_id: int
    embedding: keras.layers.Layer
    embedding_table: Any
    blocks: list[keras.layers.Layer]
    reduction: SqrtNReduction | None

    def sequence(self, token_ids: Any, *, training: bool = False) -> tuple[Any, Any]:
        """int32 `[B, T]` → outputs `[B, N, dim]`, mask bool `[B, N]`; N may exceed T by [S]."""

    def joint_sequence(
        self, context_ids: Any, candidate_ids: Any, *, training: bool = False
    ) -> tuple[Any, Any]:
        """int32 `[P, T1]`, `[P, T2]` → outputs `[P, N, dim]` and mask of [S] both [S] apart [S]."""

    def project_context(self, vectors: Any) -> Any:
        """`[…, dim]`, or as wide as the reduction's, into the space in which scores are made."""

    def project_candidate(self, vectors: Any) -> Any:
        """As `project_context`, for candidates."""


class ConvertTrunk(keras.layers.Layer):
    """A ConveRT dual encoder as what heads stand on.

    Contexts and candidates go through one trunk, as in ConveRT, and their vectors through the side
    network of their side. A vector that is no reduced encoding r, but as wide as one output, is
    repeated to the width of r: the two heads of the pre-trained reduction weigh the same outputs.
    The encodings have length 1.

    Joint sequences are [S] context [S] candidate [S]. Pre-trained windows and biases hold within a
    text; between the texts, and to and from each [S], attention is full, with one learned bias per
    block and head. Positions begin anew with the candidate, so that each text alone is what it was
    in pre-training. Segment vectors start at zero, and so do the three of [S], whose first
    attention thereby is the mean of all tokens.

    Masking: padding is never read; an empty text has zeros as its reduced encoding.

    Args:
      encoder: the dual encoder.
      reads_jointly: whether it has what joint sequences need; a cross-encoder's needs it.

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

    def sequence(self, token_ids: Any, *, training: bool = False) -> tuple[Any, Any]:
        """Outputs for texts; see `RankerTrunk`."""
        lengths = self.encoder.lengths(token_ids)
        _, positions, attention_mask = segments_of(lengths, ops.shape(token_ids)[1])
        sequence = self.encoder.trunk(token_ids, positions, attention_mask, training=training)
        return sequence, token_ids != self.padding_id

    def joint_sequence(
        self, context_ids: Any, candidate_ids: Any, *, training: bool = False
    ) -> tuple[Any, Any]:
        """Outputs for pairs; see `RankerTrunk`.

        Raises:
          ValueError: the trunk was made without `reads_jointly`.
        """
        if not self.reads_jointly:
            raise ValueError(
                "Only a trunk that reads jointly has [S] and segments. Received: one made with "
                "reads_jointly=False. Pass reads_jointly=True."
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
            texts += [
                ops.zeros_like(token_ids[:1, :1]),
                ops.full_like(token_ids[:1], number + 1),
            ]
        parts.append(ops.ones_like(parts[0]) * special_vectors[2])
        masks.append(masks[0])
        texts.append(texts[0])
        x, mask, text = (ops.concatenate(each, axis=1) for each in (parts, masks, texts))
        is_apart = ops.logical_or(text[:, :, None] != text[:, None, :], text[:, None, :] == 0)
        biases = ops.convert_to_tensor(self.across_bias)
        for number, block in enumerate(self.blocks):
            x = block(
                x,
                attention_mask=mask[:, None, :],
                across_mask=is_apart,
                across_bias=biases[number],
                training=training,
            )
        return x, mask

    def project_context(self, vectors: Any) -> Any:
        """`[…, dim]` or `[…, reduced_dim]` → float32 `[…, encoding_dim]` of length 1."""
        return self._project(vectors, self.encoder.context_side)

    def project_candidate(self, vectors: Any) -> Any:
        """`[…, dim]` or `[…, reduced_dim]` → float32 `[…, encoding_dim]` of length 1."""
        return self._project(vectors, self.encoder.response_side)

    def _project(self, vectors: Any, side: keras.layers.Layer) -> Any:
        *leading, width = ops.shape(vectors)
        flat = ops.reshape(vectors, (-1, width))
        if width != self.encoder.config.reduced_dim:
            flat = ops.tile(flat, (1, self.encoder.config.reduction_heads))
        return ops.reshape(side(flat), (*leading, self.encoder.config.encoding_dim))


@dataclasses.dataclass(frozen=True)
class RankerConfig:
    """What a ranker is, as `config.json` of its checkpoint has it.

    Attributes:
      model: of the trunk.
      head: of the head, with the scale that is used in place of 0.
      trunk: kind of trunk; `convert` is a dual encoder.
    """

    model: Any
    head: HeadConfig
    trunk: str = "convert"

    @property
    def tokenizer(self) -> str:
        """Kind of the vocabulary."""
        return self.model.tokenizer

    def to_json(self) -> str:
        values = {
            "trunk": self.trunk,
            "model": self.model.to_dict(),
            "head": self.head.to_dict(),
        }
        return json.dumps(values, indent=2) + "\n"


class Ranker(keras.Model):
    """A head on a trunk: token ids of contexts and of candidates to scores.

    Bi- and poly-encoders score encoded candidates (`encode_contexts`, `encode_candidates`,
    `score_encoded`), which can be kept; a cross-encoder only scores pairs (`score`).

    A score depends on its context and its candidate alone: not on padding, nor on other rows.

    Args:
      trunk: a `RankerTrunk`.
      head: a `BiHead`, `PolyHead` or `CrossHead`.
      config: what the two were made from.
      candidate_trunk: another trunk of the same kind for candidates; None for one trunk.

    Call arguments:
      inputs: dict of `context_ids` int32 `[B, T]` and `candidate_ids` int32 `[C, T]`, the
        candidates of every context, or `[B, C, T]`, each context's own; or of one of the two.

    Returns:
      `score(…)` for both; `encode_contexts(…)` or `encode_candidates(…)` for one.

    Example:
      ranker = make_ranker(config)
      scores = ranker.score(context_ids, candidate_ids)

    Reference: arXiv 1905.01969 §4.2 to §4.4.
    """

    def __init__(
        self,
        trunk: Any,
        head: keras.layers.Layer,
        *,
        config: RankerConfig,
        candidate_trunk: Any = None,
        **kwargs: Any,
    ):
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

    def _sequence(self, trunk: Any, token_ids: Any, training: bool) -> tuple[Any, Any]:
        sequence, mask = trunk.sequence(token_ids, training=training)
        return self._rescaled(sequence), mask

    def _rescaled(self, sequence: Any) -> Any:
        return sequence * ops.cast(ops.convert_to_tensor(self.output_factor), sequence.dtype)

    def encode_contexts(self, token_ids: Any, *, training: bool = False) -> tuple[Any, Any]:
        """Context vectors: int32 `[B, T]` → `(vectors [B, M, dim], vector_mask bool [B, M])`.

        M may depend on T; masked vectors are never read.

        Raises:
          ValueError: a cross-encoder encodes no context by itself.
        """
        self._refuse_joint()
        vectors, mask = self.head.context_vectors(*self._sequence(self.trunk, token_ids, training))
        return self.trunk.project_context(vectors), mask

    def encode_candidates(self, token_ids: Any, *, training: bool = False) -> Any:
        """Candidate vectors: int32 `[C, T]` → `[C, dim]`.

        Raises:
          ValueError: a cross-encoder encodes no candidate by itself.
        """
        self._refuse_joint()
        trunk = self.candidate_trunk or self.trunk
        vector = self.head.candidate_vector(*self._sequence(trunk, token_ids, training))
        return trunk.project_candidate(vector)

    def _refuse_joint(self) -> None:
        if self.is_joint:
            raise ValueError(
                "A cross-encoder reads contexts and candidates together. Received: a call for "
                "encodings. Call score, or use a bi or poly head."
            )

    def score_encoded(self, vectors: Any, vector_mask: Any, candidates: Any) -> Any:
        """Scores of encoded candidates.

        Args:
          vectors, vector_mask: from `encode_contexts`.
          candidates: from `encode_candidates`, `[C, dim]` or `[B, C, dim]`.

        Returns:
          float32 `[B, C]`.
        """
        return self.head.score_encoded(vectors, vector_mask, candidates)

    def score(self, context_ids: Any, candidate_ids: Any, *, training: bool = False) -> Any:
        """Scores of candidates.

        Args:
          context_ids: int32 `[B, T]`.
          candidate_ids: int32 `[C, T]`, for every context, or `[B, C, T]`, each context's own.
          training: whether dropout and range updates are on.

        Returns:
          float32 `[B, C]`.
        """
        is_shared = len(candidate_ids.shape) == 2
        if self.is_joint:
            own = candidate_ids[None] if is_shared else candidate_ids
            contexts = context_ids[:, None] + ops.zeros_like(own[:, :, :1])
            own = own + ops.zeros_like(context_ids[:, None, :1])
            sequence, mask = self.trunk.joint_sequence(
                _joined_rows(contexts), _joined_rows(own), training=training
            )
            scores = self.head.joint_score(self._rescaled(sequence), mask)
            return ops.reshape(scores, ops.shape(own)[:2])
        vectors, vector_mask = self.encode_contexts(context_ids, training=training)
        flat_ids = candidate_ids if is_shared else _joined_rows(candidate_ids)
        candidates = self.encode_candidates(flat_ids, training=training)
        if not is_shared:
            candidates = ops.reshape(
                candidates, (*ops.shape(candidate_ids)[:2], candidates.shape[-1])
            )
        return self.score_encoded(vectors, vector_mask, candidates)

    def call(self, inputs: dict[str, Any], training: bool = False) -> Any:
        if "candidate_ids" not in inputs:
            return self.encode_contexts(inputs["context_ids"], training=training)
        if "context_ids" not in inputs:
            return self.encode_candidates(inputs["candidate_ids"], training=training)
        return self.score(inputs["context_ids"], inputs["candidate_ids"], training=training)


def _joined_rows(token_ids: Any) -> Any:
    """`[B, C, T]` → `[B * C, T]`."""
    return ops.reshape(token_ids, (-1, ops.shape(token_ids)[-1]))


def make_head(config: HeadConfig, trunk: Any, *, scale: float = 1.0) -> keras.layers.Layer:
    """The head of a configuration; `sqrt_n` is the trunk's own where it has one."""
    shared = trunk.reduction if config.reduction == "sqrt_n" else None
    arguments: dict[str, Any] = {
        "reduction": config.reduction,
        "reduction_tokens": config.reduction_tokens,
        "shared_reduction": shared,
        "dtype": trunk.dtype_policy,
        "name": "head",
    }
    if config.head == "cross":
        return CrossHead(**arguments)
    arguments.update(scale=scale, learn_scale=config.learn_scale)
    if config.head == "bi":
        return BiHead(**arguments)
    return PolyHead(num_codes=config.poly_codes, variant=config.poly_variant, **arguments)


def convert_trunk(
    config: ModelConfig, head: HeadConfig, *, dtype: str = "float32", **dropout: float
) -> ConvertTrunk:
    """A new ConveRT trunk; `dropout` are the rates that `DualEncoder` takes."""
    encoder = DualEncoder(config, dtype=dtype, **dropout)
    return ConvertTrunk(encoder, reads_jointly=head.head == "cross", name="trunk")


def make_ranker(config: RankerConfig, make_trunk: Any = convert_trunk, **options: Any) -> Ranker:
    """A new ranker.

    Args:
      config: what it is.
      make_trunk: `(model, head, **options)` → trunk; that of ConveRT unless told else.
      **options: of `make_trunk`, as dropout rates and `dtype`.

    Returns:
      The ranker, its weights new.

    Raises:
      ValueError: context vectors and candidate vectors would differ in width.
    """
    trunk = make_trunk(config.model, config.head, **options)
    other = (
        make_trunk(config.model, config.head, **options) if config.head.separate_trunks else None
    )
    head = make_head(config.head, trunk, scale=config.head.scale)
    is_widened = config.head.reduction == "sqrt_n" and trunk.reduction is None
    if config.head.head == "poly" and is_widened:
        raise ValueError(
            "The candidates of a poly-encoder must be as wide as one output. Received: the "
            "reduction sqrt_n on a trunk without pre-trained side networks. Use first or mean."
        )
    return Ranker(trunk, head, config=config, candidate_trunk=other, dtype=trunk.dtype_policy)
