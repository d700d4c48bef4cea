"""Spark itself: in this process, and as a master and two workers, one of which is killed.

Skipped without Java or PySpark; `make test-cluster` installs PySpark.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.commands import run_command
from support.dump_files import digests
from support.texts import random_texts

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install '.[spark]'")

import pyspark

from convert_tf.corpora.sample import write_sample
from convert_tf.encoding.backends.onnx import OnnxBackend
from convert_tf.encoding.sentence_encoder import SentenceEncoder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="Java is not installed"),
]

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
RULES = ("--preset=clean", "--single_texts", "--num_shards_train=3", "--num_shards_test=2")
DEFAULTS = """
spark.ui.enabled false
spark.shuffle.io.maxRetries 1
spark.shuffle.io.retryWait 100ms
spark.executor.memory 512m
spark.python.worker.reuse true
spark.speculation true
spark.speculation.quantile 0.1
spark.speculation.multiplier 1.1
"""


def _environment(folder):
    """Return the environment of Spark's processes, without settings from outside."""
    (folder / "conf").mkdir(exist_ok=True)
    (folder / "conf" / "spark-defaults.conf").write_text(DEFAULTS)
    return {
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")])),
    }


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Folder with dumps and the data prepared from them by the local engine."""
    folder = tmp_path_factory.mktemp("shared")
    write_sample(str(folder / "dumps"))
    done = run_command("prepare", *_inputs(folder), f"--output={folder / 'local'}")
    assert done.returncode == 0, done.stderr
    return folder


def _inputs(folder):
    return (f"--input={folder}/dumps/RC*", f"--submissions={folder}/dumps/RS*", *RULES)


def _prepare(shared, output, master, **environment):
    return run_command(
        *("prepare", "--engine=spark", f"--master={master}", *_inputs(shared)),
        f"--output={output}",
        env={**_environment(shared), **environment},
    )


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,512]"])
def test_same_files_as_on_one_machine(shared, tmp_path, master):
    done = _prepare(shared, tmp_path / "data", master)
    assert done.returncode == 0, done.stderr
    assert digests(tmp_path / "data") == digests(shared / "local")


class Cluster:
    """A standalone master and two workers, each with its own loopback address."""

    def __init__(self, folder):
        self.folder = folder
        self.num_registered = {}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.master = f"spark://127.0.0.1:{port}"
        self.processes = [
            self._start("master.Master", "master", "--host=127.0.0.1", f"--port={port}")
        ]
        _wait_until(lambda: _is_open(port), "the master listens")
        for number in (2, 3):
            self.start_worker(number)

    def _start(self, kind, name, *arguments, **environment):
        (self.folder / name).mkdir(exist_ok=True)
        arguments = [part for argument in arguments for part in argument.split("=", 1)]
        with open(self.folder / name / "log", "ab") as log:
            return subprocess.Popen(
                [SPARK_CLASS, f"org.apache.spark.deploy.{kind}", *arguments, "--webui-port", "0"],
                env={**os.environ, **_environment(self.folder), **environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_worker(self, number):
        name = f"worker{number}"
        host = f"127.0.0.{number}"
        folder = self.folder / name
        process = self._start(
            "worker.Worker", name, f"--host={host}", "--cores=1", "--memory=512m",
            f"--work-dir={folder / 'work'}", self.master,
            SPARK_LOCAL_IP=host, SPARK_LOCAL_DIRS=str(folder / "local"),
        )  # fmt: skip
        self.processes.append(process)
        log = folder / "log"
        registered = "Successfully registered with master"
        self.num_registered[name] = self.num_registered.get(name, 0) + 1
        _wait_until(
            lambda: log.read_text().count(registered) >= self.num_registered[name],
            "the worker is registered",
        )

    def kill_worker(self):
        """Kill the worker that was started last, with its executors."""
        worker = self.processes.pop()
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    def pause_worker(self, seconds):
        """Pause the worker that was started last, with its executors."""
        os.killpg(self.processes[-1].pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.killpg(self.processes[-1].pid, signal.SIGCONT)

    def stop(self):
        for process in self.processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _is_open(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def _wait_until(is_so, what, seconds=60):
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, f"timed out before {what}"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def cluster(shared):
    started = Cluster(shared)
    yield started
    started.stop()


@contextlib.contextmanager
def preparing(shared, cluster, *, dumps, output, moment):
    """Start a driver on the cluster, and yield it once a worker shuffles or writes."""
    before = len(_shuffled(shared))
    command = [
        *(sys.executable, "-m", "convert_tf", "prepare", "--engine=spark"),
        *(f"--master={cluster.master}", *_inputs(dumps), f"--output={output}"),
    ]
    environment = {**os.environ, **_environment(shared)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as driver:
        if moment == "shuffle":
            _wait_until(lambda: len(_shuffled(shared)) > before, "a worker shuffles")
        else:
            scratch = output.with_name(f".{output.name}.new") / "scratch"
            _wait_until(lambda: len(list(scratch.glob("*"))) > 2, "files are written")
        yield driver


@pytest.mark.parametrize(
    ("fate", "moment"), [("killed", "shuffle"), ("killed", "writing"), ("slow", "writing")]
)
def test_a_lost_or_slow_worker_changes_nothing(shared, cluster, tmp_path, fate, moment):
    """If a worker is slow, Spark also runs its tasks on the other one, and both write files."""
    output = tmp_path / "data"
    with preparing(shared, cluster, dumps=shared, output=output, moment=moment) as driver:
        if fate == "killed":
            cluster.kill_worker()
        else:
            cluster.pause_worker(seconds=5)
        errors = driver.communicate(timeout=120)[1]
    if fate == "killed":
        cluster.start_worker(3)
    assert driver.returncode == 0, errors
    assert digests(output) == digests(shared / "local")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("moment", ["shuffle", "writing"])
def test_dumps_that_are_replaced_before_they_are_read_again(shared, cluster, tmp_path, moment):
    """If a worker with shuffle outputs is lost, the run writes equal files or raises an error."""
    shutil.copytree(shared / "dumps", tmp_path / "dumps")
    output = tmp_path / "data"
    with preparing(shared, cluster, dumps=tmp_path, output=output, moment=moment) as driver:
        for path in (tmp_path / "dumps").iterdir():
            content = path.read_bytes()
            path.with_suffix(".new").write_bytes(content[: len(content) // 2])
            os.replace(path.with_suffix(".new"), path)
        cluster.kill_worker()
        errors = driver.communicate(timeout=120)[1]
    cluster.start_worker(3)
    names = [path.name for path in tmp_path.iterdir()]
    if driver.returncode == 0:
        assert moment == "writing"
        assert digests(output) == digests(shared / "local")
    else:
        assert driver.returncode == 1, errors
        last = errors.splitlines()[-1]
        assert f"convert-tf prepare: {tmp_path}/dumps/R" in last
        assert "was changed or replaced after this command started" in last
        assert names == ["dumps"]


def test_embed_gives_the_vectors_of_one_machine(shared, cluster, tiny_onnx, tmp_path):
    """The vectors are complete even if a worker and then the driver were killed."""
    texts = [*random_texts(60_000, seed=0)]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    output = tmp_path / "v.npy"
    command = [
        *(sys.executable, "-m", "convert_tf", "embed", "--engine=spark"),
        *(f"--master={cluster.master}", f"--encoder={tiny_onnx}"),
        *(f"--input={tmp_path}/texts.txt", f"--output={output}", "--dtype=float16"),
    ]
    environment = {**os.environ, **_environment(shared)}
    parts = tmp_path / ".v.npy.parts"
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as driver:
        _wait_until(lambda: list(parts.glob("[!.]*.npy")), "a part is written")
        cluster.kill_worker()
        driver.kill()
    assert not output.exists()
    cluster.start_worker(3)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "of 4 parts are encoded" in done.stderr
    encoder = SentenceEncoder(OnnxBackend(tiny_onnx, num_threads=1))
    expected = np.concatenate([*encoder.iter_encode(iter(texts))]).astype(np.float16)
    np.testing.assert_array_equal(np.load(output), expected)
    names = ["texts.txt", "v.npy", "v.npy.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def _shuffled(folder):
    return list(folder.glob("worker3/local/**/shuffle_*.data"))


def test_bad_input_is_said_in_one_sentence(shared, cluster, tmp_path):
    nothing_there = {"PYSPARK_PYTHON": str(tmp_path / "python")}
    done = _prepare(shared, tmp_path / "data", cluster.master, **nothing_there)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert f'Cannot run program "{tmp_path}/python"). Set PYSPARK_PYTHON' in last
    assert list(tmp_path.iterdir()) == []
