"""Dump files and other corpora to a data folder on one machine: what `prepare` does.

Comments stream from the dumps into an external sort by thread; each thread's examples, and those of
corpora whose files hold whole conversations, stream into a second sort by their place on disk, and
from there into the shards. Memory holds one thread, not the dumps.
"""

import contextlib
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from convert_tf.corpora import dumps, report
from convert_tf.corpora.comments import Comment, Rules
from convert_tf.corpora.data_folder import SINGLE_TEXTS, open_data_folder
from convert_tf.corpora.options import REDDIT, PrepareOptions
from convert_tf.corpora.rows import (
    EXAMPLES,
    PAIRS,
    TEXTS,
    Row,
    RowMaker,
    WrittenExamples,
    split_and_shard,
    unique_texts,
)
from convert_tf.corpora.sorting import ExternalSorter
from convert_tf.data import records
from convert_tf.data.schema import Example
from convert_tf.storage.json_text import parsed_json
from convert_tf.storage.progress import Progress
from convert_tf.storage.streams import zst_written


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
    opened = open_data_folder(
        output,
        vocabulary=vocabulary,
        tokenize=tokenize,
        overwrite=overwrite,
        temp_dir=options.temp_dir,
    )
    with opened as folder:
        job = _Job(options, scratch=folder.scratch, folder=folder.written)
        with contextlib.closing(job):
            job.read(inputs, submissions)
            job.make_examples(corpora or {})
            job.deduplicate()
            job.write()
            job.write_single_texts()
        folder.report = job.report(vocabulary)
    return folder.report


class _Job:
    """One run's sorters and counts; its methods are called in the order they stand in."""

    def __init__(self, options: PrepareOptions, *, scratch: str, folder: str) -> None:
        self.options = options
        self.folder = folder
        self.maker = RowMaker(options)
        self.files: dict[str, list[dumps.CountedFile]] = {"comments": [], "submissions": []}
        self.rules: dict[str, Rules] = {}
        self.bad_lines = dumps.BadLines(limit=options.max_bad_lines)
        self.single_texts: Counter[str] = Counter()
        self.written = WrittenExamples(num_train_shards=options.num_shards["train"])
        self._stack = contextlib.ExitStack()
        try:
            self._turns, *sorters = (
                self._stack.enter_context(
                    ExternalSorter(scratch, name=name, memory_limit=options.memory_limit)
                )
                for name in ("turns", PAIRS, EXAMPLES, TEXTS)
            )
        except BaseException:
            self._stack.close()
            raise
        self._sorters = dict(zip((PAIRS, EXAMPLES, TEXTS), sorters, strict=True))

    def close(self) -> None:
        self._stack.close()

    def read(self, inputs: Sequence[str], submissions: Sequence[str]) -> None:
        """Sends the usable lines of Reddit dumps to the sort by thread."""
        if inputs or submissions:
            self.rules[REDDIT] = self.options.rules
        for what, paths in (("comments", inputs), ("submissions", submissions)):
            with Progress(f"{what} read", total_bytes=_total_bytes(paths)) as progress:
                for file, before in self._open(what, paths):
                    for turn in self.maker.turns_of_dump(what, file):
                        progress.add(bytes_done=before + file.compressed_bytes)
                        self._turns.add(turn.thread_id, json.dumps(turn))

    def make_examples(self, corpora: Mapping[str, Sequence[str]]) -> None:
        """Threads and conversations to examples, in the sort by pair or by place."""
        if self._turns.num_rows:
            with Progress("comments in threads", total=self._turns.num_rows) as progress:
                for _, rows in itertools.groupby(self._turns.sorted_rows(), key=lambda row: row[0]):
                    comments = [Comment(*parsed_json(payload)) for _, payload in rows]
                    progress.add(len(comments))
                    self._add(self.maker.rows_of_thread(comments))
        self._turns.close()
        for name, paths in corpora.items():
            self.rules[name] = self.options.rules_of(name)
            with Progress(f"turns of {name} read", total_bytes=_total_bytes(paths)) as progress:
                for file, before in self._open(name, paths):
                    for conversation in self.maker.conversations(name, file):
                        progress.add(
                            len(conversation.turns), bytes_done=before + file.compressed_bytes
                        )
                        self._add(self.maker.rows_of_conversation(name, conversation))

    def _add(self, rows: Iterable[Row]) -> None:
        for kind, key, payload in rows:
            self._sorters[kind].add(key, payload)

    def deduplicate(self) -> None:
        """Keeps of equal pairs the one of the smallest thread id."""
        pairs = self._sorters[PAIRS]
        if pairs.num_rows:
            with Progress("pairs compared", total=pairs.num_rows) as progress:
                self._add(self.maker.unique_pairs(progress.counted(pairs.sorted_rows())))
        pairs.close()

    def write(self) -> None:
        """Examples to shards, in the order of their places."""
        report.print_warnings(self.files)
        if not self._sorters[EXAMPLES].num_rows:
            raise ValueError(report.why_no_example(self.maker.counts, self.files))
        with Progress("examples written", total=self._sorters[EXAMPLES].num_rows) as progress:
            records.write_shards(
                self.folder, self._observed(progress), num_shards=self.options.num_shards
            )

    def write_single_texts(self) -> None:
        """Texts that are in no example, each once, in the order of their hashes."""
        if not any(rules.single_texts for rules in self.rules.values()):
            return
        path = os.path.join(self.folder, SINGLE_TEXTS)
        texts = self._sorters[TEXTS]
        with (
            Progress("single texts written", total=texts.num_rows) as progress,
            zst_written(path) as file,
        ):
            for source, payload in unique_texts(progress.counted(texts.sorted_rows())):
                file.write(payload.encode() + b"\n")
                self.single_texts[source] += 1

    def _observed(self, progress: Progress) -> Iterator[tuple[str, int, Example]]:
        for key, payload in progress.counted(self._sorters[EXAMPLES].sorted_rows()):
            split, shard = split_and_shard(key)
            example = Example(*parsed_json(payload))
            self.written.add(split, shard, example)
            yield split, shard, example

    def report(self, vocabulary: str | None) -> dict[str, Any]:
        """What `report.json` holds."""
        return report.assemble(
            rules=self.rules,
            dev_fraction=self.options.dev_fraction,
            files=self.files,
            bad_lines=self.bad_lines,
            maker=self.maker,
            written=self.written,
            vocabulary=vocabulary,
            single_texts=self.single_texts,
        )

    def _open(self, what: str, paths: Iterable[str]) -> Iterator[tuple[dumps.CountedFile, int]]:
        """The files and how many bytes the files before each have."""
        before = 0
        for path in paths:
            file = dumps.CountedFile(
                path, max_line_bytes=self.options.max_line_bytes, bad_lines=self.bad_lines
            )
            self.files.setdefault(what, []).append(file)
            yield file, before
            before += os.path.getsize(path)


def _total_bytes(paths: Iterable[str]) -> int:
    return sum(os.path.getsize(path) for path in paths)
