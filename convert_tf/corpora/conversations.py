"""What every corpus that is not a tree of comments is read into: conversations, turn by turn."""

import hashlib
import os
from collections.abc import Iterable
from typing import NamedTuple

from convert_tf.storage.streams import COMPRESSED_SUFFIXES


class Turn(NamedTuple):
    """What one speaker says at once; `author` is empty where the corpus does not tell."""

    text: str
    author: str = ""


class Conversation(NamedTuple):
    """Turns that answer one another, oldest first.

    `id` decides the split (md5, as of a Reddit thread) and must not depend on where or in which
    order the corpus is stored. Several conversations may have one id: those that must not fall
    into different splits. `source` names the corpus.
    """

    id: str
    source: str
    turns: tuple[Turn, ...]


def hash_of(texts: Iterable[str]) -> str:
    """The md5 of texts in their order, as 32 hexadecimal digits: an id made from content."""
    joined = "\0".join(texts)
    return hashlib.md5(joined.encode("utf-8", "surrogatepass")).hexdigest()


def base_name(path: str) -> str:
    """The name of a file without its folder and without the suffix of its compression."""
    name = os.path.basename(path)
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in COMPRESSED_SUFFIXES else name


def corpus_name(path: str) -> str:
    """The name of a file without folder and suffixes: `chats` for `data/chats.jsonl.zst`."""
    return os.path.splitext(base_name(path))[0]
