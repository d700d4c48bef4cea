"""Compare several rankers on the same examples.

An example has a context, its candidates and the positions of the right ones. Records are ranked in
blocks: each context is compared with all responses of its block, for example its own and 99 wrong
ones. A file of candidates lists the candidates of each context.
"""

import hashlib
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from convert_tf import metrics
from convert_tf.data.candidates import CandidateExample
from convert_tf.data.schema import TurnExample
from convert_tf.ranking.protocol import TextRanker, runs_of_lists
from convert_tf.storage.progress import Progress

ALL = "all"
WITH_HISTORY = "with history"
WITHOUT_HISTORY = "without history"


class GroupedExample(NamedTuple):
    """An example and the groups of examples whose results it belongs to."""

    groups: tuple[str, ...]
    example: CandidateExample


def in_batch_examples(
    conversations: Iterable[TurnExample],
    *,
    block_size: int = metrics.BLOCK_SIZE,
    by_source: bool = False,
    by_history: bool = False,
    seed: int = 0,
) -> Iterator[GroupedExample]:
    """Yield examples whose candidates are the responses of their block.

    The last partial block is dropped. Candidates are shuffled, so that no ranker profits from their
    order.

    Args:
      conversations: examples in the order of the blocks.
      block_size: number of examples in a block, N.
      by_source: whether to make blocks within each source too. Their groups are `source …`.
      by_history: whether contexts of one turn and of several turns are separate groups too.
      seed: seed of the shuffles.
    """
    rng = np.random.default_rng(seed)
    pending: dict[str, list[TurnExample]] = {}
    for conversation in conversations:
        groups = [ALL]
        if by_source:
            groups.append(f"source {conversation.source or 'unknown'}")
        for group in groups:
            block = pending.setdefault(group, [])
            block.append(conversation)
            if len(block) == block_size:
                for example in _block(pending.pop(group), rng):
                    is_divided = by_history and group == ALL
                    yield GroupedExample(_groups(group, example, is_divided), example)


def _block(block: Sequence[TurnExample], rng: np.random.Generator) -> Iterator[CandidateExample]:
    order = rng.permutation(len(block))
    candidates = tuple(block[i].response for i in order)
    for conversation, place in zip(block, np.argsort(order).tolist(), strict=True):
        yield CandidateExample(conversation.turns, candidates, (place,))


def given_examples(
    examples: Iterable[CandidateExample], *, by_history: bool = False, seed: int = 0
) -> Iterator[GroupedExample]:
    """Yield examples that have candidates, with the candidates shuffled.

    Shuffling makes sure that no ranker profits from their order.

    Args:
      examples: result of `convert_tf.data.candidates.read_candidates`.
      by_history: whether contexts of one turn and of several turns are separate groups too.
      seed: seed of the shuffles.
    """
    rng = np.random.default_rng(seed)
    for turns, candidates, labels in examples:
        order = rng.permutation(len(candidates))
        places = np.argsort(order)[list(labels)]
        shuffled = CandidateExample(
            turns, tuple(candidates[i] for i in order), tuple(sorted(places.tolist()))
        )
        yield GroupedExample(_groups(ALL, shuffled, by_history), shuffled)


def _groups(group: str, example: CandidateExample, is_divided: bool) -> tuple[str, ...]:
    if not is_divided:
        return (group,)
    return (group, WITH_HISTORY if len(example.turns) > 1 else WITHOUT_HISTORY)


