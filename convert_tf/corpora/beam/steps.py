"""The steps of `prepare` that the workers of a cluster run, as Apache Beam transforms.

Reading and grouping import neither TensorFlow nor DuckDB; writing imports the former. A worker
holds one thread, or one part of a shard, never a shard. Files get unique names in a folder of the
run, so that a step that a runner repeats does no harm, and their final names at the very end.
"""

import json
import os
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsIter, TaggedOutput
from apache_beam.transforms.window import GlobalWindows

from convert_tf.corpora import dumps, threads
from convert_tf.corpora.beam.publish import Job, Publish, copy, create_file, open_file
from convert_tf.corpora.comments import (
    Comment,
    Rules,
    UnusableLineError,
    parse_comment,
    parse_submission,
)
from convert_tf.corpora.options import REDDIT
from convert_tf.corpora.registry import CORPORA
from convert_tf.data.schema import SPLITS, Example

_COUNTS, _FILES, _PAIRS, _ROWS = "counts", "files", "pairs", "rows"

# Index of the split, shard, key among the examples of the shard, the example's fields.
Row = tuple[int, int, str, tuple[Any, ...]]


def build(pipeline: beam.Pipeline, job: Job) -> None:
    """Adds all steps to a pipeline, from the input files to the data folder."""
    # PCollections: turns by thread; `Row`s; (thread, row) by pair; counts; statistics of files.
    turns: list[Any] = []
    rows: list[Any] = []
    pairs: list[Any] = []
    counts: list[Any] = []
    files: list[Any] = []
    for what, paths in job.files.items():
        read = (
            pipeline
            | f"{what}: names" >> beam.Create(paths, reshuffle=False)
            | f"{what}: one worker a file" >> beam.Reshuffle()
            | f"{what}: read"
            >> beam.ParDo(
                _ReadDump(job, what) if what not in CORPORA else _ReadCorpus(job, what)
            ).with_outputs(_FILES, _COUNTS, _PAIRS, main=_ROWS)
        )
        (rows if what in CORPORA else turns).append(read[_ROWS])
        pairs.append(read[_PAIRS])
        counts.append(read[_COUNTS])
        files.append(read[_FILES])
    if turns:
        made = (
            turns
            | "turns" >> beam.Flatten(pipeline=pipeline)
            | "threads" >> beam.GroupByKey()
            | "examples" >> beam.ParDo(_MakeExamples(job)).with_outputs(_COUNTS, _PAIRS, main=_ROWS)
        )
        rows.append(made[_ROWS])
        pairs.append(made[_PAIRS])
        counts.append(made[_COUNTS])
    if any(rules.deduplicate != "no" for rules in job.rules.values()):
        rows.append(
            pairs
            | "pairs" >> beam.Flatten(pipeline=pipeline)
            | "one of equal pairs" >> beam.CombinePerKey(min)
            | "pairs kept" >> beam.Map(lambda pair: pair[1][1])
        )
    parts = (
        rows
        | "rows" >> beam.Flatten(pipeline=pipeline)
        | "part of each" >> beam.Map(_part_of, num_parts=job.num_parts)
        | "parts" >> beam.GroupByKey()
        | "write parts" >> beam.ParDo(_WriteParts(job)).with_outputs(_COUNTS, main=_ROWS)
    )
    shards = (
        parts[_ROWS] | "shards" >> beam.GroupByKey() | "join parts" >> beam.ParDo(_JoinParts(job))
    )
    totals = (
        [*counts, parts[_COUNTS]]
        | "counts" >> beam.Flatten(pipeline=pipeline)
        | "totals" >> beam.CombinePerKey(sum)
    )
    facts = files | "files" >> beam.Flatten(pipeline=pipeline)
    _ = (
        pipeline
        | "end" >> beam.Create([None], reshuffle=False)
        | "publish" >> beam.ParDo(Publish(job), AsIter(shards), AsIter(totals), AsIter(facts))
    )


def _part_of(row: Row, *, num_parts: int) -> tuple[tuple[int, int, int], Row]:
    """A row under its split, shard and part; parts follow one another as their keys do."""
    split_index, shard, key, _ = row
    return (split_index, shard, int(key[:8], 16) * num_parts >> 32), row


@beam.typehints.with_output_types(tuple[str, Any])
class _ReadDump(beam.DoFn):
    """A dump file to its usable turns, by thread."""

    def __init__(self, job: Job, what: str) -> None:
        self.job = job
        self.what = what

    def process(self, path: str) -> Iterator[Any]:
        parse = parse_submission if self.what == "submissions" else parse_comment
        rules = self.job.rules[REDDIT]
        stats = dumps.DumpStats(path)
        changed: Counter[str] = Counter()
        num_turns = 0
        for fields in dumps.read_objects(
            path, stats, max_line_bytes=self.job.max_line_bytes, open_file=open_file
        ):
            try:
                turn = parse(fields, rules, changed=changed)
            except UnusableLineError as error:
                stats.skip(error.reason, is_bad=error.is_bad)
                continue
            yield turn.thread_id, tuple(turn)
            num_turns += 1
        if self.job.max_bad_lines is None:
            stats.check_readable(num_turns)
        yield TaggedOutput(_FILES, (self.what, stats))
        for rule, number in changed.items():
            yield TaggedOutput(_COUNTS, (("changed", REDDIT, rule), number))


