"""The corpora that are read into conversations: their readers and the rules they come with."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from convert_tf.corpora import amazon_qa, dialogues, dumps, opensubtitles, pairs
from convert_tf.corpora.conversations import Conversation

NO_LIMIT = 2**31 - 1  # characters


class Reader(Protocol):
    """Yields the conversations of one file, and counts in `stats` what is not used."""

    def __call__(
        self,
        path: str,
        stats: dumps.DumpStats,
        *,
        max_line_bytes: int = ...,
        open_file: dumps.OpenFile = ...,
    ) -> Iterator[Conversation]: ...


@dataclass(frozen=True)
class Corpus:
    """A corpus that is not a tree of comments.

    ```
    for path in paths:
        for conversation in corpus.read(path, stats): …
    ```

    Args:
        name: what the user calls it.
        description: one line of help.
        read: its reader.
        rules: fields of `comments.Rules` that differ from the defaults.
    """

    name: str
    description: str
    read: Reader
    rules: Mapping[str, Any]


def _lengths(shortest: int, longest: int) -> dict[str, int]:
    """Limits of contexts and responses, in characters."""
    return {
        "min_context_length": shortest,
        "max_context_length": longest,
        "min_response_length": shortest,
        "max_response_length": longest,
        "max_extra_length": longest,
    }


CORPORA: dict[str, Corpus] = {
    corpus.name: corpus
    for corpus in (
        Corpus(
            "dialogues",
            'JSON lines {"turns": ["...", ...]}. A turn may also be {"text": ..., "speaker": ...}.',
            dialogues.read,
            _lengths(9, 127),
        ),
        Corpus(
            "pairs",
            "CSV, TSV or JSON with context and response, question and answer, or messages.",
            pairs.read,
            # Every answer that a user wrote is meant to be found; a row that is there twice would
            # be its own wrong answer in a batch.
            _lengths(1, NO_LIMIT) | {"deduplicate": "exact"},
        ),
        Corpus(
            "amazon_qa",
            "AmazonQA (McAuley et al.), files qa_*.json.gz. Only texts of 4 to 59 words are used.",
            amazon_qa.read,
            _lengths(1, NO_LIMIT) | {"deduplicate": "exact"},  # the reader counts words
        ),
        Corpus(
            "opensubtitles",
            "Subtitles: plain text, .srt, .vtt or OPUS's .xml. Each line answers the one before.",
            opensubtitles.read,
            _lengths(9, 127) | {"max_extra_length": NO_LIMIT},
        ),
    )
}
