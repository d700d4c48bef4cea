"""Heads that score candidates for contexts: bi-, poly- and cross-encoders.

A head takes the outputs h_1 … h_N of a trunk, `[batch, tokens, dim]`, and the mask of the tokens.
In each row, padding comes last. The trunk can be any network. Heads compute the same values in
training and in inference, so they have no argument `training`.

Reference: arXiv 1905.01969 §4.2 to §4.4, appendices B and C.
"""

from typing import Any

import keras
from keras import ops

from convert_tf.config.ranker import HeadConfig
from convert_tf.layers.reduction import Reduction, SqrtNReduction

_LOWEST = -1e30  # not −∞, because the softmax of a fully masked row would then be NaN


def masked_softmax(scores: Any, mask: Any) -> Any:
    """Return the softmax over the last axis. Masked entries are 0, even in fully masked rows.

    Args:
      scores: logits, `[..., n]`, of any float dtype.
      mask: bool, broadcastable to `scores`; false for masked entries.

    Returns:
      The softmax weights, float32 `[..., n]`.
    """
    scores = ops.where(mask, ops.cast(scores, "float32"), _LOWEST)
    return ops.softmax(scores, axis=-1) * ops.cast(mask, "float32")


def poly_scores(scores: Any, mask: Any) -> Any:
    """Return a poly-encoder's scores, computed only from dot products of its vectors.

    A candidate c attends to the context vectors v_m with weights w = softmax(s), where s_m = v_m·c.
    The score of the candidate is the dot product of c with Σ_m w_m v_m, which equals Σ_m w_m s_m.
    The second sum needs no array of size `[B, C, dim]`.

    Args:
      scores: dot products s of each context vector with each candidate, float32 `[B, M, C]`.
      mask: bool `[B, M]`, true for context vectors that exist; at least one in each row.

    Returns:
      The score of each candidate, float32 `[B, C]`.

    Reference: arXiv 1905.01969 §4.4.
    """
    masked = ops.where(mask[:, :, None], scores, _LOWEST)
    largest = ops.stop_gradient(ops.max(masked, axis=1, keepdims=True))
    exponentials = ops.exp(masked - largest)  # 0 where masked
    return ops.sum(exponentials * scores, axis=1) / ops.sum(exponentials, axis=1)


