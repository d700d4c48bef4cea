"""Read the rows of Parquet files with DuckDB."""

import glob
import os
from collections.abc import Iterator
from typing import Any

from convert_tf.extras import needs
from convert_tf.readers.files import TableFile
from convert_tf.storage.content import is_parquet

_ROWS_AT_ONCE = 1000
# A path such as `label=a/x.parquet` must not add a column `label`.
_SELECT = "SELECT * FROM read_parquet(?, hive_partitioning = false, binary_as_string = true)"


def is_parquet_file(file: TableFile) -> bool:
    """Return whether a file is Parquet. Standard input and pipes are never read as Parquet."""
    if file.is_standard_input or not os.path.isfile(file.path):
        return False
    with file.open() as stream:
        return is_parquet(stream.read(8))


def parquet_rows(file: TableFile) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file. The values in nested columns are lists and dicts.

    Raises:
      ValueError: if the file is damaged.
      MissingLibraryError: if DuckDB is not installed.
    """
    with needs("data", "Reading Parquet files"):
        import duckdb

    file.unit, file.kind = "row", "plain"
    size = os.path.getsize(file.path)
    # With one thread, rows stay in order and only one row group is in memory.
    config: dict[str, Any] = {"threads": 1, "autoinstall_known_extensions": False}
    with duckdb.connect(config=config) as connection:
        try:
            # Brackets in a file name must not be read as a pattern.
            connection.execute(_SELECT, [glob.escape(file.path)])
            names = [column[0] for column in connection.description or ()]
            while rows := connection.fetchmany(_ROWS_AT_ONCE):
                for row in rows:
                    file.lines += 1
                    yield dict(zip(names, row, strict=True))
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"{file.name} is a Parquet file that cannot be read ({reason}). Write it again."
            ) from error
    file.compressed_bytes = size
