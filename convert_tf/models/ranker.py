"""Rankers: a head on a trunk, from token ids to scores of candidates.

Reference: arXiv 1905.01969 §4; arXiv 1911.03688 §2.1 (the ConveRT trunk).
"""

from typing import Any, Protocol

import keras
from keras import ops

from convert_tf.config.bert import BertConfig
from convert_tf.config.head import HeadConfig
from convert_tf.config.ranker import RankerConfig
from convert_tf.layers.reduction import SqrtNReduction
from convert_tf.models.bert import BertTrunk
from convert_tf.models.heads import BiHead, CrossHead, PolyHead
from convert_tf.models.joint_trunk import ConvertTrunk, make_convert_trunk

RankerHead = BiHead | PolyHead | CrossHead


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

    @property
    def embedding(self) -> keras.layers.Layer: ...

    @property
    def embedding_table(self) -> Any: ...

    @property
    def blocks(self) -> list[keras.layers.Layer]: ...

    @property
    def reduction(self) -> SqrtNReduction | None: ...

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


class RankerModel(keras.Model):
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
        trunk: RankerTrunk,
        head: RankerHead,
        *,
        config: RankerConfig,
        candidate_trunk: RankerTrunk | None = None,
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

    def _sequence(self, trunk: RankerTrunk, token_ids: Any, training: bool) -> tuple[Any, Any]:
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


def make_head(
    config: HeadConfig, trunk: ConvertTrunk | BertTrunk, *, scale: float = 1.0
) -> RankerHead:
    """The head of a configuration; `sqrt_n` is the trunk's own where it has one."""
    shared = trunk.reduction if config.reduction == "sqrt_n" else None
    arguments: dict[str, Any] = {
        "reduction": config.reduction,
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


def _make_trunk(
    config: RankerConfig,
    *,
    dtype: str = "float32",
    embedding_dropout: float = 0.0,
    attention_dropout: float = 0.0,
    quantizer_update_steps: int = 100,
) -> ConvertTrunk | BertTrunk:
    if isinstance(config.model, BertConfig):  # has one drop rate: the larger of the two
        dropout = max(embedding_dropout, attention_dropout)
        return BertTrunk(config.model, dropout=dropout, dtype=dtype, name="trunk")
    return make_convert_trunk(
        config.model,
        config.head,
        dtype=dtype,
        embedding_dropout=embedding_dropout,
        attention_dropout=attention_dropout,
        quantizer_update_steps=quantizer_update_steps,
    )


def make_ranker(config: RankerConfig, **options: Any) -> RankerModel:
    """A new ranker.

    Args:
      config: what it is.
      **options: drop rates (`embedding_dropout`, `attention_dropout`), `quantizer_update_steps` and
        `dtype`.

    Returns:
      The ranker, its weights new.

    Raises:
      ValueError: context vectors and candidate vectors would differ in width.
    """
    trunk = _make_trunk(config, **options)
    other = _make_trunk(config, **options) if config.head.separate_trunks else None
    head = make_head(config.head, trunk, scale=config.head.scale or 1.0)
    if isinstance(trunk, ConvertTrunk):
        reads_reduction = config.head.reduction == "sqrt_n"
        sides = () if config.head.head == "cross" else ("context_side", "response_side")
        trunk.train_only(sides=sides[: 1 if other else 2], reduction=reads_reduction)
        if isinstance(other, ConvertTrunk):
            other.train_only(sides=sides[1:], reduction=False)
    elif isinstance(head, PolyHead) and head.reduce.width(trunk.dim) != trunk.dim:
        raise ValueError(
            "The candidates of a poly-encoder must be as wide as one output. Received: the "
            "reduction sqrt_n on a trunk without side networks. Use first or mean."
        )
    return RankerModel(trunk, head, config=config, candidate_trunk=other, dtype=trunk.dtype_policy)
