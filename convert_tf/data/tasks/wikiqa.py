r"""WikiQA: find the sentences of an article that answer a question. There may be several.

Files have tabs between columns and no quotes. The native `.tsv` has the header `QuestionID`,
`Question`, `DocumentID`, `DocumentTitle`, `SentenceID`, `Sentence`, `Label`. The `.txt` has no
header, and the columns are question, sentence and label.

Consecutive rows of a question are one example. Questions without a right sentence are not used, as
in the published results.

Reference: aclanthology.org/D15-1237.
"""

import re
from collections.abc import Iterator, Sequence

from convert_tf.data.tasks.item import (
    LabelledRow,
    TaskItem,
    grouped_items,
    numbered_lines,
    problem_item,
)
from convert_tf.readers.files import TableFile

_HEADER = "questionid\tquestion\tdocumentid\tdocumenttitle\tsentenceid\tsentence\tlabel"
_COLUMNS = 1, 5, 6  # question, sentence and label
_LINE = re.compile(r"[^\t]+\t[^\t]*\t[01]\s*")


def is_wikiqa(head: Sequence[str]) -> bool:
    """Return whether a file has the header, or most of its first lines look like the `.txt`."""
    is_txt = 2 * sum(map(bool, map(_LINE.fullmatch, head))) > len(head)
    return is_txt or (bool(head) and _is_header(head[0]))


def _is_header(line: str) -> bool:
    return line.strip().lower() == _HEADER


def read_wikiqa(file: TableFile) -> Iterator[TaskItem]:
    """Yield the questions of a file."""
    return grouped_items(_rows(file), has_usual_number=False)


def _rows(file: TableFile) -> Iterator[LabelledRow | TaskItem]:
    is_first, columns, number_of_columns = True, (0, 1, 2), 3
    for number, line in numbered_lines(file):
        was_first, is_first = is_first, False
        if was_first and _is_header(line):
            columns, number_of_columns = _COLUMNS, _HEADER.count("\t") + 1
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) == number_of_columns:
            question, sentence, label = (cells[column] for column in columns)
            if question and sentence and label in ("0", "1"):
                yield LabelledRow(number, (question,), sentence, label == "1")
                continue
        sentence = "The line must have a question, a sentence and a label (0 or 1)."
        yield problem_item(number, "malformed_line", sentence)
