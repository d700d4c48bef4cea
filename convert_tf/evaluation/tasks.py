"""The examples of an evaluation, from records or from a file, ranked by all its rows."""

import itertools
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from convert_tf import metrics
from convert_tf.corpora import pairs
from convert_tf.corpora.dumps import DumpStats
from convert_tf.data.candidates import read_candidates
from convert_tf.data.schema import TurnExample
from convert_tf.evaluation.compare import Report, compare
from convert_tf.evaluation.examples import ALL, GroupedExample, given_examples, in_batch_examples
from convert_tf.evaluation.rows import model_rankers, visible_turns
from convert_tf.ranking.protocol import TextRanker

KS = (1, 3, 10)
CANDIDATE_KS = (1, 2, 5, 10)
_SHOWN = ("data", "candidates", "split", "block_size")


def check_ks(ks: Sequence[int], num_candidates: int) -> None:
    """Raises `ValueError` unless each k is a place among the candidates."""
    if not ks or not all(1 <= k <= num_candidates for k in ks):
        raise ValueError(
            f"--k must be from 1 to the number of candidates, {num_candidates}. Received: "
            f"k {list(ks)}."
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
      data: folder of records, or a file of pairs or dialogues (`convert_tf.corpora.pairs`).
      split: which records; a file is read as a whole.
      ks: the k of R_N@k.
      block_size: N, examples of a block; the last partial block is dropped.
      max_examples: read at most this many, from the first on.
      history: see `evaluation.rows.HISTORY`.
      by_source, by_history: groups that have scores of their own, see `in_batch_examples`.

    Raises:
      ValueError: no such split, too few examples, scores that are no numbers.
    """
    num_read = 0

    def conversations() -> Iterator[Any]:
        nonlocal num_read
        for example in _turns_of(data, split, max_examples):
            num_read += 1
            yield example
        if num_read < block_size:
            part = "" if os.path.isfile(data) else f" of the split {split!r}"
            raise ValueError(
                f"Ranking among {block_size} needs at least {block_size} examples. Received: "
                f"{num_read}{part} in {data!r}. Use more data or a smaller --block_size."
            )

    examples = in_batch_examples(
        conversations(), block_size=block_size, by_source=by_source, by_history=by_history
    )
    task = {
        "data": data,
        "split": None if os.path.isfile(data) else split,
        "block_size": block_size,
        "max_examples": max_examples,
        "history": history,
    }
    return compare(rankers, _with_history(examples, history), ks=ks, task=task)


def _turns_of(data: str, split: str, max_examples: int | None) -> Iterator[TurnExample]:
    if not os.path.isfile(data):
        from convert_tf.data.turns import read_turns

        return read_turns(data, split, max_examples=max_examples)
    examples = list(itertools.islice(_turns_of_file(data), max_examples))
    # Answers to one question are often next to each other: in one block, they would be wrong ones.
    random.Random(0).shuffle(examples)
    return iter(examples)


def _turns_of_file(path: str) -> Iterator[TurnExample]:
    stats = DumpStats(path)
    num_examples = 0
    for conversation in pairs.read(path, stats):
        texts = tuple(turn.text for turn in conversation.turns)
        for place in range(1, len(texts)):
            num_examples += 1
            yield TurnExample(texts[:place], texts[place], conversation.source)
    stats.check_readable(num_examples)
    if stats.skipped:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in stats.skipped.most_common())
        print(f"{path}: not used: {reasons}")


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
      history: see `evaluation.rows.HISTORY`.
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


def evaluate(
    model: str | os.PathLike[str],
    *,
    data: str | None = None,
    candidates: str | None = None,
    split: str = "test",
    ks: Iterable[int] | None = None,
    block_size: int = metrics.BLOCK_SIZE,
    max_examples: int | None = None,
    precision: str = "float32",
) -> dict[str, Any]:
    """R_N@k and MRR of a model, on records or on given candidates.

    Args:
      model: a run's folder, a module, or an `.onnx` file.
      data: folder of records, or a file of pairs or dialogues; this or `candidates`.
      candidates: file of given candidates.
      split: which records; a file is read as a whole.
      ks: the k of R_N@k; None for 1, 3 and 10 on records, and for those of 1, 2, 5 and 10 below
        the largest N of given candidates.
      block_size: N of records, examples of a block; the last partial block is dropped.
      max_examples: read at most this many, from the first on.
      precision: policy of a checkpoint's computations; any other model has its own.

    Returns:
      What was given, by name, and `seconds`, `examples` (scored) and `metrics`.

    Raises:
      ValueError: neither or both of `data` and `candidates`, no such split, too few examples, a
        number out of range, or a model that is none.

    Example:
      evaluate("runs/convert", data="data/")["metrics"]["R100@1"]
    """
    if (data is None) == (candidates is None):
        raise ValueError(
            f"Pass either data or candidates. Received: {'neither' if data is None else 'both'}."
        )
    given = None if ks is None else list(ks)
    if data is not None:
        given = [k for k in KS if k <= block_size] if given is None else given
        check_ks(given, block_size)
    rankers = model_rankers([os.fspath(model)], precision=precision)
    if candidates is not None:
        report = compare_on_candidates(rankers, candidates, ks=given, max_examples=max_examples)
    else:
        report = compare_on_records(
            rankers,
            str(data),
            split=split,
            ks=given or (),
            block_size=block_size,
            max_examples=max_examples,
        )
    return flat_report(report)


def flat_report(report: Report) -> dict[str, Any]:
    """What `evaluate` returns, of a report with one row."""
    task, row = report["task"], report["rows"][0]
    return {
        "checkpoint": row["settings"].get("checkpoint"),
        "module": row["settings"].get("module"),
        **{name: value for name, value in task.items() if name in _SHOWN},
        "precision": row["settings"].get("precision"),
        "seconds": row["seconds"],
        "examples": row["groups"][ALL]["examples"],
        "metrics": row["groups"][ALL]["metrics"],
    }
