"""Disturb a Spark cluster at random while `prepare --engine=spark` runs, and check its output.

```
python benchmarks/spark_histories.py --histories 20 --seed 0
```

A Spark master and two workers run on this machine, and `prepare` reads the dumps of `sample`. A
history is up to three events at random times, drawn from the number of the history and the seed.
These are the events:

- `kill executor`: the executors of a worker are killed, and the worker starts them again.
- `kill worker`: a worker is killed and started again.
- `pause worker`: a worker is stopped for some seconds. Others may take over its tasks.
- `kill driver`: the driver is killed with SIGKILL.
- `replace`: each dump is cut to half of its bytes and replaced by a rename.
- `fill disk`: the disk that holds the shuffle files and the output stays full until the run ends.

If the run ends with status 0, its output must equal that of a run without Spark, byte for byte.
Otherwise there must be no output, and the last line of standard error must be an error of
`convert-tf prepare`. Then the dumps are restored, the disk is emptied, and the same command must
write the expected output. No other files may be left.

The script prints one line per history. Its exit status is 1 if a rule was broken. It needs Java 17
and PySpark, and root to mount a disk. Without root, no disk is filled.
"""

import contextlib
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from absl import app, flags

from convert_tf.corpora.sample import write_sample

_HISTORIES = flags.DEFINE_integer("histories", 20, "Number of histories.")
_FIRST = flags.DEFINE_integer("first", 0, "Number of the first history.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the histories.")

EVENTS = ("kill executor", "kill worker", "pause worker", "kill driver", "replace", "fill disk")
RULES = ("--preset=clean", "--single_texts", "--num_shards_train=3", "--num_shards_test=2")
_DISK = "256m"
_FAULT = "\n  FAULT "
_SECONDS = 900  # after which a run counts as hanging
_SETTINGS = """
spark.ui.enabled false
spark.shuffle.io.maxRetries 1
spark.shuffle.io.retryWait 100ms
spark.executor.memory 512m
spark.python.worker.reuse true
"""


class Event(NamedTuple):
    """An event of a history.

    Attributes:
      seconds: time after the first shuffle file of the run.
      what: one of `EVENTS`.
    """

    seconds: float
    what: str


def history(number: int, seed: int, *, length: float, can_fill: bool) -> list[Event]:
    """Draw the events of a history, ordered by time.

    Args:
      number: number of the history.
      seed: seed of all histories.
      length: events happen within this many seconds.
      can_fill: whether a disk can be filled.
    """
    rng = random.Random(f"{seed} {number}")
    known = [event for event in EVENTS if can_fill or event != "fill disk"]
    drawn = [Event(rng.uniform(0, length), rng.choice(known)) for _ in range(rng.randint(1, 3))]
    return sorted(drawn)


def _wait_until(is_so: Callable[[], object], what: str) -> None:
    until = time.monotonic() + _SECONDS
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"timed out before {what}")
        time.sleep(0.05)


