"""The steps of `prepare` on any engine: read rows, make examples from threads, drop duplicates.

This module does not import TensorFlow or an engine. An engine sorts the rows between the steps and
adds up the counts.
"""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from convert_tf.corpora import threads
from convert_tf.corpora.comments import Comment, Rules, parse_comment, parse_submission
from convert_tf.corpora.dumps import CountedFile, hash_of, read_objects
from convert_tf.corpora.options import CORPORA, REDDIT, PrepareOptions
from convert_tf.data.schema import PAIR, SPLITS, Example
from convert_tf.storage.json_text import parsed_json

TURNS, PAIRS, EXAMPLES, TEXTS = KINDS = "turns", "pairs", "examples", "texts"
_SAMPLE_SIZE = 20_000  # number of train examples whose lengths are measured


class Row(NamedTuple):
    """A row to sort. `key` and `payload` are ASCII without tabs and line breaks.

    There are four kinds of rows. `TURNS` are Reddit turns, sorted by thread. `PAIRS` are examples,
    sorted by a hash of context and response to find duplicates. `EXAMPLES` are examples to write,
    sorted by their place in the output. `TEXTS` are single texts, sorted by a hash of the text.
    """

    kind: str
    key: str
    payload: str


# The keys and payloads of rows of one kind, in the order of the keys.
SortedRows = Iterable[tuple[str, str]]


