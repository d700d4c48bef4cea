"""Read DSTC7, track 1, subtask 1: the Ubuntu and Advising dialogues as JSON.

```
[
  {
    "example-id": 7,
    "messages-so-far": [{"speaker": "participant_1", "utterance": "is it open?"}],
    "options-for-correct-answers": [{"candidate-id": "B", "utterance": "until nine"}],
    "options-for-next": [{"candidate-id": "A", "utterance": "no idea"}, …]
  },
  …
]
```

Items are read one at a time if brackets are on separate lines, as in the published files, or if
each item is on a single line. Test files contain no answers. The answers are in a second file in
the same folder, in lines of the form `example-id TAB candidate-id TAB utterance`. This file must
have its published name: `ubuntu_test_subtask_1.json` needs `ubuntu_responses_subtask_1.tsv`. Both
files may be compressed.

Reference: arXiv 1901.03461; arXiv 1905.01969 §3.
"""

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from convert_tf.data.tasks.item import TaskItem, example_item, numbered_lines, problem_item
from convert_tf.readers.files import TableFile
from convert_tf.storage.json_text import json_of_texts
from convert_tf.storage.lines import COMPRESSED_SUFFIXES

_MESSAGES, _OPTIONS, _ANSWERS = (
    "messages-so-far", "options-for-next", "options-for-correct-answers"
)  # fmt: skip
_TEST_FILE = re.compile(r"(.*_)test(_subtask_\d.*)\.json")


def is_dstc7(head: Sequence[str]) -> bool:
    """Return whether a file begins like a DSTC7 file."""
    return any(f'"{_MESSAGES}"' in line for line in head)


def read_dstc7(file: TableFile) -> Iterator[TaskItem]:
    """Yield the items of a file.

    Args:
      file: the file. For a test file, the answers are looked up in the same folder.

    Raises:
      ValueError: if the file is not JSON or ends too early, or the answers cannot be read.
    """
    answers: Mapping[str, set[str]] | None = None
    for line, value in _values(file):
        if isinstance(value, str):
            yield problem_item(line, "not_json", value)
            continue
        try:
            name = f"Example {value['example-id']}" if "example-id" in value else "The example"
            turns = [message["utterance"] for message in value[_MESSAGES]]
            options = [(str(one["candidate-id"]), one["utterance"]) for one in value[_OPTIONS]]
            texts = [text for _, text in options]
            if not all(isinstance(text, str) for text in [*turns, *texts]):
                raise TypeError("an utterance is not a text")
            if _ANSWERS in value:
                right = {str(one["candidate-id"]) for one in value[_ANSWERS]}
            else:
                answers = _answers_of(file.path) if answers is None else answers
                right = answers.get(str(value["example-id"]), set())
        except (KeyError, TypeError) as error:
            lacks = f"has no {error}" if isinstance(error, KeyError) else f"is malformed ({error})"
            yield problem_item(line, "malformed_example", f"The example {lacks}.")
            continue
        labels = [place for place, (number, _) in enumerate(options) if number in right]
        if labels:
            yield example_item(line, turns, texts, labels)
        elif right:
            shown = ", ".join(sorted(right))
            sentence = f"{name}: its answer {shown} is not among its {len(texts)} candidates."
            yield problem_item(line, "right_answer_missing", sentence)
        else:
            yield problem_item(line, "no_answer", f"{name} has no correct answer.")


def _values(file: TableFile) -> Iterator[tuple[int, Any]]:
    """Yield the line number and value of each item. The value of a bad item is an error message."""
    lines = numbered_lines(file)
    first = next(lines, None)
    if first is None:
        return
    if first[1].strip() == "[":
        yield from _values_of_list(lines, file.path)
    elif first[1].lstrip().startswith("["):
        yield from _values_of_one_text(itertools.chain([first], lines), file.path)
    else:
        for number, line in itertools.chain([first], lines):
            yield number, _parsed(line, number)


def _values_of_list(lines: Iterator[tuple[int, str]], path: str) -> Iterator[tuple[int, Any]]:
    """Yield the items of a list whose brackets are on separate lines.

    An item is a single line, or it ends at a closing bracket with the same indentation as its
    opening bracket.
    """
    item: list[str] = []
    start, number, is_closed = 0, 1, False
    for number, line in lines:
        if not item:
            if is_closed := line.strip() == "]":
                break
            start, indent = number, len(line) - len(line.lstrip())
        is_whole = not item and line.rstrip().removesuffix(",").endswith("}")
        item.append(line)
        if is_whole or line.startswith("}", indent):
            yield start, _parsed("\n".join(item).rstrip().removesuffix(","), start)
            item = []
    if not is_closed:
        where = f" within the example that starts in line {start:,}" if item else ""
        raise ValueError(f"{path}:{number}: The JSON ends too early{where}. Copy the file again.")


def _values_of_one_text(lines: Iterator[tuple[int, str]], path: str) -> Iterator[tuple[int, Any]]:
    text = "\n".join(line for _, line in lines)
    try:
        values = json_of_texts(text)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}). Copy it again, or repair it.") from error
    for value in values:
        yield (
            1,
            value if isinstance(value, dict) else ("The list has an entry that is not an object."),
        )


def _parsed(text: str, line: int) -> Any:
    try:
        value = json_of_texts(text)
    except ValueError as error:
        return f"The example that starts in line {line:,} is not JSON ({error})."
    return value if isinstance(value, dict) else "The example is not a JSON object."


def _answers_of(path: str) -> dict[str, set[str]]:
    """Read the ids of each example's correct candidates from the answers file of a test file."""
    folder, name = os.path.split(path)
    match = _TEST_FILE.match(name)
    if match is None:
        raise ValueError(
            f"{path}: The examples have no answers. Only test files have their answers in another "
            "file. For example, ubuntu_responses_subtask_1.tsv contains the answers for "
            "ubuntu_test_subtask_1.json. Pass a file with answers, or give the test file its "
            "published name."
        )
    wanted = os.path.join(folder, f"{match[1]}responses{match[2]}.tsv")
    names = [wanted, *(wanted + suffix for suffix in sorted(COMPRESSED_SUFFIXES))]
    answers_file = next(filter(os.path.isfile, names), None)
    if answers_file is None:
        raise ValueError(
            f"{path}: The examples have no answers, and {wanted} does not exist. Put the file "
            "with the answers there."
        )
    answers: dict[str, set[str]] = {}
    for number, line in numbered_lines(TableFile(answers_file)):
        fields = line.split("\t")
        if len(fields) < 2:
            raise ValueError(
                f"{answers_file}:{number} has no candidate id after a tab. Copy the file again."
            )
        answers.setdefault(fields[0].strip(), set()).add(fields[1].strip())
    return answers
