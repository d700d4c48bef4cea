r"""Labelled lines of turns: Ubuntu V1, Douban and E-commerce as SMN and DAM read them.

```
1\tis it open ?\twhich pool ?\tthe big one .\tuntil nine .
0\tis it open ?\twhich pool ?\tthe big one .\ti have a cat .
```

A line has a label, the turns of the context, the oldest first, and a reply. Consecutive lines with
the same context are one example. Contexts without a right reply are not used.

Reference: arXiv 1612.01627 (SMN); ACL P18-1103 (DAM).
"""

import re
from collections.abc import Iterator, Sequence

from convert_tf.data.tasks.item import (
    LabelledRow,
    NumberedLines,
    TaskItem,
    grouped_items,
    problem_item,
)

_LINE = re.compile(r"[01]\t[^\t]*\t")


def is_ubuntu(head: Sequence[str]) -> bool:
    """Return whether most of the first filled lines have a label, a turn and a reply."""
    return 2 * sum(map(bool, map(_LINE.match, head))) > len(head)


def read_ubuntu(lines: NumberedLines, path: str) -> Iterator[TaskItem]:
    """Yield the examples of a file."""
    return grouped_items(_labelled(lines))


def _labelled(lines: NumberedLines) -> Iterator[LabelledRow | TaskItem]:
    for number, text in lines:
        if not text.strip():
            continue
        label, *turns = (cell.strip() for cell in text.split("\t"))
        if label in ("0", "1") and len(turns) > 1:
            yield LabelledRow(number, tuple(turns[:-1]), turns[-1], label == "1")
        else:
            sentence = "The line must be a label (0 or 1), turns and a reply, between tabs."
            yield problem_item(number, "malformed_line", sentence)