def best_ranks(ranker: TextRanker, examples: Sequence[CandidateExample]) -> np.ndarray:
    """Return the rank of the best right candidate of each example, from 1.

    Equal candidates of a context are scored once, so that rounding cannot make them differ. For
    ties see `metrics.right_ranks`.

    Args:
      ranker: the ranker.
      examples: the examples. Consecutive examples may share one tuple of candidates.

    Returns:
      int64 `[examples]`.

    Raises:
      ValueError: if the ranker does not return one number for each candidate.
    """
    lists: list[list[str]] = []
    places: list[list[int]] = []
    for run in runs_of_lists([example.candidates for example in examples]):
        candidates = examples[run.start].candidates
        place = {text: i for i, text in enumerate(dict.fromkeys(candidates))}
        lists += [list(place)] * (run.stop - run.start)
        places += [[place[text] for text in candidates]] * (run.stop - run.start)
    scores = ranker.candidate_scores([example.turns for example in examples], lists)
    if [np.shape(row) for row in scores] != [(len(unique),) for unique in lists]:
        raise ValueError(
            f"{ranker.name} returned scores of shape {[np.shape(row) for row in scores[:3]]}, …, "
            f"for {len(lists)} lists. Its candidate_scores must return one score for each "
            "candidate of each context."
        )
    ranks = []
    for row, own, example in zip(scores, places, examples, strict=True):
        is_right = np.isin(np.arange(len(own)), example.labels)
        ranks.append(metrics.right_ranks(np.asarray(row)[own], is_right))
    return np.array(ranks, np.int64)


_CHUNK = 2000  # number of examples that are ranked at a time

Report = dict[str, Any]


class Task(NamedTuple):
    """Examples to rank, and the metrics to compute.

    Attributes:
      examples: an iterable that is read once.
      ks: values of k in R_N@k.
      facts: description of the examples for the report, as JSON values by name.
    """

    examples: Iterable[GroupedExample]
    ks: Sequence[int]
    facts: Mapping[str, Any]


def compare(rankers: Sequence[TextRanker], task: Task) -> Report:
    """Rank the same examples with each ranker, a few thousand examples at a time.

    Args:
      rankers: rankers with different names. A dict `settings` of a ranker is written to its row.
      task: the examples to rank.

    Returns:
      A dict with `task` and `rows`. `task` has the facts of the task, `k` and `examples_sha256`, a
      checksum of the examples that does not depend on the order of candidates. Each row has `name`,
      `settings`, `seconds` and `groups`, with the number of `examples` and the `metrics` of each
      group.

    Raises:
      ValueError: if two rankers have the same name, there are no examples, or scores are not
        numbers.
    """
    names = [ranker.name for ranker in rankers]
    if len(set(names)) < len(names):
        raise ValueError(
            f"Two rows have the same name: {', '.join(names)}. Pass each model once; rows need "
            "different names."
        )
    ranks: list[dict[str, list[int]]] = [{} for _ in rankers]
    lengths: dict[str, set[int]] = {}
    seconds = [0.0] * len(rankers)
    digest = hashlib.sha256()
    examples, previous = iter(task.examples), None
    with Progress("contexts ranked") as progress:
        while chunk := list(itertools.islice(examples, _CHUNK)):
            for groups, example in chunk:
                right = sorted(example.candidates[i] for i in example.labels)
                parts = [list(groups), list(example.turns), right]
                if example.candidates is not previous:
                    parts.append(sorted(example.candidates))
                previous = example.candidates
                digest.update(json.dumps(parts).encode())
                for group in groups:
                    lengths.setdefault(group, set()).add(len(example.candidates))
            for index, ranker in enumerate(rankers):
                before = time.perf_counter()
                found = best_ranks(ranker, [example for _, example in chunk])
                seconds[index] += time.perf_counter() - before
                for (groups, _), rank in zip(chunk, found.tolist(), strict=True):
                    for group in groups:
                        ranks[index].setdefault(group, []).append(rank)
            progress.add(len(chunk))
    if not lengths:
        raise ValueError(
            "There are too few examples for one block of candidates, or none. Use more data or a "
            "smaller --block_size."
        )
    ks = list(task.ks)
    return {
        "task": {**task.facts, "k": ks, "examples_sha256": digest.hexdigest()},
        "rows": [
            {
                "name": ranker.name,
                "settings": ranker.settings,
                "seconds": round(seconds[index], 2),
                "groups": {
                    group: _scores(ranks[index][group], lengths[group], ks)
                    for group in sorted(lengths, key=lambda name: (name != ALL, name))
                },
            }
            for index, ranker in enumerate(rankers)
        ],
    }


def _scores(ranks: list[int], lengths: set[int], ks: Sequence[int]) -> dict[str, Any]:
    length = min(lengths) if len(lengths) == 1 else None
    scores = metrics.ranking_metrics(np.array(ranks), block_size=length, ks=ks)
    return {"examples": scores.pop("examples"), "metrics": scores}
