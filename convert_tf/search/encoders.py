"""Encode contexts and candidates for an index, with encoders, bi-encoders and poly-encoders."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from convert_tf.checkpoints.identity import identity_of
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.released import model_path
from convert_tf.encoding.signatures import SIGNATURES
from convert_tf.ranking.protocol import Turns
from convert_tf.ranking.ranker import EncoderRanker, open_encoder

# The kinds of search: for responses to a context, and for texts that are similar to a given text.
SEARCH_KINDS = [kind for kind, signature in SIGNATURES.items() if signature.queries]


class CandidateEncoder(NamedTuple):
    """Functions that encode contexts and candidates for an index.

    A score is the dot product of the context's vector and the candidate's vector. If a context has
    several vectors, the score is computed as in a poly-encoder (`convert_tf.search.index`). If a
    model multiplies its scores by a factor, `encode_contexts` returns vectors that are already
    multiplied by this factor.

    Attributes:
      fingerprint: a text that differs between encoders with different candidate vectors.
      encode_candidates: function from texts to candidate vectors, float32 `[len(texts), dim]`.
      encode_contexts: function from contexts to a tuple of their vectors, float32 `[B, M, dim]`,
        and a mask, bool `[B, M]`, true for real vectors. The mask is None if all vectors are real.
      name: the name of the encoder in messages, such as `convert_small/3 as a module, kind
        response`.
      logit_scale: the factor by which scores are multiplied to get logits.
    """

    fingerprint: str
    encode_candidates: Callable[[Sequence[str]], np.ndarray]
    encode_contexts: Callable[[Sequence[Turns]], tuple[np.ndarray, np.ndarray | None]]
    name: str = ""
    logit_scale: float = 1.0


def load_encoder(model: str | os.PathLike[str], *, kind: str = "response") -> CandidateEncoder:
    """Open a model to encode contexts and candidates for an index.

    Args:
      model: the folder of a module or run, the name of a released encoder, an `.onnx` file, or the
        run of a ranker with a bi or poly head. A module or run computes in float32.
      kind: `"response"` to search for responses to a context, `"similarity"` to search for texts
        that are similar to a given text.

    Raises:
      ValueError: if the model cannot be opened. If the model has no encodings of this kind, the
        error is raised when texts are encoded.
    """
    if kind not in SEARCH_KINDS:
        raise ValueError(f"kind must be one of {', '.join(SEARCH_KINDS)}. Received: {kind!r}.")
    path = model_path(model)
    identity = identity_of(path)
    weights = identity.fingerprint
    if kind_of(path) is Kind.RANKER:
        if kind != "response":
            raise ValueError(
                f"kind={kind!r} needs a dual encoder, and {path!r} is a ranker. Pass the run or "
                "module of a dual encoder."
            )
        return _ranker_encoder(path, weights)
    ranker = EncoderRanker(open_encoder(path), kinds=(SIGNATURES[kind].queries, kind))
    return CandidateEncoder(
        weights if kind == "response" else f"{weights}-{kind}",  # kinds have different vectors
        ranker.encode_candidates,
        lambda contexts: (ranker.encode_contexts(contexts)[:, None], None),
        f"{identity}, kind {kind}",
        EncoderRanker.logit_scale,
    )


def _ranker_encoder(folder: str, weights: str) -> CandidateEncoder:
    """Return the functions for a ranker with a bi or poly head.

    The head scales dot products by a factor. Context vectors are multiplied by this factor, so that
    scores and attention weights can be computed from plain dot products.
    """
    from convert_tf.ranking.checkpoint import TrainedRanker

    ranker = TrainedRanker(folder)
    if ranker.model.is_joint:
        raise ValueError(
            f"{folder!r} is a cross-encoder, which reads candidates with the context and cannot "
            "encode them alone. Build the cache with a dual encoder, or with a ranker that has a "
            "bi or poly head, and pass the cross-encoder as --rerank_checkpoint, without "
            "--rerank_cache."
        )
    head = ranker.model.head
    factor = np.float32(head.scale * np.exp(np.asarray(head.log_scale)))

    def encode_contexts(contexts: Sequence[Turns]) -> tuple[np.ndarray, np.ndarray]:
        vectors, mask = ranker.encode_contexts(contexts)
        return np.asarray(vectors, np.float32) * factor, np.asarray(mask)

    return CandidateEncoder(
        weights, ranker.encode_candidates, encode_contexts, str(identity_of(folder))
    )
