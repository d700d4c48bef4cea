"""Dump files and other corpora to a data folder on a Spark cluster: `prepare --engine=spark`.

The same functions as on one machine, and the same bytes in the same files. Spark groups the turns
of a thread with one shuffle and sorts the examples into their shards with another. If equal pairs
are dropped, there is a third one between them. Each attempt of a task writes files under its own
names, on a disk that all machines share. Of each task, the driver keeps the files of one attempt
and gives them their final names.
"""

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from convert_tf.corpora import dumps, report
from convert_tf.corpora.data_folder import SINGLE_TEXTS, open_data_folder
from convert_tf.corpora.options import REDDIT, PrepareOptions
from convert_tf.corpora.registry import CORPORA
from convert_tf.corpora.rows import RowMaker, WrittenExamples
from convert_tf.corpora.spark.cluster import cluster
from convert_tf.corpora.spark.tasks import (
    LIBRARIES,
    FileRead,
    FileWritten,
    Partitioner,
    Tasks,
    notes,
    pair_of,
    thread_of,
)
from convert_tf.corpora.spark.workers import check_workers
from convert_tf.data.shards import shard_name
from convert_tf.storage.streams import zst_written

_BYTES_PER_PARTITION = 16 * 2**20  # of compressed dumps, about 150 MB of lines


