"""Read pairs of contexts and responses, such as an FAQ, from CSV, Parquet or JSON files.

```
question,answer
Is the pool open?,Until nine.
"Do you have a garage,
or a car park?","A garage, with 20 places."
```

The first row is a header if it contains `context` and `response`, `question` and `answer`, or other
names from `convert_tf.readers.columns`. The order and case of the names do not matter, and other
columns are allowed. A table without a header must have two columns, and its first row is a pair.
JSON and Parquet files are read by their keys (`convert_tf.corpora.dialogues`). Files of the papers'
tasks are also recognised (`convert_tf.data.tasks`), except for article search, whose files look
like tables.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from convert_tf.corpora import dialogues
from convert_tf.corpora.dumps import Conversation, CountedFile
from convert_tf.corpora.tasks import read_task
from convert_tf.data.schema import PAIR
from convert_tf.data.tasks.formats import head_of, task_format_of
from convert_tf.readers.columns import LABEL, TEXT, Cells, column_names
from convert_tf.readers.tables import read_rows

# Two columns with such names contain labelled texts, or pairs of texts with the same meaning.
_OTHER_NAMES = {*TEXT, *LABEL, "sentence1", "sentence2", "premise", "hypothesis", "summary"}


def read(file: CountedFile) -> Iterator[Conversation]:
    """Yield a conversation with a context and its response per row, or the dialogues in JSON.

    The conversation id is a hash of the cleaned context (`dialogues.pair_id`), so all answers to a
    question are in the same split. A model is then never tested on a question from its
    training data, and a correct answer never counts as a wrong one.

    Args:
      file: a table (`convert_tf.readers.tables`). In JSON, a list of two texts is also a pair. The
        file counts unusable rows as `too_many_columns`, `malformed_quotes`, `nul_character`,
        `line_too_long`, `unfinished_line`, `not_json` or `invalid_utf8`, or for the reasons listed
        in `convert_tf.corpora.dialogues.conversations_in`.

    Raises:
      ValueError: if the file is neither a table nor JSON; if it is neither UTF-8 nor UTF-16 with a
        byte order mark; if it has no header and its number of columns is not two; or if it is JSON
        with an unknown shape.
    """
    task = task_format_of(head_of(file.path))
    if task and task.is_distinct:
        return read_task(file, task)
    rows = map(_without_lists, read_rows(file, _COLUMNS))
    return dialogues.conversations_in(rows, file)


def _without_lists(row: Any) -> Any:
    is_pair = isinstance(row, list) and [*map(type, row)] == [str, str]
    return dict(zip(PAIR, row, strict=True)) if is_pair else row


def _without_header(
    file: CountedFile, first: Cells, rest: Iterator[Cells]
) -> tuple[Sequence[str], Iterator[Cells]] | None:
    """Read a table with two columns as pairs, unless its first row is a header with other names."""
    if len(first) != 2:
        return None
    if {*column_names(first)} <= _OTHER_NAMES:
        raise ValueError(
            f"{file.name} has the columns {first[0]!r} and {first[1]!r}, which contain labelled "
            "texts, not pairs. Pass the file to convert-tf intent train, or name its columns "
            "'context' and 'response'."
        )
    file.warn(
        "the first row has no known column names, so it is read as a pair; if it is a header, "
        "name the columns 'context' and 'response'"
    )
    return PAIR, chain([first], rest)


_COLUMNS = dataclasses.replace(dialogues.COLUMNS, without_header=_without_header)
