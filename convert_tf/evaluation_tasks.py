"""The examples of an evaluation, from records or from a file, ranked by all its rows."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from convert_tf.comparison import Report, compare
from convert_tf.data.candidates import read_candidates
from convert_tf.evaluation_rows import visible_turns
from convert_tf.ranking import GroupedExample, given_examples, in_batch_examples
from convert_tf.text_ranker import TextRanker

KS = (1, 3, 10)
CANDIDATE_KS = (1, 2, 5, 10)


def check_ks(ks: Sequence[int], num_candidates: int) -> None:
    """Raises `ValueError` unless each k is a place among the candidates."""
    if not ks or not all(1 <= k <= num_candidates for k in ks):
        raise ValueError(
            "Each k must be from 1 to the number of candidates. "
            f"Received: k {list(ks)}, {num_candidates} candidates. Pass other --k."
        )


def compare_on_records(
    rankers: Sequence[TextRanker],
    data: str,
    *,
    split: str,
    ks: Sequence[int],
    block_size: int,
    max_examples: int | None,
    history: str = "own",
    by_source: bool = False,
    by_history: bool = False,
) -> Report:
    """Each response among the responses of its block.

    Args:
      rankers: the rows.
      data: folder of records.
      split: which records.
      ks: the k of R_N@k.
      block_size: N, examples of a block; the last partial block is dropped.
      max_examples: read at most this many, from the first on.
      history: see `evaluation_rows.HISTORY`.
      by_source, by_history: groups that have scores of their own, see `in_batch_examples`.

    Raises:
      ValueError: no such split, too few examples, scores that are no numbers.
    """
    from convert_tf.data.turns import read_turns

    num_read = 0

    def conversations() -> Iterator[Any]:
        nonlocal num_read
        for example in read_turns(data, split, max_examples=max_examples):
            num_read += 1
            yield example
        if num_read < block_size:
            raise ValueError(
                f"Ranking among {block_size} needs at least {block_size} examples. Received: "
                f"{num_read} of the split {split!r} in {data!r}. Use more data or a smaller "
                "--block_size."
            )

    examples = in_batch_examples(
        conversations(), block_size=block_size, by_source=by_source, by_history=by_history
    )
    task = {
        "data": data,
        "split": split,
        "block_size": block_size,
        "max_examples": max_examples,
        "history": history,
    }
    return compare(rankers, _with_history(examples, history), ks=ks, task=task)


def compare_on_candidates(
    rankers: Sequence[TextRanker],
    path: str,
    *,
    ks: Sequence[int] | None,
    max_examples: int | None,
    history: str = "own",
    by_history: bool = False,
) -> Report:
    """Each context's own candidates.

    Args:
      rankers: the rows.
      path: file of given candidates.
      ks: the k of R_N@k; None for those of 1, 2, 5 and 10 below the largest N.
      max_examples: read at most this many, from the first on.
      history: see `evaluation_rows.HISTORY`.
      by_history: whether contexts of one turn and of several have scores of their own.

    Raises:
      ValueError: a line is no example, a k is larger than every N, scores that are no numbers.
    """
    given = list(itertools.islice(read_candidates(path), max_examples))
    most = max(len(example.candidates) for example in given)
    if ks is None:
        ks = [k for k in CANDIDATE_KS if k < most] or [1]
    check_ks(ks, most)
    task = {"candidates": path, "max_examples": max_examples, "history": history}
    examples = given_examples(given, by_history=by_history)
    return compare(rankers, _with_history(examples, history), ks=ks, task=task)


def _with_history(examples: Iterable[GroupedExample], history: str) -> Iterator[GroupedExample]:
    for groups, example in examples:
        turns = tuple(visible_turns(example.turns, history))
        yield GroupedExample(groups, example._replace(turns=turns))
