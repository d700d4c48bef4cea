"""examples/cluster/train.sbatch on a real Slurm.

Skipped if Slurm is missing; on Debian, `apt-get install slurmctld slurmd slurm-client munge`.
"""

import sys

import pytest
from support.commands import ROOT, own_environment
from support.encoder_runs import CONFIG, final_weights, flags_of
from support.processes import ON_JAX
from support.slurm import slurm
from support.token_corpus import write_corpus

from convert_tf.training.state import saved_checkpoints

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "examples" / "cluster" / "train.sbatch"
ON_CPUS = {name: value for name, value in ON_JAX.items() if name != "KERAS_BACKEND"}
STEPS = 2000  # more than the job can take before it is preempted


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    try:
        with slurm(tmp_path_factory.mktemp("slurm")) as running:
            yield running
    except PermissionError as error:
        pytest.skip(f"Slurm cannot run here: {error}")


def submitted(cluster, folder, *flags):
    """Submit the script for two processes on this small node, and return the job number."""
    lines = SCRIPT.read_text().splitlines(keepends=True)
    script = folder / "train.sbatch"
    larger = ("--gpus-per-node", "--cpus-per-task", "--mem")
    script.write_text("".join(line for line in lines if not any(word in line for word in larger)))
    command = folder / "convert-tf"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m convert_tf "$@"\n')
    command.chmod(0o755)
    environment = {**own_environment(), **ON_CPUS}
    environment["PATH"] = f"{folder}:{environment['PATH']}"
    options = ["--nodes=1", "--ntasks-per-node=2", f"--output={folder}/log", f"--chdir={ROOT}"]
    return cluster.call("sbatch", "--parsable", *options, script, *flags, **environment).strip()


def test_a_preempted_job_is_queued_again_and_goes_on(cluster, tmp_path):
    arrays = write_corpus(tmp_path, num_train=400).arrays
    run = tmp_path / "run"
    changes = {"eval_every": STEPS, "checkpoint_every": 10, "keep_checkpoints": 1}
    flags = flags_of(CONFIG, data=arrays, output=run, steps=STEPS, **changes)
    job = submitted(cluster, tmp_path, *flags)
    cluster.wait(lambda: saved_checkpoints(run))
    (first,) = saved_checkpoints(run)[:1]
    urgent = ["--partition=high", "--nodes=1", "--ntasks=2", "--wrap=true", "--output=/dev/null"]
    other = cluster.call("sbatch", "--parsable", *urgent).strip()
    cluster.wait(lambda: cluster.facts(other)["JobState"] == "COMPLETED")
    log = (tmp_path / "log").read_text()
    assert "stopped by a signal: saved step" in log
    saved = int(log.split("stopped by a signal: saved step ")[1].split(";")[0])
    assert int(first.name.removeprefix("step-")) < saved < STEPS
    # Slurm waits two minutes before it restarts a job. slurmd refuses jobs that start in the second
    # in which they ended ("already killed"), and such a job is lost.
    cluster.wait(lambda: cluster.facts(job)["JobState"] == "PENDING")
    cluster.call("scontrol", "update", f"JobId={job}", "StartTime=now+5")
    cluster.wait(lambda: "resuming at step" in (tmp_path / "log").read_text())
    assert f"resuming at step {saved} from" in (tmp_path / "log").read_text()
    assert cluster.facts(job)["Restarts"] == "1"
    cluster.call("scancel", job)
    cluster.wait(lambda: cluster.facts(job)["JobState"] == "CANCELLED")


def test_a_run_that_fails_is_not_queued_again(cluster, tmp_path):
    job = submitted(cluster, tmp_path, "--data=missing", "--model=tiny", "--output=run")
    cluster.wait(lambda: cluster.facts(job)["JobState"] == "FAILED")
    facts = cluster.facts(job)
    assert (facts["ExitCode"], facts["Restarts"]) == ("1:0", "0")


def test_a_run_that_is_done_is_completed(cluster, tmp_path):
    arrays = write_corpus(tmp_path, num_train=400).arrays
    flags = flags_of(CONFIG, data=arrays, output=tmp_path / "run", steps=4, eval_every=4)
    job = submitted(cluster, tmp_path, *flags)
    cluster.wait(lambda: cluster.facts(job)["JobState"] == "COMPLETED")
    assert final_weights(tmp_path / "run")
