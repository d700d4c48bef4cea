"""Several rankers on the same examples.

Whatever the data, an example is a context with its candidates and the places of the right ones.
Records become examples in blocks: the responses of a block are the candidates of each of its
contexts (the other 99 of 100 are the negatives). A file of given candidates has its own.
"""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from convert_tf import metrics
from convert_tf.data.candidates import CandidateExample
from convert_tf.data.schema import TurnExample
from convert_tf.ranking.protocol import TextRanker
from convert_tf.storage.progress import Progress

ALL = "all"
WITH_HISTORY = "with history"
WITHOUT_HISTORY = "without history"


class GroupedExample(NamedTuple):
    """An example and the groups in whose scores it counts."""

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
    """Ranks each response among the responses of its block; partial blocks at the end are dropped.

    Candidates are shuffled, so that no scorer gains from their order.

    Args:
      conversations: in the order in which they make blocks.
      block_size: N, examples of a block.
      by_source: whether there are also blocks within each source, in groups `source …`.
      by_history: whether `all` is divided into contexts of one turn and of several.
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
    """Given candidates in an order that is shuffled, so that no scorer gains from it.

    Args:
      examples: as `convert_tf.data.candidates.read_candidates` gives them.
      by_history: whether `all` is divided into contexts of one turn and of several.
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
    """The rank of the best of the right candidates of each example, from 1; int64 `[examples]`.

    Each text is scored once for a context, so that equal candidates are tied whatever a ranker's
    rounding; `metrics.best_rank` says what ties are worth.

    Args:
      ranker: what scores.
      examples: neighbours that share candidates have the same tuple.

    Raises:
      ValueError: the ranker's scores are not one for each candidate, or not numbers.
    """
    lists: list[list[str]] = []
    places: list[list[int]] = []
    previous: CandidateExample | None = None
    for example in examples:
        if previous is None or example.candidates is not previous.candidates:
            place = {text: i for i, text in enumerate(dict.fromkeys(example.candidates))}
            unique, own = list(place), [place[text] for text in example.candidates]
        lists.append(unique)
        places.append(own)
        previous = example
    scores = ranker.candidate_scores([example.turns for example in examples], lists)
    if [np.shape(row) for row in scores] != [(len(unique),) for unique in lists]:
        raise ValueError(
            f"{ranker.name} returned scores of shape {[np.shape(row) for row in scores[:3]]}, …, "
            f"for {len(lists)} lists. Its candidate_scores must return one score for each "
            "candidate of each context."
        )
    return np.array(
        [
            metrics.best_rank(np.asarray(row)[own], example.labels)
            for row, own, example in zip(scores, places, examples, strict=True)
        ],
        np.int64,
    )


_CHUNK = 2000  # examples that a ranker gets at a time

Report = dict[str, Any]


class Task(NamedTuple):
    """Examples to rank, and how to score the rankings.

    Attributes:
      examples: read once.
      ks: the k of R_N@k.
      facts: what the examples are, JSON values by name, for the report.
    """

    examples: Iterable[GroupedExample]
    ks: Sequence[int]
    facts: Mapping[str, Any]


def compare(rankers: Sequence[TextRanker], task: Task) -> Report:
    """Ranks the same examples with each ranker; memory holds some thousand of them.

    Args:
      rankers: with different names. An attribute `settings`, a dict, goes into the row.
      task: the examples to rank.

    Returns:
      `task`, its facts with `k` and `examples_sha256`, of all texts, groups and right candidates,
      whatever the order of candidates; and `rows`, each with `name`, `settings`, `seconds` and
      `groups`: for each group its `examples` and `metrics`.

    Raises:
      ValueError: two rankers have one name, there is no example, or scores are not numbers.
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
    with Progress("contexts ranked") as progress:
        for chunk in _chunks(task.examples, _CHUNK):
            _update(digest, chunk)
            for groups, example in chunk:
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
        raise ValueError("The data hold no example to rank. Use other data.")
    ks = list(task.ks)
    return {
        "task": {**task.facts, "k": ks, "examples_sha256": digest.hexdigest()},
        "rows": [
            {
                "name": ranker.name,
                "settings": dict(getattr(ranker, "settings", {})),
                "seconds": round(seconds[index], 2),
                "groups": {
                    group: _scores(ranks[index][group], lengths[group], ks)
                    for group in sorted(lengths, key=lambda name: (name != ALL, name))
                },
            }
            for index, ranker in enumerate(rankers)
        ],
    }


def _chunks(examples: Iterable[GroupedExample], size: int) -> Iterator[list[GroupedExample]]:
    chunk: list[GroupedExample] = []
    for grouped in examples:
        is_new_list = not chunk or grouped.example.candidates is not chunk[-1].example.candidates
        if len(chunk) >= size and is_new_list:
            yield chunk
            chunk = []
        chunk.append(grouped)
    if chunk:
        yield chunk


def _update(digest: Any, chunk: Sequence[GroupedExample]) -> None:
    previous: Any = None
    for groups, example in chunk:
        right = sorted(example.candidates[i] for i in example.labels)
        parts = [list(groups), list(example.turns), right]
        if example.candidates is not previous:
            parts.append(sorted(example.candidates))
        previous = example.candidates
        digest.update(json.dumps(parts).encode())


def _scores(ranks: list[int], lengths: set[int], ks: Sequence[int]) -> dict[str, Any]:
    length = lengths.copy().pop() if len(lengths) == 1 else None
    scores = metrics.ranking_metrics(np.array(ranks), block_size=length, ks=ks)
    return {"examples": scores.pop("examples"), "metrics": scores}
