"""What preparing data asks beside the files, on one machine or on a cluster."""

import dataclasses
from collections.abc import Mapping

from convert_tf.corpora import threads
from convert_tf.corpora.comments import Rules
from convert_tf.corpora.registry import CORPORA
from convert_tf.data.schema import SPLITS
from convert_tf.storage.streams import MAX_LINE_BYTES

REDDIT = "reddit"


@dataclasses.dataclass(frozen=True)
class PrepareOptions:
    """What `prepare` does beside the rules.

    Args:
        rules: which comments make examples.
        corpus_rules: rules of other corpora by the corpus's name; a corpus that is not named has
            its own (`convert_tf.corpora.registry`).
        dev_fraction: part of all data that becomes the dev split, taken from PolyAI's train split
            (0 to 0.9).
        num_shards: files per split.
        memory_limit: DuckDB's memory limit; it spills to disk beyond it.
        max_line_bytes: longer dump lines are dropped.
        max_bad_lines: how many lines may be unusable; None for any number.
        temp_dir: where temporary files go; beside the output when empty.
    """

    rules: Rules = dataclasses.field(default_factory=Rules)
    corpus_rules: Mapping[str, Rules] = dataclasses.field(default_factory=dict)
    dev_fraction: float = 0.01
    num_shards: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: {"train": 16, "dev": 1, "test": 4}
    )
    memory_limit: str = "512MB"
    max_line_bytes: int = MAX_LINE_BYTES
    max_bad_lines: int | None = None
    temp_dir: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.dev_fraction <= threads.TRAIN_FRACTION:
            raise ValueError(
                f"dev_fraction must be from 0 to 0.9. Received: {self.dev_fraction}. The default "
                "is 0.01."
            )
        if set(self.num_shards) != set(SPLITS) or min(self.num_shards.values()) < 1:
            raise ValueError(
                f"num_shards must be at least 1 for each split. Received: {dict(self.num_shards)}."
            )
        if self.max_bad_lines is not None and self.max_bad_lines < 0:
            raise ValueError(
                f"max_bad_lines must not be negative. Received: {self.max_bad_lines}. Omit it for "
                "no limit."
            )

    def rules_of(self, corpus: str) -> Rules:
        """The rules of a corpus, `"reddit"` included."""
        if corpus == REDDIT:
            return self.rules
        return self.corpus_rules.get(corpus) or Rules(**CORPORA[corpus].rules)
