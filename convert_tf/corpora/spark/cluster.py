"""Connect to a Spark cluster, and explain its errors."""

import contextlib
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

from convert_tf.extras import needs

_SECONDS_TO_CONNECT = 10
_SECONDS_FOR_WORKERS = 60
_PYTHON_ERROR = re.compile(r"^\w[\w.]*(?:Error|Exception): [^\n]+", re.MULTILINE)
_JAVA_ERROR = re.compile(r"^: (?:[\w.]+(?:Error|Exception): )?([^\n]+)", re.MULTILINE)


@contextlib.contextmanager
def cluster(master: str) -> Iterator[Any]:
    """Connect to a cluster and yield its SparkContext. Errors of Spark become one sentence.

    Args:
        master: address of the cluster, as Spark's `--master`.

    Raises:
        OSError: if Java, the master or workers are missing, or a step failed.
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
    """Raise an error if there is no Java or no master. Spark would try for minutes."""
    java = os.path.join(os.environ.get("JAVA_HOME", ""), "bin", "java")
    if not (os.path.exists(java) or shutil.which("java")):
        raise OSError("Spark needs Java 17 or later, and no java is on PATH. Install it.")
    if not master.startswith("spark://"):
        return
    errors = []
    for address in master.removeprefix("spark://").split(","):  # several, for high availability
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
                f"The Spark master {master} gave no worker in {_SECONDS_FOR_WORKERS} seconds. "
                "Start workers, wait until they are free, or ask for less memory per executor."
            )
        time.sleep(0.1)


def _sentence(error: Exception, master: str) -> str:
    """Return what failed on the cluster as one sentence."""
    text = str(error)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if "PYTHON_VERSION_MISMATCH" in text:
        return (
            f"The workers of {master} run another version of Python than this machine, {here}. Set "
            "PYSPARK_PYTHON to the path of the same version on the workers."
        )
    if program := re.search(r'Cannot run program "([^"]+)"', text):
        return (
            f"The workers of {master} have no {program[1]}. Set PYSPARK_PYTHON to the path of "
            f"Python {here} on the workers."
        )
    if module := re.search(r"No module named '([\w.]+)'", text):
        return (
            f"The Python of the workers of {master} lacks the package {module[1]}. Run pip install "
            "'convert_tf[spark]' on each worker, and for embed pip install onnxruntime, or set "
            "PYSPARK_PYTHON to a Python that has it."
        )
    if "JAVA_GATEWAY_EXITED" in text:
        return (
            f"Spark did not start with --master={master}; its error is printed above. Check the "
            "address. Spark needs Java 17 or later."
        )
    if "stopped SparkContext" in text:
        return (
            f"{master} does not answer as a Spark master, or ended the run. Check that the port is "
            "the master's (7077 by default), not that of its web page, and that the master runs."
        )
    if python_error := _PYTHON_ERROR.search(text):
        return f"A step on {master} failed: {python_error[0]}"
    java_error = _JAVA_ERROR.search(text)
    return f"Spark failed on {master}: {java_error[1] if java_error else text.splitlines()[0]}"
