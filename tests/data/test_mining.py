"""Mining hard negatives, compared with a naive loop, and drawing from mined ones."""

import json

import numpy as np
import pytest

from convert_tf.data import mining
from convert_tf.data.mining import hard_negatives, top_columns
from convert_tf.data.negatives import ARRAY_FILE, FORMAT, HardNegatives
from convert_tf.data.packing import TokenIds


def encodings(count, dim, seed):
    values = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def first_of_equal(numbers):
    return np.array([list(numbers).index(n) for n in numbers], np.int32)


def naive_negatives(contexts, responses, context_groups, response_groups, k, skip, margin):
    """Mine negatives for the last 40 contexts by comparing them with the responses one by one."""
    found = []
    for i in range(len(contexts))[-40:]:
        scores = [float(contexts[i] @ response) for response in responses]
        limit = np.inf if margin is None else scores[i] + margin
        right = {response_groups[j] for j in range(len(contexts))
                 if context_groups[j] == context_groups[i]}  # fmt: skip
        wrong = [j for j in range(len(responses)) if response_groups[j] == j and j not in right]
        wrong.sort(key=lambda j: -scores[j])
        kept = [j for j in wrong[skip:] if scores[j] <= limit][:k]
        found.append(kept + [-1] * (k - len(kept)))
    return np.array(found)


