"""Prepare data on one machine: turn dumps and other corpora into a data folder.

An external sort groups the comments in the dumps by thread. A second sort puts the examples from
threads and conversations into shard order. Comments are in memory one thread at a time.
"""

import contextlib
import errno
import functools
import itertools
import operator
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from convert_tf.corpora import data_folder
from convert_tf.corpora.data_folder import Preparation
from convert_tf.corpora.dumps import CountedFile
from convert_tf.corpora.options import CORPORA
from convert_tf.corpora.rows import EXAMPLES, KINDS, PAIRS, TEXTS, TURNS, Row, Steps
from convert_tf.data import records
from convert_tf.extras import needs
from convert_tf.storage.progress import Progress

with needs("data", "Sorting turns on this machine"):
    import duckdb

_FETCH_ROWS = 10_000
_WRITE_BUFFER = 2**20
_MIN_LINE_LIMIT = 2_000_000  # DuckDB's default
_SORT = """
    SELECT key, payload
    FROM read_csv(?, delim='\t', quote='', escape='', header=false, auto_detect=false,
                  max_line_size=?,
                  columns={'key': 'VARCHAR', 'payload': 'VARCHAR'})
    ORDER BY key
"""


class ExternalSorter:
    """Sorts rows by key, even if they do not fit into memory. A row has a key and a payload.

    Rows are written to a text file. DuckDB reads and sorts the file, and uses the disk when it
    reaches its memory limit. Keys and payloads must be ASCII without tabs and line breaks, such as
    JSON from `json.dumps`.

    Args:
      folder: an existing folder for temporary files.
      name: name for the sorter's files, which must differ between the sorters in the folder.
      memory_limit: DuckDB's memory limit, such as `"512MB"`.

    Raises:
      ValueError: if DuckDB does not understand the memory limit.
      OSError: if the disk is full (`errno.ENOSPC`), or DuckDB lost rows.
      MemoryError: if the memory limit is too low for sorting.
    """

    def __init__(self, folder: str, *, name: str, memory_limit: str = "512MB") -> None:
        self._memory_limit = memory_limit
        self.num_rows = 0
        self._longest = 0
        config: dict[str, Any] = {
            "memory_limit": memory_limit,
            "temp_directory": os.path.join(folder, f"{name}.spill"),
            "preserve_insertion_order": False,
            # Two threads need several times the memory for the same rows. They would not save time,
            # because even one thread sorts faster than the rows are consumed.
            "threads": 1,
        }
        try:
            self._connection = duckdb.connect(config=config)
        except duckdb.Error as error:
            raise ValueError(
                f"{memory_limit!r} is not a valid memory size ({error}). Pass a number with a "
                "unit, for example 1GB."
            ) from error
        self._path = os.path.join(folder, f"{name}.tsv")
        self._file = open(  # noqa: SIM115 (closed in close())
            self._path, "w", buffering=_WRITE_BUFFER, encoding="ascii", newline="\n"
        )

    def add(self, key: str, payload: str) -> None:
        """Add one row."""
        self._longest = max(self._longest, self._file.write(f"{key}\t{payload}\n"))
        self.num_rows += 1

    def sorted_rows(self) -> Iterator[tuple[str, str]]:
        """Yield all rows in bytewise order of keys, then payloads. No rows can be added afterwards.

        Spark sorts rows with equal keys in the same order. The distinct payloads of a key are in
        memory at once.
        """
        # DuckDB would need several times the memory to sort by key and payload.
        for _, rows in itertools.groupby(self._rows_by_key(), key=operator.itemgetter(0)):
            copies = Counter(rows)
            for row in sorted(copies):
                yield from itertools.repeat(row, copies[row])

    def _rows_by_key(self) -> Iterator[tuple[str, str]]:
        self._file.close()
        if not self.num_rows:
            return
        num_sorted = 0
        try:
            self._connection.execute("SET enable_progress_bar = false")
            # The limit on line lengths determines the size of DuckDB's buffers. With smaller
            # buffers, DuckDB lost rows.
            line_limit = max(_MIN_LINE_LIMIT, 2 * self._longest)
            self._connection.execute(_SORT, [self._path, line_limit])
            while rows := self._connection.fetchmany(_FETCH_ROWS):
                num_sorted += len(rows)
                yield from rows
        except duckdb.Error as error:
            message = str(error)
            if "No space left" in message or "max_temp_directory_size" in message:
                raise OSError(errno.ENOSPC, "No space left on device", self._path) from error
            if isinstance(error, duckdb.OutOfMemoryException):
                raise MemoryError(
                    f"memory_limit={self._memory_limit!r} is too small for sorting "
                    f"({message.splitlines()[0]}). Raise --memory_limit."
                ) from error
            raise
        if num_sorted != self.num_rows:
            message = f"DuckDB returned {num_sorted:,} of {self.num_rows:,} rows"
            raise OSError(errno.EIO, message, self._path)

    def close(self) -> None:
        """Delete all temporary files."""
        self._connection.close()
        try:
            self._file.close()
        finally:
            if os.path.exists(self._path):
                os.remove(self._path)


def _sort_on_disk(run: Preparation) -> None:
    """Do the work of a run on one machine; implements `data_folder.Engine`."""
    steps, options = run.steps, run.options
    with contextlib.ExitStack() as stack:

        def sorter(kind: str) -> ExternalSorter:
            new = ExternalSorter(run.scratch, name=kind, memory_limit=options.memory_limit)
            return stack.enter_context(contextlib.closing(new))

        sorters = {kind: sorter(kind) for kind in KINDS}
        for what, paths in run.paths.items():
            run.files[what] = [
                CountedFile(path, state=run.states[path], bad_lines=run.bad_lines) for path in paths
            ]
            _sort(_rows_of_files(steps, what, run.files[what]), sorters)
        _sort(steps.rows_of_threads(_sorted(sorters[TURNS], "turns in threads")), sorters)
        _sort(steps.unique_pairs(_sorted(sorters[PAIRS], "pairs compared")), sorters)
        examples = steps.examples_of(_sorted(sorters[EXAMPLES], "examples written"))
        records.write_shards(run.folder, examples, num_shards=options.num_shards)
        run.write_single_texts(steps.lines_of(_sorted(sorters[TEXTS], "single texts written")))


prepare = functools.partial(data_folder.prepare, engine=_sort_on_disk)


def _rows_of_files(steps: Steps, what: str, files: Sequence[CountedFile]) -> Iterator[Row]:
    sizes = [os.path.getsize(file.path) for file in files]
    unit = f"examples of {what}" if what in CORPORA else f"{what} read"
    with Progress(unit, total_bytes=sum(sizes)) as progress:
        for number, file in enumerate(files):
            before = sum(sizes[:number])
            for row in steps.rows_of_file(what, file):
                progress.add(bytes_done=before + file.compressed_bytes)
                yield row


def _sort(rows: Iterable[Row], sorters: Mapping[str, ExternalSorter]) -> None:
    for kind, key, payload in rows:
        sorters[kind].add(key, payload)


def _sorted(sorter: ExternalSorter, unit: str) -> Iterator[tuple[str, str]]:
    """Yield a sorter's rows in order, with a progress line, and delete the rows at the end."""
    with Progress(unit, total=sorter.num_rows) as progress:
        yield from progress.counted(sorter.sorted_rows())
    sorter.close()
