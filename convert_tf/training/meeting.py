"""Wait until all processes of a run have started, before JAX connects them.

If a process does not connect, JAX ends the others with a stack dump. Therefore each process first
reports its number to process 0, on the port that JAX uses afterwards. If a process does not report
in time, the other processes stop with an error that gives the number of the missing process.
"""

import contextlib
import errno
import ipaddress
import os
import socket
import time

_GREETING, _ANSWER = "convert-tf process", "convert-tf: "
_ALL_CAME = "all came"
_BIND_ADDRESS = "JAX_COORDINATOR_BIND_ADDRESS"  # JAX's own variable
_SECONDS_FOR_GREETING = 5.0
_SECONDS_BETWEEN_TRIES = 0.2
# Process 0 may have started later than this process and then also gives up later. Its answer names
# the missing process, so this process waits a little longer for it.
_GRACE_SECONDS = 5.0
_MAX_LINE_BYTES = 4096


def meet(address: str, number: int, index: int, *, seconds: float) -> str | None:
    """Wait until all processes of a run have connected to process 0.

    Args:
      address: host and port on which process 0 listens, as `host:port`.
      number: number of processes in the run.
      index: number of this process, starting at 0.
      seconds: maximum time to wait.

    Returns:
      In process 0, the `host:port` on which it listened, to pass to JAX. In other processes, None.

    Raises:
      ValueError: if the address is malformed or cannot be reached, a process is missing, two
        processes have the same number, or a process belongs to another run.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError(f"--coordinator must be host:port. Received: {address!r}.")
    if not 0 <= index < number:
        raise ValueError(
            f"--process_id must be from 0 to {number - 1} with --num_processes={number}. "
            f"Received: {index}."
        )
    until = time.monotonic() + seconds
    if index:
        _come(address, (host.strip("[]"), int(port)), number, index, until, seconds)
        return None
    bound = os.environ.get(_BIND_ADDRESS, address)
    host, _, port = bound.rpartition(":")
    if not port.isdecimal():
        raise ValueError(f"{_BIND_ADDRESS} must be host:port. Received: {bound!r}.")
    with _listening(host.strip("[]"), int(port), address, until) as server:
        place, port = server.getsockname()[:2]
        peers = _arrived(server, address, number, until, seconds)
    # The port is closed now, so JAX can listen on it.
    _answer(peers, _ALL_CAME)
    return f"[{place}]:{port}" if ":" in place else f"{place}:{port}"


def _listening(host: str, port: int, address: str, until: float) -> socket.socket:
    """Listen on a port. Wait while the port is in use, because an earlier run may still be ending.

    If `host` is not an address of this machine, listen on all addresses. For example, the address
    of a Kubernetes service does not belong to any pod.
    """
    place = _own_address(host)
    while True:
        try:
            if place:
                family = socket.AF_INET6 if ":" in place else socket.AF_INET
                return socket.create_server((place, port), family=family)
            is_dual = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if is_dual else socket.AF_INET
            return socket.create_server(("", port), family=family, dualstack_ipv6=is_dual)
        except OSError as error:
            if place and error.errno == errno.EADDRNOTAVAIL:
                place = None
                continue
            if error.errno == errno.EADDRINUSE and time.monotonic() < until:
                time.sleep(_SECONDS_BETWEEN_TRIES)
                continue
            raise ValueError(
                f"Process 0 cannot listen on port {port} ({os.strerror(error.errno or 0)}). Start "
                f"all processes with a free port in --coordinator instead of {address}."
            ) from error


def _own_address(host: str) -> str | None:
    """Return the address of a host name, or None if other hosts cannot connect to it."""
    try:
        place = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
        is_loopback = ipaddress.ip_address(place.partition("%")[0]).is_loopback
    except (OSError, ValueError):
        return None
    # Debian maps a host's own name to 127.0.1.1, which other hosts cannot reach.
    return None if is_loopback and host not in (place, "localhost") else place


def _arrived(
    server: socket.socket, address: str, number: int, until: float, seconds: float
) -> dict[int, socket.socket]:
    """Wait for the other processes. Return a dict from each process's number to its connection."""
    peers: dict[int, socket.socket] = {}
    while True:
        for index in [index for index, peer in peers.items() if _is_gone(peer)]:
            peers.pop(index).close()
        missing = [index for index in range(1, number) if index not in peers]
        if not missing:
            return peers
        if (remaining := until - time.monotonic()) <= 0:
            others = ", ".join(map(str, missing))
            sentence = (
                f"Process {others} of {number} did not connect to {address} within {seconds:g} "
                "seconds. The output of that process may say why. Start all processes again, or "
                "raise --join_timeout."
            )
            _answer(peers, sentence)
            raise ValueError(sentence)
        server.settimeout(min(remaining, _SECONDS_BETWEEN_TRIES))
        try:
            peer = server.accept()[0]
        except TimeoutError:
            continue
        greeting = (
            _line(peer, min(remaining, _SECONDS_FOR_GREETING)).removeprefix(_GREETING).split()
        )
        if len(greeting) != 2 or not all(map(str.isdecimal, greeting)):
            peer.close()  # the peer is another program
            continue
        index, total = map(int, greeting)
        sentence = ""
        if total != number:
            sentence = f"Process 0 has --num_processes={number}, but process {index} has {total}."
        elif index in peers and not _is_gone(peers[index]):
            sentence = f"Two processes have --process_id={index}. Give each its own number."
        if sentence:
            _answer({**peers, number: peer}, sentence)
            raise ValueError(sentence)
        if index in peers:
            peers[index].close()
        peers[index] = peer