class Steps:
    """The steps of a run, or of one task of a run, with their counts.

    `sample` contains the first examples in each train shard. The examples in a shard are in the
    order of a hash, so the sample is random, but the same in every run.

    Args:
      options: rules, sizes and limits of the run.

    Attributes:
      counts: counts of how turns were used or why they were dropped, by source.
      num_threads: number of threads with examples by split, before duplicates are dropped.
      examples: number of written examples by source and split.
      single_texts: number of written single texts by source.
      history: number of written examples by number of earlier turns.
      sample: sampled texts by role, to measure their lengths.
    """

    def __init__(self, options: PrepareOptions) -> None:
        self.options = options
        self.counts: dict[str, threads.ThreadCounts] = defaultdict(threads.ThreadCounts)
        self.num_threads: Counter[str] = Counter()
        self.examples: dict[str, Counter[str]] = defaultdict(Counter)
        self.single_texts: Counter[str] = Counter()
        self.history: Counter[int] = Counter()
        self.sample: dict[str, list[str]] = {role: [] for role in PAIR}
        self._sampled: Counter[int] = Counter()

    def merge(self, other: "Steps") -> None:
        """Add the counts of another task, whose shards, if any, must come after this task's."""
        for source, counts in other.counts.items():
            self.counts[source] = threads.total_counts([self.counts[source], counts])
        for source, numbers in other.examples.items():
            self.examples[source] += numbers
        self.num_threads += other.num_threads
        self.single_texts += other.single_texts
        self.history += other.history
        for role, texts in other.sample.items():
            self.sample[role] += texts

    def rows_of_file(self, what: str, file: CountedFile) -> Iterator[Row]:
        """Yield the turns in a Reddit dump, or the examples and single texts from conversations.

        Args:
          what: `"comments"`, `"submissions"` or the name of another corpus.
          file: the file, which counts unused lines and turns.

        Raises:
          ValueError: if hardly any line can be used, or there are more unusable lines than
            allowed.
          FileChangedError: if the file changed before or while it was read.
        """
        file.check_unchanged()
        num_turns = 0
        if what in CORPORA:
            rules = self.options.rules_of(what)
            for conversation in CORPORA[what].read(file):
                num_turns += len(conversation.turns)
                source = conversation.source
                comments = threads.comments_of(conversation, rules, self.counts[source].changed)
                yield from self._rows(
                    comments,
                    rules,
                    source,
                    first_answer=conversation.first_answer,
                    split_id=conversation.split_id,
                )
        else:
            for turn in self._turns_of_dump(what, file):
                num_turns += 1
                yield Row(TURNS, turn.thread_id, json.dumps(turn))
        file.check_unchanged()
        if self.options.max_bad_lines is None:
            file.check_readable(num_turns, has_limit=True)

    def _turns_of_dump(self, what: str, file: CountedFile) -> Iterator[Comment]:
        rules, changed = self.options.rules, self.counts[REDDIT].changed
        for fields in read_objects(file):
            with file.skipping():
                if what == "submissions":
                    yield from parse_submission(fields, rules, changed=changed)
                else:
                    yield parse_comment(fields, rules, changed=changed)

    def rows_of_threads(self, turns: SortedRows) -> Iterator[Row]:
        """Yield the examples and single texts from Reddit threads, given rows of kind `TURNS`."""
        for _, thread in itertools.groupby(turns, key=lambda row: row[0]):
            comments = [Comment(*parsed_json(payload)) for _, payload in thread]
            yield from self._rows(comments, self.options.rules, REDDIT)

    def _rows(
        self,
        comments: Sequence[Comment],
        rules: Rules,
        source: str,
        *,
        first_answer: int | None = None,
        split_id: str = "",
    ) -> Iterator[Row]:
        """Yield the examples from a thread, and the thread's texts that are in no example.

        `first_answer` and `split_id` are the attributes of a `Conversation`. For a Reddit thread,
        `first_answer` is None and the thread's id decides the split.
        """
        split_id = split_id or comments[0].thread_id
        split = threads.split_of(split_id, dev_fraction=self.options.dev_fraction)
        rules = rules.of_split(split)
        examples: Iterable[Example] = threads.create_examples(
            comments,
            rules,
            self.counts[source],
            source,
            is_conversation=first_answer is not None,
            first_answer=first_answer or 1,
        )
        if rules.single_texts:
            examples = list(examples)
            for text in threads.unused_texts(comments, examples, rules):
                payload = json.dumps({"source": source, "text": text})
                yield Row(TEXTS, f"{hash_of([text])} {json.dumps(source)}", payload)
        for number, example in enumerate(examples):
            self.num_threads[split] += number == 0
            key = threads.output_key(example, split, num_shards=self.options.num_shards[split])
            payload = json.dumps(example)
            if rules.deduplicate != "no":
                thread = json.dumps(example.thread_id)  # ASCII, without tabs
                pair = threads.pair_key(example, rules)
                # Additional examples are sorted last, so an ordinary example with the same pair is
                # kept instead.
                order = int(example.is_additional)
                yield Row(PAIRS, f"{pair} {order} {thread} {key}", payload)
            else:
                yield Row(EXAMPLES, key, payload)

    def unique_pairs(self, pairs: SortedRows) -> Iterator[Row]:
        """Yield one example for each set of equal pairs: the one with the smallest thread id.

        Args:
          pairs: rows of the kind `PAIRS`.
        """
        kept_pair = ""
        for keys, payload in pairs:
            pair, key = keys.split(" ", 1)[0], keys.rsplit(" ", 1)[1]
            if pair != kept_pair:
                yield Row(EXAMPLES, key, payload)
                kept_pair = pair
                continue
            example = Example(*parsed_json(payload))
            counts = self.counts[example.source]
            if example.is_additional:
                counts.additional -= 1
            else:
                counts.examples -= 1
                counts.dropped["duplicate_pair"] += 1

    def examples_of(self, rows: SortedRows) -> Iterator[tuple[str, int, Example]]:
        """Yield the split, shard and example for each row of the kind `EXAMPLES`."""
        most_of_shard = -(-_SAMPLE_SIZE // self.options.num_shards["train"])
        for key, payload in rows:
            split, shard = split_and_shard(key)
            example = Example(*parsed_json(payload))
            self.examples[example.source][split] += 1
            self.history[len(example.extra_contexts)] += 1
            if split == "train" and self._sampled[shard] < most_of_shard:
                self._sampled[shard] += 1
                self.sample["context"].append(example.context)
                self.sample["response"].append(example.response)
            yield split, shard, example

    def lines_of(self, rows: SortedRows) -> Iterator[bytes]:
        """Yield the lines for the single texts file, each text once, from rows of kind `TEXTS`."""
        last_hash = ""
        for key, payload in rows:
            text_hash, source = key.split(" ", 1)
            if text_hash != last_hash:
                last_hash = text_hash
                self.single_texts[parsed_json(source)] += 1
                yield payload.encode() + b"\n"


def split_and_shard(key: str) -> tuple[str, int]:
    """Return the split and shard that the key of a row of the kind `EXAMPLES` encodes."""
    split_index, shard, _ = key.split("-")
    return SPLITS[int(split_index)], int(shard)
