"""Prepare a data folder on a Spark cluster: `prepare --engine=spark`.

The steps and the resulting files are the same as on one machine. Spark groups turns by thread with
one shuffle and sorts examples into their shards with another. Dropping equal pairs takes a third
shuffle between these two. Each attempt of a task writes its files under unique names, on a disk
that all machines share. The driver keeps the files from one attempt per task and gives them their
final names.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from convert_tf.corpora import data_folder
from convert_tf.corpora.data_folder import Preparation
from convert_tf.corpora.options import CORPORA, PrepareOptions
from convert_tf.corpora.rows import PAIRS, TURNS, Row
from convert_tf.corpora.spark.cluster import check_workers, cluster
from convert_tf.corpora.spark.tasks import (
    LIBRARIES,
    FileRead,
    FileWritten,
    Tasks,
    notes,
    partition,
    thread_or_pair_of,
)
from convert_tf.data.shards import add_empty_shards, shard_name

_BYTES_PER_PARTITION = 16 * 2**20  # of compressed input, which is about 150 MB of lines


class _Shuffle(NamedTuple):
    """Items after a shuffle, sorted within partitions. One further partition holds the notes."""

    items: Any
    num_partitions: int


def prepare_with_spark(
    inputs: Sequence[str], output: str, *, master: str = "local[*]", **others: Any
) -> dict[str, Any]:
    """Write a data folder from dump files and other corpora.

    Args:
      inputs, output: as for `convert_tf.corpora.data_folder.prepare`. All machines must see the
        files and the folder under the same paths.
      master: address of the cluster, in the form of Spark's `--master`.
      **others: further arguments of `prepare`. The options `memory_limit` and `temp_dir` are
        ignored.

    Returns:
      The report, as written to `report.json`.

    Raises:
      ValueError: as for `prepare`.
      OSError: if Spark does not start, the cluster cannot be reached or cannot do the work, or a
        step still fails after Spark has repeated it.
    """

    def engine(run: Preparation) -> None:
        with cluster(master) as context:
            written = _written(run, context)
        # The cluster is disconnected, so no attempt of a task is still writing files.
        num_shards = run.options.num_shards
        for one in written:
            run.steps.merge(one.steps)
            if one.split:
                name = shard_name(one.split, one.number, num_shards[one.split])
                os.rename(one.path, os.path.join(run.folder, name))
        add_empty_shards(run.folder, num_shards)
        run.write_single_texts(_lines(one.path for one in written if not one.split))

    options = dataclasses.replace(others.pop("options", None) or PrepareOptions(), temp_dir="")
    return data_folder.prepare(inputs, output, engine=engine, options=options, **others)


def _lines(paths: Iterable[str]) -> Iterator[bytes]:
    for path in paths:
        with open(path, "rb") as file:
            yield from file


def _written(run: Preparation, context: Any) -> list[FileWritten]:
    """Run all steps. Return the files written by the attempts that Spark kept, in shard order."""
    tasks = Tasks(run.options, folder=run.scratch, working_folder=os.getcwd(), states=run.states)
    sizes = {
        (what, path): run.states[path].size for what, paths in run.paths.items() for path in paths
    }
    shuffles: list[_Shuffle] = []

    def shuffled(items: Any, number_of: Callable[[Row], int], num_partitions: int) -> Any:
        partitioner = partial(partition, number_of, num_partitions)
        rows = items.repartitionAndSortWithinPartitions(num_partitions + 1, partitioner)
        shuffles.append(_Shuffle(rows, num_partitions))
        _count(run, shuffles)
        return rows

    check_workers(context, tasks.folder, [path for _, path in sizes], libraries=LIBRARIES)

    def rows_of(files: Sequence[tuple[str, str]]) -> Any:
        """Return the rows in (kind, path) files. Each task reads one file, the largest first."""
        items = context.parallelize(sorted(files, key=lambda file: -sizes[file]), len(files) or 1)
        return items.mapPartitions(tasks.read)

    num_tasks = 2 * context.defaultParallelism + sum(sizes.values()) // _BYTES_PER_PARTITION
    grouped = partial(shuffled, number_of=thread_or_pair_of, num_partitions=num_tasks)
    turns = rows_of([file for file in sizes if file[0] not in CORPORA])
    rows = grouped(turns).mapPartitions(partial(tasks.replace, TURNS))
    rows = rows.union(rows_of([file for file in sizes if file[0] in CORPORA]))
    rules = run.options.rules_by_corpus(run.paths).values()
    if any(one.deduplicate != "no" for one in rules):
        rows = grouped(rows).mapPartitions(partial(tasks.replace, PAIRS))
    rows = shuffled(rows, tasks.file_of, len(tasks.files))
    written = rows.mapPartitions(tasks.write).collect()
    for error in filter(None, (one.error for one in written)):
        raise error
    _count(run, shuffles)  # Spark may have lost outputs and repeated steps
    return sorted(written, key=lambda one: (one.split, one.number))


def _count(run: Preparation, shuffles: Sequence[_Shuffle]) -> None:
    """Reset the counts, and add up the notes from all shuffles so far.

    Fetching the notes is a job that makes Spark run the steps before the newest shuffle. The next
    job reads the same shuffle. If Spark loses outputs of a shuffle and repeats their tasks, both
    the notes and the rows come from the repeated tasks.

    Raises:
      ValueError: if an input file cannot be used, or too many lines are unusable.
    """
    run.forget_counts()
    for rows, num_partitions in shuffles:
        reads = {}
        for note in rows.context.runJob(rows, notes, [num_partitions]):
            if isinstance(note, FileRead):
                reads[note.what, note.file.name] = note
            else:
                run.steps.merge(note)
        # Files are added in the order in which a single machine would read them.
        for what, paths in run.paths.items():
            for read in (reads[what, path] for path in paths if (what, path) in reads):
                if read.error:
                    raise read.error
                run.files.setdefault(what, []).append(read.file)
                run.bad_lines.add(read.file.bad_lines)
