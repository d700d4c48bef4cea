"""Padded batches of contexts and their candidates."""

import itertools

import numpy as np
import pytest

from convert_tf.data.packing import TokenIds
from convert_tf.data.ranking_batches import (
    NegativeSampler,
    RankingBatches,
    RankingExamples,
    length_batches,
    padded,
    tokenize_examples,
)
from convert_tf.data.schema import CandidateExample

PADDING = 99


def tokenize(texts, max_tokens, keeps_last) -> TokenIds:
    """Convert each letter to a token."""
    ids = [[ord(c) - ord("a") for c in text.replace(" ", "")] for text in texts]
    ids = [own[-max_tokens:] if keeps_last else own[:max_tokens] for own in ids]
    splits = np.cumsum([0, *map(len, ids)])
    return TokenIds(np.array([i for own in ids for i in own], np.int32), splits)


def texts_of(ids) -> list[str]:
    return ["".join(chr(ord("a") + i) for i in row if i != PADDING) for row in ids]


def make(examples, **kwargs) -> RankingExamples:
    sizes = {"max_context_tokens": 9, "max_candidate_tokens": 5, **kwargs}
    return tokenize_examples(
        [CandidateExample(*example) for example in examples], tokenize, **sizes
    )


@pytest.fixture
def given() -> RankingExamples:
    """Contexts with three wrong candidates each, one with one, and one with two correct ones."""
    return make(
        [
            (("ab", "cd"), ("x", "yy", "zz", "w"), (0,)),
            ((), ("yy", "x"), (1,)),
            (("efgh",), ("p", "q", "r", "s", "t"), (1, 3)),
            (("ij",), ("q", "x", "zz", "w"), (2,)),
            (("k",), ("u", "v", "q", "yy"), (3,)),
        ]
    )


def pairs(number: int) -> RankingExamples:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return make([((letters[i] * (i % 5),), (letters[i] + "z",), (0,)) for i in range(number)])


def test_contexts_keep_their_end_and_candidates_their_beginning():
    made = make([(("abcd", "efghij"), ("abcdefg",), (0,))])
    assert texts_of([made.contexts.flat]) == ["bcdefghij"]
    assert texts_of([made.pool.flat]) == ["abcde"]


def test_equal_candidates_are_kept_once(given):
    assert len(given.pool.row_splits) - 1 == len({"x", "yy", "zz", "w", *"pqrst", *"uv"})
    pool = padded(given.pool, np.arange(len(given.pool.row_splits) - 1), PADDING)
    own = texts_of(pool[given.candidates[3]])
    assert own == ["q", "x", "zz", "w"]


def test_padded_parity_with_loop():
    texts = ["abc", "", "defghijkl"]
    ids = tokenize(texts, 99, False)
    rows = padded(ids, np.array([2, -1, 0, 1]), PADDING)
    assert rows.shape == (4, 16)
    assert rows.dtype == np.int32
    assert texts_of(rows) == ["defghijkl", "", "abc", ""]
    assert padded(ids, np.array([1]), PADDING).shape == (1, 8)
    assert padded(ids, np.array([0]), PADDING, multiple=1).shape == (1, 3)


def test_in_batch_labels_are_the_diagonal_and_twins_are_masked():
    """Contexts with equal correct answers are not negatives of each other."""
    examples = make([(("a",), ("yes",), (0,)), (("b",), ("no",), (0,)), (("c",), ("yes",), (0,))])
    batch = next(iter(RankingBatches(examples, batch_size=3, padding_id=PADDING, seed=0)))
    right = texts_of(batch["candidate_ids"])
    assert batch["labels"].tolist() == [0, 1, 2]
    for i, j in itertools.product(range(3), range(3)):
        assert batch["candidate_mask"][i, j] == (i == j or right[i] != right[j])
    answers = {"a": "yes", "b": "no", "c": "yes"}
    assert [answers[c] for c in texts_of(batch["context_ids"])] == right


