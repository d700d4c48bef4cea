"""Train on several devices: the GPUs of one host, or processes on one or several hosts.

Keras distributes each batch over all devices and keeps the same weights on each device
(`keras.distribution.DataParallel`, JAX only). The loss is computed over the whole batch, so the
responses on all devices serve as negatives. Each process reads, tokenizes and packs its own share
of every batch.
"""

import contextlib
import dataclasses
import math
import os
import random
import re
import signal
import sys
import threading
import time
import traceback
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from convert_tf.config.base import PRECISIONS
from convert_tf.numerics.devices import choose_precision
from convert_tf.training.meeting import meet

# After these exit statuses, the same command resumes the run, so a cluster can restart it
# automatically. 75 is EX_TEMPFAIL in sysexits.h.
NOT_FINISHED = 75
PEER_LOST = 76
FROM_CLUSTER = "auto"
JOIN_TIMEOUT = 300  # seconds
SIGNAL = signal.SIGTERM
SHARED_FILE = ".processes"
# Maximum time to wait for a new file. On network file systems, new files become visible to other
# hosts only after a while.
SECONDS_UNTIL_SHARED = 20.0
_JAX_STATUS = re.compile(
    "(ABORTED|CANCELLED|DEADLINE_EXCEEDED|FAILED_PRECONDITION|INTERNAL|UNAVAILABLE|UNKNOWN): "
)
_VARIABLES = {
    "num_processes": "KERAS_DISTRIBUTION_NUM_PROCESSES",
    "process_id": "KERAS_DISTRIBUTION_PROCESS_ID",
    "coordinator": "KERAS_DISTRIBUTION_JOB_ADDRESSES",
}


@dataclasses.dataclass(frozen=True)
class Processes:
    """The processes that train one model together.

    Args:
      number: number of processes.
      index: number of this process, starting at 0. Only process 0 writes and prints.
    """

    number: int = 1
    index: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes and prints."""
        return self.index == 0

    def say(self, line: str) -> None:
        """Print a line about the run, but only in the first process."""
        if self.is_first:
            print(line, file=sys.stderr, flush=True)

    def gather(self, *values: int) -> np.ndarray:
        """Return the values of all processes, int32 `[processes, values]`.

        All processes must call this method.
        """
        of_process = np.array(values, np.int32)
        if self.number == 1:
            return of_process[None]
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(of_process))

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Run a `with` block in every process. If it fails in one process, all raise an error.

        If only the failed process raised an error, the others would wait for it forever.

        Raises:
          ValueError: if the block raised an error in another process.
        """
        raised: Exception | None = None
        try:
            yield
        except Exception as error:
            raised = error
        if self.number > 1:
            failed = self.gather(raised is not None)[:, 0]
            if raised is None:
                refuse_failed(failed)
        if raised is not None:
            raise raised


ALONE = Processes()


class NotFinishedError(SystemExit):
    """The run was told to end and has saved its state. The same command resumes the run.

    The program exits with status 75, which means that the run is not finished.
    """

    def __init__(self) -> None:
        super().__init__(NOT_FINISHED)


class Termination:
    """A record of whether the process was told to end.

    Attributes:
      is_requested: whether a SIGTERM has arrived. A second one ends the process at once.
    """

    def __init__(self) -> None:
        self.is_requested = False

    def _request(self, number: int, frame: Any) -> None:
        self.is_requested = True
        signal.signal(SIGNAL, signal.SIG_DFL)


@contextlib.contextmanager
def termination_noted() -> Iterator[Termination]:
    """Record a SIGTERM during a `with` block instead of ending the process.

    Clusters send SIGTERM before they take a machine back. The run can then save its state and end.
    This works only in the main thread.
    """
    termination = Termination()
    if threading.current_thread() is not threading.main_thread():
        yield termination
        return
    before = signal.signal(SIGNAL, termination._request)
    try:
        yield termination
    finally:
        # `before` is None if C code has set the handler, as JAX does with several processes.
        signal.signal(SIGNAL, before if before is not None else signal.SIG_DFL)


def refuse_failed(failed: np.ndarray) -> None:
    """Raise `ValueError` if a process failed.

    Args:
      failed: a number for each process, `[processes]`, which is not 0 if the process failed.
    """
    if failed.any():
        raise ValueError(
            f"Process {', '.join(map(str, np.flatnonzero(failed)))} stopped. Its output says why. "
            "Fix the problem, then start all processes again with the same command."
        )


