"""Heads that score candidates for contexts: bi-, poly- and cross-encoder.

A head stands on the outputs h_1 … h_N of any encoder of tokens, `[batch, tokens, dim]` and their
mask, and knows nothing of how they came about. Real tokens come first in each row, padding last.

Reference: arXiv 1905.01969 §4.2 to §4.4, appendices B and C.
"""

from typing import Any

import keras
from keras import ops

from convert_tf.layers.configured import ConfiguredLayer
from convert_tf.layers.reduction import SqrtNReduction
from convert_tf.layers.text_reduction import Reduction

POLY_VARIANTS = ("learnt", "first_m", "last_m", "last_m_and_first")
MAX_CODES = 360

_LOWEST = -1e30  # −∞ would make NaN of a row without a single real entry


def masked_softmax(scores: Any, mask: Any) -> Any:
    """Softmax over the last axis; masked entries are 0, and so is a row that is masked whole.

    Args:
      scores: `[..., n]`, any float dtype.
      mask: bool, broadcastable to `scores`.

    Returns:
      float32 `[..., n]`.
    """
    scores = ops.where(mask, ops.cast(scores, "float32"), _LOWEST)
    return ops.softmax(scores, axis=-1) * ops.cast(mask, "float32")


def poly_scores(scores: Any, mask: Any) -> Any:
    """Candidate attention and the dot product after it, from the dot products alone.

    The attended context y = Σ_m w_m v_m is read by its dot product with the candidate c only, and
    the logits of w are dot products with that same c. So y·c = Σ_m w_m (v_m·c) = Σ_m w_m s_m with
    w = softmax(s): neither y nor anything else of size `[B, C, dim]` is ever made.

    Args:
      scores: float32 `[B, M, C]`, s: each context vector with each candidate.
      mask: bool `[B, M]`, at least one true in each row.

    Returns:
      float32 `[B, C]`.

    Reference: arXiv 1905.01969 §4.4.
    """
    masked = ops.where(mask[:, :, None], scores, _LOWEST)
    largest = ops.stop_gradient(ops.max(masked, axis=1, keepdims=True))
    exponentials = ops.exp(masked - largest)  # 0 where masked
    return ops.sum(exponentials * scores, axis=1) / ops.sum(exponentials, axis=1)


