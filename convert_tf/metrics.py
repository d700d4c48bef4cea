"""Ranking metrics, in numpy.

Responses are ranked as in PolyAI's conversational-datasets: examples are grouped into blocks of
100, and each context is scored with all responses of its block. A tie with the right response
counts as a miss.
"""

from collections.abc import Iterable

import numpy as np

BLOCK_SIZE = 100


def right_ranks(scores: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """Return the rank, from 1, of the best right candidate for each context.

    The rank is 1 plus the number of wrong candidates with the same or a higher score.

    Args:
      scores: float `[…, candidates]`, one score for each candidate.
      is_right: bool `[…, candidates]`, true for at least one candidate of each context.

    Returns:
      The ranks, int64 `[…]`.

    Raises:
      ValueError: if a score is NaN.
    """
    if num_nan := int(np.isnan(scores).sum()):
        raise ValueError(f"{num_nan} of {np.size(scores)} scores are NaN. Check the model.")
    best = np.where(is_right, scores, -np.inf).max(axis=-1, keepdims=True)
    return 1 + (~is_right & (scores >= best)).sum(axis=-1)


def average_precisions(scores: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """Return the average precision for each context, which may have several right candidates.

    The precision at a candidate is the share of right candidates among those ranked down to it. The
    average precision is the mean of the precisions at the right candidates. A wrong candidate is
    ranked before a right one with the same score. With a single right candidate, the average
    precision is 1 / rank. The mean over all contexts is called MAP.

    Args:
      scores: float `[…, candidates]`, without NaN.
      is_right: bool `[…, candidates]`, true for at least one candidate of each context.

    Returns:
      The average precisions, float64 `[…]`.
    """
    order = np.lexsort((is_right, -scores), axis=-1)
    is_right = np.take_along_axis(is_right, order, axis=-1)
    num_right = is_right.cumsum(axis=-1)
    precisions = num_right / np.arange(1, is_right.shape[-1] + 1)
    return (precisions * is_right).sum(axis=-1) / num_right[..., -1]


def recall_at_k(ranks: np.ndarray, k: int) -> float:
    """Return the share of contexts whose right candidate is among the first `k`.

    Args:
      ranks: int `[contexts]`, from 1.
      k: largest rank that counts as a hit.

    Reference: arXiv 1911.03688 §3.2.
    """
    return float(np.mean(np.asarray(ranks) <= k))


def mean_reciprocal_rank(ranks: np.ndarray) -> float:
    """Return the mean of 1 / rank, where `ranks` is int `[contexts]`, from 1."""
    return float(np.mean(1.0 / np.asarray(ranks, dtype=np.float64)))


def block_ranks(
    contexts: np.ndarray, responses: np.ndarray, *, block_size: int = BLOCK_SIZE
) -> np.ndarray:
    """Rank each context's right response among all responses in its block.

    Candidates are shuffled within each block, so that their order has no influence. The last
    partial block is dropped.

    Args:
      contexts: context encodings, float `[examples, dim]`.
      responses: response encodings, float `[examples, dim]`. Row i is the right response to context
        i.
      block_size: number of examples per block.

    Returns:
      The ranks, int64 `[examples // block_size * block_size]`.

    Raises:
      ValueError: if there are too few examples for one block, or an encoding contains NaN.
    """
    if len(contexts) < block_size:
        raise ValueError(
            f"Ranking in blocks of {block_size} needs at least {block_size} examples. "
            f"Received: {len(contexts)}. Use more examples."
        )
    rng = np.random.default_rng(0)
    ranks = []
    for start in range(0, len(contexts) - block_size + 1, block_size):
        block = slice(start, start + block_size)
        order = rng.permutation(block_size)
        scores = contexts[block].astype(np.float32) @ responses[block][order].astype(np.float32).T
        ranks.append(right_ranks(scores, order == np.arange(block_size)[:, None]))
    return np.concatenate(ranks)


def ranking_metrics(
    ranks: np.ndarray,
    *,
    block_size: int | None = BLOCK_SIZE,
    ks: Iterable[int] = (1,),
    precisions: np.ndarray | None = None,
) -> dict[str, float]:
    """Return recalls (`R100@1` and so on), `MRR`, `MAP` and the number of `examples`.

    Args:
      ranks: int `[contexts]`, from 1.
      block_size: number of candidates N per context, for the names of the recalls. If it varies,
        pass None; the names are then `R@1` and so on.
      ks: the values of k for which to compute the recall.
      precisions: float `[contexts]`, the average precisions; None for no MAP.
    """
    n = "" if block_size is None else block_size
    report: dict[str, float] = {f"R{n}@{k}": recall_at_k(ranks, k) for k in ks}
    report["MRR"] = mean_reciprocal_rank(ranks)
    if precisions is not None:
        report["MAP"] = float(np.mean(precisions))
    return {**report, "examples": len(ranks)}