def join_processes(
    num_processes: int | None = None,
    process_id: int | None = None,
    coordinator: str | None = None,
    join_timeout: float = JOIN_TIMEOUT,
) -> None:
    """Join the other processes of a run.

    This function must be called before JAX computes anything. Missing arguments are taken from the
    environment variables `KERAS_DISTRIBUTION_NUM_PROCESSES`, `KERAS_DISTRIBUTION_PROCESS_ID` and
    `KERAS_DISTRIBUTION_JOB_ADDRESSES`. If neither arguments nor variables are set, or the run has
    only one process, nothing is done.

    Args:
      num_processes: number of processes.
      process_id: number of this process, starting at 0.
      coordinator: host and port on which process 0 listens, as `host:port`. With `auto`, missing
        arguments come from the cluster (Slurm, Open MPI, Kubernetes or Cloud TPU; see
        `jax.distributed.initialize`).
      join_timeout: maximum time to wait for the other processes, in seconds.

    Raises:
      ValueError: if an argument is missing, the backend is not JAX, or a process did not join.
    """
    given: dict[str, Any] = {
        "num_processes": num_processes,
        "process_id": process_id,
        "coordinator": coordinator,
    }
    for name, variable in _VARIABLES.items():
        value = os.environ.get(variable)
        if given[name] is None and value:
            given[name] = value.split(",")[0] if name == "coordinator" else int(value)
    if all(value is None for value in given.values()) or given["num_processes"] == 1:
        return
    if keras.backend.backend() != "jax":
        raise ValueError(
            "Training with several processes needs Keras on JAX, but the backend is "
            f"{keras.backend.backend()!r}. Set KERAS_BACKEND=jax for every process."
        )
    asks_cluster = given["coordinator"] == FROM_CLUSTER
    if not asks_cluster and None in given.values():
        raise ValueError(
            "Several processes need --num_processes, --process_id and --coordinator=host:port; or "
            f"--coordinator={FROM_CLUSTER} under Slurm, Open MPI, Kubernetes or Cloud TPU. "
            f"Received: {given}."
        )
    import jax

    if asks_cluster:
        given = _told_by_cluster({**given, "coordinator": None}, join_timeout)
    bound = None
    if None not in given.values():
        bound = meet(
            given["coordinator"], given["num_processes"], given["process_id"], seconds=join_timeout
        )
    try:
        jax.distributed.initialize(
            coordinator_address=given["coordinator"],
            coordinator_bind_address=bound,
            num_processes=given["num_processes"],
            process_id=given["process_id"],
            initialization_timeout=max(JOIN_TIMEOUT, math.ceil(join_timeout)),
        )
    except (ValueError, RuntimeError) as error:
        if asks_cluster and isinstance(error, ValueError):
            raise ValueError(
                f"--coordinator={FROM_CLUSTER} found no cluster ({error}). Start the processes "
                "with srun or mpirun, install the package kubernetes in pods, or pass "
                "--num_processes, --process_id and --coordinator=host:port."
            ) from error
        raise ValueError(
            f"The processes of the run could not connect: {error}. Received: {given}. Check that "
            "process 0 can be reached at the address of the coordinator, and start all processes "
            "again."
        ) from error


