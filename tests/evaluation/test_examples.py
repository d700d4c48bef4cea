"""What is ranked, and the ranks, against naive loops and by hand."""

from typing import NamedTuple

import numpy as np
import pytest

from convert_tf.data.candidates import CandidateExample
from convert_tf.evaluation.compare import (
    ALL,
    WITH_HISTORY,
    WITHOUT_HISTORY,
    best_ranks,
    given_examples,
    in_batch_examples,
)


class Talk(NamedTuple):
    turns: tuple[str, ...]
    response: str
    source: str = ""


class LetterRanker:
    """Counts the letters that the last turn and a candidate share."""

    name = "letters"

    def __init__(self):
        self.calls = []

    def candidate_scores(self, contexts, candidate_lists):
        self.calls.append((list(contexts), list(candidate_lists)))
        return [
            np.array([float(shared(turns[-1] if turns else "", c)) for c in candidates])
            for turns, candidates in zip(contexts, candidate_lists, strict=True)
        ]


def shared(left, right):
    return len({*left} & {*right})


def talks(number, *, seed=0):
    rng = np.random.default_rng(seed)

    def word():
        return "".join(rng.choice(list("abcdefgh"), 4))

    return [
        Talk(tuple(word() for _ in range(1 + i % 3)), word(), ("a", "b", "")[i % 5 % 3])
        for i in range(number)
    ]


def test_blocks_hold_each_response_for_each_context():
    data = talks(47)
    found = list(in_batch_examples(data, block_size=10))
    assert len(found) == 40  # without the last partial block
    for i, (groups, example) in enumerate(found):
        block = data[i // 10 * 10 : i // 10 * 10 + 10]
        assert groups == (ALL,)
        assert example.turns == data[i].turns
        assert [example.candidates[place] for place in example.labels] == [data[i].response]
        assert sorted(example.candidates) == sorted(talk.response for talk in block)
        assert example.candidates is found[i // 10 * 10].example.candidates
    # Shuffled: neither in the order of the contexts nor the same in each block.
    places = [example.labels[0] for _, example in found]
    assert places[:10] != list(range(10))
    assert places[:10] != places[10:20]


def test_groups_of_blocks():
    data = talks(60)
    found = list(in_batch_examples(data, block_size=10, by_source=True, by_history=True))
    sources = {"source a": "a", "source b": "b", "source unknown": ""}
    for group, source in sources.items():
        own = [talk for talk in data if talk.source == source]
        grouped = [example for groups, example in found if groups == (group,)]
        assert [example.turns for example in grouped] == [
            talk.turns for talk in own[: len(own) // 10 * 10]
        ]
        for example in grouped:
            assert {*example.candidates} <= {talk.response for talk in own}
    overall = [(groups, example) for groups, example in found if ALL in groups]
    assert len(overall) == 60
    for groups, example in overall:
        assert groups[1:] == ((WITH_HISTORY if len(example.turns) > 1 else WITHOUT_HISTORY),)
    plain = list(in_batch_examples(data, block_size=10))
    assert [example.turns for _, example in plain] == [example.turns for _, example in overall]


def naive_block_ranks(data, block_size):
    ranks = []
    for start in range(0, len(data) - block_size + 1, block_size):
        block = data[start : start + block_size]
        for own in block:
            score = shared(own.turns[-1], own.response)
            others = [talk for talk in block if talk is not own]
            ranks.append(1 + sum(shared(own.turns[-1], talk.response) >= score for talk in others))
    return ranks


@pytest.mark.parametrize("seed", [0, 1])
def test_ranks_of_blocks_equal_naive_ones(seed):
    data = [*talks(38), *talks(2)]  # two responses are there twice, in one block
    data[25] = data[25]._replace(response=data[24].response)
    examples = [e for _, e in in_batch_examples(data, block_size=10, seed=seed)]
    assert best_ranks(LetterRanker(), examples).tolist() == naive_block_ranks(data, 10)


def test_equal_candidates_are_tied_whatever_the_rounding():
    """A scorer that gives the same text another score at another place."""

    class Noisy(LetterRanker):
        def candidate_scores(self, contexts, candidate_lists):
            plain = super().candidate_scores(contexts, candidate_lists)
            return [scores + 1e-7 * np.arange(len(scores)) for scores in plain]

    example = CandidateExample(("ab",), ("c", "ab", "ab", "d"), (1,))
    other = example._replace(labels=(2,))
    ranker = Noisy()
    assert best_ranks(ranker, [example, other]).tolist() == [2, 2]
    (_, lists) = ranker.calls[0]
    assert lists[0] is lists[1]
    assert lists[0] == ["c", "ab", "d"]


def test_a_scorer_that_prefers_places_gains_nothing():
    class First(LetterRanker):
        def candidate_scores(self, contexts, candidate_lists):
            return [-np.arange(len(candidates), dtype=float) for candidates in candidate_lists]

    data = [Talk((str(i),), f"r{i}") for i in range(2000)]
    examples = [e for _, e in in_batch_examples(data)]
    assert np.mean(best_ranks(First(), examples) == 1) == 0.01  # one of each block
    given = [CandidateExample(("x",), ("right", "b", "c", "d"), (0,))] * 400
    ranks = best_ranks(First(), [e for _, e in given_examples(given)])
    assert 0.15 < np.mean(ranks == 1) < 0.35


def test_given_candidates_keep_their_labels():
    examples = [
        CandidateExample(("a",), ("x", "y", "x", "z"), (1, 2)),
        CandidateExample((), ("only",), (0,)),
        CandidateExample(("b", "c"), ("p", "q"), (1,)),
    ]
    found = list(given_examples(examples * 20, by_history=True))
    for (groups, example), given in zip(found, examples * 20, strict=True):
        assert sorted(example.candidates) == sorted(given.candidates)
        right = sorted(example.candidates[i] for i in example.labels)
        assert right == sorted(given.candidates[i] for i in given.labels)
        assert groups == (ALL, WITH_HISTORY if len(given.turns) > 1 else WITHOUT_HISTORY)
    assert len({example.candidates for _, example in found[::3]}) > 3
    assert next(given_examples(examples)).groups == (ALL,)


@pytest.mark.parametrize("scores", [[], [np.zeros(1)], [np.zeros(2)] * 2, [np.zeros((1, 2))]])
def test_scores_that_are_not_one_for_each_candidate(scores):
    class Wrong(LetterRanker):
        def candidate_scores(self, contexts, candidate_lists):
            return scores

    with pytest.raises(ValueError, match="one score for each candidate"):
        best_ranks(Wrong(), [CandidateExample(("a",), ("x", "y"), (0,))])