@pytest.mark.parametrize("count", [40, 1500])  # 1500 responses are searched group by group
@pytest.mark.parametrize(("k", "skip", "margin"), [(2, 0, None), (2, 3, None), (2, 3, -0.6)])
def test_search_finds_what_a_naive_loop_finds(monkeypatch, count, k, skip, margin):
    monkeypatch.setattr(mining, "_SCORE_BYTES", 4 * 800 * 11)  # the search has several parts
    random = np.random.default_rng(0)
    context_groups = first_of_equal(random.integers(0, count // 2, count))
    response_groups = first_of_equal(random.integers(0, 2 * count // 3, count))
    contexts = encodings(count, 5, 1)
    responses = encodings(count, 5, 2)[response_groups]  # equal texts have equal encodings
    counted = []
    mined = hard_negatives(
        contexts, responses, context_groups=context_groups, response_groups=7 - response_groups,
        negatives=k, skip_top=skip, margin=margin, count=counted.append,
    )  # fmt: skip
    expected = naive_negatives(
        contexts, responses, context_groups, response_groups, k, skip, margin
    )
    np.testing.assert_array_equal(mined[-40:], expected)
    assert mined.dtype == np.int32
    assert sum(counted) == count
    assert (mined == -1).any() == (margin is not None)


def test_fewer_responses_than_are_wanted():
    groups = np.array([0, 1, 1])
    found = hard_negatives(
        encodings(3, 4, 0), encodings(3, 4, 1), context_groups=np.arange(3),
        response_groups=groups, negatives=70, skip_top=0,
    )  # fmt: skip
    np.testing.assert_array_equal(found[:, :2], [[1, -1], [0, -1], [0, -1]])
    found = hard_negatives(
        encodings(3, 4, 0), encodings(3, 4, 1), context_groups=np.arange(3),
        response_groups=groups, negatives=2, skip_top=200,
    )  # fmt: skip
    assert (found == -1).all()


def test_top_columns_of_equal_scores_come_in_order():
    scores = np.zeros((2, 64), np.float32)
    scores[1, [5, 9, 60]] = 1
    np.testing.assert_array_equal(top_columns(scores, 3)[1], [5, 9, 60])


class Numbers:
    """Replaces token ids: response i is the single token i."""

    num_examples = 50

    def checksum(self, names):
        return "-".join(names)

    def texts(self, name, examples):
        return TokenIds(np.asarray(examples, np.int32), np.arange(len(examples) + 1))


def write_negatives(folder, mined, **changes):
    folder.mkdir(exist_ok=True)
    np.save(folder / ARRAY_FILE, mined.astype(np.int32))
    facts = {
        "version": 1, "split": "train", "examples": 50, "texts_sha256": "context-response",
        "negatives": mined.shape[1], "dtype": "int32", "checkpoint": "runs/x", **changes,
    }  # fmt: skip
    (folder / FORMAT.facts_file).write_text(json.dumps(facts))
    return folder


def opened(folder, per_pair=1, seed=0):
    return HardNegatives(folder, Numbers(), per_pair=per_pair, seed=seed)


@pytest.fixture
def mined():
    """Four negatives for each of 50 examples; example 10 lacks three of them, and 11 has none."""
    numbers = (np.arange(50)[:, None] + [1, 2, 3, 4]) % 50
    numbers[10, 1:] = numbers[11] = -1
    return numbers


def test_negatives_are_drawn_by_seed_epoch_and_example_alone(tmp_path, mined):
    negatives = opened(write_negatives(tmp_path, mined), per_pair=2)
    every, epochs = np.arange(50), np.zeros(50, np.int64)
    drawn = negatives.draw(every, epochs)
    assert drawn.shape == (50, 2)
    usual = np.setdiff1d(every, [10, 11])
    assert all(set(drawn[i]) <= set(mined[i]) and len(set(drawn[i])) == 2 for i in usual)
    assert mined[10, 0] in drawn[10]
    assert ((drawn >= 0) & (drawn < 50)).all()
    mixed = np.random.default_rng(0).permutation(50)
    np.testing.assert_array_equal(negatives.draw(mixed, epochs[mixed]), drawn[mixed])
    np.testing.assert_array_equal(negatives.draw(every[7:9], epochs[7:9]), drawn[7:9])
    assert (negatives.draw(every, epochs + 1) != drawn).any()
    assert (opened(tmp_path, per_pair=2, seed=1).draw(every, epochs) != drawn).any()
    assert opened(tmp_path).draw(every, epochs).shape == (50, 1)
    # These numbers must not change, because resumed runs depend on them.
    np.testing.assert_array_equal(drawn[:3], [[1, 3], [2, 5], [3, 6]])


def test_every_mined_negative_is_drawn_equally_often(tmp_path, mined):
    negatives = opened(write_negatives(tmp_path, mined))
    epochs = np.repeat(np.arange(2000), 2)
    examples = np.tile([3, 4], 2000)
    drawn = negatives.draw(examples, epochs)[:, 0]
    for example in (3, 4):
        counts = np.bincount(drawn[examples == example] - example)[1:]
        assert counts.shape == (4,)
        assert abs(counts - 500).max() < 100  # 5 standard deviations


def test_responses_are_those_of_the_token_ids(tmp_path, mined):
    negatives = opened(write_negatives(tmp_path, mined))
    np.testing.assert_array_equal(negatives.responses(np.array([4, 2])).flat, [4, 2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"examples": 49}, "not mined from these token ids"),
        ({"split": "dev"}, "not mined from these token ids"),
        ({"texts_sha256": "0"}, "not mined from these token ids"),
        ({"version": 2}, "version 2"),
        ({"dtype": "int64"}, "with a wrong value: dtype"),
        ({"negatives": 3}, r"shape \(50, 3\)"),
    ],
)
def test_negatives_of_other_token_ids_are_refused(tmp_path, mined, changes, message):
    with pytest.raises(ValueError, match=message):
        opened(write_negatives(tmp_path, mined, **changes))


def test_damaged_or_too_few_negatives_are_refused(tmp_path, mined):
    with pytest.raises(ValueError, match="negatives_per_pair is 5"):
        opened(write_negatives(tmp_path, mined), per_pair=5)
    mined[20, 0] = 50
    negatives = opened(write_negatives(tmp_path, mined))
    with pytest.raises(ValueError, match=rf"{ARRAY_FILE}' is damaged: its numbers"):
        negatives.draw(np.arange(50), np.zeros(50, np.int64))
    (tmp_path / ARRAY_FILE).unlink()
    with pytest.raises(ValueError, match="incomplete"):
        opened(tmp_path)
    with pytest.raises(ValueError, match=r"Cannot read .*negatives\.json"):
        opened(tmp_path / "nowhere")
