"""Training on two hosts (network namespaces), started by the files in examples/cluster.

Skipped where network namespaces cannot be created. On Linux, this needs root.
"""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml
from support.commands import ROOT, own_environment
from support.encoder_runs import CONFIG, final_weights, flags_of, rows_of
from support.hosts import two_hosts
from support.processes import ON_JAX
from support.token_corpus import write_corpus

from convert_tf.training.state import saved_checkpoints

pytestmark = pytest.mark.slow

CLUSTER = ROOT / "examples" / "cluster"
_, JOB = yaml.safe_load_all((CLUSTER / "train-job.yaml").read_text())
PODS = [f"{JOB['metadata']['name']}-{index}" for index in range(2)]
POD = JOB["spec"]["template"]["spec"]
NODES = ["node1", "node2"]
# The files in examples/cluster set the backend.
ON_CPUS = {name: value for name, value in ON_JAX.items() if name != "KERAS_BACKEND"}
# A replacement for Slurm's srun that runs the command after its options on each host.
SRUN = f"""#!{sys.executable}
import json, os, subprocess, sys
command = sys.argv[1:]
while command[0].startswith("--"):
    del command[0]
assert command.pop(0) == "convert-tf"
processes = []
for rank, host in enumerate(json.loads(os.environ["HOSTS"])):
    step = dict(SLURM_JOB_ID="4711", SLURM_STEP_NODELIST="node[1-2]", SLURM_NTASKS="2")
    step |= dict(SLURM_PROCID=str(rank), SLURM_LOCALID="0")
    program = [*host, sys.executable, "-m", "convert_tf", *command]
    processes.append(subprocess.Popen(program, env={{**os.environ, **step}}))
sys.exit(max(process.wait() for process in processes))
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    names = [
        (node, pod, f"{pod}.{POD['subdomain']}") for node, pod in zip(NODES, PODS, strict=True)
    ]
    try:
        with two_hosts(tmp_path_factory.mktemp("network"), names) as made:
            yield made
    except PermissionError as error:
        pytest.skip(f"Network namespaces cannot be made here: {error}")


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_train=400).arrays


def flags(data, output):
    return flags_of(CONFIG, data=data, output=output, steps=30, eval_every=30, checkpoint_every=10)


def start_pods(hosts, *arguments):
    """Start the container of the Job on each host, each with its own arguments."""
    (container,) = POD["containers"]
    assert container["command"][0] == "convert-tf"
    pods = []
    for host, pod, own_arguments in zip(hosts, PODS, arguments, strict=True):
        fields = {"metadata.annotations['batch.kubernetes.io/job-completion-index']": host.index}
        environment = {
            variable["name"]: variable.get("value")
            or str(fields[variable["valueFrom"]["fieldRef"]["fieldPath"]])
            for variable in container["env"]
        }
        program = [sys.executable, "-m", "convert_tf", *container["command"][1:], *own_arguments]
        process = subprocess.Popen(
            host.command(pod, *program), env={**own_environment(), **ON_CPUS, **environment},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        pods.append(process)
    return pods


def errors_of(process, *, status):
    errors = process.communicate(timeout=120)[1]
    assert process.returncode == status, errors
    return errors


def wait_for_checkpoint(run, *processes):
    while not saved_checkpoints(run):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.02)


@pytest.fixture(scope="module")
def run_of_slurm(hosts, arrays, tmp_path_factory):
    """A run started by train.sbatch, whose second host was paused for three seconds."""
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "srun").write_text(SRUN)
    (folder / "srun").chmod(0o755)
    prefixes = [host.command(node) for host, node in zip(hosts, NODES, strict=True)]
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    job = subprocess.Popen(
        ["bash", CLUSTER / "train.sbatch", *flags(arrays, folder / "run")],
        env={**own_environment(), **ON_CPUS, "PATH": path, "HOSTS": json.dumps(prefixes)},
        stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    wait_for_checkpoint(folder / "run", job)
    hosts[1].send(signal.SIGSTOP)
    time.sleep(3)
    hosts[1].send(signal.SIGCONT)
    errors_of(job, status=0)
    return folder / "run"


def test_two_hosts_train_the_weights_of_one(run_of_slurm, arrays, tmp_path):
    """Two hosts and one host train equal weights, even if one of the two is slow for a while."""
    subprocess.run(
        [sys.executable, "-m", "convert_tf", "train", *flags(arrays, tmp_path / "run")],
        env={**own_environment(), **ON_JAX},
        capture_output=True,
        check=True,
        cwd=ROOT,
    )
    of_one, of_two = final_weights(tmp_path / "run"), final_weights(run_of_slurm)
    for one, two in zip(of_one, of_two, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_a_lost_host_ends_the_run_which_resumes_with_the_same_bytes(
    hosts, run_of_slurm, arrays, tmp_path
):
    run = tmp_path / "run"
    pods = start_pods(hosts, flags(arrays, run), flags(arrays, run))
    wait_for_checkpoint(run, *pods)
    hosts[1].send(signal.SIGKILL)
    lost = time.monotonic()
    assert "another process of the run ended" in errors_of(pods[0], status=76).splitlines()[-1]
    assert time.monotonic() - lost < 30
    errors_of(pods[1], status=-signal.SIGKILL)
    assert rows_of(run)[-1]["step"] < 30
    for pod in start_pods(hosts, flags(arrays, run), flags(arrays, run)):
        errors_of(pod, status=0)
    one, other = saved_checkpoints(run)[0], saved_checkpoints(run_of_slurm)[0]
    assert one.name == other.name
    for file in ("model.weights.h5", "training_state.npz"):
        assert (one / file).read_bytes() == (other / file).read_bytes()


def test_hosts_with_other_data_are_refused(hosts, arrays, tmp_path):
    other = write_corpus(tmp_path, num_train=300).arrays
    run = tmp_path / "run"
    for pod in start_pods(hosts, flags(arrays, run), flags(other, run)):
        assert "initial weights of process 1 differ" in errors_of(pod, status=1).splitlines()[-1]