def prepare_with_spark(
    inputs: Sequence[str],
    output: str,
    *,
    master: str = "local[*]",
    submissions: Sequence[str] = (),
    corpora: Mapping[str, Sequence[str]] | None = None,
    options: PrepareOptions | None = None,
    vocabulary: str | None = None,
    tokenize: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes a data folder from dump files and other corpora.

    Args:
        inputs, output, submissions, corpora, vocabulary, tokenize, overwrite: see
            `convert_tf.corpora.local.prepare`; all machines see the files and the folder under one
            path.
        master: address of the cluster, as Spark's `--master`.
        options: rules, sizes and limits; `memory_limit` and `temp_dir` are not read.

    Returns:
        The report, as written to `report.json`.

    Raises:
        ValueError: as of `convert_tf.corpora.local.prepare`.
        OSError: Spark does not start, the cluster is not reached or cannot do the work, or a step
            failed, also after Spark repeated it.
    """
    files = {"comments": inputs, "submissions": submissions, **(corpora or {})}
    opened = open_data_folder(output, vocabulary=vocabulary, tokenize=tokenize, overwrite=overwrite)
    with opened as folder:
        job = _Job(options or PrepareOptions(), files, folder.scratch)
        with cluster(master) as context:
            written = job.run(context)
        # No attempt writes any more.
        if not any(one.split for one in written):
            raise ValueError(report.why_no_example(job.maker.counts, job.files))
        rules = {
            name: job.options.rules_of(name)
            for name in dict.fromkeys(
                what if what in CORPORA else REDDIT for what, paths in files.items() if paths
            )
        }
        _name_shards(written, job.options.num_shards, folder.written)
        single_texts: Counter[str] = Counter()
        if any(one.single_texts for one in rules.values()):
            single_texts = _join_texts(written, os.path.join(folder.written, SINGLE_TEXTS))
        examples = WrittenExamples(num_train_shards=1)
        for one in written:
            examples.merge(one.examples)
        folder.report = report.assemble(
            rules=rules,
            dev_fraction=job.options.dev_fraction,
            files=job.files,
            bad_lines=job.bad_lines,
            maker=job.maker,
            written=examples,
            vocabulary=vocabulary,
            single_texts=single_texts,
        )
    return folder.report


class _Job:
    """One run's steps, and what the workers' notes say."""

    def __init__(
        self, options: PrepareOptions, files: Mapping[str, Sequence[str]], scratch: str
    ) -> None:
        self.options = options
        self.paths = files
        self.maker = RowMaker(options)
        self.files: dict[str, list[dumps.CountedFile]] = {}
        self.bad_lines = dumps.BadLines()
        self._tasks = Tasks(options, folder=scratch, working_folder=os.getcwd())

    def run(self, context: Any) -> list[FileWritten]:
        """Runs all steps; gives the files of the attempts that count, in the order of shards."""
        tasks = self._tasks
        files = itertools.chain(*self.paths.values())
        check_workers(context, tasks.folder, files, libraries=LIBRARIES)
        conversations = [name for name in self.paths if name in CORPORA]
        turns = self._read(context, [name for name in self.paths if name not in CORPORA])
        num_bytes = sum(map(os.path.getsize, itertools.chain(*self.paths.values())))
        num_tasks = 2 * context.defaultParallelism + num_bytes // _BYTES_PER_PARTITION
        turns = self._shuffled(turns, Partitioner(thread_of, num_tasks))
        rows = turns.mapPartitions(tasks.make_rows).union(self._read(context, conversations))
        if any(self.options.rules_of(name).deduplicate != "no" for name in (REDDIT, *CORPORA)):
            rows = self._shuffled(rows, Partitioner(pair_of, num_tasks))
            rows = rows.mapPartitions(tasks.deduplicate)
        rows = self._shuffled(rows, Partitioner(tasks.file_of, tasks.num_files()))
        report.print_warnings(self.files)
        written = rows.mapPartitions(tasks.write).collect()
        return sorted(written, key=lambda one: (one.split, one.number))

    def _read(self, context: Any, kinds: Sequence[str]) -> Any:
        """Files of some kinds, the largest first, each read by one task."""
        files = [(what, path) for what in kinds for path in self.paths[what]]
        files.sort(key=lambda file: -os.path.getsize(file[1]))
        return context.parallelize(files, max(1, len(files))).mapPartitions(self._tasks.read)

    def _shuffled(self, items: Any, partitioner: Partitioner) -> Any:
        """Items, sorted in their new partitions.

        This also takes in the notes. The job that fetches them makes Spark run the steps before the
        shuffle. The next job reads the same shuffle.

        Raises:
            ValueError: an input file cannot be used, or too many lines are unusable.
        """
        num_partitions = partitioner.num_partitions + 1
        shuffled = items.repartitionAndSortWithinPartitions(num_partitions, partitioner)
        reads = []
        for note in items.context.runJob(shuffled, notes, [partitioner.num_partitions]):
            if isinstance(note, FileRead):
                reads.append(note)
            else:
                self.maker.merge(note)
        self._take_in(reads)
        return shuffled

    def _take_in(self, reads: Sequence[FileRead]) -> None:
        """Adds what was read from files, in the order in which one machine reads them."""
        by_file = {(one.what, one.file.name): one for one in reads}
        for what, paths in self.paths.items():
            for path in paths:
                if (read := by_file.get((what, path))) is None:
                    continue
                if read.error:
                    raise ValueError(read.error)
                self.files.setdefault(what, []).append(read.file)
                bad_lines = read.file.bad_lines
                self.bad_lines.count += bad_lines.count
                first = self.bad_lines.first + bad_lines.first
                self.bad_lines.first = first[: dumps.NUM_FIRST_BAD]
        limit = self.options.max_bad_lines
        if limit is not None and self.bad_lines.count > limit:
            self.bad_lines.refuse(limit)


def _name_shards(
    written: Sequence[FileWritten], num_shards: Mapping[str, int], folder: str
) -> None:
    """Gives the workers' files their final names, and makes the shards that got no example."""
    paths = {(one.split, one.number): one.path for one in written if one.split}
    for split in {split for split, _ in paths}:
        for number in range(num_shards[split]):
            target = os.path.join(folder, shard_name(split, number, num_shards[split]))
            if (split, number) in paths:
                os.rename(paths[split, number], target)
            else:
                with open(target, "wb"):
                    pass


def _join_texts(written: Sequence[FileWritten], path: str) -> Counter[str]:
    """Writes the workers' single texts to one file; returns their number by source."""
    single_texts: Counter[str] = Counter()
    with zst_written(path) as target:
        for one in written:
            if not one.split:
                single_texts += one.single_texts
                with open(one.path, "rb") as source:
                    shutil.copyfileobj(source, target)
    return single_texts
