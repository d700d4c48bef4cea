"""A one-node Slurm on this machine, with its own daemons, folder and ports."""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# Jobs in the partition `high` preempt those in `low`, which then have a minute to end.
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=low Nodes={host} Default=YES PriorityTier=1 GraceTime=60
PartitionName=high Nodes={host} PriorityTier=10
"""
_SECONDS = 900  # timeout, generous because other programs may be running
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")


class Slurm:
    """A running Slurm.

    Args:
      folder: the folder with its configuration.
    """

    def __init__(self, folder: Path):
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def call(self, *command: object, **environment: str) -> str:
        """Return the output of a Slurm command.

        Args:
          command: the command, for example `squeue`.
          environment: environment variables for the jobs that it submits.
        """
        done = subprocess.run(
            [*map(str, command)], env={**self.environment, **environment},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    def facts(self, job: str) -> dict[str, str]:
        """Return the fields of `scontrol show job`, such as `JobState` and `ExitCode`."""
        words = self.call("scontrol", "--oneliner", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, condition: Callable[[], object]) -> None:
        """Return once a condition is true.

        Raises:
          TimeoutError: the condition did not become true.
        """
        until = time.monotonic() + _SECONDS
        while not condition():
            if time.monotonic() > until:
                raise TimeoutError(self.call("scontrol", "show", "job"))
            time.sleep(0.2)


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """Run Slurm while the block runs.

    Raises:
      PermissionError: Slurm is not installed, or this user is not root.
    """
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid():
        raise PermissionError(f"{', '.join(missing)} missing" if missing else "needs root")
    with contextlib.ExitStack() as held:
        free = [held.enter_context(socket.socket()) for _ in range(2)]
        for one in free:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in free]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    folder.chmod(0o755)  # munged requires this mode
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    values = {"host": socket.gethostname(), "folder": folder, "ports": ports}
    (folder / "slurm.conf").write_text(_CONFIGURATION.format(**values))
    running = Slurm(folder)
    names = {name: f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")}
    munged = ["munged", "--foreground", "--force", f"--socket={folder}/munge.socket"]
    with contextlib.ExitStack() as started, open(folder / "daemons.log", "w") as log:
        for command in ([*munged, *names.values()], ["slurmctld", "-D"], ["slurmd", "-D"]):
            daemon = subprocess.Popen(command, env=running.environment, stdout=log, stderr=log)
            started.callback(daemon.wait)
            started.callback(daemon.terminate)
            if command[0] == "munged":
                running.wait((folder / "munge.socket").exists)
        is_up = f"sinfo --noheader --format=%t --nodes={socket.gethostname()}".split()
        running.wait(lambda: "idle" in _said(running, is_up))
        try:
            yield running
        finally:  # jobs would outlive the daemons
            running.call("scancel", "--user=root")
            running.wait(lambda: not running.call("squeue", "--noheader"))


def _said(running: Slurm, command: list[str]) -> str:
    return subprocess.run(command, env=running.environment, capture_output=True, text=True).stdout
