"""Ranking metrics, in numpy.

Responses are ranked as in PolyAI's conversational-datasets: examples are grouped into blocks of
100, and each context is scored with all responses of its block. A tie with the right response
counts as a miss.
"""

from collections.abc import Iterable

import numpy as np

BLOCK_SIZE = 100


def right_ranks(scores: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """Return the rank of the best right candidate of each context, from 1.

    It is 1 plus the number of wrong candidates with the same or a higher score.

    Args:
      scores: float `[…, candidates]`.
      is_right: bool `[…, candidates]`, true for at least one candidate of each context.

    Returns:
      int64 `[…]`.

    Raises:
      ValueError: if a score is NaN.
    """
    if num_nan := int(np.isnan(scores).sum()):
        raise ValueError(f"{num_nan} of {np.size(scores)} scores are NaN. Check the model.")
    best = np.where(is_right, scores, -np.inf).max(axis=-1, keepdims=True)
    return 1 + (~is_right & (scores >= best)).sum(axis=-1)


def average_precisions(scores: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """Return the average precision of each context, for contexts with several right candidates.

    It is the mean, over the right candidates, of the share of right ones among all candidates down
    to this one. A wrong candidate with the same score comes before a right one. With one right
    candidate it is 1 / rank. The mean over all contexts is called MAP.

    Args:
      scores: float `[…, candidates]`, without NaN.
      is_right: bool `[…, candidates]`, true for at least one candidate of each context.

    Returns:
      float64 `[…]`.
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
      k: largest rank that counts.

    Reference: arXiv 1911.03688 §3.2.
    """
    return float(np.mean(np.asarray(ranks) <= k))


def mean_reciprocal_rank(ranks: np.ndarray) -> float:
    """Return the mean of 1 / rank, where `ranks` is int `[contexts]`, from 1."""
    return float(np.mean(1.0 / np.asarray(ranks, dtype=np.float64)))


def block_ranks(
    contexts: np.ndarray, responses: np.ndarray, *, block_size: int = BLOCK_SIZE
) -> np.ndarray:
    """Return the ranks of the right responses among the responses of their blocks.

    Candidates are shuffled within each block, so that their order has no influence. The last
    partial block is dropped.

    Args:
      contexts: encodings, float `[examples, dim]`.
      responses: encodings, float `[examples, dim]`; row i belongs to context i.
      block_size: number of examples in a block.

    Returns:
      int64 `[examples // block_size * block_size]`.

    Raises:
      ValueError: if there are fewer examples than in one block, or an encoding is NaN.
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
      block_size: number of candidates N, for the names of the recalls. None if it varies: `R@1`.
      ks: the values of k for which to compute the recall.
      precisions: float `[contexts]`, the average precisions; None for no MAP.
    """
    n = "" if block_size is None else block_size
    report: dict[str, float] = {f"R{n}@{k}": recall_at_k(ranks, k) for k in ks}
    report["MRR"] = mean_reciprocal_rank(ranks)
    if precisions is not None:
        report["MAP"] = float(np.mean(precisions))
    return {**report, "examples": len(ranks)}
