"""The names by which columns of tables and keys of JSON objects are recognised."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Names for columns with texts or labels, in order of preference.
TEXT = (
    "text", "utterance", "sentence", "query", "question", "message", "input", "phrase", "example",
    "request",
)  # fmt: skip
LABEL = (
    "label", "intent", "label_text", "label_name", "intent_name", "category", "class", "target",
    "tag", "topic",
)  # fmt: skip
# Names for columns with labels in words. Files often have a second column that numbers the labels.
LABEL_NAMES = ("label_text", "label_name", "intent_name", "intent")
SOURCE = "source"
CANDIDATES = ("context", "candidates", "label")
TURNS = (
    "turns", "messages", "conversations", "conversation", "dialog", "dialogue", "utterances", "data"
)  # fmt: skip
# Names for contexts, each with the names for its responses. If an object matches several pairs of
# names, the first of these pairs is used. For example, an object may have `instruction`, `context`
# and `response`, or `context`, `question` and `answer`.
_RESPONSES_OF = (
    ("instruction", "output response"),
    ("context", "response"),
    ("question", "answer answers"),
    ("query", "reply positive positives pos positive_passages answer answers response"),
    ("anchor", "positive"),
    ("input", "output"),
    ("prompt", "response completion chosen"),
    ("questions", "answers answer"),
    ("inputs", "targets"),
    ("input", "target"),
    ("user", "assistant"),
    ("human", "assistant"),
    ("message", "response reply"),
    ("utterance", "response"),
    ("post", "reply response"),
    ("comment", "reply"),
    ("text", "reply response"),
    ("q", "a"),
    ("question", "response output"),
    ("prompt", "output answer"),
    ("input", "response answer"),
    ("user", "bot system"),
    ("human", "bot gpt"),
    ("query", "passage document"),
    ("input_text", "target_text"),
    ("title", "body"),
)
PAIR_NAMES = [
    (context, response) for context, responses in _RESPONSES_OF for response in responses.split()
]
# Names for columns with candidates in a table without contexts.
_CANDIDATE = ("candidate", "response", "answer", "reply", "passage", "document")
# A first line with at least two of these names is the header of a table.
KNOWN = {*TEXT, *LABEL, *_CANDIDATE, SOURCE, "id", *(name for pair in PAIR_NAMES for name in pair)}
Names = tuple[str, ...]
Cells = Sequence[str]


@functools.lru_cache(2**12)
def column_name(name: str) -> str:
    """Return a column name in normalised form: `intent_name` for `Intent Name `."""
    return "_".join(name.lower().replace("-", " ").split())


def column_names(header: Sequence[str]) -> list[str]:
    """Return the names in a header in normalised form; see `column_name`."""
    return [column_name(name) for name in header]


def with_column_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with normalised keys. Keys that are already normalised take precedence."""
    named = {column_name(key): value for key, value in fields.items()}
    return named | {key: value for key, value in fields.items() if key in named}


def filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None or NaN, which pandas writes for missing values."""
    return {key: value for key, value in fields.items() if value is not None and value == value}


def first_of(wanted: Sequence[str], names: Any) -> str | None:
    """Return the first of the wanted names that is among `names`, or None."""
    return next((name for name in wanted if name in names), None)


def names_of_pair(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the names of the context and the response, or None if they cannot be determined.

    Args:
      names: all keys or column names, in lower case.
    """
    return _pair_among(tuple(names))


@functools.lru_cache(2**10)  # the rows of a file usually have the same names
def _pair_among(names: Names) -> tuple[str, str] | None:
    for context, response in PAIR_NAMES:
        if context in names and response in names:
            return context, response
    contexts, responses = ({*names} & {*known} for known in zip(*PAIR_NAMES, strict=True))
    if len(contexts) == len(responses) == 1:  # such as `question` and `reply`
        return contexts.pop(), responses.pop()
    return None


def names_of_labelled(names: Sequence[str]) -> Names | None:
    """Return the names of the columns with text and label, or None if one is missing."""
    pair = first_of(TEXT, names), first_of(LABEL, names)
    return None if None in pair else pair  # type: ignore[return-value]


def name_of_text(names: Sequence[str]) -> Names | None:
    """Return a tuple with the name of the text column, or None if there is no such column."""
    name = first_of(TEXT, names)
    return None if name is None else (name,)


def name_of_candidate(names: Sequence[str]) -> Names | None:
    """Return a tuple with the name of the candidate column, or None if there is no such column.

    In a table of pairs, the candidates are the responses. In other tables, they are the texts.
    """
    pair = None if "candidate" in names else names_of_pair(names)
    name = pair[1] if pair else first_of((*_CANDIDATE, *TEXT), names)
    return None if name is None else (name,)


def names_of_candidates(names: Sequence[str]) -> Names | None:
    """Return the names of the columns for ranking examples, or None if one of them is missing."""
    return CANDIDATES if {*CANDIDATES} <= {*names} else None


def _refused(file: Any, first: Cells, rest: Iterator[Cells]) -> None:
    """Return None, which means that a table without a header cannot be read."""


@dataclass(frozen=True)
class Columns:
    """The columns that a caller needs from a table.

    Args:
      what: description of what the columns contain, for messages, such as `"texts and labels"`.
      names: column names that messages suggest to the user.
      find: function that takes all column names of a table and returns the names of the needed
        columns, or None if one is missing.
      is_row: function that returns whether a JSON value is a row, rather than an object that
        contains a list of rows. If None, a value is a row if `find` finds the columns in it.
      without_header: function that is called if the first row has no known column names. It takes
        the file, the first row and an iterator over the other rows. It returns the column names and
        an iterator over all rows, or None if the table cannot be read without a header.
    """

    what: str
    names: Names
    find: Callable[[Sequence[str]], Names | None]
    is_row: Callable[[Any], bool] | None = None
    without_header: Callable[
        [Any, Cells, Iterator[Cells]], tuple[Sequence[str], Iterator[Cells]] | None
    ] = _refused

    def holds_row(self, value: Any) -> bool:
        """Return whether a JSON value is a row."""
        if self.is_row is not None:
            return self.is_row(value)
        return isinstance(value, dict) and self.find(column_names([*value])) is not None
