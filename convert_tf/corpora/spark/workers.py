"""Check that the workers of a Spark cluster can do the work of a run."""

import functools
import importlib
import os
import platform
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from convert_tf import __version__


def problems_of_worker(
    _: Iterable[Any], *, folder: str, files: Sequence[str], libraries: Sequence[str], version: str
) -> Iterator[str]:
    """Yield a sentence if this worker cannot do the work.

    Args:
        folder: where workers write files, on a disk that all machines share.
        files: absolute paths of input files.
        libraries: modules that workers import.
        version: version of this package on the machine of the driver.
    """
    worker = platform.node()
    missing = [name for name in (folder, *files) if not os.path.exists(name)]
    if missing:
        yield (
            f"Worker {worker} does not see {missing[0]!r}. Put input and output on a disk that all "
            "workers share under one path."
        )
        return
    for library in libraries:
        importlib.import_module(library)
    with tempfile.TemporaryFile(dir=folder):
        pass  # it can write there
    if __version__ != version:
        yield (
            f"Worker {worker} has version {__version__} of convert_tf, but this machine has "
            f"{version}. Install the same version everywhere."
        )


def check_workers(
    context: Any, folder: str, files: Iterable[str], *, libraries: Sequence[str]
) -> None:
    """Run one small task for each core of the cluster.

    Args:
        context: the SparkContext.
        folder, files, libraries: as for `problems_of_worker`. Files may have relative paths.

    Raises:
        OSError: if a worker has another version of this package, or does not see the files.
    """
    # Another disk may have a folder of the same name, but not this file.
    seen = os.path.join(folder, f"seen-by-workers-{uuid.uuid4().hex}")
    with open(seen, "wb"):
        pass
    try:
        check = functools.partial(
            problems_of_worker,
            folder=os.path.abspath(folder),
            files=[seen, *map(os.path.abspath, files)],
            libraries=libraries,
            version=__version__,
        )
        num_tasks = context.defaultParallelism
        tasks = context.parallelize(range(num_tasks), num_tasks)
        if problems := tasks.mapPartitions(check).collect():
            raise OSError(min(problems))
    finally:
        os.remove(seen)
