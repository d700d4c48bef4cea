r"""Labelled lines of turns: Ubuntu V1, Douban and E-commerce as SMN and DAM read them.

```
1\tis it open ?\twhich pool ?\tthe big one .\tuntil nine .
0\tis it open ?\twhich pool ?\tthe big one .\ti have a cat .
```

A line has a label, the turns of the context, the oldest first, and a reply. Consecutive lines with
the same context are one example. Contexts without a right reply are not used.

Reference: arXiv 1612.01627 (SMN); ACL P18-1103 (DAM).
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from convert_tf.data.tasks.item import NumberedLines, TaskItem, example_item, problem_item

_LINE = re.compile(r"[01]\t[^\t]*\t")


class _Line(NamedTuple):
    number: int
    label: str
    context: tuple[str, ...]
    reply: str


def is_ubuntu(head: Sequence[str]) -> bool:
    """Return whether the first filled lines of a file have a label, a turn and a reply."""
    return bool(head) and all(map(_LINE.match, head))


def read_ubuntu(lines: NumberedLines, path: str) -> Iterator[TaskItem]:
    """Yield the examples of a file."""
    for context, group in itertools.groupby(_parsed(lines), key=lambda line: line.context):
        first, *others = group
        if not context:
            for line in (first, *others):
                sentence = "The line must be a label (0 or 1), turns and a reply, between tabs."
                yield problem_item(line.number, "malformed_line", sentence)
            continue
        replies = [first, *others]
        labels = [place for place, line in enumerate(replies) if line.label == "1"]
        if labels:
            yield example_item(first.number, context, (line.reply for line in replies), labels)
        else:
            sentence = f"None of the {len(replies)} replies has the label 1."
            yield problem_item(first.number, "no_right_answer", sentence, is_bad=False)


def _parsed(lines: NumberedLines) -> Iterator[_Line]:
    """Yield the lines. A malformed line has no context."""
    for number, text in lines:
        label, *turns = text.split("\t")
        if label.strip() in ("0", "1") and len(turns) > 1:
            context = tuple(turn.strip() for turn in turns[:-1])
            yield _Line(number, label.strip(), context, turns[-1].strip())
        elif text.strip():
            yield _Line(number, "", (), "")
