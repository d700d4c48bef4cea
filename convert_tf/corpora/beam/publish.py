"""The last step of `prepare` on a cluster: shards get their final names, and the report."""

import dataclasses
import itertools
import json
import os
import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from convert_tf.corpora import dumps, threads
from convert_tf.corpora.comments import Rules
from convert_tf.corpora.options import REDDIT
from convert_tf.data.schema import SPLITS
from convert_tf.data.shards import is_shard_name, shard_name

REPORT = "report.json"
TOKEN_IDS = "ids"
_REPORT_FILES = (REPORT, "report.png")
_MAX_PARTS = 4096
_PART_BYTES = 64 * 2**20
_COPIED_AT_ONCE = 2**20

Count = tuple[tuple[str, str, str], int]  # what is counted, of which source, its name


@dataclasses.dataclass(frozen=True)
class Job:
    """What the workers are told.

    Args:
        output: the data folder.
        folder: a folder of this run, for files that have no final name yet.
        files: input files by kind: `"comments"`, `"submissions"` or the name of a corpus.
        input_bytes: how much input there is.
        rules: by corpus, `"reddit"` included.
        dev_fraction: part of all data that becomes the dev split.
        num_shards: files per split.
        max_line_bytes: longer lines are dropped.
        max_bad_lines: how many lines may be unusable; None for any number.
        vocabulary: name and content of the vocabulary that lengths are measured with; None learns
            one from a sample.
    """

    output: str
    folder: str
    files: Mapping[str, list[str]]
    input_bytes: int
    rules: Mapping[str, Rules]
    dev_fraction: float
    num_shards: Mapping[str, int]
    max_line_bytes: int
    max_bad_lines: int | None
    vocabulary: tuple[str, bytes] | None

    @property
    def num_parts(self) -> int:
        """Parts of a shard: a worker sorts one part at a time in memory.

        The records of a split are about as large as its share of compressed dumps.
        """
        shares = {
            "train": threads.TRAIN_FRACTION,
            "dev": self.dev_fraction,
            "test": 1 - threads.TRAIN_FRACTION,
        }
        largest = max(share / self.num_shards[split] for split, share in shares.items())
        return min(_MAX_PARTS, 1 + int(self.input_bytes * largest) // _PART_BYTES)


def open_file(path: str) -> BinaryIO:
    """A file's bytes as they are stored, on any file system that Beam knows."""
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def create_file(path: str) -> BinaryIO:
    """A file to write bytes to, on any file system that Beam knows."""
    return FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED)


def copy(source: BinaryIO, target: BinaryIO) -> None:
    """Appends what is left of one file to another."""
    shutil.copyfileobj(source, target, _COPIED_AT_ONCE)


def find_records(folder: str) -> list[str]:
    """The record files of a folder on any file system, sorted."""
    paths = _match(folder, "*-of-*.tfrecord")
    return sorted(path for path in paths if is_shard_name(FileSystems.split(path)[1]))


def _match(folder: str, pattern: str) -> list[str]:
    file_system = FileSystems.get_filesystem(folder)
    if file_system.has_dirs() and not file_system.exists(folder):
        return []  # HDFS refuses to look into it
    found = FileSystems.match([FileSystems.join(folder, pattern)])[0].metadata_list
    return [metadata.path for metadata in found]