@pytest.mark.parametrize("source", ["given", "sampled", "mined"])
def test_drawn_negatives_are_never_right(given, source):
    mined = np.tile(np.arange(6), (5, 1)) if source == "mined" else None
    sampler = NegativeSampler(given, source=source, count=3, mined=mined)
    rights = {"abcd": {"x"}, "": {"x"}, "efgh": {"q", "s"}, "ij": {"zz"}, "k": {"yy"}}
    batches = RankingBatches(given, batch_size=2, padding_id=PADDING, seed=0, sampler=sampler)
    places, seen_right = set(), set()
    for batch in itertools.islice(batches, 60):
        for row in range(2):
            context = texts_of(batch["context_ids"])[row]
            candidates = texts_of(batch["candidate_ids"][row])
            mask, label = batch["candidate_mask"][row], int(batch["labels"][row])
            assert mask[label]
            assert candidates[label] in rights[context]
            wrong = [c for i, c in enumerate(candidates) if mask[i] and i != label]
            assert 1 <= len(wrong) <= 3
            assert len(set(wrong)) == len(wrong)
            assert not rights[context] & set(wrong)
            assert all(not c for i, c in enumerate(candidates) if not mask[i])
            places.add(label)
            seen_right.add((context, candidates[label]))
    assert places == {0, 1, 2, 3}  # the position does not reveal the correct candidate
    assert {("efgh", "q"), ("efgh", "s")} <= seen_right


def test_given_negatives_are_the_contexts_own(given):
    sampler = NegativeSampler(given, source="given", count=15)
    assert sampler.most == 3
    drawn = sampler.draw(0, np.random.default_rng(0))
    assert sorted(drawn) == sorted(given.candidates[0][1:])


def test_every_example_comes_once_an_epoch():
    batches = RankingBatches(pairs(20), batch_size=4, padding_id=PADDING, seed=0)
    assert batches.batches_per_epoch == 5
    seen = [texts_of(b["candidate_ids"]) for b in itertools.islice(batches, 10)]
    for epoch in (seen[:5], seen[5:]):
        assert sorted(itertools.chain(*epoch)) == sorted(
            texts_of(padded(pairs(20).pool, np.arange(20), PADDING))
        )
    assert seen[:5] != seen[5:]


def test_a_run_that_resumes_sees_the_batches_that_were_left(given):
    def batches(skip):
        sampler = NegativeSampler(given, source="sampled", count=2)
        made = RankingBatches(
            given, batch_size=2, padding_id=PADDING, seed=3, sampler=sampler, skip_batches=skip
        )
        return itertools.islice(made, 9 - skip)

    for whole, left in zip(itertools.islice(batches(0), 5, None), batches(5), strict=True):
        for name, value in whole.items():
            np.testing.assert_array_equal(left[name], value)


def test_the_seed_decides_the_order():
    def first(seed):
        batches = RankingBatches(pairs(20), batch_size=4, padding_id=PADDING, seed=seed)
        return texts_of(next(iter(batches))["candidate_ids"])

    assert first(0) == first(0)
    assert first(0) != first(1)


def test_batches_hold_texts_of_similar_length():
    random = np.random.default_rng(0)
    lengths = random.integers(1, 100, size=512)
    flat = np.zeros(lengths.sum(), np.int32)
    contexts = TokenIds(flat, np.concatenate([[0], np.cumsum(lengths)]))
    examples = pairs(1)._replace(
        contexts=contexts, candidates=[np.array([0])] * 512, labels=[np.array([0])] * 512
    )
    batches = RankingBatches(examples, batch_size=32, padding_id=PADDING, seed=0)
    padding = [np.mean(b["context_ids"] == PADDING) for b in itertools.islice(batches, 16)]
    assert np.mean(padding) < 0.25  # a half without sorting by length


def test_fewer_examples_than_a_batch_are_one_batch():
    batches = RankingBatches(pairs(3), batch_size=8, padding_id=PADDING, seed=0)
    assert next(iter(batches))["context_ids"].shape[0] == 3


def test_length_batches():
    parts = list(length_batches(np.array([5, 1, 3, 2]), 3))
    assert [part.tolist() for part in parts] == [[1, 3, 2], [0]]


def test_data_without_wrong_candidates_is_said():
    for source in ("given", "sampled"):
        with pytest.raises(ValueError, match="Context 0 has no wrong candidate"):
            NegativeSampler(pairs(1), source=source, count=3)
    with pytest.raises(ValueError, match="The data has no examples"):
        make([])
