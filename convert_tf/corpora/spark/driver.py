"""Dump files and other corpora to a data folder on a Spark cluster: `prepare --engine=spark`.

The functions are the same as on one machine, and so are the files. Spark groups the turns of a
thread with one shuffle and sorts the examples into their shards with another. If equal pairs are
dropped, there is a third one between them. Each attempt of a task writes files under its own names,
on a disk that all machines share. Of each task, the driver keeps the files of one attempt and gives
them their final names.
"""

import itertools
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from convert_tf.corpora import report
from convert_tf.corpora.data_folder import SINGLE_TEXTS, open_data_folder
from convert_tf.corpora.dumps import BadLines, CountedFile
from convert_tf.corpora.options import PrepareOptions
from convert_tf.corpora.registry import CORPORA
from convert_tf.corpora.rows import Output, RowMaker
from convert_tf.corpora.spark.cluster import cluster
from convert_tf.corpora.spark.tasks import (
    LIBRARIES,
    FileRead,
    FileWritten,
    Partitioner,
    Tasks,
    notes,
    thread_or_pair_of,
)
from convert_tf.corpora.spark.workers import check_workers
from convert_tf.data.shards import add_empty_shards, shard_name
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
    """Write a data folder from dump files and other corpora.

    Args:
        inputs, output, submissions, corpora, vocabulary, tokenize, overwrite: as for
            `convert_tf.corpora.local.prepare`. All machines must see the files and the folder under
            the same path.
        master: address of the cluster, as Spark's `--master`.
        options: rules, sizes and limits. `memory_limit` and `temp_dir` are not used.

    Returns:
        The report, as written to `report.json`.

    Raises:
        ValueError: as for `convert_tf.corpora.local.prepare`.
        OSError: if Spark does not start, the cluster cannot be reached or cannot do the work, or a
            step fails even after Spark repeated it.
    """
    options = options or PrepareOptions()
    paths = {"comments": inputs, "submissions": submissions, **(corpora or {})}
    opened = open_data_folder(output, vocabulary=vocabulary, tokenize=tokenize, overwrite=overwrite)
    with opened as folder:
        job = _Job(options, paths, folder.scratch)
        with cluster(master) as context:
            written = job.run(context)
        # No attempt writes any more.
        if not any(one.split for one in written):
            raise ValueError(report.why_no_example(job.maker.counts, job.files))
        for one in written:
            if one.split:
                name = shard_name(one.split, one.number, options.num_shards[one.split])
                os.rename(one.path, os.path.join(folder.written, name))
        add_empty_shards(folder.written, options.num_shards)
        if any(rules.single_texts for rules in options.rules_by_corpus(paths).values()):
            with zst_written(os.path.join(folder.written, SINGLE_TEXTS)) as target:
                for one in written:
                    if not one.split:
                        with open(one.path, "rb") as source:
                            shutil.copyfileobj(source, target)
        output_of_all = Output(num_train_shards=1)
        for one in written:
            output_of_all.merge(one.output)
        folder.report = report.assemble(
            job.files, job.bad_lines, job.maker, output_of_all, vocabulary
        )
    return folder.report


class _Job:
    """The steps of one run, and what the notes of its workers say."""

    def __init__(
        self, options: PrepareOptions, paths: Mapping[str, Sequence[str]], scratch: str
    ) -> None:
        self.options = options
        self.paths = paths
        self.maker = RowMaker(options)
        self.files: dict[str, list[CountedFile]] = {}
        self.bad_lines = BadLines(limit=options.max_bad_lines)
        self._tasks = Tasks(options, folder=scratch, working_folder=os.getcwd())

    def run(self, context: Any) -> list[FileWritten]:
        """Run all steps. Return the files of the attempts that count, in the order of shards."""
        tasks = self._tasks
        paths = [*itertools.chain(*self.paths.values())]
        check_workers(context, tasks.folder, paths, libraries=LIBRARIES)
        num_bytes = sum(map(os.path.getsize, paths))
        num_tasks = 2 * context.defaultParallelism + num_bytes // _BYTES_PER_PARTITION
        grouped = Partitioner(thread_or_pair_of, num_tasks)
        turns = self._read(context, [what for what in self.paths if what not in CORPORA])
        rows = self._shuffled(turns, grouped).mapPartitions(tasks.make_rows)
        rows = rows.union(self._read(context, [what for what in self.paths if what in CORPORA]))
        rules = self.options.rules_by_corpus(self.paths).values()
        if any(one.deduplicate != "no" for one in rules):
            rows = self._shuffled(rows, grouped).mapPartitions(tasks.deduplicate)
        rows = self._shuffled(rows, Partitioner(tasks.file_of, tasks.num_files()))
        for file in itertools.chain(*self.files.values()):
            file.print_warnings()
        written = rows.mapPartitions(tasks.write).collect()
        return sorted(written, key=lambda one: (one.split, one.number))

    def _read(self, context: Any, kinds: Sequence[str]) -> Any:
        """Return the rows of files of some kinds. Each file is a task, the largest first."""
        files = [(what, path) for what in kinds for path in self.paths[what]]
        files.sort(key=lambda file: -os.path.getsize(file[1]))
        return context.parallelize(files, max(1, len(files))).mapPartitions(self._tasks.read)

    def _shuffled(self, items: Any, partitioner: Partitioner) -> Any:
        """Return items, sorted in their new partitions, and take in the notes.

        The job that fetches the notes makes Spark run the steps before the shuffle. The next job
        reads the same shuffle.

        Raises:
            ValueError: if an input file cannot be used, or too many lines are unusable.
        """
        num_partitions = partitioner.num_partitions + 1
        shuffled = items.repartitionAndSortWithinPartitions(num_partitions, partitioner)
        reads = {}
        for note in items.context.runJob(shuffled, notes, [partitioner.num_partitions]):
            if isinstance(note, FileRead):
                reads[note.what, note.file.name] = note
            else:
                self.maker.merge(note)
        # In the order in which one machine reads the files.
        for what, paths in self.paths.items():
            for read in (reads[what, path] for path in paths if (what, path) in reads):
                if read.error:
                    raise read.error
                self.files.setdefault(what, []).append(read.file)
                self.bad_lines.merge(read.file.bad_lines)
        return shuffled
