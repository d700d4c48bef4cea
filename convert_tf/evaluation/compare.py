"""Compare models on the same examples.

An example consists of a context, its candidates and the positions of the correct candidates.
Records are ranked in blocks: each context is compared with all responses in its block, for example
its own response and 99 wrong ones. A file of candidates lists the candidates for each context.
"""

import hashlib
import itertools
import json
import os
import random
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from convert_tf import metrics
from convert_tf.corpora import pairs
from convert_tf.corpora.comments import is_removal_notice
from convert_tf.corpora.dumps import CountedFile
from convert_tf.data.candidates import read_candidates
from convert_tf.data.schema import CandidateExample, TurnExample
from convert_tf.data.tasks.formats import head_of, task_format_of
from convert_tf.ranking.baselines import visible_turns
from convert_tf.ranking.protocol import TextRanker, runs_of_lists
from convert_tf.ranking.ranker import open_ranker
from convert_tf.storage.messages import listed
from convert_tf.storage.progress import Progress

ALL = "all"
WITH_HISTORY = "with history"
WITHOUT_HISTORY = "without history"


class GroupedExample(NamedTuple):
    """An example, and the groups that it belongs to. It counts in the results of each group."""

    groups: tuple[str, ...]
    example: CandidateExample


def in_batch_examples(
    conversations: Iterable[TurnExample],
    *,
    block_size: int = metrics.BLOCK_SIZE,
    by_source: bool = False,
    by_history: bool = False,
) -> Iterator[GroupedExample]:
    """Yield examples whose candidates are the responses in their block.

    The last block is dropped if it is not full, and the number of dropped examples is printed, for
    all examples and by source. Candidates are shuffled, so that no ranker benefits from their
    order.

    Args:
      conversations: examples, in the order in which they are divided into blocks.
      block_size: number N of examples per block.
      by_source: whether to also form blocks within each source, as groups named `source …`.
      by_history: whether contexts with one turn and contexts with several turns also form separate
        groups.
    """
    rng = np.random.default_rng(0)
    pending: dict[str, list[TurnExample]] = {}
    for conversation in conversations:
        groups = [ALL]
        if by_source:
            groups.append(f"source {conversation.source or 'unknown'}")
        for group in groups:
            block = pending.setdefault(group, [])
            block.append(conversation)
            if len(block) < block_size:
                continue
            order = rng.permutation(block_size)
            candidates = tuple(block[i].response for i in order)
            for example, place in zip(block, np.argsort(order).tolist(), strict=True):
                ranked = CandidateExample(example.turns, candidates, (place,))
                yield _grouped(ranked, by_history and group == ALL, group)
            del pending[group]
    if left_out := len(pending.pop(ALL, ())):
        print(f"{left_out} examples are left out: they do not fill a block of {block_size}")
    if left_out := sum(map(len, pending.values())):
        names = listed([f"{group} ({len(rest)})" for group, rest in sorted(pending.items())])
        print(
            f"{left_out} examples are left out of the blocks of their source for the same reason: "
            f"{names}"
        )


def given_examples(
    examples: Iterable[CandidateExample], *, by_history: bool = False
) -> Iterator[GroupedExample]:
    """Yield examples from a file of candidates, with the candidates shuffled.

    Candidates are shuffled so that no ranker benefits from their order.

    Args:
      examples: examples from `convert_tf.data.candidates.read_candidates`.
      by_history: whether contexts with one turn and contexts with several turns also form separate
        groups.
    """
    rng = np.random.default_rng(0)
    for turns, candidates, labels in examples:
        order = rng.permutation(len(candidates))
        shuffled = tuple(candidates[i] for i in order)
        places = sorted(np.argsort(order)[list(labels)].tolist())
        yield _grouped(CandidateExample(turns, shuffled, tuple(places)), by_history)


def _grouped(example: CandidateExample, by_history: bool, group: str = ALL) -> GroupedExample:
    history = WITH_HISTORY if len(example.turns) > 1 else WITHOUT_HISTORY
    return GroupedExample((group, history) if by_history else (group,), example)


class Ranked(NamedTuple):
    """How well a ranker ordered the candidates of some examples.

    Attributes:
      ranks: rank of the highest-scoring correct candidate of each example, starting at 1, int64
        `[examples]`.
      precisions: average precision of each example, float64 `[examples]`.
    """

    ranks: np.ndarray
    precisions: np.ndarray