class _ReducingHead(keras.layers.Layer):
    """Base class of all heads, with a `Reduction`."""

    def __init__(
        self,
        *,
        reduction: str = "first",
        reduction_tokens: int = 64,
        shared_reduction: SqrtNReduction | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.reduce = Reduction(
            reduction,
            num_tokens=reduction_tokens,
            shared=shared_reduction,
            dtype=self.dtype_policy,
            name="reduce",
        )


class _EncodingHead(_ReducingHead):
    """Base class of bi- and poly-encoders, which reduce each candidate to one vector."""

    def __init__(self, *, scale: float = 1.0, learn_scale: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale = scale
        self.learn_scale = learn_scale

    def build(self, sequence_shape: Any, token_mask_shape: Any = None) -> None:
        self.reduce.build(sequence_shape)
        # The logarithm is trained, so that the scale stays positive.
        self.log_scale = self.add_weight(
            shape=(),
            initializer="zeros",
            trainable=self.learn_scale,
            autocast=False,
            name="log_scale",
        )

    def candidate_vector(self, sequence: Any, mask: Any) -> Any:
        """Reduce the trunk's outputs for candidates: `[C, tokens, dim]` → `[C, width]`."""
        return self.reduce(sequence, mask)

    def _products(self, vectors: Any, candidates: Any) -> Any:
        """Return the scaled dot products of vectors and candidates, float32 `[B, M, C]`."""
        vectors, candidates = ops.cast(vectors, "float32"), ops.cast(candidates, "float32")
        batch, codes, dim = ops.shape(vectors)
        if len(candidates.shape) == 2:
            flat = ops.matmul(ops.reshape(vectors, (-1, dim)), ops.transpose(candidates))
            products = ops.reshape(flat, (batch, codes, -1))
        else:
            products = ops.matmul(vectors, ops.swapaxes(candidates, -1, -2))
        return products * (self.scale * ops.exp(ops.convert_to_tensor(self.log_scale)))


class BiHead(_EncodingHead):
    """Bi-encoder: the score is the dot product of one context vector and one candidate vector.

    Masking: see `Reduction`.

    Args:
      reduction: reduction for contexts and candidates, one of `REDUCTIONS`.
      reduction_tokens: number m of outputs that the reduction `first_m_mean` averages.
      scale: factor for the dot products.
      learn_scale: whether to train the factor, starting from `scale`.
      shared_reduction: a `SqrtNReduction` that `sqrt_n` uses instead of a new one.

    Example:
      head = BiHead(reduction="mean")
      head.build((None, None, dim))
      vectors, vector_mask = head.context_vectors(contexts, context_mask)
      scores = head.score_encoded(
          vectors, vector_mask, head.candidate_vector(candidates, candidate_mask))

    Reference: arXiv 1905.01969 §4.2.
    """

    def context_vectors(self, sequence: Any, mask: Any) -> tuple[Any, Any]:
        """Return `(vectors [B, 1, width], vector_mask bool [B, 1])`. The mask is always true."""
        vectors = self.reduce(sequence, mask)[:, None, :]
        return vectors, ops.ones_like(vectors[:, :, 0], dtype="bool")

    def score_encoded(self, vectors: Any, vector_mask: Any, candidates: Any) -> Any:
        """Score encoded candidates.

        Args:
          vectors: vector of each context, `[B, 1, dim]`.
          vector_mask: ignored.
          candidates: vectors of the candidates, `[C, dim]` if all contexts have the same
            candidates, and otherwise `[B, C, dim]`.

        Returns:
          The score of each candidate, float32 `[B, C]`.
        """
        return self._products(vectors, candidates)[:, 0]


class PolyHead(_EncodingHead):
    """Poly-encoder: each candidate attends to m vectors for the context.

    `variant` chooses the m vectors:
      `learnt`: Σ_j softmax_j(c_i·h_j) h_j for each of m learned codes c_i;
      `first_m`: h_1 … h_m;
      `last_m`: h_{N−m+1} … h_N;
      `last_m_and_first`: the last m outputs, and h_1 if it is not among them.
    The attention weights of a candidate are the softmax of its dot products with the m vectors. The
    score of a candidate is its dot product with the weighted sum of the m vectors (`poly_scores`).

    Masking: padding is never read. If N < m, there are only N vectors for `first_m` and `last_m`. A
    context without tokens gets one vector of zeros.

    Args:
      num_codes: the number m of vectors for a context.
      variant: how these vectors are computed, one of `POLY_VARIANTS`.
      reduction: reduction for candidates, one of `REDUCTIONS`.
      reduction_tokens, scale, learn_scale, shared_reduction: see `BiHead`. The scale also
        multiplies the logits of the attention.

    Example:
      head = PolyHead(num_codes=16, variant="first_m", reduction="first")

    Reference: arXiv 1905.01969 §4.4 and appendix C.
    """

    def __init__(self, *, num_codes: int = 64, variant: str = "learnt", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_codes = num_codes
        self.variant = variant

    def build(self, sequence_shape: Any, token_mask_shape: Any = None) -> None:
        super().build(sequence_shape)
        if self.variant == "learnt":
            dim = sequence_shape[-1]
            # After the layer norm, the entries of the outputs are of about unit size. Codes of
            # about unit length therefore give logits around 1, so no softmax is saturated.
            self.codes = self.add_weight(
                shape=(self.num_codes, dim),
                initializer=keras.initializers.RandomNormal(stddev=dim**-0.5),
                name="codes",
            )

    def context_vectors(self, sequence: Any, mask: Any) -> tuple[Any, Any]:
        """Return the m vectors for each context.

        Args:
          sequence: outputs of the trunk for the contexts, `[B, tokens, dim]`.
          mask: bool `[B, tokens]`, true for tokens and false for padding.

        Returns:
          `(vectors [B, M, dim], vector_mask bool [B, M])`. M is `num_codes` for `learnt`, and
          otherwise the smaller of `num_codes` and `tokens`, plus 1 for `last_m_and_first`. Each row
          of the mask has at least one true entry. Masked vectors are zeros.
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
            indices = lengths - count + ops.arange(count, dtype="int32")[None, :]
            is_real = indices >= 0
            vectors = ops.take_along_axis(sequence, ops.maximum(indices, 0)[:, :, None], axis=1)
            if self.variant == "last_m_and_first":
                vectors = ops.concatenate([sequence[:, :1], vectors], axis=1)
                is_real = ops.concatenate([lengths > count, is_real], axis=1)
        vectors = vectors * ops.cast(is_real, vectors.dtype)[:, :, None]
        # An empty context keeps one vector of zeros.
        is_first = ops.arange(ops.shape(is_real)[1])[None, :] == 0
        is_empty = ops.logical_not(ops.any(is_real, axis=1, keepdims=True))
        return vectors, ops.logical_or(is_real, ops.logical_and(is_first, is_empty))

    def score_encoded(self, vectors: Any, vector_mask: Any, candidates: Any) -> Any:
        """Score encoded candidates.

        Args:
          vectors: vectors of the contexts, `[B, M, dim]`.
          vector_mask: bool `[B, M]`, true for vectors to read; at least one in each row.
          candidates: vectors of the candidates, `[C, dim]` if all contexts have the same
            candidates, and otherwise `[B, C, dim]`.

        Returns:
          The score of each candidate, float32 `[B, C]`.
        """
        return poly_scores(self._products(vectors, candidates), vector_mask)


class CrossHead(_ReducingHead):
    """Cross-encoder: the score is a linear function of the reduced outputs for the joint sequence.

    Masking: see `Reduction`.

    Args:
      reduction: reduction of the joint sequence, one of `REDUCTIONS`. The paper uses `first`, the
        output for [S].
      reduction_tokens, shared_reduction: see `BiHead`.

    Example:
      head = CrossHead()
      head.build((None, None, dim))
      scores = head.joint_score(sequence, mask)

    Reference: arXiv 1905.01969 §4.3.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # A bias would be useless, because it would add the same number to all scores.
        self.linear = keras.layers.Dense(1, use_bias=False, dtype="float32", name="linear")

    def build(self, sequence_shape: Any, token_mask_shape: Any = None) -> None:
        self.reduce.build(sequence_shape)
        self.linear.build((None, self.reduce.width(sequence_shape[-1])))

    def joint_score(self, sequence: Any, mask: Any) -> Any:
        """Return the score of each pair, float32 `[pairs]`.

        Args:
          sequence: outputs of the trunk for the joint sequences, `[pairs, tokens, dim]`.
          mask: bool `[pairs, tokens]`, true for tokens and false for padding.
        """
        return self.linear(self.reduce(sequence, mask))[:, 0]


RankerHead = BiHead | PolyHead | CrossHead


def make_head(
    config: HeadConfig, *, shared_reduction: SqrtNReduction | None, dtype: Any
) -> RankerHead:
    """Return an untrained head.

    Args:
      config: configuration of the head.
      shared_reduction: a `SqrtNReduction` to use instead of a new one, as in `BiHead`.
      dtype: precision policy of the head.
    """
    arguments: dict[str, Any] = {
        "reduction": config.reduction,
        "reduction_tokens": config.reduction_tokens,
        "shared_reduction": shared_reduction,
        "dtype": dtype,
        "name": "head",
    }
    if config.head == "cross":
        return CrossHead(**arguments)
    arguments |= {"scale": config.scale or 1.0, "learn_scale": config.learn_scale}
    if config.head == "bi":
        return BiHead(**arguments)
    return PolyHead(num_codes=config.poly_codes, variant=config.poly_variant, **arguments)