class _ReducingHead(ConfiguredLayer):
    """What all heads have: a `Reduction`."""

    def __init__(
        self,
        *,
        reduction: str = "first",
        reduction_heads: int = 2,
        reduction_dim: int = 64,
        shared_reduction: SqrtNReduction | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.reduction = reduction
        self.reduction_heads = reduction_heads
        self.reduction_dim = reduction_dim
        self.shared_reduction = shared_reduction
        self.reduce = Reduction(
            reduction,
            num_heads=reduction_heads,
            attention_dim=reduction_dim,
            shared=shared_reduction,
            dtype=self.dtype_policy,
            name="reduce",
        )


class _EncodingHead(_ReducingHead):
    """What bi- and poly-encoder have in common: candidates are reduced to one vector each."""

    def __init__(self, *, scale: float = 1.0, learn_scale: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.scale = scale
        self.learn_scale = learn_scale

    def build(self, sequence_shape: Any, token_mask_shape: Any = None) -> None:
        self.reduce.build(sequence_shape)
        # The logarithm is learned: the scale stays positive and moves by shares of itself.
        self.log_scale = self.add_weight(
            shape=(),
            initializer="zeros",
            trainable=self.learn_scale,
            autocast=False,
            name="log_scale",
        )

    def candidate_vector(self, sequence: Any, mask: Any) -> Any:
        """Outputs for candidates `[C, tokens, dim]` → `[C, width]`."""
        return self.reduce(sequence, mask)

    def _products(self, vectors: Any, candidates: Any) -> Any:
        """Scaled dot products: float32 `[B, M, C]`."""
        vectors, candidates = ops.cast(vectors, "float32"), ops.cast(candidates, "float32")
        batch, codes, dim = ops.shape(vectors)
        if len(candidates.shape) == 2:
            flat = ops.matmul(ops.reshape(vectors, (-1, dim)), ops.transpose(candidates))
            products = ops.reshape(flat, (batch, codes, -1))
        else:
            products = ops.matmul(vectors, ops.swapaxes(candidates, -1, -2))
        return products * (self.scale * ops.exp(ops.convert_to_tensor(self.log_scale)))


class BiHead(_EncodingHead):
    """Bi-encoder: one vector for the context, one for the candidate, their dot product.

    Masking: see `Reduction`.

    Args:
      reduction: one of `REDUCTIONS`, for contexts and candidates.
      reduction_heads, reduction_dim: of `sqrt_n`.
      scale: factor of the dot products.
      learn_scale: whether the factor is trained, starting from `scale`.
      shared_reduction: a `SqrtNReduction` that `sqrt_n` uses in place of an own one.

    Call arguments:
      sequence: `[B, tokens, dim]`.
      token_mask: bool `[B, tokens]`, true where there is a token.

    Returns:
      What `context_vectors` returns.

    Example:
      head = BiHead(reduction="mean")
      vectors, vector_mask = head(contexts, context_mask)
      scores = head.score_encoded(
          vectors, vector_mask, head.candidate_vector(candidates, candidate_mask))

    Reference: arXiv 1905.01969 §4.2.
    """

    def context_vectors(self, sequence: Any, mask: Any) -> tuple[Any, Any]:
        """Outputs for contexts → `(vectors [B, 1, width], vector_mask bool [B, 1], all true)`."""
        vectors = self.reduce(sequence, mask)[:, None, :]
        return vectors, ops.ones_like(vectors[:, :, 0], dtype="bool")

    def call(self, sequence: Any, token_mask: Any) -> tuple[Any, Any]:
        return self.context_vectors(sequence, token_mask)

    def score_encoded(self, vectors: Any, vector_mask: Any, candidates: Any) -> Any:
        """Scores of encoded candidates.

        Args:
          vectors: `[B, 1, dim]`.
          vector_mask: bool `[B, 1]`; all true, not read.
          candidates: `[C, dim]`, for every context, or `[B, C, dim]`, each context's own.

        Returns:
          float32 `[B, C]`.
        """
        return self._products(vectors, candidates)[:, 0]


class PolyHead(_EncodingHead):
    """Poly-encoder: m vectors for the context, over which each candidate attends.

    The m vectors are (`variant`):
      `learnt`: Σ_j softmax_j(c_i·h_j) h_j for each of m learned codes c_i;
      `first_m`: h_1 … h_m;
      `last_m`: h_{N−m+1} … h_N;
      `last_m_and_first`: these and h_1, which counts once where it is among them.
    A candidate's attention weights are the softmax of its dot products with them; the score is its
    dot product with their weighted sum (`poly_scores`).

    Masking: codes read real outputs only; where N < m, `first_m` and `last_m` have N vectors. A
    context without tokens has zeros as its vector, as with every reduction.

    Args:
      num_codes: m, from 1 to 360.
      variant: one of `POLY_VARIANTS`.
      reduction: one of `REDUCTIONS`, for the candidates.
      reduction_heads, reduction_dim, scale, learn_scale, shared_reduction: see
        `BiHead`. The factor multiplies the logits of the attention, too.

    Call arguments, returns: see `context_vectors`.

    Raises:
      ValueError: no such variant, or m out of range.

    Example:
      head = PolyHead(num_codes=16, variant="first_m", reduction="first")

    Reference: arXiv 1905.01969 §4.4 and appendix C.
    """

    def __init__(self, *, num_codes: int = 64, variant: str = "learnt", **kwargs: Any):
        super().__init__(**kwargs)
        if variant not in POLY_VARIANTS:
            raise ValueError(
                f"variant must be one of {', '.join(POLY_VARIANTS)}. Received: {variant!r}. "
                "Choose one of them."
            )
        if not 1 <= num_codes <= MAX_CODES:
            raise ValueError(
                f"num_codes must be from 1 to {MAX_CODES}. Received: {num_codes}. "
                "Choose a number in that range."
            )
        self.num_codes = num_codes
        self.variant = variant

    def build(self, sequence_shape: Any, token_mask_shape: Any = None) -> None:
        super().build(sequence_shape)
        if self.variant == "learnt":
            dim = sequence_shape[-1]
            # Of about unit length, as the outputs' entries are of unit size after a layer norm:
            # logits then start around 1 and no code is saturated.
            self.codes = self.add_weight(
                shape=(self.num_codes, dim),
                initializer=keras.initializers.RandomNormal(stddev=dim**-0.5),
                name="codes",
            )

    def context_vectors(self, sequence: Any, mask: Any) -> tuple[Any, Any]:
        """The m context vectors.

        Args:
          sequence: `[B, tokens, dim]`.
          mask: bool `[B, tokens]`.

        Returns:
          `(vectors [B, M, dim], vector_mask bool [B, M])`. M is `num_codes` for `learnt`; else the
          lesser of `num_codes` and `tokens`, plus 1 for `last_m_and_first`. Each row of the mask
          has a true entry; masked vectors are zeros.
        """
        if self.variant == "learnt":
            weights = masked_softmax(
                ops.matmul(self.codes, ops.swapaxes(sequence, -1, -2)), mask[:, None, :]
            )
            vectors = ops.matmul(ops.cast(weights, sequence.dtype), sequence)
            return vectors, ops.ones_like(vectors[:, :, 0], dtype="bool")
        vectors, is_real = sequence[:, : self.num_codes], mask[:, : self.num_codes]
        if self.variant != "first_m":
            count = ops.shape(vectors)[1]
            lengths = ops.sum(ops.cast(mask, "int32"), axis=1, keepdims=True)
            places = lengths - count + ops.arange(count, dtype="int32")[None, :]
            is_real = places >= 0
            vectors = ops.take_along_axis(sequence, ops.maximum(places, 0)[:, :, None], axis=1)
            if self.variant == "last_m_and_first":
                vectors = ops.concatenate([sequence[:, :1], vectors], axis=1)
                is_real = ops.concatenate([lengths > count, is_real], axis=1)
        vectors = vectors * ops.cast(is_real, vectors.dtype)[:, :, None]
        # An empty context: its zeros count as its one vector.
        is_first = ops.arange(ops.shape(is_real)[1])[None, :] == 0
        is_empty = ops.logical_not(ops.any(is_real, axis=1, keepdims=True))
        return vectors, ops.logical_or(is_real, ops.logical_and(is_first, is_empty))

    def call(self, sequence: Any, token_mask: Any) -> tuple[Any, Any]:
        return self.context_vectors(sequence, token_mask)

    def score_encoded(self, vectors: Any, vector_mask: Any, candidates: Any) -> Any:
        """Scores of encoded candidates.

        Args:
          vectors: `[B, M, dim]`.
          vector_mask: bool `[B, M]`, at least one true in each row.
          candidates: `[C, dim]`, for every context, or `[B, C, dim]`, each context's own.

        Returns:
          float32 `[B, C]`.
        """
        return poly_scores(self._products(vectors, candidates), vector_mask)


class CrossHead(_ReducingHead):
    """Cross-encoder: a number from the outputs for a context and a candidate read together.

    Masking: see `Reduction`.

    Args:
      reduction: one of `REDUCTIONS`; `first`, the output for [S], in the paper.
      reduction_heads, reduction_dim, shared_reduction: see `BiHead`.

    Call arguments:
      sequence: `[pairs, tokens, dim]`, outputs for the joint sequences.
      token_mask: bool `[pairs, tokens]`, true where there is a token.

    Returns:
      float32 `[pairs]`.

    Example:
      scores = CrossHead()(sequence, mask)

    Reference: arXiv 1905.01969 §4.3.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        # Without a bias: it would add the same to every candidate of a context.
        self.linear = keras.layers.Dense(1, use_bias=False, dtype="float32", name="linear")

    def build(self, sequence_shape: Any, token_mask_shape: Any = None) -> None:
        self.reduce.build(sequence_shape)
        self.linear.build((None, self.reduce.width(sequence_shape[-1])))

    def joint_score(self, sequence: Any, mask: Any) -> Any:
        """float32 `[pairs]`."""
        return self.linear(self.reduce(sequence, mask))[:, 0]

    def call(self, sequence: Any, token_mask: Any) -> Any:
        return self.joint_score(sequence, token_mask)
