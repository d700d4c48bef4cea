"""Items that the task readers yield: examples, and problems with rows that cannot be used."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from convert_tf.data.schema import CandidateExample
from convert_tf.readers.files import TableFile, decoded_lines
from convert_tf.storage.lines import open_decompressed


def numbered_lines(file: TableFile) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines of a file with their line numbers, which start at 1."""
    with open_decompressed(file) as stream:
        for line in decoded_lines(stream, file):
            if line.strip():
                yield file.lines, line


class Problem(NamedTuple):
    """Why an example cannot be used.

    Attributes:
      reason: name under which the report of `prepare` counts the problem.
      sentence: description of the problem for messages, without file and line.
      is_bad: whether the example is malformed; false if the rules of the task exclude it.
    """

    reason: str
    sentence: str
    is_bad: bool = True


class TaskItem(NamedTuple):
    """An example from a file, a problem, or an example with a problem.

    Attributes:
      line: number of the line where the example starts, counted from 1.
      example: the example; None if it has no usable correct answer.
      problem: the problem, or None. An example with a problem is not ranked.
      dialogue: texts that all examples of a dialogue share. They decide which split the dialogue is
        in.
      has_usual_number: whether all examples in the file must have the same number of candidates.
    """

    line: int
    example: CandidateExample | None = None
    problem: Problem | None = None
    dialogue: tuple[str, ...] = ()
    has_usual_number: bool = True


def problem_item(line: int, reason: str, sentence: str, *, is_bad: bool = True) -> TaskItem:
    """Return an item without an example, but with a problem; see `Problem` for the arguments."""
    return TaskItem(line, problem=Problem(reason, sentence, is_bad))


def example_item(
    line: int,
    turns: Iterable[str],
    candidates: Iterable[str],
    labels: Iterable[int],
    *,
    dialogue: tuple[str, ...] = (),
) -> TaskItem:
    """Return an item with an example.

    Args:
      line: number of the line where the example starts, counted from 1.
      turns: the context, oldest turn first. Empty turns are dropped.
      candidates: at least one candidate.
      labels: indices of the correct candidates, ascending; at least one.
      dialogue: texts that all examples of the dialogue share. Default: the first turn.
    """
    filled = tuple(filter(None, map(str.strip, turns)))
    example = CandidateExample(filled, tuple(candidates), tuple(labels))
    return TaskItem(line, example, dialogue=dialogue or filled[:1])


class LabelledRow(NamedTuple):
    """A context with one candidate.

    Attributes:
      line: number of the row's line, counted from 1.
      turns: the context, oldest turn first.
      candidate: a candidate for the context.
      is_right: whether the candidate is correct.
    """

    line: int
    turns: tuple[str, ...]
    candidate: str
    is_right: bool


def grouped_items(
    rows: Iterable[LabelledRow | TaskItem], *, has_usual_number: bool
) -> Iterator[TaskItem]:
    """Yield one item for each run of consecutive rows with the same context.

    Contexts without a correct candidate become items with a problem. If all examples must have the
    same number of candidates, a run that has as many as the first example ends before a correct
    candidate. The next example then has the same context. The first two examples of a file must
    have different contexts.

    Args:
      rows: the rows of a file. Each malformed row is replaced by an item with a problem.
      has_usual_number: see `TaskItem`.
    """
    group: list[LabelledRow] = []
    usual = 0  # number of candidates of the first example, if all examples must have this number
    for row in rows:
        if isinstance(row, TaskItem):
            yield row
            continue
        is_next = row.is_right and len(group) == usual
        if group and (is_next or row.turns != group[0].turns):
            item = _item_of(group, has_usual_number)
            if has_usual_number and item.example:
                usual = usual or len(group)
            yield item
            group = []
        group.append(row)
    if group:
        yield _item_of(group, has_usual_number)


def _item_of(group: list[LabelledRow], has_usual_number: bool) -> TaskItem:
    labels = [place for place, row in enumerate(group) if row.is_right]
    if labels:
        texts = (row.candidate for row in group)
        item = example_item(group[0].line, group[0].turns, texts, labels)
        return item._replace(has_usual_number=has_usual_number)
    sentence = f"None of the {len(group)} candidates is correct."
    return problem_item(group[0].line, "no_right_answer", sentence, is_bad=False)
