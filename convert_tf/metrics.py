"""Ranking metrics, in numpy.

Responses are ranked as in PolyAI's conversational-datasets: examples are grouped into blocks of
100, and each context is scored with all responses of its block. A tie with the right response
counts as a miss.
"""

from collections.abc import Iterable, Sequence

import numpy as np

BLOCK_SIZE = 100


def positive_ranks(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the rank of each context's right candidate, from 1. In a tie, it is ranked last.

    Args:
      scores: float `[contexts, candidates]`.
      labels: int `[contexts]`, column of the right candidate.

    Returns:
      int64 `[contexts]`.

    Raises:
      ValueError: if shapes do not match, or a score is NaN.
    """
    scores = np.asarray(scores)
    labels = np.asarray(labels)
    if scores.ndim != 2 or labels.shape != scores.shape[:1]:
        raise ValueError(
            "scores must be [contexts, candidates] and labels [contexts]. "
            f"Received: shapes {scores.shape} and {labels.shape}."
        )
    has_nan = np.isnan(scores).any(axis=1)
    if has_nan.any():
        raise ValueError(
            f"Scores are NaN in {int(has_nan.sum())} of {len(scores)} rows. Check the encodings."
        )
    right_scores = np.take_along_axis(scores, labels[:, None].astype(np.int64), axis=1)
    return (scores >= right_scores).sum(axis=1)


def best_rank(scores: np.ndarray, labels: Sequence[int]) -> int:
    """Return the rank of the best of several right candidates, from 1.

    It is 1 plus the number of wrong candidates with the same or a higher score. Other right
    candidates are ignored.

    Args:
      scores: float `[candidates]`.
      labels: indices of the right candidates, at least one.

    Raises:
      ValueError: if a score is NaN, or there is no label.
    """
    scores = np.asarray(scores)
    if scores.ndim != 1 or not len(labels):
        raise ValueError(
            "scores must be [candidates], and labels must name at least one right candidate. "
            f"Received: shape {scores.shape} and {len(labels)} labels."
        )
    if np.isnan(scores).any():
        raise ValueError(
            f"{int(np.isnan(scores).sum())} of {len(scores)} scores are NaN. Check the model."
        )
    is_right = np.zeros(len(scores), bool)
    is_right[list(labels)] = True
    return 1 + int((scores[~is_right] >= scores[is_right].max()).sum())


def recall_at_k(ranks: np.ndarray, k: int) -> float:
    """Return the share of contexts whose right candidate is among the first `k`.

    Args:
      ranks: int `[contexts]`, from 1.
      k: largest rank that counts.

    Reference: arXiv 1911.03688 §3.2.
    """
    return float(np.mean(np.asarray(ranks) <= k))


def mean_reciprocal_rank(ranks: np.ndarray) -> float:
    """Return the mean of 1 / rank, where `ranks` is int `[contexts]`, from 1."""
    return float(np.mean(1.0 / np.asarray(ranks, dtype=np.float64)))


def block_ranks(
    context_encodings: np.ndarray,
    response_encodings: np.ndarray,
    *,
    block_size: int = BLOCK_SIZE,
    seed: int = 0,
) -> np.ndarray:
    """Return the ranks of the right responses among the responses of their blocks.

    Candidates are shuffled within each block, so that their order has no influence. The last
    partial block is dropped.

    Args:
      context_encodings: float `[examples, dim]`.
      response_encodings: float `[examples, dim]`; row i belongs to context i.
      block_size: number of examples in a block.
      seed: seed of the shuffles.

    Returns:
      int64 `[examples // block_size * block_size]`.

    Raises:
      ValueError: if there are fewer examples than in one block, or shapes differ.
    """
    contexts, responses = np.asarray(context_encodings), np.asarray(response_encodings)
    if contexts.shape != responses.shape or contexts.ndim != 2:
        raise ValueError(
            "Context and response encodings must both be [examples, dim]. "
            f"Received: {contexts.shape} and {responses.shape}."
        )
    if len(contexts) < block_size:
        raise ValueError(
            f"Ranking in blocks of {block_size} needs at least {block_size} examples. "
            f"Received: {len(contexts)}. Use more examples."
        )
    rng = np.random.default_rng(seed)
    ranks = []
    for start in range(0, len(contexts) - block_size + 1, block_size):
        block = slice(start, start + block_size)
        order = rng.permutation(block_size)
        scores = contexts[block].astype(np.float32) @ responses[block][order].astype(np.float32).T
        ranks.append(positive_ranks(scores, np.argsort(order)))
    return np.concatenate(ranks)


def ranking_metrics(
    ranks: np.ndarray, *, block_size: int | None = BLOCK_SIZE, ks: Iterable[int] = (1,)
) -> dict[str, float]:
    """Return recalls (`R100@1` and so on), `MRR` and the number of `examples`.

    Args:
      ranks: int `[contexts]`, from 1.
      block_size: number of candidates N, for the names of the recalls. None if it varies: `R@1`.
      ks: the values of k for which to compute the recall.
    """
    n = "" if block_size is None else block_size
    report: dict[str, float] = {f"R{n}@{k}": recall_at_k(ranks, k) for k in ks}
    return {**report, "MRR": mean_reciprocal_rank(ranks), "examples": len(ranks)}
