"""Dump files and other corpora to a data folder on one machine: what `prepare` does.

Comments stream from the dumps into an external sort by thread; each thread's examples, and those of
corpora whose files hold whole conversations, stream into a second sort by their place on disk, and
from there into the shards. Memory holds one thread, not the dumps.
"""

import contextlib
import itertools
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from convert_tf.corpora import dumps, report, threads
from convert_tf.corpora.comments import (
    Comment,
    Rules,
    UnusableLineError,
    parse_comment,
    parse_post,
    parse_submission,
)
from convert_tf.corpora.conversations import hash_of
from convert_tf.corpora.options import REDDIT, PrepareOptions
from convert_tf.corpora.registry import CORPORA
from convert_tf.corpora.sorting import ExternalSorter
from convert_tf.data import records
from convert_tf.data.schema import SPLITS, Example
from convert_tf.data.shards import record_files
from convert_tf.data.token_writer import tokenize_records
from convert_tf.storage.folders import OutputFolder
from convert_tf.storage.json_text import parsed_json
from convert_tf.storage.progress import Progress
from convert_tf.storage.streams import zst_written

REPORT_FILES = ("report.json", "report.png")
SINGLE_TEXTS = "single_texts.jsonl.zst"
TOKEN_IDS = "ids"


def prepare(
    inputs: Sequence[str],
    output: str,
    *,
    submissions: Sequence[str] = (),
    corpora: Mapping[str, Sequence[str]] | None = None,
    options: PrepareOptions | None = None,
    vocabulary: str | None = None,
    tokenize: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes a data folder from dump files and other corpora.

    The folder appears complete or not at all: everything is written to a temporary folder and
    renamed at the end. A run that was killed leaves that folder; the next one with the same output
    deletes it and begins anew.

    Args:
        inputs: files of Reddit comments.
        output: the data folder.
        submissions: files of Reddit submissions.
        corpora: files of other corpora by the corpus's name.
        options: rules, sizes and limits.
        vocabulary: a vocabulary file to measure lengths with; None learns one from a sample.
        tokenize: whether token ids are written too, to `ids/` in the folder, with `vocabulary`.
        overwrite: whether records that are in the folder already may be replaced.

    Returns:
        The report, as written to `report.json`.

    Raises:
        ValueError: there is data in the folder already, another process writes it, there is no
            example in the input, there are more unusable lines than allowed, or `tokenize` comes
            without a vocabulary.
        OSError: a file cannot be read or written; `errno.ENOSPC` when the disk is full.
    """
    options = options or PrepareOptions()
    if tokenize and vocabulary is None:
        raise ValueError(
            "--tokenize needs --vocab. Learn a vocabulary from the records first (convert-tf "
            "vocabulary); then run convert-tf tokenize on them, or this command with --vocab."
        )
    folder = OutputFolder(
        output, data_files=_data_files, temp_dir=options.temp_dir, overwrite=overwrite
    )
    with folder.open() as place:
        written = str(place)
        job = _Job(options, scratch=folder.scratch, folder=written)
        with contextlib.closing(job):
            job.read(inputs, submissions)
            job.make_examples(corpora or {})
            job.deduplicate()
            job.write()
            job.write_single_texts()
        finished = job.report(vocabulary)
        report.write(written, finished)
        if tokenize and vocabulary is not None:
            tokenize_records(written, os.path.join(written, TOKEN_IDS), vocabulary=vocabulary)
    return finished


def _data_files(folder: str) -> list[str]:
    others = (os.path.join(folder, name) for name in (*REPORT_FILES, SINGLE_TEXTS, TOKEN_IDS))
    return [*record_files(folder), *(path for path in others if os.path.exists(path))]


class _Job:
    """One run's sorters and counts; its methods are called in the order they stand in."""

    def __init__(self, options: PrepareOptions, *, scratch: str, folder: str) -> None:
        self.options = options
        self.folder = folder
        self.counts: dict[str, threads.ThreadCounts] = {}
        self.files: dict[str, list[dumps.DumpStats]] = {"comments": [], "submissions": []}
        self.rules: dict[str, Rules] = {}
        self.bad_lines = dumps.BadLines(limit=options.max_bad_lines)
        self.single_texts: Counter[str] = Counter()
        self.written = report.WrittenExamples(num_train_shards=options.num_shards["train"])
        self._stack = contextlib.ExitStack()
        try:
            self._turns, self._pairs, self._placed, self._texts = (
                self._stack.enter_context(
                    ExternalSorter(scratch, name=name, memory_limit=options.memory_limit)
                )
                for name in ("turns", "pairs", "examples", "texts")
            )
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        self._stack.close()

    def read(self, inputs: Sequence[str], submissions: Sequence[str]) -> None:
        """Sends the usable lines of Reddit dumps to the sort by thread."""
        if not inputs and not submissions:
            return
        rules = self.rules[REDDIT] = self.options.rules
        changed = self.counts.setdefault(REDDIT, threads.ThreadCounts()).changed
        for what, paths, parse in (
            ("comments", inputs, parse_comment),
            ("submissions", submissions, parse_submission),
        ):
            with Progress(f"{what} read", total_bytes=_total_bytes(paths)) as progress:
                for stats, before in self._open(what, paths):
                    num_turns = 0
                    for fields in dumps.read_objects(
                        stats.path, stats, max_line_bytes=self.options.max_line_bytes
                    ):
                        progress.add(bytes_done=before + stats.compressed_bytes)
                        try:
                            turn = parse(fields, rules, changed=changed)
                        except UnusableLineError as error:
                            stats.skip(error.reason, is_bad=error.is_bad)
                            continue
                        self._turns.add(turn.thread_id, json.dumps(turn))
                        num_turns += 1
                        if rules.reads_posts and what == "submissions":
                            post = parse_post(fields, rules, changed=changed)
                            if post:
                                self._turns.add(post.thread_id, json.dumps(post))
                    self._check_readable(stats, num_turns)

    def make_examples(self, corpora: Mapping[str, Sequence[str]]) -> None:
        """Threads and conversations to examples, in the sort by pair or by place."""
        if self._turns.num_rows:
            counts = self.counts[REDDIT]
            with Progress("comments in threads", total=self._turns.num_rows) as progress:
                for _, rows in itertools.groupby(self._turns.sorted_rows(), key=lambda row: row[0]):
                    comments = [Comment(*parsed_json(payload)) for _, payload in rows]
                    progress.add(len(comments))
                    rules = self._rules_of_thread(self.options.rules, comments)
                    examples = threads.create_examples(comments, rules, counts=counts)
                    self._add(examples, rules, comments, REDDIT)
        self._turns.close()
        for name, paths in corpora.items():
            self._read_corpus(name, paths)

    def _read_corpus(self, name: str, paths: Sequence[str]) -> None:
        rules = self.rules[name] = self.options.rules_of(name)
        with Progress(f"turns of {name} read", total_bytes=_total_bytes(paths)) as progress:
            for stats, before in self._open(name, paths):
                num_turns = 0
                for conversation in CORPORA[name].read(
                    stats.path, stats, max_line_bytes=self.options.max_line_bytes
                ):
                    progress.add(
                        len(conversation.turns), bytes_done=before + stats.compressed_bytes
                    )
                    source = conversation.source
                    counts = self.counts.setdefault(source, threads.ThreadCounts())
                    comments = threads.comments_of(conversation, rules, changed=counts.changed)
                    own = self._rules_of_thread(rules, comments)
                    examples = threads.create_examples(
                        comments, own, counts=counts, source=source, is_conversation=True
                    )
                    self._add(examples, own, comments, source)
                    num_turns += len(conversation.turns)
                self._check_readable(stats, num_turns)

    def _check_readable(self, stats: dumps.DumpStats, num_turns: int) -> None:
        if self.options.max_bad_lines is None:
            stats.check_readable(num_turns)

    def _rules_of_thread(self, rules: Rules, comments: Sequence[Comment]) -> Rules:
        split = threads.split_of(comments[0].thread_id, dev_fraction=self.options.dev_fraction)
        return rules.of_split(split)

    def _add(
        self, examples: Iterable[Example], rules: Rules, comments: Sequence[Comment], source: str
    ) -> None:
        """Sends the examples of one thread on, and its texts that are in none of them."""
        if rules.single_texts:
            examples = list(examples)
            for text in threads.unused_texts(comments, examples, rules):
                row = json.dumps({"source": source, "text": text})
                self._texts.add(f"{hash_of([text])} {json.dumps(source)}", row)
        split = ""
        for example in examples:
            place = threads.place_of(
                example, dev_fraction=self.options.dev_fraction, num_shards=self.options.num_shards
            )
            split = place.split
            key = f"{SPLITS.index(split)}-{place.shard:05d}-{place.key}"
            if rules.deduplicate != "no":
                thread = json.dumps(example.thread_id)  # ASCII, without tabs
                pair = threads.pair_key(example, rules)
                order = int(example.is_additional)  # so that none replaces another thread's
                self._pairs.add(f"{pair} {order} {thread} {key}", json.dumps(example))
            else:
                self._placed.add(key, json.dumps(example))
        if split:
            self.written.add_thread(split)

    def deduplicate(self) -> None:
        """Keeps of equal pairs the one of the smallest thread id."""
        if self._pairs.num_rows:
            kept = ""
            with Progress("pairs compared", total=self._pairs.num_rows) as progress:
                for keys, payload in self._pairs.sorted_rows():
                    progress.add()
                    pair, key = keys.split(" ", 1)[0], keys.rsplit(" ", 1)[1]
                    if pair != kept:
                        self._placed.add(key, payload)
                        kept = pair
                    else:
                        example = Example(*parsed_json(payload))
                        counts = self.counts[example.source]
                        if example.is_additional:
                            counts.additional -= 1
                            continue
                        counts.examples -= 1
                        counts.dropped["duplicate_pair"] += 1
        self._pairs.close()

    def write(self) -> None:
        """Examples to shards, in the order of their places."""
        for stats in itertools.chain(*self.files.values()):
            for warning in stats.warnings:
                print(f"warning: {warning}", file=sys.stderr)
        if not self._placed.num_rows:
            total = report.total_counts(self.counts.values())
            skipped = [stats.skipped for stats in itertools.chain(*self.files.values())]
            raise ValueError(report.why_no_example(total.comments, total.dropped, skipped))
        with Progress("examples written", total=self._placed.num_rows) as progress:
            records.write_shards(
                self.folder, self._observed(progress), num_shards=self.options.num_shards
            )

    def write_single_texts(self) -> None:
        """Texts that are in no example, each once, in the order of their hashes."""
        if not any(rules.single_texts for rules in self.rules.values()):
            return
        path = os.path.join(self.folder, SINGLE_TEXTS)
        written = ""
        with (
            Progress("single texts written", total=self._texts.num_rows) as progress,
            zst_written(path) as file,
        ):
            for key, row in self._texts.sorted_rows():
                progress.add()
                text, source = key.split(" ", 1)
                if text != written:
                    written = text
                    file.write(row.encode() + b"\n")
                    self.single_texts[parsed_json(source)] += 1

    def _observed(self, progress: Progress) -> Iterator[tuple[str, int, Example]]:
        for key, payload in self._placed.sorted_rows():
            split_index, shard, _ = key.split("-")
            split = SPLITS[int(split_index)]
            example = Example(*parsed_json(payload))
            self.written.add(split, int(shard), example)
            progress.add()
            yield split, int(shard), example

    def report(self, vocabulary: str | None) -> dict[str, Any]:
        """What `report.json` holds."""
        return report.assemble(
            rules=self.rules,
            dev_fraction=self.options.dev_fraction,
            files=self.files,
            bad_lines=self.bad_lines,
            counts=self.counts,
            examples=self.written.examples,
            history=self.written.history,
            num_threads=self.written.num_threads,
            lengths=self.written.lengths(vocabulary),
            single_texts=self.single_texts,
        )

    def _open(self, what: str, paths: Iterable[str]) -> Iterator[tuple[dumps.DumpStats, int]]:
        """The statistics of each file and how many bytes the files before it have."""
        before = 0
        for path in paths:
            stats = dumps.DumpStats(path, bad_lines=self.bad_lines)
            self.files.setdefault(what, []).append(stats)
            yield stats, before
            before += os.path.getsize(path)


def _total_bytes(paths: Iterable[str]) -> int:
    return sum(os.path.getsize(path) for path in paths)