def ranked(ranker: TextRanker, examples: Sequence[CandidateExample]) -> Ranked:
    """Rank the candidates of examples.

    Equal candidates for a context are scored only once, so that their scores cannot differ by
    rounding. `metrics.right_ranks` says how ties are counted.

    Args:
      ranker: the ranker to use.
      examples: examples to rank. Consecutive examples may share one tuple of candidates.

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
            f"{ranker.name} returned scores of shape {[np.shape(row) for row in scores[:3]]}, … "
            f"for {len(lists)} lists of candidates. Its method candidate_scores must return one "
            "score for each candidate of each context."
        )
    ranks, precisions = [], []
    for row, at, example in zip(scores, places, examples, strict=True):
        ordered, is_right = np.asarray(row)[at], np.isin(np.arange(len(at)), example.labels)
        ranks.append(metrics.right_ranks(ordered, is_right))
        precisions.append(metrics.average_precisions(ordered, is_right))
    return Ranked(np.array(ranks, np.int64), np.array(precisions))


_CHUNK = 2000  # number of examples that are ranked at a time

Report = dict[str, Any]


class RankingTask(NamedTuple):
    """Examples to rank, and the metrics to compute.

    Attributes:
      examples: examples to rank. The iterable is read only once.
      ks: values of k for R_N@k.
      facts: description of the examples for the report, a dict of JSON values.
    """

    examples: Iterable[GroupedExample]
    ks: Sequence[int]
    facts: Mapping[str, Any]


def _too_few(facts: Mapping[str, Any]) -> str:
    limit, remedy = facts.get("max_examples"), "Use more data"
    if limit is not None and limit < facts.get("block_size", 0):
        remedy = f"Raise --max_examples, which is {limit}"
    return (
        "There are too few examples for a block of candidates. "
        f"{remedy}, or use a smaller --block_size."
    )


def compare(rankers: Sequence[TextRanker], task: RankingTask) -> Report:
    """Rank the same examples with each ranker, a few thousand examples at a time.

    Args:
      rankers: rankers with different names. If a ranker has a dict `settings`, this dict is written
        to the row of the ranker.
      task: examples to rank, and metrics to compute.

    Returns:
      A dict with `task` and `rows`. `task` contains the facts of the task, `k`, and
      `examples_sha256`, a checksum of the examples that does not depend on the order of candidates.
      There is a row for each ranker, with `name`, `settings`, `seconds` and `groups`. For each
      group, `groups` gives the number of `examples` and the `metrics`.

    Raises:
      ValueError: if two rankers have the same name, there are no examples, or scores are not
        numbers.
    """
    names = [ranker.name for ranker in rankers]
    if len(set(names)) < len(names):
        raise ValueError(
            f"Two rows have the same name: {', '.join(names)}. Pass each model only once, because "
            "rows need different names."
        )
    by_group: list[dict[str, list[tuple[int, float]]]] = [{} for _ in rankers]
    lengths: dict[str, set[int]] = {}
    with_several: set[str] = set()  # groups in which an example has several correct candidates
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
                if len(set(right)) > 1:
                    with_several.update(groups)
            for index, ranker in enumerate(rankers):
                before = time.perf_counter()
                ranks, precisions = ranked(ranker, [example for _, example in chunk])
                seconds[index] += time.perf_counter() - before
                measured = zip(ranks.tolist(), precisions.tolist(), strict=True)
                for (groups, _), numbers in zip(chunk, measured, strict=True):
                    for group in groups:
                        by_group[index].setdefault(group, []).append(numbers)
            progress.add(len(chunk))
    if not lengths:
        raise ValueError(_too_few(task.facts))
    ks = list(task.ks)
    return {
        "task": {**task.facts, "k": ks, "examples_sha256": digest.hexdigest()},
        "rows": [
            {
                "name": ranker.name,
                "settings": ranker.settings,
                "seconds": round(seconds[index], 2),
                "groups": {
                    group: _scores(
                        by_group[index][group], lengths[group], ks, has_map=group in with_several
                    )
                    for group in sorted(lengths, key=lambda name: (name != ALL, name))
                },
            }
            for index, ranker in enumerate(rankers)
        ],
    }


def _scores(
    measured: list[tuple[int, float]], lengths: set[int], ks: Sequence[int], *, has_map: bool
) -> dict[str, Any]:
    length = min(lengths) if len(lengths) == 1 else None
    ranks, precisions = map(np.array, zip(*measured, strict=True))
    scores = metrics.ranking_metrics(
        ranks, block_size=length, ks=ks, precisions=precisions if has_map else None
    )
    return {"examples": scores.pop("examples"), "metrics": scores}


_SHOWN = ("data", "candidates", "split", "block_size")


def make_task(
    *,
    data: str | None = None,
    candidates: str | None = None,
    split: str = "test",
    ks: Iterable[int] | None = None,
    block_size: int = metrics.BLOCK_SIZE,
    max_examples: int | None = None,
    history: str = "own",
    by_source: bool = False,
    by_history: bool = False,
) -> RankingTask:
    """Return a task for records, a file of pairs or dialogues, or a file of candidates.

    Args:
      data: folder of records, or file of pairs or dialogues (`convert_tf.corpora.pairs`).
      candidates: file of candidates, instead of `data`. An example whose candidates are all correct
        counts as a hit.
      split: split of the records to use. Files are read as a whole.
      ks: values of k for R_N@k. The defaults for `data` are 1, 3 and 10. The defaults for
        `candidates` are those of 1, 2, 5 and 10 that are less than the largest number of
        candidates.
      block_size: number of examples per block of `data`. The last block is dropped if it is not
        full.
      max_examples: maximum number of examples.
      history: which earlier turns rankers may read, one of `ranking.baselines.HISTORY`.
      by_source, by_history: additional groups; see `in_batch_examples`.

    Raises:
      ValueError: if not exactly one of `data` and `candidates` is given, a k is larger than the
        number of candidates, no example in `candidates` has a wrong candidate, or a line is not an
        example. If the split does not exist, the error is raised only when the examples are read.
    """
    if (data is None) == (candidates is None):
        raise ValueError(
            "Pass either data or candidates. "
            f"Received: {'neither' if data is None else 'both'} of them."
        )
    facts: dict[str, Any] = {"max_examples": max_examples, "history": history}
    if candidates is not None:
        given = list(itertools.islice(read_candidates(candidates), max_examples))
        # Published results of the tasks count single examples without a wrong candidate.
        if not any(map(_has_wrong_candidate, given)):
            raise ValueError(
                f"{candidates} contains no wrong candidates. Pass the file as --data, so that the "
                "responses of other examples become the wrong candidates."
            )
        number = max(len(example.candidates) for example in given)
        default = [k for k in (1, 2, 5, 10) if k < number] or [1]
        examples = given_examples(given, by_history=by_history)
        facts = {"candidates": candidates, **facts}
    else:
        assert data is not None
        number, default = block_size, [k for k in (1, 3, 10) if k <= block_size]
        examples = in_batch_examples(
            _turns_of(data, split, max_examples),
            block_size=block_size,
            by_source=by_source,
            by_history=by_history,
        )
        shown_split = None if os.path.isfile(data) else split
        facts = {"data": data, "split": shown_split, "block_size": block_size, **facts}
    chosen = default if ks is None else [*ks]
    if not chosen or not all(1 <= k <= number for k in chosen):
        raise ValueError(
            f"--k must be from 1 to {number}, the number of candidates. Received: k {chosen}."
        )
    return RankingTask(_with_history(examples, history), chosen, facts)


def _has_wrong_candidate(example: CandidateExample) -> bool:
    right = {example.candidates[i] for i in example.labels}
    return not right.issuperset(example.candidates)


def _turns_of(data: str, split: str, max_examples: int | None) -> Iterator[TurnExample]:
    if not os.path.isfile(data):
        from convert_tf.data.records import read_turns

        return read_turns(data, split, max_examples=max_examples)
    examples = list(itertools.islice(_turns_of_file(data), max_examples))
    # Answers to the same question are often next to each other. In the same block, they would be
    # counted as wrong for each other's contexts.
    random.Random(0).shuffle(examples)
    return iter(examples)


def _turns_of_file(path: str) -> Iterator[TurnExample]:
    file = CountedFile(path)
    # As in `prepare`, the published files of the tasks keep their repeated examples.
    task = task_format_of(head_of(path))
    keeps_all = task is not None and task.is_distinct
    seen: set[tuple[str, ...]] = set()
    num_examples = 0
    for conversation in pairs.read(file):
        texts = tuple(turn.text for turn in conversation.turns)
        for place in range(conversation.first_answer, len(texts)):
            num_examples += 1
            pair = texts[place - 1 : place + 1]
            if reason := "" if keeps_all else _skip_reason(pair, seen):
                file.skip(reason, is_bad=False)
                continue
            seen.add(pair)
            yield TurnExample(texts[:place], texts[place], conversation.source)
    file.check_readable(num_examples)
    if file.skipped:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in file.skipped.most_common())
        print(f"{path}: not used: {reasons}")


def _skip_reason(pair: tuple[str, ...], seen: Container[tuple[str, ...]]) -> str:
    """Return why a pair of context and response is not used; `""` if it is used.

    As in `prepare --pairs`, removal notices and repeated pairs are not used.
    """
    for role, text in zip(("response", "context"), reversed(pair), strict=True):
        if is_removal_notice(text, is_reddit=False):
            return f"{role}_deleted"
    return "duplicate_pair" if pair in seen else ""


def _with_history(examples: Iterable[GroupedExample], history: str) -> Iterator[GroupedExample]:
    for groups, example in examples:
        turns = tuple(visible_turns(example.turns, history))
        yield GroupedExample(groups, example._replace(turns=turns))


def evaluate(model: str | os.PathLike[str], **options: Any) -> dict[str, Any]:
    """Measure how well a model ranks responses.

    Args:
      model: folder of a run or module, or path of an `.onnx` file.
      **options: `data`, `candidates`, `split`, `ks`, `block_size` and `max_examples`, as in
        `make_task`.

    Returns:
      A dict with the path of the model (`checkpoint` or `module`), the options, the time in
      `seconds`, the number of `examples`, and `metrics` such as R100@1 and MRR.

    Raises:
      ValueError: if an option is wrong (see `make_task`), or `model` is not a model.

    Example:
      evaluate("runs/convert", data="data/")["metrics"]["R100@1"]
    """
    task = make_task(**options)
    report = compare([open_ranker(model)], task)
    (row,) = report["rows"]
    return {
        **row["settings"],
        **{name: value for name, value in report["task"].items() if name in _SHOWN},
        "seconds": row["seconds"],
        **row["groups"][ALL],
    }
