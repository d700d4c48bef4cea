"""The file formats of the papers' tasks, and how to recognise each of them."""

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from convert_tf.data.tasks.article_search import is_label_doc, read_articles
from convert_tf.data.tasks.convai2 import is_convai2, read_convai2
from convert_tf.data.tasks.dstc7 import is_dstc7, read_dstc7
from convert_tf.data.tasks.item import Problem, TaskItem
from convert_tf.data.tasks.ubuntu import is_ubuntu, read_ubuntu
from convert_tf.data.tasks.wikiqa import is_wikiqa, read_wikiqa
from convert_tf.readers.files import TableFile
from convert_tf.readers.parquet import is_parquet_file
from convert_tf.storage.lines import InputFile, open_decompressed

_HEAD_LINES = 20  # number of non-empty lines at the start of a file that show its format
_MAX_HEAD_BYTES = 2**20  # maximum length of one of these lines


def head_of(path: str) -> list[str]:
    """Return the first non-empty lines of a text file; `[]` for Parquet files and pipes."""
    if not os.path.isfile(path) or is_parquet_file(TableFile(path)):
        return []
    with open_decompressed(InputFile(path)) as stream:
        lines = iter(lambda: stream.readline(_MAX_HEAD_BYTES), b"")
        texts = (line.decode("utf-8", "replace").lstrip("\ufeff").rstrip("\r\n") for line in lines)
        return list(islice(filter(str.strip, texts), _HEAD_LINES))


class TaskFormat(NamedTuple):
    """A file format of a task.

    Attributes:
      name: name of the flag of `prepare` for this format.
      is_format: function that recognises the format by the first non-empty lines of a file.
      read: function that yields the items of a file, before `items` checks them.
      description: help text of the flag.
      is_distinct: whether the format cannot be mistaken for a table of pairs.
    """

    name: str
    is_format: Callable[[Sequence[str]], bool]
    read: Callable[[TableFile], Iterator[TaskItem]]
    description: str
    is_distinct: bool = True

    def items(self, file: TableFile) -> Iterator[TaskItem]:
        """Yield the items of a file.

        If all examples must have the same number of candidates, an example with another number than
        the first example gets a problem. Its sentence names both examples.
        """
        usual = place = 0
        first = ""
        for item in self.read(file):
            place += item.example is not None
            if item.example and item.has_usual_number:
                number = len(item.example.candidates)
                if not usual:
                    usual, first = number, f"example number {place} (line {item.line:,})"
                if number != usual:
                    sentence = (
                        f"Example number {place} of the file has {number} candidates, but {first} "
                        f"has {usual}."
                    )
                    item = item._replace(problem=Problem("other_number_of_candidates", sentence))
            yield item


# The first format that recognises a file is used.
TASK_FORMATS = (
    TaskFormat(
        "dstc7",
        is_dstc7,
        read_dstc7,
        "DSTC7 subtask 1, Ubuntu and Advising: JSON. A test file needs the .tsv with its answers.",
    ),
    TaskFormat(
        "convai2", is_convai2, read_convai2, "ConvAI2 in its fb format, with or without candidates."
    ),
    TaskFormat(
        "ubuntu",
        is_ubuntu,
        lambda file: read_ubuntu(file, head_of(file.path)),
        "Ubuntu V2: CSV with __eou__ and __eot__, or lines of label, turns and reply.",
    ),
    TaskFormat(
        "wikiqa",
        is_wikiqa,
        read_wikiqa,
        "WikiQA: .tsv with its header, or .txt with question, sentence and label.",
    ),
    TaskFormat(
        "article_search",
        is_label_doc,
        read_articles,
        "Articles in StarSpace's labelDoc format: sentences, separated by tabs.",
        is_distinct=False,
    ),
)


def task_format_of(head: Sequence[str]) -> TaskFormat | None:
    """Return the task format of a file, or None if no format recognises it.

    Args:
      head: the first non-empty lines of the file.
    """
    return next((task for task in TASK_FORMATS if task.is_format(head)), None)
