"""Several rankers on the same examples."""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from convert_tf import metrics
from convert_tf.evaluation.examples import ALL, GroupedExample, best_ranks
from convert_tf.ranking.protocol import TextRanker
from convert_tf.storage.progress import Progress

_CHUNK = 2000  # examples that a ranker gets at a time

Report = dict[str, Any]


def compare(
    rankers: Sequence[TextRanker],
    examples: Iterable[GroupedExample],
    *,
    ks: Iterable[int],
    task: Mapping[str, Any],
) -> Report:
    """Ranks the same examples with each ranker; memory holds some thousand of them.

    Args:
      rankers: with different names. An attribute `settings`, a dict, goes into the row.
      examples: what is ranked.
      ks: the k of R_N@k.
      task: what the examples are, JSON values by name, for the report.

    Returns:
      `task`, with `k` and `examples_sha256`, of all texts, groups and right candidates, whatever
      the order of candidates; and `rows`, each with `name`, `settings`, `seconds` and `groups`: for
      each group its `examples` and `metrics`.

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
        for chunk in _chunks(examples, _CHUNK):
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
    ks = list(ks)
    return {
        "task": {**task, "k": ks, "examples_sha256": digest.hexdigest()},
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
