"""Processes that wait for each other, here in threads, and whole runs whose wait times out."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.commands import ROOT
from support.processes import ON_JAX

from convert_tf.training import meeting
from convert_tf.training.meeting import meet
from convert_tf.training.processes import _told_by_cluster


@pytest.fixture
def address():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return f"localhost:{free.getsockname()[1]}"


def _outcomes(address, *processes, seconds=2.0):
    """Return "" or an error for each process, given as (number of processes, process id)."""

    def outcome(process):
        try:
            meet(address, *process, seconds=seconds)
        except ValueError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(len(processes)) as pool:
        return [*pool.map(outcome, processes)]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]])
def test_all_go_on_when_all_have_come(address, order):
    assert _outcomes(address, *((3, index) for index in order), seconds=60) == [""] * 3
    # The port is free again afterwards.
    assert _outcomes(address, (2, 1), (2, 0), seconds=60) == [""] * 2


def test_process_0_listens_on_the_address_of_the_coordinator(address, monkeypatch):
    port = address.partition(":")[2]
    monkeypatch.setattr(meeting, "_arrived", lambda server, *_: {})
    places = {
        "127.0.0.1": "127.0.0.1",
        "127.0.0.2": "127.0.0.2",
        "192.0.2.1": "[::]"
        if socket.has_dualstack_ipv6()
        else "0.0.0.0",  # in place of an address that this host does not have
    }
    for host, place in places.items():
        assert meet(f"{host}:{port}", 2, 0, seconds=1) == f"{place}:{port}"
    assert meet(address, 2, 0, seconds=1) in (f"127.0.0.1:{port}", f"[::1]:{port}")
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", f"127.0.0.3:{port}")
    assert meet(address, 2, 0, seconds=1) == f"127.0.0.3:{port}"


def test_a_name_of_the_host_that_leads_to_loopback_is_no_place_to_listen(monkeypatch):
    """Debian's /etc/hosts maps the host name to 127.0.1.1."""
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, 0, 0, "", ("127.0.1.1", 0))]
    )
    assert meeting._own_address("node7") is None
    assert meeting._own_address("127.0.1.1") == "127.0.1.1"


@pytest.mark.parametrize(
    ("planted", "sentence"),
    [
        (KeyError("SLURM_NTASKS"), "from the cluster (KeyError: 'SLURM_NTASKS')"),
        (None, "does not work with this version of JAX"),
    ],
)
def test_a_cluster_that_cannot_be_asked(monkeypatch, planted, sentence):
    clusters = pytest.importorskip("jax._src.clusters")
    name = "auto_detect_unset_distributed_params"
    if planted is None:
        monkeypatch.delattr(clusters.ClusterEnv, name)
    else:

        def fails(*_):
            raise planted

        monkeypatch.setattr(clusters.ClusterEnv, name, fails)
    given = {"coordinator": None, "num_processes": None, "process_id": None}
    with pytest.raises(ValueError, match=re.escape(sentence)):
        _told_by_cluster(given, 1)


def test_all_say_who_is_missing(address):
    for said in _outcomes(address, (4, 0), (4, 2)):
        assert said.startswith(f"Process 1, 3 of 4 did not connect to {address} within 2 seconds.")


def test_a_process_0_that_does_not_come(address):
    (said,) = _outcomes(address, (2, 1), seconds=0.5)
    assert said.startswith(f"Process 1 did not reach process 0 at {address} within 0.5 seconds")
    assert "Connection refused" in said
    (said,) = _outcomes("no-such-host.invalid:1", (2, 1), seconds=0.5)
    assert "at no-such-host.invalid:1 within" in said


def test_a_process_that_ends_while_it_waits_may_come_again(address):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_outcomes, address, (3, 0), seconds=60)
        with _connected(address) as first:
            first.sendall(b"convert-tf process 1 3\n")
        assert _outcomes(address, (3, 1), (3, 2), seconds=60) == [""] * 2
        assert waiting.result() == [""]


def _connected(address):
    """Return a connection to process 0 as soon as it listens."""
    host, port = address.split(":")
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection((host, int(port)))
        time.sleep(0.05)
    raise AssertionError("process 0 does not listen")


@pytest.mark.parametrize(
    ("processes", "sentence"),
    [
        ([(3, 0), (3, 1), (3, 1)], "Two processes have --process_id=1."),
        ([(2, 0), (3, 1)], "Process 0 has --num_processes=2, but process 1 has 3."),
    ],
)
def test_processes_that_do_not_fit_end_at_once(address, processes, sentence):
    for said in _outcomes(address, *processes, seconds=60):
        assert said.startswith(sentence)


def test_strangers(address):
    """Process 0 ignores other clients of its port; another program in its place is reported."""
    host, port = address.split(":")
    with socket.create_server((host, int(port))) as server:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(_outcomes, address, (2, 1), seconds=60)
            with server.accept()[0] as connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\n")
            assert "Process 0 of this run is not at" in waiting.result()[0]
        (said,) = _outcomes(address, (2, 0), seconds=0.5)
        assert said.startswith(f"Process 0 cannot listen on port {port} (Address already in use)")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(_outcomes, address, (2, 0), seconds=60)
        with _connected(address) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\n")
            assert _outcomes(address, (2, 1), seconds=60) == [""]
        assert waiting.result() == [""]


@pytest.mark.parametrize(
    ("wrong", "process", "sentence"),
    [
        ("localhost", (2, 0), "--coordinator must be host:port"),
        ("localhost:x", (2, 0), "--coordinator must be host:port"),
        ("localhost:1", (2, 2), "--process_id must be from 0 to 1"),
    ],
)
def test_flags_that_cannot_be(wrong, process, sentence):
    with pytest.raises(ValueError, match=sentence):
        meet(wrong, *process, seconds=1)


# Slurm's environment variables for a process.
ON_SLURM = {
    "SLURM_STEP_NODELIST": "localhost",
    "SLURM_NTASKS": "2",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_NODES": "1",
}


# JAX derives the port from the job number; it is one of the last 4,096 ports.
_FIRST_PORT = 2**16 - 2**12


def _job_with_a_free_port():
    start = os.getpid() % 2**12
    for number in (*range(start, 2**12), *range(start)):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("localhost", _FIRST_PORT + number))
            return str(number)
    raise AssertionError("all ports are in use")


@pytest.mark.slow
@pytest.mark.parametrize("asks_cluster", [False, True])
@pytest.mark.parametrize("index", [0, 1])
def test_a_run_whose_other_process_never_comes_ends_with_a_sentence(
    address, tmp_path, index, asks_cluster
):
    told = [f"--coordinator={address}", "--num_processes=2", f"--process_id={index}"]
    command = [
        *(
            sys.executable,
            "-m",
            "convert_tf",
            "train",
            "--data=ids/",
            f"--output={tmp_path / 'run'}",
        ),
        *("--model=tiny", "--join_timeout=3"),
        *(["--coordinator=auto"] if asks_cluster else told),
    ]
    slurm = {}
    if asks_cluster:
        slurm = {**ON_SLURM, "SLURM_JOB_ID": _job_with_a_free_port(), "SLURM_PROCID": str(index)}
    done = subprocess.run(
        command, env={**os.environ, **ON_JAX, **slurm}, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    (said,) = done.stderr.splitlines()
    missing = (
        "Process 1 did not reach process 0 at" if index else "Process 1 of 2 did not connect to"
    )
    assert said.startswith(f"convert-tf train: {missing} localhost:")
    assert "within 3 seconds" in said
    assert not (tmp_path / "run").exists()
