"""The formats of the papers' tasks, and how to recognise them."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from convert_tf.data.tasks.article_search import is_label_doc, read_articles
from convert_tf.data.tasks.convai2 import is_convai2, read_convai2
from convert_tf.data.tasks.dstc7 import is_dstc7, read_dstc7
from convert_tf.data.tasks.item import NumberedLines, TaskItem
from convert_tf.data.tasks.ubuntu import is_ubuntu, read_ubuntu
from convert_tf.data.tasks.wikiqa import is_wikiqa, read_wikiqa

HEAD_LINES = 20  # number of first filled lines that tell the format


class TaskFormat(NamedTuple):
    """A format.

    Attributes:
      name: name of the flag of `prepare`.
      is_format: tells from the first filled lines whether a file has the format.
      read: yields the items of a file from its lines. The second argument is its path.
      description: help of the flag.
      is_distinct: whether no table of pairs can look like it.
      same_number: whether all examples of a file have the same number of candidates.
    """

    name: str
    is_format: Callable[[Sequence[str]], bool]
    read: Callable[[NumberedLines, str], Iterator[TaskItem]]
    description: str
    is_distinct: bool = True
    same_number: bool = True


# A file has the first format that recognises it.
TASK_FORMATS = (
    TaskFormat(
        "dstc7",
        is_dstc7,
        read_dstc7,
        "DSTC7 subtask 1, Ubuntu and Advising: JSON. A test file needs the .tsv with its answers.",
    ),
    TaskFormat(
        "convai2",
        is_convai2,
        lambda lines, path: read_convai2(lines),
        "ConvAI2 in its fb format, with or without candidates.",
    ),
    TaskFormat(
        "ubuntu",
        is_ubuntu,
        read_ubuntu,
        "Ubuntu V2: CSV with __eou__ and __eot__, or lines of label, turns and reply.",
    ),
    TaskFormat(
        "wikiqa",
        is_wikiqa,
        lambda lines, path: read_wikiqa(lines),
        "WikiQA: .tsv with its header, or .txt with question, sentence and label.",
        same_number=False,
    ),
    TaskFormat(
        "article_search",
        is_label_doc,
        lambda lines, path: read_articles(lines),
        "Articles in StarSpace's labelDoc format: sentences, separated by tabs.",
        is_distinct=False,
        same_number=False,
    ),
)


def task_format_of(head: Sequence[str]) -> TaskFormat | None:
    """Return the format of a file, or None if it has none of them.

    Args:
      head: its first filled lines.
    """
    return next((task for task in TASK_FORMATS if task.is_format(head)), None)
