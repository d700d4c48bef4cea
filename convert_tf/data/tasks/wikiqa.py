r"""Read WikiQA, whose task is to find the sentences in an article that answer a question.

Columns are separated by tabs, without quotes. The original `.tsv` has the header `QuestionID`,
`Question`, `DocumentID`, `DocumentTitle`, `SentenceID`, `Sentence`, `Label`. The `.txt` has no
header; its columns are question, sentence and label.

Consecutive rows with the same question form one example, which may have several correct sentences.
Questions without a correct sentence are not used, as in the published results. SentenceIDs such as
`D1-0`, `D1-1` number the sentences for a question, so a gap shows that a row is missing.

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
_QUESTION_ID, _DOCUMENT_ID, _SENTENCE_ID = 0, 2, 4
_NUMBER = re.compile(r"\d{1,9}")
_LINE = re.compile(r"[^\t]+\t[^\t]*\t[01]\s*")


def is_wikiqa(head: Sequence[str]) -> bool:
    """Return whether a file has WikiQA's header, or its first lines look like the `.txt`.

    The first line must be a row, because other tables have a header. Most others must be rows too.
    """
    if not head or _is_header(head[0]):
        return bool(head)
    rows = [bool(_LINE.fullmatch(line)) for line in head]
    return rows[0] and 2 * sum(rows) > len(rows)


def _is_header(line: str) -> bool:
    return line.strip().lower() == _HEADER


def read_wikiqa(file: TableFile) -> Iterator[TaskItem]:
    """Yield an item for each question in a file."""
    return grouped_items(_rows(file), has_usual_number=False)


def _rows(file: TableFile) -> Iterator[LabelledRow | TaskItem]:
    is_first, columns, number_of_columns = True, (0, 1, 2), 3
    before: Sequence[str] | None = [""] * len(_HEADER.split("\t"))
    for number, line in numbered_lines(file):
        was_first, is_first = is_first, False
        if was_first and _is_header(line):
            columns, number_of_columns = _COLUMNS, _HEADER.count("\t") + 1
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) == number_of_columns:
            question, sentence, label = (cells[column] for column in columns)
            if question and sentence and label in ("0", "1"):
                if columns is _COLUMNS:
                    if expected := _other_id(cells, before):
                        wrong = (
                            f"The SentenceID is {cells[_SENTENCE_ID]}, not {expected}: a row is "
                            "missing or occurs twice."
                        )
                        yield problem_item(number, "missing_sentence", wrong)
                    before = cells
                yield LabelledRow(number, (question,), sentence, label == "1")
                continue
        before = None
        sentence = "The line must have a question, a sentence and a label (0 or 1)."
        yield problem_item(number, "malformed_line", sentence)


def _other_id(cells: Sequence[str], before: Sequence[str] | None) -> str:
    """Return the SentenceID that a row should have; `""` if it is correct or cannot be checked.

    Args:
      cells: the cells of a row in the `.tsv`.
      before: the cells of the previous row, all empty for the first row; None if the previous row
        is malformed.
    """
    name, _, number = cells[_SENTENCE_ID].rpartition("-")
    if before is None or not _NUMBER.fullmatch(number):
        return ""
    expected = 0
    if all(cells[column] == before[column] for column in (_QUESTION_ID, _DOCUMENT_ID)):
        last = before[_SENTENCE_ID].rpartition("-")[2]
        if not _NUMBER.fullmatch(last):
            return ""
        expected = int(last) + 1
    return "" if int(number) == expected else f"{name}-{expected}"
