"""Ranking metrics, in numpy.

Responses are ranked as in PolyAI's conversational-datasets: examples are grouped into blocks of
100, and each context is scored with all responses in its block. If a wrong response has the same
score as the correct one, the wrong response is ranked first.
"""

from collections.abc import Iterable

import numpy as np

BLOCK_SIZE = 100


def right_ranks(scores: np.ndarray, is_right: np.ndarray) -> np.ndarray:
    """Return the 1-based rank of the highest-scoring correct candidate for each context.

    The rank is 1 plus the number of wrong candidates with the same score or a higher score.

    Args:
      scores: float `[…, candidates]`, the score of each candidate.
      is_right: bool `[…, candidates]`, whether each candidate is correct. At least one candidate of
        each context must be correct.

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
    """Return the average precision for each context. A context may have several correct candidates.

    The precision at a candidate is the share of correct candidates among this candidate and all
    candidates ranked before it. The average precision is the mean of the precisions at the correct
    candidates. A wrong candidate is ranked before a correct one with the same score. If a context
    has a single correct candidate, its average precision is 1 / rank. The mean of the average
    precisions over all contexts is called MAP.

    Args:
      scores: float `[…, candidates]`, the score of each candidate. No score may be NaN.
      is_right: bool `[…, candidates]`, whether each candidate is correct. At least one candidate of
        each context must be correct.

    Returns:
      The average precisions, float64 `[…]`.
    """
    order = np.lexsort((is_right, -scores), axis=-1)
    is_right = np.take_along_axis(is_right, order, axis=-1)
    num_right = is_right.cumsum(axis=-1)
    precisions = num_right / np.arange(1, is_right.shape[-1] + 1)
    return (precisions * is_right).sum(axis=-1) / num_right[..., -1]


def recall_at_k(ranks: np.ndarray, k: int) -> float:
    """Return the share of contexts whose correct candidate is among the first `k`.

    Args:
      ranks: int `[contexts]`, the rank of each context's correct candidate, starting at 1.
      k: largest rank that counts as a hit.

    Reference: arXiv 1911.03688 §3.2.
    """
    return float(np.mean(np.asarray(ranks) <= k))


def mean_reciprocal_rank(ranks: np.ndarray) -> float:
    """Return the mean of 1 / rank. `ranks` are as in `recall_at_k`."""
    return float(np.mean(1.0 / np.asarray(ranks, dtype=np.float64)))


def block_ranks(
    contexts: np.ndarray,
    responses: np.ndarray,
    *,
    block_size: int = BLOCK_SIZE,
    response_groups: np.ndarray | None = None,
) -> np.ndarray:
    """Rank each context's correct response among all responses in its block.

    Candidates are shuffled within each block, so that their order has no influence on the ranks.
    Responses with equal encodings have equal scores. A partial block at the end is dropped.

    Args:
      contexts: the encodings of the contexts, float `[examples, dim]`.
      responses: the encodings of the responses, float `[examples, dim]`. Row i is the correct
        response to context i.
      block_size: number of examples per block.
      response_groups: int `[examples]`, equal numbers for equal responses. Copies of the correct
        response then do not count as wrong. If None, they do.

    Returns:
      The ranks, int64 `[examples // block_size * block_size]`.

    Raises:
      ValueError: if there are too few examples for one block, or an encoding contains NaN.
    """
    if len(contexts) < block_size:
        raise ValueError(
            f"Ranking in blocks of {block_size} needs at least {block_size} examples. "
            f"Received: {len(contexts)} examples. Use more."
        )
    rng = np.random.default_rng(0)
    ranks = []
    for start in range(0, len(contexts) - block_size + 1, block_size):
        block = slice(start, start + block_size)
        order = rng.permutation(block_size)
        candidates = responses[block][order].astype(np.float32)
        scores = contexts[block].astype(np.float32) @ candidates.T
        # The scores of equal candidates may differ by rounding, so they all get the first one's.
        first: dict[bytes, int] = {}
        scores = scores[:, [first.setdefault(row.tobytes(), i) for i, row in enumerate(candidates)]]
        is_right = order == np.arange(block_size)[:, None]
        if response_groups is not None:
            groups = response_groups[block]
            scores[~is_right & (groups[order] == groups[:, None])] = -np.inf
        ranks.append(right_ranks(scores, is_right))
    return np.concatenate(ranks)


def ranking_metrics(
    ranks: np.ndarray,
    *,
    block_size: int | None = BLOCK_SIZE,
    ks: Iterable[int] = (1,),
    precisions: np.ndarray | None = None,
) -> dict[str, float]:
    """Return ranking metrics by name.

    Args:
      ranks: int `[contexts]`, the rank of each context's correct candidate, starting at 1.
      block_size: number of candidates per context, for the names of the recalls. If the number
        varies, pass None; the names are then `R@1` and so on.
      ks: the values of k for which to compute the recall.
      precisions: float `[contexts]`, the average precision of each context. If None, MAP is left
        out.

    Returns:
      A dict with
      - `R100@1` and so on: the recall for each k;
      - `MRR`: the mean reciprocal rank;
      - `MAP`: the mean average precision (only with `precisions`);
      - `examples`: the number of contexts.
    """
    n = "" if block_size is None else block_size
    report: dict[str, float] = {f"R{n}@{k}": recall_at_k(ranks, k) for k in ks}
    report["MRR"] = mean_reciprocal_rank(ranks)
    if precisions is not None:
        report["MAP"] = float(np.mean(precisions))
    return {**report, "examples": len(ranks)}
