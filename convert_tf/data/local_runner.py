"""Dump files to a data folder on one machine: what `prepare` does with its flags.

Comments stream from the dumps into an external sort by thread; each thread's examples stream into
a second sort by their place on disk, and from there into the shards. Memory holds one thread, not
the dumps.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from convert_tf.data import dumps, records, threads
from convert_tf.data.comments import Comment, FieldError, Rules, parse_comment, parse_submission
from convert_tf.data.grouping import ExternalSorter

_PROGRESS_EVERY = 20_000
REPORT_NAME = "report.json"


@dataclasses.dataclass(frozen=True)
class PrepareOptions:
    """What `prepare` does beside the rules.

    Args:
        rules: which comments make examples.
        dev_fraction: part of PolyAI's train split that becomes the dev split (0 to 0.9).
        num_shards: files per split.
        memory_limit: DuckDB's memory limit; it spills to disk beyond it.
        max_line_bytes: longer dump lines are dropped.
        temp_dir: where temporary files go; beside the output when empty.
    """

    rules: Rules = dataclasses.field(default_factory=Rules)
    dev_fraction: float = 0.01
    num_shards: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: {"train": 16, "dev": 1, "test": 4}
    )
    memory_limit: str = "1GB"
    max_line_bytes: int = dumps.MAX_LINE_BYTES
    temp_dir: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.dev_fraction <= threads.TRAIN_FRACTION:
            raise ValueError(
                "The dev split is taken from the train side: 0 <= dev_fraction <= 0.9. "
                f"Received: {self.dev_fraction}. The default is 0.01."
            )
        if set(self.num_shards) != set(threads.SPLITS) or min(self.num_shards.values()) < 1:
            raise ValueError(
                "Every split has at least one shard. "
                f"Received: num_shards={dict(self.num_shards)}. Pass positive numbers."
            )


class _Progress:
    """One line on a terminal, rewritten in place; nothing where there is no terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._started = time.monotonic()
        self._count = 0

    def add(self, what: str) -> None:
        self._count += 1
        if self._is_terminal and self._count % _PROGRESS_EVERY == 0:
            rate = self._count / (time.monotonic() - self._started)
            print(f"\r{self._count:,} {what}, {rate:,.0f}/s\033[K", end="", file=sys.stderr)

    def finish(self) -> None:
        if self._is_terminal and self._count >= _PROGRESS_EVERY:
            print("\r\033[K", end="", file=sys.stderr)


def _read_dumps(
    paths: Sequence[str], sorter: ExternalSorter, options: PrepareOptions, *, is_submissions: bool
) -> list[dumps.DumpStats]:
    """Adds the usable lines of dump files to a sorter, keyed by thread."""
    parse = parse_submission if is_submissions else parse_comment
    progress = _Progress()
    what = "submissions" if is_submissions else "comments"
    all_stats = []
    for path in paths:
        stats = dumps.DumpStats(path)
        all_stats.append(stats)
        for fields in dumps.read_objects(path, stats, max_line_bytes=options.max_line_bytes):
            try:
                turn = parse(fields, options.rules)
            except FieldError as error:
                stats.skip(error.reason)
                continue
            sorter.add(turn.thread_id, json.dumps(turn))
            progress.add(what)
    progress.finish()
    return all_stats


def _make_examples(
    turns: ExternalSorter,
    examples: ExternalSorter,
    options: PrepareOptions,
    counts: threads.ThreadCounts,
) -> dict[str, int]:
    """Threads to examples, in a second sorter; its key is the place of an example on disk.

    The place is a hash of thread and comment: shards and the order within them are well mixed,
    and the same whatever the order of the input.

    Returns:
        The number of threads with examples, by split.
    """
    progress = _Progress()
    num_threads = dict.fromkeys(threads.SPLITS, 0)
    for thread_id, rows in itertools.groupby(turns.sorted_rows(), key=lambda row: row[0]):
        split = threads.split_of(thread_id, dev_fraction=options.dev_fraction)
        split_index = threads.SPLITS.index(split)
        num_before = counts.examples
        comments = (Comment(*json.loads(payload)) for _, payload in rows)
        for example in threads.create_examples(comments, options.rules, counts=counts):
            name = f"{thread_id}/{example.response_id}"
            place = hashlib.md5(name.encode("utf-8")).hexdigest()
            shard = int(place[:8], 16) % options.num_shards[split]
            examples.add(f"{split_index}-{shard:05d}-{place}", json.dumps(example))
            progress.add("examples")
        num_threads[split] += counts.examples > num_before
    progress.finish()
    return num_threads


def _placed_examples(sorter: ExternalSorter) -> Iterator[tuple[str, int, threads.Example]]:
    for key, payload in sorter.sorted_rows():
        split_index, shard, _ = key.split("-")
        yield threads.SPLITS[int(split_index)], int(shard), threads.Example(*json.loads(payload))


