"""What an example is, and the names of its features in a record."""

from typing import NamedTuple

SPLITS = ("train", "dev", "test")
MAX_EXTRA_CONTEXTS = 10
EXTRA_FEATURES = tuple(f"context/{index}" for index in range(MAX_EXTRA_CONTEXTS))


class Example(NamedTuple):
    """A context, its response and up to ten earlier turns, most recent first.

    `is_additional` says that it is made of turns that other examples are made of, too; records do
    not hold it.
    """

    thread_id: str
    response_id: str
    subreddit: str
    context: str
    response: str
    extra_contexts: tuple[str, ...]
    context_author: str
    response_author: str
    source: str = "reddit"
    is_additional: bool = False


class TurnExample(NamedTuple):
    """A conversation up to a response.

    Attributes:
      turns: what was said before, oldest first; the last one is the record's `context`.
      response: the next turn.
      source: the corpus; `""` where the record does not say.
    """

    turns: tuple[str, ...]
    response: str
    source: str
