"""Connect to a Spark cluster, check its workers, and explain its errors."""

import contextlib
import functools
import importlib
import os
import platform
import re
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from convert_tf import __version__
from convert_tf.extras import needs

_SECONDS_TO_CONNECT = 10
_SECONDS_FOR_WORKERS = 60
# Messages about a wrong Python version, a missing Python, or a missing package.
_PYTHON_FAULT = re.compile(
    r"PYTHON_VERSION_MISMATCH|Cannot run program \"[^\"]+\"|No module named '[\w.]+'"
)
_PYTHON_ERROR = re.compile(r"^\w[\w.]*(?:Error|Exception): [^\n]+", re.MULTILINE)
# Errors raised by this package. Their messages need no explanation.
_OWN_ERROR = re.compile(r"^convert_tf\.[\w.]+Error: ([^\n]+)", re.MULTILINE)
_FULL_DISK = "No space left on device"
_HOST = re.compile(r"\(TID \d+\) \((\S+) executor")
_JAVA_ERROR = re.compile(r"^: (?:[\w.]+(?:Error|Exception): )?([^\n]+)", re.MULTILINE)


@contextlib.contextmanager
def cluster(master: str) -> Iterator[Any]:
    """Connect to a cluster and yield its SparkContext. Spark's errors are cut to one sentence.

    Args:
      master: address of the cluster, in the form of Spark's `--master`.

    Raises:
      OSError: if Java, the master or the workers are missing, or a step failed.
    """
    with needs("spark", "Work on a cluster"):
        from py4j.protocol import Py4JError
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException
    _check_reachable(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        context = SparkContext(conf=SparkConf().setAppName("convert-tf").setMaster(master))
        try:
            context.setLogLevel("FATAL")  # errors are printed below, as one sentence
            _wait_for_workers(context, master)
            yield context
        finally:
            context.stop()
    except (PySparkException, Py4JError) as error:
        raise OSError(_sentence(error, master)) from error


def _check_reachable(master: str) -> None:
    """Raise an error if Java or the master is missing; Spark alone would keep trying to connect."""
    java = os.path.join(os.environ.get("JAVA_HOME", ""), "bin", "java")
    if not (os.path.exists(java) or shutil.which("java")):
        raise OSError("Spark needs Java 17 or later, and no java is on PATH. Install it.")
    if not master.startswith("spark://"):
        return
    errors = []
    for address in master.removeprefix("spark://").split(","):  # standby masters are listed too
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_CONNECT).close()
            return
        except (OSError, ValueError) as error:
            errors.append(str(error))
    raise OSError(
        f"The Spark master {master} cannot be reached ({errors[0]}). Check the address, "
        "spark://HOST:PORT, and that the master is running."
    )


def _wait_for_workers(context: Any, master: str) -> None:
    if not master.startswith("spark://"):
        return
    until = time.monotonic() + _SECONDS_FOR_WORKERS
    while context._jsc.sc().getExecutorMemoryStatus().size() < 2:  # the driver is one of them
        if time.monotonic() > until:
            raise OSError(
                f"The Spark master {master} provided no worker within {_SECONDS_FOR_WORKERS} "
                "seconds. Start workers, wait until they are free, or ask for less memory per "
                "executor."
            )
        time.sleep(0.1)


def _sentence(error: Exception, master: str) -> str:
    """Return one sentence that says what failed on the cluster."""
    text = str(error)
    if fault := _PYTHON_FAULT.search(text):
        here = f"{sys.version_info.major}.{sys.version_info.minor}"
        return (
            f"The Python of the workers of {master} cannot run the tasks ({fault[0]}). Set "
            f"PYSPARK_PYTHON to the path of a Python {here} on the workers that has convert_tf "
            "with its extra [spark]. For embed, it also needs onnxruntime."
        )
    if "JAVA_GATEWAY_EXITED" in text:
        said = f"Spark did not start with --master={master}; its error is printed above."
        options = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
        if options.split()[-1:] != ["pyspark-shell"]:
            return f"{said} Add pyspark-shell as the last word of PYSPARK_SUBMIT_ARGS."
        return f"{said} Check the address. Spark needs Java 17 or later."
    if "stopped SparkContext" in text:
        return (
            f"{master} does not answer as a Spark master, or ended the run. Check that the port "
            "is the master's (7077 by default), not that of its web page, and that the master is "
            "running."
        )
    if own_error := _OWN_ERROR.search(text):
        return own_error[1]
    if _FULL_DISK in text:
        host = _HOST.search(text)
        return (
            f"A disk of {f'worker {host[1]}' if host else 'a worker'} of {master} is full. Free "
            "space in the folders for Spark's temporary files (SPARK_LOCAL_DIRS of the workers or "
            "spark.local.dir, by default /tmp), or move these folders to a larger disk."
        )
    if python_error := _PYTHON_ERROR.search(text):
        return f"A step on {master} failed: {python_error[0]}"
    java_error = _JAVA_ERROR.search(text)
    return f"Spark failed on {master}: {java_error[1] if java_error else text.splitlines()[0]}"


def problems_of_worker(
    folder: str, files: Sequence[str], libraries: Sequence[str], version: str, _: Iterable[Any]
) -> Iterator[str]:
    """Yield an error message if this worker cannot do the work.

    Args:
      folder: folder to which the workers write files, on a disk that all machines share.
      files: absolute paths of the input files.
      libraries: modules that the workers must be able to import.
      version: version of this package on the driver's machine.
    """
    worker = platform.node()
    missing = [name for name in (folder, *files) if not os.path.exists(name)]
    if missing:
        yield (
            f"Worker {worker} does not see {missing[0]!r}. Put input and output on a disk that all "
            "workers share under the same path."
        )
        return
    for library in libraries:
        importlib.import_module(library)
    with tempfile.TemporaryFile(dir=folder):
        pass  # creating the file raises an error if the worker cannot write to the folder
    if __version__ != version:
        yield (
            f"Worker {worker} has version {__version__} of convert_tf, but this machine has "
            f"{version}. Install the same version everywhere."
        )


def check_workers(
    context: Any, folder: str, files: Iterable[str], *, libraries: Sequence[str]
) -> None:
    """Check the workers by running one small task per core of the cluster.

    Args:
      context: the SparkContext.
      folder, files, libraries: as for `problems_of_worker`, but paths may be relative.

    Raises:
      OSError: if a worker has another version of this package, or does not see the files.
    """
    # If a worker has a folder with the same name on another disk, this file is missing in it.
    seen = os.path.join(folder, f"seen-by-workers-{uuid.uuid4().hex}")
    Path(seen).touch()
    try:
        folder, *names = map(os.path.abspath, (folder, seen, *files))
        check = functools.partial(problems_of_worker, folder, names, libraries, __version__)
        num_tasks = context.defaultParallelism
        tasks = context.parallelize(range(num_tasks), num_tasks)
        if problems := tasks.mapPartitions(check).collect():
            raise OSError(min(problems))
    finally:
        os.remove(seen)
