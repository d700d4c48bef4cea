"""Conversations as lists of turns, for corpora that are not trees of comments."""

import hashlib
import os
from collections.abc import Iterable
from typing import NamedTuple

from convert_tf.storage.streams import COMPRESSED_SUFFIXES


class Turn(NamedTuple):
    """One utterance of a speaker. `author` is empty if the corpus does not name it."""

    text: str
    author: str = ""


class Conversation(NamedTuple):
    """Consecutive turns, the oldest first.

    `id` decides the split (md5, as for a Reddit thread). It must not depend on where or in which
    order the corpus is stored. Conversations with the same id are in the same split. `source` names
    the corpus.
    """

    id: str
    source: str
    turns: tuple[Turn, ...]


def hash_of(texts: Iterable[str]) -> str:
    """Return the md5 of texts in their order, as 32 hexadecimal digits."""
    joined = "\0".join(texts)
    return hashlib.md5(joined.encode("utf-8", "surrogatepass")).hexdigest()


def base_name(path: str) -> str:
    """Return the name of a file without its folder and the suffix of its compression."""
    name = os.path.basename(path)
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in COMPRESSED_SUFFIXES else name


def corpus_name(path: str) -> str:
    """Return the name of a file without folder and suffixes: `chats` for `data/chats.jsonl.zst`."""
    return os.path.splitext(base_name(path))[0]