class Cluster:
    """A standalone Spark master and two workers, each with its own loopback address.

    Args:
      folder: folder for settings and logs.
      disk: folder for shuffle files.
    """

    def __init__(self, folder: Path, disk: Path):
        import pyspark

        self._program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        self._folder, self._disk = folder, disk
        (folder / "spark-defaults.conf").write_text(_SETTINGS)
        roots = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")]
        self.environment = {
            **os.environ,
            "SPARK_CONF_DIR": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, roots)),
        }
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self.master = f"spark://127.0.0.1:{port}"
        self._master = self._start("master.Master", "--host", "127.0.0.1", "--port", port)
        self._workers: dict[int, subprocess.Popen[bytes]] = {}

    def _start(self, kind: str, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        command = [str(self._program), f"org.apache.spark.deploy.{kind}", *arguments]
        with open(self._folder / "log", "ab") as log:
            return subprocess.Popen(
                [*command, "--webui-port", "0"], env={**self.environment, **more},
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def start_workers(self) -> None:
        """Start the workers that are not running."""
        for number in (2, 3):
            if number not in self._workers:
                host, place = f"127.0.0.{number}", self._disk / f"worker{number}"
                self._workers[number] = self._start(
                    "worker.Worker", "--host", host, "--cores", "1", "--memory", "512m",
                    "--work-dir", str(self._folder / "work"), self.master,
                    SPARK_LOCAL_IP=host, SPARK_LOCAL_DIRS=str(place),
                )  # fmt: skip

    def shuffled(self) -> list[Path]:
        """Return the shuffle files of the workers."""
        return [*self._disk.glob("worker*/**/shuffle_*.data")]

    def kill_executor(self, rng: random.Random) -> None:
        """Kill the executors of a random worker, if it has any."""
        worker = self._workers[rng.choice([*self._workers])].pid
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                pid = int(process.name)
                is_executor = b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes()
                if is_executor and os.getpgid(pid) == worker:
                    os.kill(pid, signal.SIGKILL)

    def kill_worker(self, rng: random.Random) -> None:
        """Kill a random worker with its executors, and start it again."""
        _kill(self._workers.pop(rng.choice([*self._workers])))
        self.start_workers()

    def pause_worker(self, rng: random.Random) -> None:
        """Stop a random worker with its executors for some seconds."""
        group = self._workers[rng.choice([*self._workers])].pid
        os.killpg(group, signal.SIGSTOP)
        time.sleep(rng.uniform(1, 10))
        os.killpg(group, signal.SIGCONT)

    def stop(self) -> None:
        """End all processes."""
        for process in (*self._workers.values(), self._master):
            _kill(process)


def _kill(process: subprocess.Popen[Any]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def _mounted(folder: Path) -> Iterator[bool]:
    """Mount a small disk at a folder; yield whether that was possible."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(folder)]
    is_mounted = subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(disk: Path) -> None:
    with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as file:
        while file.write(bytes(2**20)):
            pass


def _digest(folder: Path) -> dict[str, str]:
    """Return the MD5 hashes of the files in a folder, by name."""
    return {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.iterdir()}


class Attack:
    """Runs histories on one cluster.

    Args:
      folder: folder for everything except shuffle files and output.
      disk: folder for shuffle files and output, on a separate disk.
    """

    def __init__(self, folder: Path, disk: Path):
        self.folder, self.disk = folder, disk
        write_sample(str(folder / "sample"))
        self.dumps = folder / "dumps"
        shutil.copytree(folder / "sample", self.dumps)
        self.cluster = Cluster(folder, disk)
        self.output = disk / "out" / "data"
        self.output.parent.mkdir()
        inputs = (f"--input={self.dumps}/RC*", f"--submissions={self.dumps}/RS*")
        self._command = [sys.executable, "-m", "convert_tf", "prepare", *inputs, *RULES]
        alone = [*self._command, f"--output={folder / 'alone'}"]
        subprocess.run(alone, check=True, capture_output=True, env=self.cluster.environment)
        self._wanted = _digest(folder / "alone")

    def _started(self) -> subprocess.Popen[str]:
        spark = ("--engine=spark", f"--master={self.cluster.master}", f"--output={self.output}")
        return subprocess.Popen(
            [*self._command, *spark], env=self.cluster.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def _happen(self, what: str, driver: subprocess.Popen[str], rng: random.Random) -> None:
        match what:
            case "kill executor":
                self.cluster.kill_executor(rng)
            case "kill worker":
                self.cluster.kill_worker(rng)
            case "pause worker":
                self.cluster.pause_worker(rng)
            case "kill driver":
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(driver.pid, signal.SIGKILL)
            case "replace":
                for path in self.dumps.iterdir():
                    content = path.read_bytes()
                    path.with_suffix(".new").write_bytes(content[: len(content) // 2])
                    os.replace(path.with_suffix(".new"), path)
            case "fill disk":
                _fill(self.disk)

    def _restore(self) -> None:
        (self.disk / "filler").unlink(missing_ok=True)
        shutil.rmtree(self.dumps)
        shutil.copytree(self.folder / "sample", self.dumps)
        self.cluster.start_workers()

    def run(self, events: list[Event], rng: random.Random) -> tuple[str, float, list[str]]:
        """Run `prepare` with the events of a history.

        Args:
          events: the events, ordered by time.
          rng: draws the workers.

        Returns:
          The outcome, the seconds from the first shuffle file to the end of the run, and
          descriptions of broken rules.
        """
        shutil.rmtree(self.output, ignore_errors=True)
        self._restore()
        before = len(self.cluster.shuffled())
        driver = self._started()
        faults = []
        try:
            _wait_until(
                lambda: len(self.cluster.shuffled()) > before or driver.poll() is not None,
                "a worker wrote a shuffle file",
            )
            start = time.monotonic()
            for event in events:
                # Once the run has ended, its later events are skipped.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    driver.wait(max(0, start + event.seconds - time.monotonic()))
                    break
                self._happen(event.what, driver, rng)
            said = driver.communicate(timeout=_SECONDS)[1]
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            _kill(driver)
            return "hung", _SECONDS, [str(error)]
        seconds = time.monotonic() - start
        outcome = f"status {driver.returncode}"
        if driver.returncode == 0:
            faults += self._faults_of_output("the run")
        elif driver.returncode != -signal.SIGKILL:
            last = (said.splitlines() or [""])[-1]
            outcome += f" ({last[:200]})"
            if driver.returncode != 1 or not last.startswith("convert-tf prepare: "):
                faults.append(f"status {driver.returncode}, said {said[-300:]!r}")
            left = [path.name for path in self.output.parent.iterdir()]
            if left:
                faults.append(f"a refused run left {left}")
        if driver.returncode:
            self._restore()
            again = self._started()
            said = again.communicate(timeout=_SECONDS)[1]
            outcome += f", then status {again.returncode}"
            if again.returncode:
                faults.append(f"the next run ended with status {again.returncode}: {said[-300:]!r}")
            else:
                faults += self._faults_of_output("the next run")
        return outcome, seconds, faults

    def _faults_of_output(self, which: str) -> list[str]:
        faults = []
        if _digest(self.output) != self._wanted:
            faults.append(f"the output of {which} differs from that of one machine")
        if (left := [path.name for path in self.output.parent.iterdir()]) != ["data"]:
            faults.append(f"{which} left {left}")
        return faults


def main(argv: list[str]) -> None:
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        disk = folder / "disk"
        disk.mkdir()
        can_fill = opened.enter_context(_mounted(disk))
        attack = Attack(folder, disk)
        opened.callback(attack.cluster.stop)
        outcome, length, faults = attack.run([], random.Random(0))
        print(f"without events: {outcome}, {length:.0f} s", *faults, sep=_FAULT, flush=True)
        broken = len(faults)
        for number in range(_FIRST.value, _FIRST.value + _HISTORIES.value):
            events = history(number, _SEED.value, length=length, can_fill=can_fill)
            outcome, _, faults = attack.run(events, random.Random(number))
            what = ", ".join(f"{event.what} at {event.seconds:.1f} s" for event in events)
            print(f"{number}: {what}: {outcome}", *faults, sep=_FAULT, flush=True)
            broken += len(faults)
        print(f"{broken} faults")
    if broken:
        sys.exit(1)


if __name__ == "__main__":
    app.run(main)
