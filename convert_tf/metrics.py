"""Ranking metrics, in plain numpy.

The protocol is PolyAI's (conversational-datasets): blocks of 100 examples, the other 99 responses
of the block are the negatives. A tie with the right response is a miss.
"""

from collections.abc import Iterable, Sequence

import numpy as np

BLOCK_SIZE = 100


def positive_ranks(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Rank of the right candidate of each row, from 1; candidates with an equal score count before.

    Args:
      scores: float `[contexts, candidates]`.
      labels: int `[contexts]`, the right candidate's column.

    Returns:
      int64 `[contexts]`.

    Raises:
      ValueError: shapes do not match, or a score is NaN.
    """
    scores = np.asarray(scores)
    labels = np.asarray(labels)
    if scores.ndim != 2 or labels.shape != scores.shape[:1]:
        raise ValueError(
            "scores must be [contexts, candidates] and labels [contexts]. "
            f"Received: shapes {scores.shape} and {labels.shape}."
        )
    is_broken = np.isnan(scores).any(axis=1)
    if is_broken.any():
        raise ValueError(
            f"Scores must be numbers. Received: NaN in {int(is_broken.sum())} of {len(scores)} "
            "rows. Check the encodings they come from."
        )
    own = np.take_along_axis(scores, labels[:, None].astype(np.int64), axis=1)
    return (scores >= own).sum(axis=1)


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's rank correlation, from −1 to 1; equal numbers have the mean of their ranks.

    Args:
      first, second: float `[pairs]`, not all equal.

    Reference: C. Spearman, "The Proof and Measurement of Association between Two Things", 1904.
    """
    ranks = []
    for values in (first, second):
        _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(counts) - (counts - 1) / 2)[places])
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def best_rank(scores: np.ndarray, labels: Sequence[int]) -> int:
    """Rank of the best of several right candidates, from 1.

    It is 1 more than the number of wrong candidates whose score is at least as high; the other
    right ones do not count. So one of the right candidates is among the first k exactly when this
    rank is at most k, and a tie with a wrong candidate is a miss.

    Args:
      scores: float `[candidates]`.
      labels: the right candidates' places, at least one.

    Raises:
      ValueError: a score is NaN, or there is no label.
    """
    scores = np.asarray(scores)
    if scores.ndim != 1 or not len(labels):
        raise ValueError(
            "A rank needs scores [candidates] and the place of a right candidate. "
            f"Received: shape {scores.shape} and {len(labels)} places. Check the example."
        )
    if np.isnan(scores).any():
        raise ValueError(
            f"Scores must be numbers. Received: NaN in {int(np.isnan(scores).sum())} of "
            f"{len(scores)}. Check the model they come from."
        )
    is_right = np.zeros(len(scores), bool)
    is_right[list(labels)] = True
    return 1 + int((scores[~is_right] >= scores[is_right].max()).sum())


def recall_at_k(ranks: np.ndarray, k: int) -> float:
    """Share of contexts whose right candidate is among the first `k`.

    Args:
      ranks: int `[contexts]`, from 1.
      k: how many of the best candidates count.

    Reference: arXiv 1911.03688 §3.2.
    """
    return float(np.mean(np.asarray(ranks) <= k))


def mean_reciprocal_rank(ranks: np.ndarray) -> float:
    """Mean of 1 / rank over contexts; `ranks` is int `[contexts]`, from 1."""
    return float(np.mean(1.0 / np.asarray(ranks, dtype=np.float64)))


def block_ranks(
    context_encodings: np.ndarray,
    response_encodings: np.ndarray,
    *,
    block_size: int = BLOCK_SIZE,
    seed: int = 0,
) -> np.ndarray:
    """Ranks of the right responses among the `block_size` responses of their block.

    Candidates are shuffled within each block, so that no scorer gains from their order; the last
    partial block is dropped.

    Args:
      context_encodings: float `[examples, dim]`.
      response_encodings: float `[examples, dim]`, row i belongs to context i.
      block_size: examples of a block.
      seed: seed of the shuffles.

    Returns:
      int64 `[examples // block_size * block_size]`.

    Raises:
      ValueError: fewer examples than one block, or unequal shapes.
    """
    contexts, responses = np.asarray(context_encodings), np.asarray(response_encodings)
    if contexts.shape != responses.shape or contexts.ndim != 2:
        raise ValueError(
            "Context and response encodings must both be [examples, dim]. "
            f"Received: {contexts.shape} and {responses.shape}."
        )
    if len(contexts) < block_size:
        raise ValueError(
            f"Ranking among {block_size} needs at least {block_size} examples. "
            f"Received: {len(contexts)}. Use more data or a smaller block."
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
    """The usual names: `R100@1` and so on, `MRR`, and the number of `examples`.

    Args:
      ranks: int `[contexts]`, from 1.
      block_size: N of the names; None where contexts have differently many candidates: `R@1`.
      ks: the k of R_N@k.
    """
    n = "" if block_size is None else block_size
    report: dict[str, float] = {f"R{n}@{k}": recall_at_k(ranks, k) for k in ks}
    return {**report, "MRR": mean_reciprocal_rank(ranks), "examples": len(ranks)}
