"""Sort more rows than fit into memory, with DuckDB."""

import errno
import os
from collections.abc import Iterator

from convert_tf.extras import needs

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
    """Sorts rows of a key and a payload by their keys.

    Rows are written to a text file. DuckDB reads and sorts the file, and writes to disk beyond its
    memory limit. Keys and payloads are ASCII without tabs and line ends, such as the JSON of
    `json.dumps`.

    Args:
        folder: an existing folder for temporary files.
        name: distinguishes the sorters of one folder.
        memory_limit: DuckDB's limit, such as `"512MB"`.

    Raises:
        ValueError: if DuckDB does not understand the memory limit.
        OSError: with `errno.ENOSPC` if the disk is full; if rows were lost.
        MemoryError: if the memory limit is too low for sorting.
    """

    def __init__(self, folder: str, *, name: str, memory_limit: str = "512MB") -> None:
        self.folder = folder
        self.name = name
        self.memory_limit = memory_limit
        self.num_rows = 0
        self._longest = 0
        try:
            self._connection = duckdb.connect(
                config={
                    "memory_limit": memory_limit,
                    "temp_directory": os.path.join(folder, f"{name}.spill"),
                    "preserve_insertion_order": False,
                    # Two threads need several times the memory to sort the same rows, and the
                    # reader of the rows is slower than either.
                    "threads": 1,
                }
            )
        except duckdb.Error as error:
            raise ValueError(
                f"{memory_limit!r} is not a size of memory ({error}). Pass a number with a unit, "
                "for example 1GB."
            ) from error
        self._path = os.path.join(folder, f"{name}.tsv")
        self._file = open(  # noqa: SIM115 (closed in close())
            self._path, "w", buffering=_WRITE_BUFFER, encoding="ascii", newline="\n"
        )

    def __enter__(self) -> "ExternalSorter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, key: str, payload: str) -> None:
        """Add one row."""
        self._longest = max(self._longest, self._file.write(f"{key}\t{payload}\n"))
        self.num_rows += 1

    def sorted_rows(self) -> Iterator[tuple[str, str]]:
        """Yield all rows in the bytewise order of their keys. No row can be added any more."""
        self._file.close()
        if not self.num_rows:
            return
        num_sorted = 0
        try:
            self._connection.execute("SET enable_progress_bar = false")
            # The limit decides the size of DuckDB's buffers. With smaller ones it lost rows.
            line_limit = max(_MIN_LINE_LIMIT, 2 * self._longest)
            self._connection.execute(_SORT, [self._path, line_limit])
            while rows := self._connection.fetchmany(_FETCH_ROWS):
                num_sorted += len(rows)
                yield from rows
        except duckdb.Error as error:
            message = str(error)
            if "No space left" in message or "max_temp_directory_size" in message:
                raise OSError(errno.ENOSPC, "No space left on device", self.folder) from error
            if isinstance(error, duckdb.OutOfMemoryException):
                raise MemoryError(
                    f"memory_limit={self.memory_limit!r} is too small for sorting "
                    f"({message.splitlines()[0]}). Raise --memory_limit."
                ) from error
            raise
        if num_sorted != self.num_rows:
            message = f"DuckDB gave {num_sorted:,} of {self.num_rows:,} rows back"
            raise OSError(errno.EIO, message, self._path)

    def close(self) -> None:
        """Delete all temporary files."""
        self._connection.close()
        try:
            self._file.close()
        finally:
            if os.path.exists(self._path):
                os.remove(self._path)
