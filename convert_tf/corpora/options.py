"""Corpora and options for `prepare`, on one machine or on a cluster.

`CORPORA` lists the corpora whose files contain whole conversations, with their readers and default
rules.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from convert_tf.config.base import Config, check, option
from convert_tf.corpora import amazon_qa, dialogues, documents, opensubtitles, pairs, threads
from convert_tf.corpora.comments import Rules
from convert_tf.corpora.dumps import Conversation, CountedFile
from convert_tf.corpora.tasks import read_task
from convert_tf.data.schema import SPLITS
from convert_tf.data.tasks.formats import TASK_FORMATS

REDDIT = "reddit"
_TOO_MANY = 100_000  # numbers in the names of shards have five digits
_NO_LIMIT = 2**31 - 1  # characters


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A corpus that is not a tree of comments.

    Args:
      name: name of the corpus and of its flag.
      read: function that yields the conversations in a file. The file counts unused lines and
        turns.
      rules: fields of `comments.Rules` that differ from the defaults, with their values.
      description: help text of the flag.
    """

    name: str
    read: Callable[[CountedFile], Iterator[Conversation]]
    rules: Mapping[str, Any]
    description: str


# Users expect to find all of their answers, so lengths are not limited. Repeated rows are dropped.
# Otherwise, if two copies of a pair were in a batch, the response of one copy would count as a
# wrong answer to the context of the other.
_EVERYTHING_ONCE: dict[str, Any] = {
    **dict.fromkeys(("min_context_length", "min_response_length"), 1),
    **dict.fromkeys(("max_context_length", "max_response_length", "max_extra_length"), _NO_LIMIT),
    "deduplicate": "exact",
}
# The published sizes of these data sets include repeated examples.
_EVERYTHING: dict[str, Any] = {**_EVERYTHING_ONCE, "deduplicate": "no"}

_CORPORA = (
    Corpus(
        "dialogues",
        dialogues.read,
        {},
        'JSON lines {"turns": ["...", ...]}. A turn may also be {"text": ..., "speaker": ...}.',
    ),
    Corpus(
        "pairs",
        pairs.read,
        _EVERYTHING_ONCE,
        "CSV, TSV or JSON with context and response, question and answer, or messages.",
    ),
    Corpus(
        "amazon_qa",
        amazon_qa.read,
        _EVERYTHING_ONCE,  # the reader itself limits lengths, in words
        "AmazonQA (McAuley et al.), files qa_*.json.gz. Only texts of 4 to 59 words are used.",
    ),
    Corpus(
        "opensubtitles",
        opensubtitles.read,
        {"max_extra_length": _NO_LIMIT},
        "Subtitles: plain text, .srt, .vtt or OPUS's .xml. Each line answers the previous line.",
    ),
    Corpus(
        "documents",
        documents.read,
        _EVERYTHING_ONCE,
        "Plain text with one sentence per line and empty lines between documents; or one "
        "document per line, with tabs between its sentences.",
    ),
    *(
        Corpus(task.name, functools.partial(read_task, task=task), _EVERYTHING, task.description)
        for task in TASK_FORMATS
    ),
)
CORPORA = {corpus.name: corpus for corpus in _CORPORA}


@dataclasses.dataclass(frozen=True)
class PrepareOptions(Config):
    """Options of `prepare` in addition to the rules.

    Attributes:
      rules: the rules for Reddit.
      corpus_rules: rules for other corpora, by name. A corpus without an entry uses its defaults in
        `CORPORA`.
      num_shards: number of record files, by split.
      dev_fraction: Share of all data that is moved from PolyAI's train split to the dev split.
      memory_limit: Maximum memory for sorting, for example 1GB.
      temp_dir: Folder for temporary files. Default: next to --output.
      max_bad_lines: Stop if more lines than this are unusable. By default, stop only if nearly all
        lines of a file are unusable.
    """

    rules: Rules = dataclasses.field(default_factory=Rules)
    corpus_rules: Mapping[str, Rules] = dataclasses.field(default_factory=dict)
    num_shards: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: {"train": 16, "dev": 1, "test": 4}
    )
    dev_fraction: float = option(0.01, at_least=0, at_most=threads.TRAIN_FRACTION)
    memory_limit: str = "512MB"
    temp_dir: str = ""
    max_bad_lines: int | None = option(None, at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = self.num_shards.values()
        check(
            set(self.num_shards) == set(SPLITS) and min(numbers) >= 1 and max(numbers) < _TOO_MANY,
            f"num_shards must be at least 1 and below {_TOO_MANY:,} for each split.",
            dict(self.num_shards),
        )

    def rules_by_corpus(self, paths: Mapping[str, Collection[Any]]) -> dict[str, Rules]:
        """Return the rules for each corpus that a run reads, given its `paths` by kind of file."""
        kinds = (kind for kind, files in paths.items() if files)
        names = dict.fromkeys(kind if kind in CORPORA else REDDIT for kind in kinds)
        return {name: self.rules_of(name) for name in names}

    def rules_of(self, corpus: str) -> Rules:
        """Return the rules for a corpus, which may be `"reddit"`."""
        if corpus == REDDIT:
            return self.rules
        return self.corpus_rules.get(corpus) or Rules(**CORPORA[corpus].rules)
