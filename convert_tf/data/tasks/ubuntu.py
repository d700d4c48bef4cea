r"""Read Ubuntu V2 (CSV), and Ubuntu V1, Douban and E-commerce in the line format of SMN and DAM.

Ubuntu V2 has CSV files with one of these headers:

```
Context,Utterance,Label
is it open ? __eou__ hello ? __eou__ __eot__ which pool ? __eou__ __eot__,the big one __eou__,1
Context,Ground Truth Utterance,Distractor_0,…,Distractor_8
is it open ? __eou__ __eot__,until nine __eou__,i have a cat __eou__,…
```

`__eot__` ends a turn, and `__eou__` ends an utterance. The utterances of a turn are joined with
spaces.

In the line format, each line has a label, the turns of the context, oldest first, and a reply:

```
1\tis it open ?\twhich pool ?\tthe big one .\tuntil nine .
0\tis it open ?\twhich pool ?\tthe big one .\ti have a cat .
```

Consecutive rows or lines with the same context form one example. Contexts without a correct reply
are not used. In the line format, all examples have the same number of replies. After this number, a
correct reply begins the next example, even if the context is the same.

Reference: arXiv 1506.08909 (Ubuntu); arXiv 1612.01627 (SMN); ACL P18-1103 (DAM).
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from convert_tf.data.tasks.item import (
    LabelledRow,
    TaskItem,
    example_item,
    grouped_items,
    numbered_lines,
    problem_item,
)
from convert_tf.readers.columns import Columns, Names
from convert_tf.readers.files import TableFile
from convert_tf.readers.tables import read_rows

_LINE = re.compile(r"[01]\t[^\t]*\t")
_LABELLED = ("context", "utterance", "label")
_RIGHT = "ground_truth_utterance"
_HEADER = re.compile(
    r'\W*context"?\W+(utterance"?\W+label|ground truth utterance)\b', re.IGNORECASE
)


def _names(names: Sequence[str]) -> Names | None:
    wanted = _LABELLED if _RIGHT not in names else ("context", _RIGHT, *_distractors(names))
    return wanted if {*wanted} <= {*names} else None


def _distractors(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith("distractor")]


_COLUMNS = Columns(
    "contexts, utterances and labels", names=("Context", "Utterance", "Label"), find=_names
)


def is_ubuntu(head: Sequence[str]) -> bool:
    """Return whether a file begins like Ubuntu V2, or has labels in most of its first lines."""
    is_csv = bool(head) and bool(_HEADER.match(head[0]))
    return is_csv or _are_labelled(head)


def _are_labelled(head: Sequence[str]) -> bool:
    # The first line must be a row, because other tables have a header.
    rows = [bool(_LINE.match(line)) for line in head]
    return bool(rows) and rows[0] and 2 * sum(rows) > len(rows)


def read_ubuntu(file: TableFile, head: Sequence[str]) -> Iterator[TaskItem]:
    """Yield the examples of a file.

    Args:
      file: the file.
      head: the first non-empty lines of the file, which show its layout.
    """
    if _are_labelled(head):
        yield from grouped_items(_labelled_lines(file), has_usual_number=True)
        return
    # A row of JSON may be any value, not only an object.
    objects = (row if isinstance(row, dict) else {} for row in read_rows(file, _COLUMNS))
    first = next(objects, None)
    if first is None:
        return
    rows = itertools.chain([first], objects)
    if _RIGHT not in first:
        labelled = (_labelled_row(row, file) for row in rows)
        yield from grouped_items(labelled, has_usual_number=False)
        return
    for row in rows:
        names = ("context", _RIGHT, *_distractors([*row]))
        texts = [value for name in names if isinstance(value := row.get(name), str)]
        if len(texts) < len(names):
            sentence = "The row has fewer columns than the header."
            yield problem_item(file.lines, "too_few_columns", sentence)
        elif empty := [
            name for name, text in zip(names[1:], texts[1:], strict=True) if not _turn(text).strip()
        ]:
            sentence = f"The row has an empty cell in the column {empty[0]}."
            yield problem_item(file.lines, "empty_cell", sentence)
        else:
            yield example_item(file.lines, _turns(texts[0]), map(_turn, texts[1:]), (0,))


def _labelled_row(row: Mapping[str, Any], file: TableFile) -> LabelledRow | TaskItem:
    context, utterance, value = (row.get(name) for name in _LABELLED)
    label = str(value)  # the value may be a number in JSON, and 1.0 in tables written by pandas
    if (
        not isinstance(context, str)
        or not isinstance(utterance, str)
        or label not in ("0", "1", "0.0", "1.0")
    ):
        sentence = "The row must have a context, an utterance and a label (0 or 1)."
        return problem_item(file.lines, "malformed_line", sentence)
    return LabelledRow(file.lines, _turns(context), _turn(utterance), label in ("1", "1.0"))


def _turns(context: str) -> tuple[str, ...]:
    return tuple(filter(None, map(_turn, context.split("__eot__"))))


def _turn(text: str) -> str:
    return " ".join(filter(None, map(str.strip, text.replace("__eot__", "").split("__eou__"))))


def _labelled_lines(file: TableFile) -> Iterator[LabelledRow | TaskItem]:
    for number, text in numbered_lines(file):
        label, *turns = (cell.strip() for cell in text.split("\t"))
        if label in ("0", "1") and len(turns) > 1:
            yield LabelledRow(number, tuple(turns[:-1]), turns[-1], label == "1")
        else:
            sentence = "The line must have a label (0 or 1), turns and a reply, separated by tabs."
            yield problem_item(number, "malformed_line", sentence)