def _told_by_cluster(given: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return `given`, with values from the cluster in place of None if JAX detects a cluster."""
    try:
        # JAX has no public function that detects the cluster.
        from jax._src.clusters import ClusterEnv

        ask = ClusterEnv.auto_detect_unset_distributed_params
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"--coordinator={FROM_CLUSTER} does not work with this version of JAX ({error}). Pass "
            "--num_processes, --process_id and --coordinator=host:port."
        ) from error
    names = ("coordinator", "num_processes", "process_id")
    try:
        coordinator, number, index = (given[name] for name in names)
        told = ask(coordinator, number, index, None, None, math.ceil(seconds))
    except Exception as error:  # each kind of cluster raises its own errors
        raise ValueError(
            f"--coordinator={FROM_CLUSTER} could not get the values from the cluster "
            f"({type(error).__name__}: {error}). Pass --num_processes, --process_id and "
            "--coordinator=host:port."
        ) from error
    return dict(zip(names, told, strict=False))


def running_processes() -> Processes:
    """Return the processes of the run that `join_processes` has joined.

    Raises:
      ValueError: if JAX has no device of the platform that the user chose.
    """
    if keras.backend.backend() != "jax":
        return Processes()
    import jax

    try:
        return Processes(jax.process_count(), jax.process_index())
    except (AssertionError, RuntimeError) as error:  # the kind of error depends on the platform
        platforms = os.environ.get("JAX_PLATFORMS")
        raise ValueError(
            f"JAX cannot use any device of JAX_PLATFORMS={platforms!r}. Unset this variable, or "
            "install JAX for this platform."
        ) from error


def agreed_precision(processes: Processes, requested: str) -> str:
    """Return the same precision in all processes.

    `auto` picks the fastest precision by timing it. Timings differ between processes, so process 0
    decides for all.

    Args:
      processes: processes of the run, all of which must call this function.
      requested: requested precision, as in `Training.precision`.

    Returns:
      The name of a dtype policy.
    """
    chosen = PRECISIONS.index(choose_precision(requested))
    return PRECISIONS[processes.gather(chosen)[0, 0]]


def num_devices(processes: Processes) -> tuple[int, int]:
    """Return the numbers of training devices in all processes together and in this process."""
    if keras.backend.backend() != "jax":
        return 1, 1
    import jax

    if jax.device_count() != processes.number * jax.local_device_count():
        raise ValueError(
            "All processes must have the same number of devices. This process has "
            f"{jax.local_device_count()}, but all {processes.number} processes together have "
            f"{jax.device_count()}. Set CUDA_VISIBLE_DEVICES in each process."
        )
    return jax.device_count(), jax.local_device_count()


def spread_over_devices(
    processes: Processes, *, batch_size: int
) -> contextlib.AbstractContextManager:
    """Return a context manager that distributes the models created within it over all devices.

    Args:
      processes: processes of the run.
      batch_size: number of examples that all processes together encode at a time, which is the size
        of a batch or micro-batch.

    Raises:
      ValueError: if a batch cannot be divided evenly among the devices.
    """
    devices, _ = num_devices(processes)
    if devices == 1:
        _say_which_gpu()
        return contextlib.nullcontext()
    if batch_size % devices:
        raise ValueError(
            f"{batch_size} examples cannot be divided evenly among {devices} devices. Set "
            f"--batch_size, or --micro_batch if you use it, to a multiple of {devices}, or use "
            "fewer devices (CUDA_VISIBLE_DEVICES)."
        )
    print(f"training on {devices} devices in {processes.number} processes")
    return keras.distribution.DataParallel(auto_shard_dataset=False).scope()


def _say_which_gpu() -> None:
    if keras.backend.backend() == "tensorflow":
        gpus = keras.distribution.list_devices("gpu")
        if len(gpus) > 1:
            print(
                f"training on the first of {len(gpus)} GPUs: TensorFlow trains on one; "
                "KERAS_BACKEND=jax trains on all"
            )


@contextlib.contextmanager
def leaving_at_once(processes: Processes) -> Iterator[None]:
    """End this process at once if another process has ended, or this one fails or is interrupted.

    The exit status is `PEER_LOST` if another process has ended, and otherwise 1. A normal exit
    would call JAX, which waits up to five minutes for all processes. Errors that all processes
    raise, as in `Processes.together`, are passed on.
    """
    try:
        yield
    except BaseException as error:
        # JAX reports a failed collective operation as RuntimeError or as ValueError.
        is_of_jax = isinstance(error, RuntimeError) or _JAX_STATUS.match(str(error))
        of_all = (ValueError, FloatingPointError, OSError, NotFinishedError)
        is_of_all = isinstance(error, of_all) and not is_of_jax
        if processes.number == 1 or is_of_all:
            raise
        if is_of_jax:
            received = str(error).strip().split("\n")[0]
            print(
                f"A step that needs all processes failed: {received}. If this error is about a "
                "connection, another process of the run ended. Start all processes again with the "
                "same command.",
                file=sys.stderr,
            )
        elif isinstance(error, KeyboardInterrupt):
            print("interrupted: the other processes stop too", file=sys.stderr)
        else:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(PEER_LOST if is_of_jax else 1)


def check_same(processes: Processes, facts: str) -> None:
    """Raise `ValueError` unless `facts`, which describes the input, is equal in all processes."""
    checksums = processes.gather(zlib.crc32(facts.encode()) & 0x7FFFFFFF)[:, 0]
    other = np.flatnonzero(checksums != checksums[0])
    if len(other):
        raise ValueError(
            "The flags, data, vocabulary or initial weights of process "
            f"{', '.join(map(str, other))} differ from those of process 0. They must be the same "
            "in all processes."
        )


def check_shared(processes: Processes, folder: Path) -> None:
    """Raise `ValueError` unless all processes see the folder that process 0 has created."""
    marker = folder / SHARED_FILE
    token = int(processes.gather(random.SystemRandom().randrange(1 << 30))[0, 0])
    with processes.together():
        if processes.is_first:
            marker.write_text(str(token))
    deadline = time.monotonic() + SECONDS_UNTIL_SHARED
    while not (sees := _reads(marker) == str(token)) and time.monotonic() < deadline:
        time.sleep(0.2)
    blind = np.flatnonzero(processes.gather(sees)[:, 0] == 0)
    if processes.is_first:
        marker.unlink(missing_ok=True)
    if len(blind):
        raise ValueError(
            f"Process {', '.join(map(str, blind))} does not see the folder {str(folder)!r}, to "
            "which process 0 writes the checkpoints for all processes. Set --output to a folder "
            "on a disk that all hosts share."
        )


def _reads(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def rows_of_a_share(row_multiple: int, processes: Processes) -> int:
    """Return the multiple that the number of rows in one process's share is padded to.

    Padding to a multiple keeps the number of different shapes small.

    Args:
      row_multiple: approximate multiple for the number of rows in a whole batch.
      processes: processes of the run.
    """
    _, local_devices = num_devices(processes)
    of_process = math.ceil(row_multiple / processes.number)
    return math.ceil(of_process / local_devices) * local_devices


def as_share(
    batch: Mapping[str, np.ndarray], *, rows: int, index: int, padding_id: int
) -> dict[str, np.ndarray]:
    """Convert a packed batch into a process's share of a larger batch.

    Args:
      batch: a batch from `packing.pack_batch` or `pack_micro_batches`. Only token ids, lengths and
        slots are changed.
      rows: number of rows in every share. This must be at least the number of rows in the batch.
      index: number of the share, starting at 0.
      padding_id: token id for padding.

    Returns:
      The batch with rows of padding added. Its slots count from the first row of the first share.
    """
    segments = batch["segment_lengths"].shape[-1]
    other_axes = [(0, 0)] * (batch["token_ids"].ndim - 1)
    missing = [(0, rows - len(batch["token_ids"])), *other_axes]
    share = dict(batch)
    share["token_ids"] = np.pad(batch["token_ids"], missing, constant_values=padding_id)
    share["segment_lengths"] = np.pad(batch["segment_lengths"], missing)
    for name in batch:
        if name.endswith("_slots"):
            share[name] = batch[name] + np.int32(index * rows * segments)
    return share


def agreed_batches(
    processes: Processes,
    batches: Iterator[Any],
    local: Termination,
    agreed: Termination,
    *,
    padding_id: int,
) -> Iterator[Any]:
    """Yield each batch as this process's share of a step. Either all processes take a step or none.

    Before each step, the processes exchange a few numbers: how many rows each share has, and
    whether a process was told to end or has failed.

    Args:
      processes: processes of the run.
      batches: packed batches of this process's examples, as `task.Batch`.
      local: record of whether this process was told to end. It may change during a step, before the
        other processes know.
      agreed: record of whether any process was told to end before the current step. It has the same
        value in all processes.
      padding_id: token id for padding.

    Raises:
      ValueError: if another process could not make its batch.
      Exception: if `batches` raises an error, which is passed on.
    """
    while True:
        raised: Exception | None = None
        batch = None
        try:
            batch = next(batches)
        except Exception as error:
            raised = error
        rows = 0 if batch is None else len(batch.inputs["token_ids"])
        told = processes.gather(rows, local.is_requested, batch is None)
        if raised is not None:
            raise raised
        refuse_failed(told[:, 2])
        agreed.is_requested = bool(told[:, 1].any())
        assert batch is not None
        most_rows = int(told[:, 0].max())
        inputs = as_share(
            batch.inputs, rows=most_rows, index=processes.index, padding_id=padding_id
        )
        yield batch._replace(inputs=inputs)
