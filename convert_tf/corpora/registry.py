"""The corpora whose files hold whole conversations: their readers and default rules."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from convert_tf.corpora import amazon_qa, dialogues, opensubtitles, pairs
from convert_tf.corpora.conversations import Conversation
from convert_tf.corpora.dumps import CountedFile

NO_LIMIT = 2**31 - 1  # characters


@dataclass(frozen=True)
class Corpus:
    """A corpus that is not a tree of comments.

    Args:
        name: name of its flag.
        description: help of the flag.
        read: yields the conversations of one file. The file counts what is not used.
        rules: fields of `comments.Rules` that differ from the defaults.
    """

    name: str
    description: str
    read: Callable[[CountedFile], Iterator[Conversation]]
    rules: Mapping[str, Any]


def _lengths(shortest: int, longest: int) -> dict[str, int]:
    """Return rules with the limits of contexts and responses, in characters."""
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
            # Users want to find all of their answers, so there is no limit. A row that occurs
            # twice would be its own wrong answer in a batch.
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
