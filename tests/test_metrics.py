"""Ranking metrics against naive loops."""

import numpy as np
import pytest

from convert_tf.metrics import (
    block_ranks,
    mean_reciprocal_rank,
    positive_ranks,
    ranking_metrics,
    recall_at_k,
)


def naive_ranks(scores: np.ndarray, labels: np.ndarray) -> list[int]:
    ranks = []
    for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
        rank = 1
        for column, score in enumerate(row):
            if column != label and score >= row[label]:
                rank += 1
        ranks.append(rank)
    return ranks


def unit_vectors(number: int, dim: int, seed: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((number, dim)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_ranks_equal_a_naive_loop_with_many_ties():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 5, (40, 9)).astype(np.float32)
    labels = rng.integers(0, 9, 40)
    assert positive_ranks(scores, labels).tolist() == naive_ranks(scores, labels)


def test_a_tie_is_a_miss():
    # 3 is tied with another 3 and behind the 4: third of four.
    assert positive_ranks(np.array([[3.0, 4.0, 3.0, 1.0]]), np.array([0])).tolist() == [3]
    # A scorer that gives everything the same score finds nothing.
    constant = np.ones((200, 8), np.float32)
    assert block_ranks(constant, constant).tolist() == [100] * 200


def test_ranks_do_not_depend_on_the_order_of_candidates():
    rng = np.random.default_rng(1)
    scores = rng.standard_normal((30, 12))
    labels = rng.integers(0, 12, 30)
    order = rng.permutation(12)
    shuffled = positive_ranks(scores[:, order], np.argsort(order)[labels])
    np.testing.assert_array_equal(shuffled, positive_ranks(scores, labels))


def test_block_ranks_equal_a_naive_loop_and_drop_the_last_partial_block():
    contexts = unit_vectors(47, 4, 0)
    responses = unit_vectors(47, 4, 1) * 0.5 + contexts * 0.5
    expected = []
    for start in (0, 10, 20, 30):
        for i in range(start, start + 10):
            own = float(contexts[i] @ responses[i])
            others = [j for j in range(start, start + 10) if j != i]
            expected.append(1 + sum(float(contexts[i] @ responses[j]) >= own for j in others))
    ranks = block_ranks(contexts, responses, block_size=10)
    assert ranks.tolist() == expected
    assert len(set(expected)) > 3  # the data is not trivial
    np.testing.assert_array_equal(ranks, block_ranks(contexts, responses, block_size=10, seed=5))


def test_recall_and_mrr_equal_naive_means():
    ranks = np.array([1, 2, 3, 10, 1, 100])
    assert recall_at_k(ranks, 1) == pytest.approx(2 / 6)
    assert recall_at_k(ranks, 3) == pytest.approx(4 / 6)
    expected = sum(1 / r for r in ranks.tolist()) / 6
    assert mean_reciprocal_rank(ranks) == pytest.approx(expected)
    report = ranking_metrics(ranks, block_size=100, ks=(1, 10))
    assert report == {
        "R100@1": pytest.approx(2 / 6),
        "R100@10": pytest.approx(5 / 6),
        "MRR": pytest.approx(expected),
        "examples": 6,
    }


def test_nan_is_refused():
    scores = np.zeros((3, 4))
    scores[1, 2] = np.nan
    with pytest.raises(ValueError, match=r"NaN in 1 of 3 rows"):
        positive_ranks(scores, np.zeros(3, int))


def test_shapes_and_sizes_are_checked():
    with pytest.raises(ValueError, match=r"shapes \(2, 3\) and \(3,\)"):
        positive_ranks(np.zeros((2, 3)), np.zeros(3, int))
    with pytest.raises(ValueError, match=r"at least 100 examples\. Received: 99"):
        block_ranks(np.zeros((99, 2)), np.zeros((99, 2)))
    with pytest.raises(ValueError, match=r"must both be \[examples, dim\]"):
        block_ranks(np.zeros((100, 2)), np.zeros((101, 2)))