def prepare(
    inputs: Sequence[str],
    output: str,
    *,
    submissions: Sequence[str] = (),
    options: PrepareOptions | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes a data folder from dump files.

    The folder appears complete or not at all: everything is written to a temporary folder beside
    it, or inside it if it exists, and renamed at the end.

    Args:
        inputs: files of comments.
        output: the data folder.
        submissions: files of submissions.
        options: rules, sizes and limits.
        overwrite: whether records that are in the folder already may be replaced.

    Returns:
        The report, as written to `report.json`.

    Raises:
        ValueError: there is data in the folder already, or no example in the input.
        OSError: a file cannot be read or written; `errno.ENOSPC` when the disk is full.
    """
    options = options or PrepareOptions()
    output = os.path.realpath(output)  # so that temporary folders are on the disk behind a link
    if not overwrite and records.record_files(output):
        raise ValueError(
            "The output folder must not hold records of an earlier run. "
            f"Received: {output!r}. Pass --overwrite or another --output."
        )
    parent, name = os.path.split(output)
    if os.path.exists(output) and not os.path.isdir(output):
        raise ValueError(
            f"The output is a folder. Received: {output!r}, a file. Pass another --output."
        )
    with contextlib.ExitStack() as stack:
        os.makedirs(parent, exist_ok=True)
        # Inside a folder that exists: it may be where another disk is mounted.
        near = _temporary_folder(stack, output if os.path.isdir(output) else parent, name)
        written = os.path.join(near, "records")
        os.mkdir(written)
        scratch = near
        if options.temp_dir:
            os.makedirs(options.temp_dir, exist_ok=True)
            scratch = _temporary_folder(stack, options.temp_dir, name)
        report = _write_data(inputs, submissions, options, scratch=scratch, folder=written)
        _move_into_place(written, output)
    return report


def _temporary_folder(stack: contextlib.ExitStack, parent: str, name: str) -> str:
    """A new folder that goes away with the stack."""
    folder = tempfile.mkdtemp(prefix=f".{name}.tmp-", dir=parent)
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _write_data(
    inputs: Sequence[str],
    submissions: Sequence[str],
    options: PrepareOptions,
    *,
    scratch: str,
    folder: str,
) -> dict[str, Any]:
    counts = threads.ThreadCounts()
    with (
        ExternalSorter(scratch, name="turns", memory_limit=options.memory_limit) as turns,
        ExternalSorter(scratch, name="examples", memory_limit=options.memory_limit) as examples,
    ):
        files = {
            "comments": _read_dumps(inputs, turns, options, is_submissions=False),
            "submissions": _read_dumps(submissions, turns, options, is_submissions=True),
        }
        for stats in itertools.chain(*files.values()):
            for warning in stats.warnings:
                print(f"warning: {warning}", file=sys.stderr)
        num_threads = _make_examples(turns, examples, options, counts)
        report = {
            "rules": dataclasses.asdict(options.rules) | {"dev_fraction": options.dev_fraction},
            "files": {what: [_file_report(one) for one in all] for what, all in files.items()},
            "threads": counts.as_dict(),
            "splits": {},
        }
        if not counts.examples:
            raise ValueError(
                "The dumps must hold at least one comment with a reply that the rules keep. "
                f"Received: {counts.comments} usable comments and no example; "
                f"dropped: {dict(counts.dropped)}; skipped lines: "
                f"{[one['skipped'] for one in report['files']['comments']]}. "
                "Check that --input names files of comments and that the limits are not too narrow."
            )
        turns.close()
        written = records.write_shards(
            folder, _placed_examples(examples), num_shards=options.num_shards
        )
    for split in threads.SPLITS:
        report["splits"][split] = {"examples": written[split], "threads": num_threads[split]}
    with open(os.path.join(folder, REPORT_NAME), "w", encoding="utf-8") as file:
        json.dump(report, file, indent=2, sort_keys=True)
        file.write("\n")
    return report


def _file_report(stats: dumps.DumpStats) -> dict[str, Any]:
    return {
        "file": os.path.basename(stats.path),
        "kind": stats.kind,
        "bytes": stats.compressed_bytes,
        "lines": stats.lines,
        "objects": stats.objects,
        "skipped": {reason: number for reason, number in sorted(stats.skipped.items()) if number},
        "warnings": [warning.removeprefix(f"{stats.path}: ") for warning in stats.warnings],
    }


def _move_into_place(written: str, output: str) -> None:
    """Gives what was written its final name, or replaces the data in an existing folder."""
    if not os.path.exists(output):
        os.rename(written, output)
        return
    # Not in the temporary folder: should old data fail to come back, it is still there.
    aside = tempfile.mkdtemp(prefix=".replaced-", dir=output)
    sources = [(path, aside) for path in _data_files(output)]
    sources += [(path, output) for path in _data_files(written)]
    moves = [(path, os.path.join(folder, os.path.basename(path))) for path, folder in sources]
    moved = []
    try:
        for source, target in moves:
            moved.append((source, target))
            os.rename(source, target)
    except BaseException:
        for source, target in reversed(moved):
            if not os.path.exists(source):
                os.rename(target, source)
        os.rmdir(aside)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _data_files(folder: str) -> list[str]:
    report = os.path.join(folder, REPORT_NAME)
    return [*records.record_files(folder), *([report] if os.path.exists(report) else [])]
