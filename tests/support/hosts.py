"""Two simulated hosts: network namespaces with their own addresses and host names."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path


class Host:
    """One of two simulated hosts connected by a virtual cable.

    Args:
      index: 0 or 1.
      names_file: hosts file with the names of both hosts.
    """

    def __init__(self, index: int, names_file: Path):
        self.index = index
        self.namespace = f"convert-tf-{os.getpid()}-{index}"
        self.interface = f"ctf{os.getpid()}-{index}"
        self.address = f"10.213.77.{index + 1}"
        self._names_file = names_file

    def command(self, name: str, *arguments: object) -> list[str]:
        """Return a command line that runs a command on this host under the given host name."""
        script = 'mount --bind "$1" /etc/hosts && hostname "$2" && shift 2 && exec "$@"'
        return [
            *("ip", "netns", "exec", self.namespace, "unshare", "--mount", "--uts"),
            *("sh", "-c", script, "sh", str(self._names_file), name, *map(str, arguments)),
        ]

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of this host."""
        pids = subprocess.check_output(["ip", "netns", "pids", self.namespace], text=True)
        for pid in map(int, pids.split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@contextlib.contextmanager
def two_hosts(folder: Path, names: Sequence[Sequence[str]]) -> Iterator[list[Host]]:
    """Create two hosts with the given names.

    Raises:
      PermissionError: this user may not create network namespaces.
    """
    hosts = [Host(index, folder / "hosts") for index in range(2)]
    lines = [f"{host.address} {' '.join(names[host.index])}\n" for host in hosts]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
    with contextlib.ExitStack() as made:
        for host in hosts:
            _ip("netns", "add", host.namespace)
            made.callback(_ip, "netns", "delete", host.namespace)
            made.callback(host.send, signal.SIGKILL)
        ends = [host.interface for host in hosts]
        _ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for host in hosts:
            _ip("link", "set", host.interface, "netns", host.namespace)
            inside = ("-n", host.namespace)
            _ip(*inside, "address", "add", f"{host.address}/24", "dev", host.interface)
            _ip(*inside, "link", "set", host.interface, "up")
            _ip(*inside, "link", "set", "lo", "up")
        subprocess.run(hosts[0].command("host", "true"), check=True)
        yield hosts


def _ip(*arguments: str) -> None:
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    except FileNotFoundError as error:
        raise PermissionError("the program ip is not installed") from error
    if done.returncode:
        raise PermissionError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