class Publish(beam.DoFn):
    """Gives the shards their final names and writes the report, which completes the folder.

    Without an example, or with too many unusable lines, the report goes to the folder of the run
    and nothing else happens. A runner may repeat the step after it failed half-way.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def process(
        self,
        _: None,
        shards: Iterable[tuple[int, int, str]],
        counts: Iterable[Count],
        files: Iterable[tuple[str, dumps.DumpStats]],
    ) -> None:
        job = self.job
        moves = self._moves(shards)
        report = _report(job, dict(counts), files, moves)
        too_many_bad = (
            job.max_bad_lines is not None and report["bad_lines"]["count"] > job.max_bad_lines
        )
        if not moves or too_many_bad:
            with create_file(FileSystems.join(job.folder, REPORT)) as file:
                file.write(json.dumps(report).encode("utf-8"))
            return
        if not FileSystems.exists(job.output):
            FileSystems.mkdirs(job.output)
        kept = {target for target, _ in moves}
        old = [FileSystems.join(job.output, name) for name in _REPORT_FILES]
        old += [path for path in find_records(job.output) if path not in kept]
        _delete(old)
        token_ids = FileSystems.join(job.output, TOKEN_IDS)  # those of the records before
        if FileSystems.exists(FileSystems.join(token_ids, "arrays.json")):
            delete_folder(token_ids)
        for target, source in moves:
            if not source:
                create_file(target).close()
            elif FileSystems.exists(source):  # else it was moved when the step ran before
                _delete([target])
                FileSystems.rename([source], [target])
        self._write_report(report)
        delete_folder(job.folder)

    def _moves(self, shards: Iterable[tuple[int, int, str]]) -> list[tuple[str, str]]:
        """Final and present name of each shard; those without an example have only the first."""
        job = self.job
        filled = {(split_index, shard): path for split_index, shard, path in shards}
        moves = []
        for split_index in sorted({split_index for split_index, _ in filled}):
            split = SPLITS[split_index]
            for shard in range(job.num_shards[split]):
                name = shard_name(split, shard, job.num_shards[split])
                source = filled.get((split_index, shard), "")
                moves.append((FileSystems.join(job.output, name), source))
        return moves

    def _write_report(self, report: Mapping[str, Any]) -> None:
        from convert_tf.corpora import report as reports

        with tempfile.TemporaryDirectory() as folder:
            reports.write(folder, report)
            for name in reversed(_REPORT_FILES):
                with (
                    open(os.path.join(folder, name), "rb") as source,
                    create_file(FileSystems.join(self.job.output, name)) as target,
                ):
                    copy(source, target)


def delete_folder(folder: str) -> None:
    """Deletes a folder of files, also where folders are but a part of names."""
    FileSystems.delete(_match(folder, "*"))
    _delete([folder])


def _delete(paths: Iterable[str]) -> None:
    FileSystems.delete([path for path in paths if FileSystems.exists(path)])


def _report(
    job: Job,
    totals: Mapping[tuple[str, str, str], int],
    files: Iterable[tuple[str, dumps.DumpStats]],
    moves: Iterable[tuple[str, str]],
) -> dict[str, Any]:
    """What `report.json` holds: the same as on one machine."""
    from convert_tf.corpora import report as reports

    stats = {(what, one.path): one for what, one in files}
    in_order = {what: [stats[what, path] for path in paths] for what, paths in job.files.items()}
    bad_lines = [one.bad_lines for all_stats in in_order.values() for one in all_stats]
    first_bad = list(itertools.chain.from_iterable(one.first for one in bad_lines))
    examples, history, num_threads = _written(totals)
    return reports.assemble(
        rules=job.rules,
        dev_fraction=job.dev_fraction,
        files=in_order,
        bad_lines=dumps.BadLines(
            count=sum(one.count for one in bad_lines), first=first_bad[: dumps.NUM_FIRST_BAD]
        ),
        counts=_thread_counts(job, totals, examples),
        examples=examples,
        history=history,
        num_threads=num_threads,
        lengths=_lengths(job, moves),
    )


def _written(
    totals: Mapping[tuple[str, str, str], int],
) -> tuple[dict[str, Counter[str]], Counter[int], Counter[str]]:
    """Examples by source and split, by turns of history, and threads by split."""
    examples: dict[str, Counter[str]] = {}
    history: Counter[int] = Counter()
    num_threads: Counter[str] = Counter()
    for (what, source, name), number in totals.items():
        if what == "examples":
            examples.setdefault(source, Counter())[name] = number
        elif what == "history":
            history[int(name)] = number
        elif what == "threads":
            num_threads[name] = number
    return examples, history, num_threads


def _thread_counts(
    job: Job, totals: Mapping[tuple[str, str, str], int], examples: Mapping[str, Counter[str]]
) -> dict[str, threads.ThreadCounts]:
    """What happened to the turns of each source."""
    counts: dict[str, threads.ThreadCounts] = {}
    if REDDIT in job.rules:
        counts[REDDIT] = threads.ThreadCounts()
    for (what, source, name), number in totals.items():
        if what == "counts":
            setattr(counts.setdefault(source, threads.ThreadCounts()), name, number)
        elif what in ("dropped", "changed"):
            getattr(counts.setdefault(source, threads.ThreadCounts()), what)[name] = number
    for source, one in counts.items():
        kept = sum(examples.get(source, Counter()).values())
        one.dropped["duplicate_pair"] += one.examples - kept
        one.examples = kept
    return counts


def _lengths(job: Job, moves: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Lengths in subwords of the first examples of each train shard."""
    from convert_tf.corpora import report as reports
    from convert_tf.data import records

    per_shard = -(-reports.SAMPLE_SIZE // job.num_shards["train"])
    texts: dict[str, list[str]] = {"context": [], "response": []}
    for target, source in moves:
        if source and FileSystems.split(target)[1].startswith("train-"):
            with open_file(source if FileSystems.exists(source) else target) as file:
                batch = records.parse_examples(list(_first_records(file, per_shard)))
            for role, found in texts.items():
                found.extend(text.decode("utf-8") for text in batch[role].numpy())
    with tempfile.TemporaryDirectory() as folder:
        path = None
        if job.vocabulary:
            name, content = job.vocabulary
            path = os.path.join(folder, name)
            with open(path, "wb") as vocabulary:
                vocabulary.write(content)
        return reports.subword_lengths(texts, path)


def _first_records(file: BinaryIO, number: int) -> Iterator[bytes]:
    """The first records of a TFRecord file: length, its checksum, bytes, their checksum."""
    for _ in range(number):
        head = file.read(12)
        if not head:
            return
        (length,) = struct.unpack_from("<Q", head)
        yield file.read(length)
        file.read(4)
