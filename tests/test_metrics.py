"""Ranking metrics compared with naive loops."""

import numpy as np
import pytest

from convert_tf.metrics import (
    average_precisions,
    block_ranks,
    mean_reciprocal_rank,
    ranking_metrics,
    recall_at_k,
    right_ranks,
)


def test_ranks_equal_a_naive_loop_with_many_ties():
    rng = np.random.default_rng(0)
    scores = rng.integers(-3, 3, (200, 9)).astype(float)
    is_right = rng.random((200, 9)) < rng.random((200, 1))
    is_right[:, 4] = True
    expected = []
    for row, right in zip(scores, is_right, strict=True):
        # Find the first correct one after sorting by score, with wrong ones first among equals.
        order = sorted(range(9), key=lambda i, row=row, right=right: (-row[i], right[i]))
        expected.append(1 + min(order.index(i) for i in np.flatnonzero(right)))
    assert right_ranks(scores, is_right).tolist() == expected
    assert right_ranks(scores[0], is_right[0]) == expected[0]


def test_average_precisions_equal_a_naive_loop_with_many_ties():
    rng = np.random.default_rng(1)
    scores = rng.integers(-3, 3, (200, 9)).astype(float)
    is_right = rng.random((200, 9)) < rng.random((200, 1))
    is_right[:, 4] = True
    expected = []
    for row, right in zip(scores, is_right, strict=True):
        order = sorted(range(9), key=lambda i, row=row, right=right: (-row[i], right[i]))
        precisions, seen = [], 0
        for rank, i in enumerate(order, 1):
            if right[i]:
                seen += 1
                precisions.append(seen / rank)
        expected.append(sum(precisions) / len(precisions))
    assert average_precisions(scores, is_right) == pytest.approx(expected)
    assert average_precisions(scores[0], is_right[0]) == pytest.approx(expected[0])
    assert len({round(one, 6) for one in expected}) > 50
    one_right = np.arange(9) == np.arange(200)[:, None] % 9
    assert average_precisions(scores, one_right) == pytest.approx(
        1 / right_ranks(scores, one_right)
    )


def test_a_scorer_that_gives_everything_the_same_score_finds_nothing():
    constant = np.ones((200, 8), np.float32)
    assert block_ranks(constant, constant).tolist() == [100] * 200


def test_block_ranks_equal_a_naive_loop_and_drop_the_last_partial_block():
    contexts, noise = np.random.default_rng(0).standard_normal((2, 47, 4))
    responses = contexts + noise
    expected = []
    for start in (0, 10, 20, 30):
        for i in range(start, start + 10):
            own = contexts[i] @ responses[i]
            others = [j for j in range(start, start + 10) if j != i]
            expected.append(1 + sum(contexts[i] @ responses[j] >= own for j in others))
    assert block_ranks(contexts, responses, block_size=10).tolist() == expected
    assert len(set(expected)) > 3  # the data is not trivial


def test_responses_with_equal_encodings_have_equal_scores():
    """Matrix products may round equal columns differently, so copies were often ranked last."""
    random = np.random.default_rng(0)
    contexts = random.standard_normal((4000, 512)).astype(np.float32)
    distinct = contexts + random.standard_normal(contexts.shape).astype(np.float32)
    blocks = np.arange(4000).reshape(-1, 100)
    copies = np.concatenate([[*block[:50], *block[:50]] for block in blocks])
    ranks = block_ranks(contexts[copies], distinct[copies])
    assert ranks.min() == 2
    # Without copies, the ranks are those of the plain matrix product.
    expected = []
    for block in blocks:
        scores = contexts[block] @ distinct[block].T
        expected += (scores >= np.diagonal(scores)[:, None]).sum(axis=1).tolist()
    assert block_ranks(contexts, distinct).tolist() == expected


def test_copies_of_the_correct_response_do_not_count_as_wrong():
    """A perfect encoder of 20 answers, which 200 questions share."""
    groups = np.random.default_rng(0).integers(0, 20, 200)
    encodings = np.eye(20, dtype=np.float32)[groups]
    assert block_ranks(encodings, encodings).max() > 1
    assert block_ranks(encodings, encodings, response_groups=groups).tolist() == [1] * 200
    # All other responses count, including their copies.
    worst = block_ranks(-encodings, encodings, response_groups=groups)
    expected = [1 + sum(groups[i // 100 * 100 :][:100] != groups[i]) for i in range(200)]
    assert worst.tolist() == expected
    encodings[7] = np.nan
    with pytest.raises(ValueError, match="are NaN"):
        block_ranks(encodings, encodings, response_groups=groups)


def test_recall_and_mrr_equal_naive_means():
    ranks = np.array([1, 2, 3, 10, 1, 100])
    assert recall_at_k(ranks, 3) == pytest.approx(4 / 6)
    expected = sum(1 / r for r in ranks.tolist()) / 6
    assert mean_reciprocal_rank(ranks) == pytest.approx(expected)
    report = ranking_metrics(ranks, block_size=100, ks=(1, 10))
    assert "MAP" not in report
    both = ranking_metrics(ranks, precisions=np.array([0.5, 1.0, 0.0, 0.25, 0.25, 0.4]))
    assert both["MAP"] == pytest.approx(0.4)
    assert report == {
        "R100@1": pytest.approx(2 / 6),
        "R100@10": pytest.approx(5 / 6),
        "MRR": pytest.approx(expected),
        "examples": 6,
    }


def test_scores_that_are_not_numbers_and_too_few_examples_are_refused():
    with pytest.raises(ValueError, match="1 of 2 scores are NaN"):
        right_ranks(np.array([0.0, np.nan]), np.array([True, False]))
    with pytest.raises(ValueError, match=r"at least 100 examples\. Received: 99"):
        block_ranks(np.zeros((99, 2)), np.zeros((99, 2)))
