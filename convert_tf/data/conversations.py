"""What every corpus that is not a tree of comments is read into: conversations, turn by turn."""

from typing import NamedTuple


class Turn(NamedTuple):
    """What one speaker says at once; `author` is empty where the corpus does not tell."""

    text: str
    author: str = ""


class Conversation(NamedTuple):
    """Turns that answer one another, oldest first.

    `id` decides the split (md5, as of a Reddit thread) and must not depend on where or in which
    order the corpus is stored. `source` names the corpus.
    """

    id: str
    source: str
    turns: tuple[Turn, ...]