def _come(
    address: str, place: tuple[str, int], number: int, index: int, until: float, seconds: float
) -> None:
    """Report this process to process 0, and wait until all processes have connected."""
    reason = "no answer"
    while (remaining := until - time.monotonic()) > 0:
        try:
            with socket.create_connection(place, timeout=remaining) as connection:
                connection.sendall(f"{_GREETING} {index} {number}\n".encode())
                answer = _line(connection, until - time.monotonic() + _GRACE_SECONDS)
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            if answer == _ANSWER + _ALL_CAME:
                return
            if answer.startswith(_ANSWER):
                raise ValueError(answer.removeprefix(_ANSWER))
            if answer:
                raise ValueError(
                    f"Process 0 of this run is not at {address}: another program answers there. "
                    "Check --coordinator, and that all processes use the same version of "
                    "convert_tf."
                )
            reason = "the connection was closed"
        time.sleep(_SECONDS_BETWEEN_TRIES)
    raise ValueError(
        f"Process {index} did not reach process 0 at {address} within {seconds:g} seconds "
        f"({reason}). Check that process 0 is running and that this host can reach the address, "
        "or raise --join_timeout."
    )


def _answer(peers: dict[int, socket.socket], sentence: str) -> None:
    for peer in peers.values():
        with contextlib.suppress(OSError), peer:
            peer.sendall(f"{_ANSWER}{sentence}\n".encode())


def _line(connection: socket.socket, seconds: float) -> str:
    """Receive a line, and return it without the line feed.

    If the rest of the line does not arrive in time, return the part that did.
    """
    until = time.monotonic() + seconds
    received = b""
    with contextlib.suppress(OSError):
        while b"\n" not in received and len(received) < _MAX_LINE_BYTES:
            connection.settimeout(max(until - time.monotonic(), 0.01))
            piece = connection.recv(_MAX_LINE_BYTES)
            if not piece:
                break
            received += piece
    return received.split(b"\n")[0].decode("utf-8", "replace")


def _is_gone(connection: socket.socket) -> bool:
    """Return whether the peer closed the connection. Peers send nothing after the greeting."""
    connection.setblocking(False)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True
