"""Make the examples of an evaluation from records or a file, and evaluate one model on them."""

import itertools
import os
import random
from collections.abc import Iterable, Iterator
from typing import Any

from convert_tf import metrics
from convert_tf.corpora import pairs
from convert_tf.corpora.dumps import CountedFile
from convert_tf.data.candidates import read_candidates
from convert_tf.data.schema import TurnExample
from convert_tf.evaluation.compare import (
    ALL,
    GroupedExample,
    Task,
    compare,
    given_examples,
    in_batch_examples,
)
from convert_tf.evaluation.rows import visible_turns
from convert_tf.ranking.ranker import open_ranker

KS = (1, 3, 10)
CANDIDATE_KS = (1, 2, 5, 10)
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
) -> Task:
    """Make a task from records, a file of pairs or dialogues, or a file of candidates.

    Args:
      data: folder of records, or file of pairs or dialogues (`convert_tf.corpora.pairs`).
      candidates: file of candidates, instead of `data`.
      split: split of the records. Files are read as a whole.
      ks: values of k in R_N@k. None for 1, 3 and 10 for `data`, and for those of 1, 2, 5 and 10
        below the largest number of candidates for `candidates`.
      block_size: number of examples in a block of `data`. The last partial block is dropped.
      max_examples: largest number of examples.
      history: see `evaluation.rows.HISTORY`.
      by_source, by_history: additional groups, see `in_batch_examples`.

    Raises:
      ValueError: if not exactly one of `data` and `candidates` is given, a k is larger than the
        number of candidates, or a line is not an example. When examples are read: if there is no
        such split.
    """
    if (data is None) == (candidates is None):
        raise ValueError(
            "Examples come from data or from candidates: pass one of them. Received: "
            f"{'neither' if data is None else 'both'}."
        )
    facts: dict[str, Any] = {"max_examples": max_examples, "history": history}
    if candidates is not None:
        given = list(itertools.islice(read_candidates(candidates), max_examples))
        number = max(len(example.candidates) for example in given)
        default = [k for k in CANDIDATE_KS if k < number] or [1]
        examples = given_examples(given, by_history=by_history)
        facts = {"candidates": candidates, **facts}
    else:
        assert data is not None
        number, default = block_size, [k for k in KS if k <= block_size]
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
            f"--k must be from 1 to the number of candidates, {number}. Received: k {chosen}."
        )
    return Task(_with_history(examples, history), chosen, facts)


def _turns_of(data: str, split: str, max_examples: int | None) -> Iterator[TurnExample]:
    if not os.path.isfile(data):
        from convert_tf.data.records import read_turns

        return read_turns(data, split, max_examples=max_examples)
    examples = list(itertools.islice(_turns_of_file(data), max_examples))
    # Answers to the same question are often neighbours. In one block they would count as wrong.
    random.Random(0).shuffle(examples)
    return iter(examples)


def _turns_of_file(path: str) -> Iterator[TurnExample]:
    file = CountedFile(path)
    num_examples = 0
    for conversation in pairs.read(file):
        texts = tuple(turn.text for turn in conversation.turns)
        for place in range(1, len(texts)):
            num_examples += 1
            yield TurnExample(texts[:place], texts[place], conversation.source)
    file.check_readable(num_examples)
    if file.skipped:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in file.skipped.most_common())
        print(f"{path}: not used: {reasons}")


def _with_history(examples: Iterable[GroupedExample], history: str) -> Iterator[GroupedExample]:
    for groups, example in examples:
        turns = tuple(visible_turns(example.turns, history))
        yield GroupedExample(groups, example._replace(turns=turns))


def evaluate(model: str | os.PathLike[str], **options: Any) -> dict[str, Any]:
    """Measure how well a model ranks responses.

    Args:
      model: the folder of a run or of a module, or an `.onnx` file.
      **options: `data`, `candidates`, `split`, `ks`, `block_size` and `max_examples`; see
        `make_task`.

    Returns:
      The path as `checkpoint` or `module`, the options by name, `seconds`, `examples` (their
      number) and `metrics`, as R100@1 and MRR.

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
