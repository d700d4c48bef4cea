"""Read contexts with given candidates, from tables or from the files of the papers' tasks.

A JSON line is `{"context": ["oldest turn", …, "newest turn"], "candidates": ["…", …], "label": 0}`.
The label is the index of the correct candidate, or a list of indices if several are correct. A
context with a single turn may be a string. Other keys are ignored. Other kinds of tables have
columns with the same names (`convert_tf.readers.tables`). In CSV and TSV files, lists of
candidates, turns and labels are written as JSON. `convert_tf.data.tasks` reads the published task
formats, which are recognised by the first lines of a file.
"""

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from convert_tf.data.schema import MAX_EXTRA_CONTEXTS, CandidateExample
from convert_tf.data.tasks.formats import TaskFormat, head_of, task_format_of
from convert_tf.readers.columns import CANDIDATES, Columns, names_of_candidates
from convert_tf.readers.files import TableFile
from convert_tf.readers.tables import read_rows
from convert_tf.storage.json_text import json_of_texts

_COLUMNS = Columns("contexts, candidates and labels", names=CANDIDATES, find=names_of_candidates)


def joined_context(turns: Sequence[str]) -> str:
    """Join all turns, oldest first. If the result is too long, encoders drop its first tokens."""
    return " ".join(turns)


def last_turn(turns: Sequence[str]) -> str:
    """Return the newest turn, which single-context encoders read; `""` if there are no turns."""
    return turns[-1] if turns else ""


def extra_context(turns: Sequence[str], *, numbered: bool = False) -> str:
    """Join up to ten turns before the last one, most recent first.

    Args:
      turns: all turns of the context, oldest first.
      numbered: whether to prefix the turns with `0: `, `1: `, …, where 0 is the most recent.

    Reference: arXiv 1911.03688 §2.2; §3.1 for the numbered turns.
    """
    earlier = [turn for turn in reversed(turns[:-1][-MAX_EXTRA_CONTEXTS:]) if turn]
    if numbered:
        earlier = [f"{number}: {turn}" for number, turn in enumerate(earlier)]
    return " ".join(earlier)


def read_candidates(path: str | os.PathLike) -> Iterator[CandidateExample]:
    """Yield the examples in a file, in the order of the file.

    Args:
      path: a table, or a file in the format of one of the papers' tasks.

    Raises:
      ValueError: if a row is not a valid example, or the file has no examples.
      OSError: if the file cannot be read.
    """
    file = TableFile(os.fspath(path))
    task = task_format_of(head_of(file.path))
    is_empty = True
    for example in _examples_of_task(file, task) if task else _examples_of_table(file):
        yield example
        is_empty = False
    if is_empty:
        raise ValueError(
            f'{file.name} has no examples. A candidates file has lines like {{"context": ["…"], '
            '"candidates": ["…"], "label": 0}. Pass another file.'
        )


def _examples_of_table(file: TableFile) -> Iterator[CandidateExample]:
    for row in read_rows(file, _COLUMNS):
        try:
            yield _example(row)
        except ValueError as error:
            raise ValueError(
                f"{file.place} is not an example ({error}). Each row needs a context (a text, or a "
                "list of turns, oldest first), a list of candidates, and a label (the index of the "
                "correct candidate, counted from 0, or a list of indices). Repair that row."
            ) from error


def _examples_of_task(file: TableFile, task: TaskFormat) -> Iterator[CandidateExample]:
    excluded: Counter[str] = Counter()
    for item in task.items(file):
        if item.problem and not item.problem.is_bad:
            excluded[item.problem.reason] += 1
        elif item.problem:
            raise ValueError(
                f"{file.name}:{item.line}: {item.problem.sentence} Repair the file, or drop this "
                "example."
            )
        elif item.example:
            yield item.example
    if excluded:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in excluded.items())
        print(f"{file.name}: not used: {reasons}")


def read_examples(
    data: str, split: str, *, max_examples: int | None = None
) -> Iterator[CandidateExample]:
    """Yield the examples in a candidates file, or in one split of a folder of records.

    Args:
      data: path of the file or folder. In a folder, the response is the only candidate for its
        context.
      split: name of the split to read from a folder. Ignored for a file.
      max_examples: maximum number of examples to read; None for all.

    Raises:
      ValueError: if there are no examples, or an example is damaged.
      OSError: if the file cannot be read.
    """
    if not os.path.isdir(data):
        yield from itertools.islice(read_candidates(data), max_examples)
        return
    from convert_tf.data.records import read_turns

    for record in read_turns(data, split, max_examples=max_examples):
        yield CandidateExample(record.turns, (record.response,), (0,))


def _example(value: Any) -> CandidateExample:
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    fields: list[Any] = [value.get(name) for name in CANDIDATES]
    context, candidates, label = fields
    if isinstance(candidates, str):  # a text cell, in which lists are written as JSON
        candidates, label = _cell(candidates), _cell(label)
        is_list = isinstance(context, str) and context.startswith("[")
        context = _cell(context) if is_list else context
    turns = [context] if isinstance(context, str) else context
    for name, texts in (("context", turns), ("candidates", candidates)):
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{name} is not a list of texts")
    labels = label if isinstance(label, list) else [label]
    # Tables written by pandas may have 0.0 for 0.
    labels = [int(i) if isinstance(i, float) and i.is_integer() else i for i in labels]
    # In Python, True is an int, but it is not a label.
    if not labels or not all(type(i) is int and 0 <= i < len(candidates) for i in labels):
        raise ValueError(f"label {label!r} does not fit {len(candidates)} candidates")
    return CandidateExample(tuple(turns), tuple(candidates), tuple(sorted(set(labels))))


def _cell(text: Any) -> Any:
    """Return the value of a text cell: a list or a number if it is JSON, else the text.

    Values that are not texts, such as numbers in a Parquet file, are returned as they are.
    """
    if not isinstance(text, str):
        return text
    try:
        value = json_of_texts(text)
    except ValueError:
        return text
    return value if isinstance(value, list | int | float) else text
