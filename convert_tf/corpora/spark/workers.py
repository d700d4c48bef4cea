"""Whether the workers of a Spark cluster can do what a run will ask of them."""

import importlib
import os
import platform
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from convert_tf import __version__


@dataclass(frozen=True)
class WorkerCheck:
    """Yields what keeps a worker from its work: a sentence, or nothing.

    Args:
        folder: where workers write files, on a disk that all machines share.
        files: absolute paths of what they read.
        libraries: modules that they import.
        version: that of this package on the machine of the driver.
    """

    folder: str
    files: Sequence[str]
    libraries: Sequence[str]
    version: str = __version__

    def __call__(self, _: Iterable[Any]) -> Iterator[str]:
        worker = platform.node()
        missing = [name for name in (self.folder, *self.files) if not os.path.exists(name)]
        if missing:
            yield (
                f"Worker {worker} does not see {missing[0]!r}. Put input and output on a disk that "
                "all workers share under one path."
            )
            return
        for library in self.libraries:
            importlib.import_module(library)
        with tempfile.TemporaryFile(dir=self.folder):
            pass  # it can write there
        if __version__ != self.version:
            yield (
                f"Worker {worker} has version {__version__} of convert_tf, but this machine has "
                f"{self.version}. Install the same version everywhere."
            )


def check_workers(
    context: Any, folder: str, files: Iterable[str], *, libraries: Sequence[str]
) -> None:
    """Run one small task for each core of the cluster.

    Args:
        context: the SparkContext.
        folder, files, libraries: as of `WorkerCheck`; files may have relative paths.

    Raises:
        OSError: a worker has another version of this package, or does not see the files.
    """
    # Another disk may have a folder of the same name, but not this file.
    seen = os.path.join(folder, f"seen-by-workers-{uuid.uuid4().hex}")
    with open(seen, "wb"):
        pass
    try:
        paths = [seen, *map(os.path.abspath, files)]
        check = WorkerCheck(os.path.abspath(folder), paths, libraries)
        num_tasks = context.defaultParallelism
        if (
            problems := context.parallelize(range(num_tasks), num_tasks)
            .mapPartitions(check)
            .collect()
        ):
            raise OSError(min(problems))
    finally:
        os.remove(seen)