class _CountsExamples(beam.DoFn):
    """Makes examples of threads, and counts over a bundle what happened to them."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def start_bundle(self) -> None:
        self._counts: dict[str, threads.ThreadCounts] = {}
        self._threads: Counter[str] = Counter()

    def finish_bundle(self) -> Iterator[Any]:
        numbers = {("threads", "", split): number for split, number in self._threads.items()}
        for source, counts in self._counts.items():
            for name, value in vars(counts).items():
                if isinstance(value, Counter):
                    numbers.update({(name, source, key): n for key, n in value.items()})
                else:
                    numbers["counts", source, name] = value
        for count in numbers.items():
            yield TaggedOutput(_COUNTS, GlobalWindows.windowed_value(count))

    def counts_of(self, source: str) -> threads.ThreadCounts:
        return self._counts.setdefault(source, threads.ThreadCounts())

    def rows(self, examples: Iterable[Example], rules: Rules) -> Iterator[Any]:
        """The examples of one thread as `Row`s, or by what equal pairs share."""
        split = ""
        for example in examples:
            place = threads.place_of(
                example, dev_fraction=self.job.dev_fraction, num_shards=self.job.num_shards
            )
            split = place.split
            row = (SPLITS.index(split), place.shard, place.key, tuple(example))
            if rules.deduplicate == "no":
                yield row
            else:
                # In the order in which the engine for one machine sorts them.
                thread = json.dumps(example.thread_id)
                yield TaggedOutput(_PAIRS, (threads.pair_key(example, rules), (thread, row)))
        if split:
            self._threads[split] += 1


class _MakeExamples(_CountsExamples):
    """The turns of a Reddit thread to its examples."""

    def process(self, thread: tuple[str, Iterable[tuple[Any, ...]]]) -> Iterator[Any]:
        comments = (Comment(*turn) for turn in thread[1])
        rules = self.job.rules[REDDIT]
        examples = threads.create_examples(comments, rules, counts=self.counts_of(REDDIT))
        yield from self.rows(examples, rules)


class _ReadCorpus(_CountsExamples):
    """A file of another corpus to the examples of its conversations."""

    def __init__(self, job: Job, name: str) -> None:
        super().__init__(job)
        self.name = name

    def process(self, path: str) -> Iterator[Any]:
        rules = self.job.rules[self.name]
        stats = dumps.DumpStats(path)
        num_turns = 0
        for conversation in CORPORA[self.name].read(
            path, stats, max_line_bytes=self.job.max_line_bytes, open_file=open_file
        ):
            counts = self.counts_of(conversation.source)
            examples = threads.examples_of_conversation(conversation, rules, counts=counts)
            yield from self.rows(examples, rules)
            num_turns += len(conversation.turns)
        if self.job.max_bad_lines is None:
            stats.check_readable(num_turns)
        yield TaggedOutput(_FILES, (self.name, stats))


class _WriteParts(beam.DoFn):
    """The rows of one part to a file of records, in the order of their keys."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def process(self, part: tuple[tuple[int, int, int], Iterable[Row]]) -> Iterator[Any]:
        from convert_tf.data import records

        (split_index, shard, number), rows = part
        split = SPLITS[split_index]
        counts: Counter[tuple[str, str, str]] = Counter()
        with tempfile.TemporaryDirectory() as folder:
            with records.ExampleWriter(folder, split, num_shards=1) as writer:
                for *_, fields in sorted(rows):
                    example = Example(*fields)
                    writer.write(0, example)
                    counts["examples", example.source, split] += 1
                    counts["history", "", str(len(example.extra_contexts))] += 1
            name = f"{split}-{shard:05d}-part-{number:05d}-{uuid.uuid4().hex}.tfrecord"
            path = FileSystems.join(self.job.folder, name)
            local = os.path.join(folder, records.shard_name(split, 0, 1))
            with open(local, "rb") as source, create_file(path) as target:
                copy(source, target)
        yield (split_index, shard), (number, path)
        for count in counts.items():
            yield TaggedOutput(_COUNTS, count)


class _JoinParts(beam.DoFn):
    """The parts of a shard to one file."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def process(
        self, shard: tuple[tuple[int, int], Iterable[tuple[int, str]]]
    ) -> Iterator[tuple[int, int, str]]:
        (split_index, number), parts = shard
        paths = [path for _, path in sorted(parts)]
        path = paths[0]
        if len(paths) > 1:
            name = f"{SPLITS[split_index]}-{number:05d}-{uuid.uuid4().hex}.tfrecord"
            path = FileSystems.join(self.job.folder, name)
            with create_file(path) as target:
                for part in paths:
                    with open_file(part) as source:
                        copy(source, target)
        yield split_index, number, path
