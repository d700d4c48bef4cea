r"""WikiQA: find the sentences of an article that answer a question. There may be several.

Files have tabs between columns and no quotes. There are the native `.tsv` with the header
`QuestionID`, `Question`, `DocumentID`, `DocumentTitle`, `SentenceID`, `Sentence`, `Label`, and the
`.txt` without a header and with question, sentence and label.

Consecutive rows of a question are one example. Questions without a right sentence are not used, as
in the published results.

Reference: aclanthology.org/D15-1237.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from convert_tf.data.tasks.item import NumberedLines, TaskItem, example_item, problem_item

_HEADER = "questionid\tquestion\tdocumentid\tdocumenttitle\tsentenceid\tsentence\tlabel"
_COLUMNS = 1, 5, 6  # of question, sentence and label
_LINE = re.compile(r"[^\t]+\t[^\t]*\t[01]\s*")


class _Row(NamedTuple):
    line: int
    question: str
    sentence: str
    label: str


def is_wikiqa(head: Sequence[str]) -> bool:
    """Return whether the first filled lines of a file are those of one of the two formats."""
    return bool(head) and (_is_header(head[0]) or all(map(_LINE.fullmatch, head)))


def _is_header(line: str) -> bool:
    return line.strip().lower() == _HEADER


def read_wikiqa(lines: NumberedLines) -> Iterator[TaskItem]:
    """Yield the questions of a file."""
    for question, group in itertools.groupby(_rows(lines), key=lambda row: row.question):
        rows = list(group)
        if not question:
            for row in rows:
                sentence = "The line must have a question, a sentence and a label (0 or 1)."
                yield problem_item(row.line, "malformed_line", sentence)
            continue
        labels = [place for place, row in enumerate(rows) if row.label == "1"]
        if labels:
            yield example_item(rows[0].line, (question,), (row.sentence for row in rows), labels)
        else:
            sentence = f"The question {question[:60]!r} has no right sentence."
            yield problem_item(rows[0].line, "no_right_answer", sentence, is_bad=False)


def _rows(lines: NumberedLines) -> Iterator[_Row]:
    """Yield the rows. A malformed one has no question."""
    is_first, columns, number_of_columns = True, (0, 1, 2), 3
    for number, line in lines:
        if not line.strip():
            continue
        was_first, is_first = is_first, False
        if was_first and _is_header(line):
            columns, number_of_columns = _COLUMNS, _HEADER.count("\t") + 1
            continue
        cells = line.split("\t")
        if len(cells) == number_of_columns:
            question, sentence, label = (cells[column].strip() for column in columns)
            if question and sentence and label in ("0", "1"):
                yield _Row(number, question, sentence, label)
                continue
        yield _Row(number, "", "", "")
