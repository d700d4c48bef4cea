r"""Read ConvAI2 in its "fb" file format, with or without candidates.

```
1 your persona: i like to ski.
2 your persona: i have a cat.
3 hello , how are you ?\tfine , just back from the slopes .\t\ti am a cook .|fine , just …
4 do you ski often ?\tevery winter .\t\tevery winter .|no .
```

The lines of each dialogue are numbered from 1. A line with tabs has four fields: the partner's
turn, the reply, an unused field, and the candidates, separated by `|`. Each reply becomes an
example, whose context is everything before the reply. The persona lines, exactly as in the file,
are the first turns of the context. In files without candidates, the correct reply is the only
candidate. If the partner's turn is `__SILENCE__`, it is omitted.

Reference: arXiv 1905.01969 §3; parl.ai/docs/tasks, ConvAI2.
"""

import re
from collections.abc import Iterator, Sequence

from convert_tf.data.tasks.item import TaskItem, example_item, numbered_lines, problem_item
from convert_tf.readers.files import TableFile

_SILENCE = "__SILENCE__"
_PERSONA = re.compile(r"(your|partner's) persona: ")
_NUMBERED = re.compile(r"(\d{1,9}) (.*)", re.DOTALL)


def is_convai2(head: Sequence[str]) -> bool:
    """Return whether a file begins like a ConvAI2 file.

    In such a file, the first two lines are numbered 1 and 2, and each has a persona or a tab.
    """
    lines = [_NUMBERED.fullmatch(line) for line in head[:2]]
    return bool(lines) and all(
        line and int(line[1]) == number and (_PERSONA.match(line[2]) or "\t" in line[2])
        for number, line in enumerate(lines, 1)
    )


def read_convai2(file: TableFile) -> Iterator[TaskItem]:
    """Yield an item for each reply.

    After a missing or malformed line, the rest of the dialogue is skipped.
    """
    turns: list[str] = []
    dialogue: tuple[str, ...] = ()
    number = 0  # number of the dialogue's last line so far; −1 after a problem
    for place, line in numbered_lines(file):
        match = _NUMBERED.fullmatch(line)
        if match is None:
            number = -1
            yield problem_item(
                place, "line_without_number", "The line does not start with a number."
            )
            continue
        line_number, text = int(match[1]), match[2]
        if line_number == 1:
            turns, dialogue, number = [], (), 0
        elif number == -1:
            continue
        if line_number != number + 1:
            yield problem_item(
                place,
                "missing_line",
                f"Line {number + 1} of the dialogue is missing: line {line_number} follows line "
                f"{number}.",
            )
            number = -1
            continue
        number = line_number
        if _PERSONA.match(text) and "\t" not in text:
            turns.append(_unescaped(text))
            continue
        cells = [*text.split("\t"), "", "", ""]
        message, reply, candidates = cells[0], cells[1], cells[3]
        if message != _SILENCE:
            turns.append(_unescaped(message))
        if not reply.strip():
            yield problem_item(place, "missing_reply", "The line has no reply after a tab.")
            number = -1
            continue
        # A dialogue may occur twice, once from the view of each speaker. Both copies must be in the
        # same split.
        dialogue = dialogue or tuple(turn for turn in (message, reply) if turn != _SILENCE)[:1]
        yield _item(place, turns, reply, candidates, dialogue)
        turns.append(_unescaped(reply))


def _item(
    place: int, turns: Sequence[str], reply: str, candidates: str, dialogue: tuple[str, ...]
) -> TaskItem:
    texts = candidates.split("|") if candidates.strip() else [reply]
    labels = [i for i, text in enumerate(texts) if text == reply]
    if not labels:
        return problem_item(
            place,
            "right_answer_missing",
            f"The reply {reply[:60]!r} is not among its {len(texts)} candidates.",
        )
    return example_item(place, turns, map(_unescaped, texts), labels, dialogue=dialogue)


def _unescaped(text: str) -> str:
    return text.replace("\\n", "\n").strip()
