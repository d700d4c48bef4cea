"""Turn lines of dumps into turns, and threads into rows: the steps of `prepare` on every engine.

This module uses neither TensorFlow nor an engine. An engine sorts the turns by thread and the rows
by key, and adds up the counts.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from convert_tf.corpora import threads
from convert_tf.corpora.comments import (
    Comment,
    Rules,
    parse_comment,
    parse_post,
    parse_submission,
)
from convert_tf.corpora.conversations import Conversation, hash_of
from convert_tf.corpora.dumps import CountedFile, read_objects
from convert_tf.corpora.options import REDDIT, PrepareOptions
from convert_tf.corpora.registry import CORPORA
from convert_tf.data.schema import SPLITS, Example
from convert_tf.storage.json_text import parsed_json

EXAMPLES, PAIRS, TEXTS = "examples", "pairs", "texts"
_SAMPLE_SIZE = 20_000  # train examples whose lengths are measured


class Row(NamedTuple):
    """A row to sort: `key` and `payload` are ASCII without tabs and line ends.

    There are three kinds. `EXAMPLES` are sorted by their place in the output. `PAIRS` are examples
    from which duplicates are dropped first. `TEXTS` are single texts, sorted by their hash.
    """

    kind: str
    key: str
    payload: str


class WrittenExamples:
    """Counts the written examples, and keeps a sample of them for measurements.

    The sample has the first examples of each train shard. Shards are in the order of a hash, so the
    sample is random, and the same in every run.

    Args:
        num_train_shards: number of shards of the train split.

    Attributes:
        examples: counts by source and split.
        history: number of examples by number of earlier turns.
        sample: texts by role.
    """

    def __init__(self, *, num_train_shards: int) -> None:
        self._per_shard = -(-_SAMPLE_SIZE // num_train_shards)
        self._sampled: Counter[int] = Counter()
        self.sample: dict[str, list[str]] = {"context": [], "response": []}
        self.examples: dict[str, Counter[str]] = defaultdict(Counter)
        self.history: Counter[int] = Counter()

    def add(self, split: str, shard: int, example: Example) -> None:
        """Count an example."""
        self.examples[example.source][split] += 1
        self.history[len(example.extra_contexts)] += 1
        if split == "train" and self._sampled[shard] < self._per_shard:
            self._sampled[shard] += 1
            self.sample["context"].append(example.context)
            self.sample["response"].append(example.response)

    def merge(self, later: "WrittenExamples") -> None:
        """Add the counts and the sample of later shards."""
        for source, numbers in later.examples.items():
            self.examples[source] += numbers
        self.history += later.history
        for role, texts in later.sample.items():
            self.sample[role] += texts


class RowMaker:
    """Makes turns and rows, and counts them.

    Args:
        options: rules, sizes and limits.

    Attributes:
        counts: outcomes of the turns of each source.
        num_threads: number of threads with examples by split, before duplicates are dropped.
    """

    def __init__(self, options: PrepareOptions) -> None:
        self.options = options
        self.counts: dict[str, threads.ThreadCounts] = {}
        self.num_threads: Counter[str] = Counter()

    def merge(self, other: "RowMaker") -> None:
        """Add the counts of another task."""
        for source, counts in other.counts.items():
            self.counts[source] = threads.total_counts([self._counts_of(source), counts])
        self.num_threads += other.num_threads

    def _counts_of(self, source: str) -> threads.ThreadCounts:
        return self.counts.setdefault(source, threads.ThreadCounts())

    def turns_of_dump(self, what: str, file: CountedFile) -> Iterator[Comment]:
        """Yield the usable turns of a Reddit dump.

        Args:
            what: `"comments"` or `"submissions"`.
            file: the dump, which counts what is not used.

        Raises:
            UnreadableFileError: if hardly any line can be used.
            TooManyBadLinesError: if there are more unusable lines than allowed.
        """
        rules = self.options.rules
        is_submissions = what == "submissions"
        parse = parse_submission if is_submissions else parse_comment
        changed = self._counts_of(REDDIT).changed
        num_turns = 0
        for fields in read_objects(file):
            with file.skipping():
                yield parse(fields, rules, changed=changed)
                num_turns += 1
                if rules.reads_posts and is_submissions:
                    post = parse_post(fields, rules, changed=changed)
                    if post:
                        yield post
        self._check_readable(file, num_turns)

    def conversations(self, name: str, file: CountedFile) -> Iterator[Conversation]:
        """Yield the conversations of a file of the corpus `name`. Raises as `turns_of_dump`."""
        num_turns = 0
        for conversation in CORPORA[name].read(file):
            yield conversation
            num_turns += len(conversation.turns)
        self._check_readable(file, num_turns)

    def _check_readable(self, file: CountedFile, num_turns: int) -> None:
        if self.options.max_bad_lines is None:
            file.check_readable(num_turns)

    def rows_of_thread(self, comments: Sequence[Comment]) -> Iterator[Row]:
        """Yield the rows of the turns of one Reddit thread, which may be in any order."""
        rules = self._rules_of_thread(self.options.rules, comments)
        examples = threads.create_examples(comments, rules, counts=self._counts_of(REDDIT))
        return self._rows(examples, rules, comments, REDDIT)

    def rows_of_conversation(self, name: str, conversation: Conversation) -> Iterator[Row]:
        """Yield the rows of a conversation of another corpus."""
        rules = self.options.rules_of(name)
        source = conversation.source
        counts = self._counts_of(source)
        comments = threads.comments_of(conversation, rules, changed=counts.changed)
        rules = self._rules_of_thread(rules, comments)
        examples = threads.create_examples(
            comments, rules, counts=counts, source=source, is_conversation=True
        )
        return self._rows(examples, rules, comments, source)

    def _rules_of_thread(self, rules: Rules, comments: Sequence[Comment]) -> Rules:
        split = threads.split_of(comments[0].thread_id, dev_fraction=self.options.dev_fraction)
        return rules.of_split(split)

    def _rows(
        self, examples: Iterable[Example], rules: Rules, comments: Sequence[Comment], source: str
    ) -> Iterator[Row]:
        """Yield the examples of a thread, and its texts that are in no example."""
        if rules.single_texts:
            examples = list(examples)
            for text in threads.unused_texts(comments, examples, rules):
                payload = json.dumps({"source": source, "text": text})
                yield Row(TEXTS, f"{hash_of([text])} {json.dumps(source)}", payload)
        split = ""
        for example in examples:
            place = threads.place_of(
                example, dev_fraction=self.options.dev_fraction, num_shards=self.options.num_shards
            )
            split = place.split
            key = f"{SPLITS.index(split)}-{place.shard:05d}-{place.key}"
            payload = json.dumps(example)
            if rules.deduplicate != "no":
                thread = json.dumps(example.thread_id)  # ASCII, without tabs
                pair = threads.pair_key(example, rules)
                order = int(example.is_additional)  # so that none replaces another thread's
                yield Row(PAIRS, f"{pair} {order} {thread} {key}", payload)
            else:
                yield Row(EXAMPLES, key, payload)
        if split:
            self.num_threads[split] += 1

    def unique_pairs(self, sorted_rows: Iterable[tuple[str, str]]) -> Iterator[Row]:
        """Keeps of equal pairs the one of the smallest thread id.

        Args:
            sorted_rows: key and payload of rows of the kind `PAIRS`, in the order of their keys.
        """
        kept_pair = ""
        for keys, payload in sorted_rows:
            pair, key = keys.split(" ", 1)[0], keys.rsplit(" ", 1)[1]
            if pair != kept_pair:
                yield Row(EXAMPLES, key, payload)
                kept_pair = pair
                continue
            example = Example(*parsed_json(payload))
            counts = self._counts_of(example.source)
            if example.is_additional:
                counts.additional -= 1
            else:
                counts.examples -= 1
                counts.dropped["duplicate_pair"] += 1


def unique_texts(sorted_rows: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield source and payload of single texts, each text once.

    Args:
        sorted_rows: key and payload of rows of the kind `TEXTS`, in the order of their keys.
    """
    last_hash = ""
    for key, payload in sorted_rows:
        text_hash, source = key.split(" ", 1)
        if text_hash != last_hash:
            last_hash = text_hash
            yield parsed_json(source), payload


def split_and_shard(key: str) -> tuple[str, int]:
    """Return the split and the shard of a row of the kind `EXAMPLES`, from its key."""
    split_index, shard, _ = key.split("-")
    return SPLITS[int(split_index)], int(shard)
