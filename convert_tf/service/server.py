"""The service's HTTP server, with limits on the number and duration of open connections.

A client that connects and sends nothing, or only half a request, occupies a file descriptor.
Clients therefore have only a few seconds to send the head of a request, and a limited time to send
the body (see `middleware`). If too many connections are open, those that have waited longest for a
request are closed.
"""

import asyncio
import logging
import os
import resource
import time
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

# Number of seconds for which an idle connection stays open. Clients close idle connections after
# 5 s (httpx and OpenAI's client) or 60 s (many proxies). If the service closed a connection before
# the client did, it could lose a request that the client is sending.
_KEEP_ALIVE = 75
_FOR_HEAD = 10.0  # number of seconds that a client has to send the head of a request
_TO_END = 5.0  # number of seconds that a client has to finish a body when the service stops
# Number of seconds to finish open requests when the service stops. The files in deploy/ give the
# service more time than this.
GRACE = 45
_MOST_CONNECTIONS = 1000
# asyncio accepts up to this many connections at once before the server can close any of them.
_ACCEPTED_AT_ONCE = 128
_OTHER_FILES = 32  # number of files that the process may open later
_BETWEEN_WARNINGS = 60.0  # minimum number of seconds between two warnings

_log = logging.getLogger("uvicorn.error")
# `Connection` reads the state of h11, so httptools is not used even if it is installed. The type is
# `Any`, because uvicorn's type for the set of connections allows only its own protocols.
_Protocol: Any = H11Protocol


class Connection(_Protocol):  # type: ignore[misc, valid-type]
    """A connection that is closed if its client takes too long to send a request.

    Attributes:
      waits_since: time at which the connection began to wait for a request, or None while a request
        is being answered.
    """

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request.

        If too many connections are open, close the one that has waited longest for a request.
        """
        super().connection_made(transport)
        self.waits_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wait_for_head()
        if len(self.connections) >= self.limit_concurrency:
            others = self.connections - {self}
            silent = [other for other in others if other.waits_since is not None]
            if silent:  # if none is silent, uvicorn answers the next request with 503
                oldest = min(silent, key=lambda other: other.waits_since)
                self.connections.discard(oldest)
                oldest.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer of the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Start the timer at the first byte of a head, and stop it at the last byte of the head.

        If a request was answered before its body was complete, stop the timer at the last byte of
        the body too.
        """
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self.cycle is not None and self._is_between_requests():
            self._stop_waiting()
            self.waits_since = time.monotonic()
            # uvicorn stops its keep-alive timer when data arrives, and starts it only after an
            # answer.
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif self._timer is None:
            self._wait_for_head()

    def _is_between_requests(self) -> bool:
        """Return whether no byte of the next request has arrived yet."""
        # After an answer, both sides have the same state once the request is complete.
        return self.conn.our_state is self.conn.their_state and not self.conn.trailing_data[0]

    def on_response_complete(self) -> None:
        """Wait for the next request, but only briefly if the body of this request is incomplete."""
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            return  # the next request arrived together with the last one
        self.waits_since = time.monotonic()
        if self.cycle is not None and self.cycle.more_body:
            self._wait_for_head()

    def shutdown(self) -> None:
        """Answer the open request if its body arrives soon, and tell the client to reconnect."""
        super().shutdown()
        if self.cycle is not None and not self.cycle.response_complete:
            # uvicorn adds the headers in this list to its answers.
            self.cycle.scope["headers"].append((b"connection", b"close"))
            if self.cycle.more_body:
                self._stop_waiting()
                self._timer = self.loop.call_later(_TO_END, self._close_without_body)

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        self.waits_since = time.monotonic()
        self._timer = self.loop.call_later(_FOR_HEAD, self.transport.close)

    def _stop_waiting(self) -> None:
        self.waits_since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_without_body(self) -> None:
        if self.cycle.more_body:
            self.transport.close()


class _FailedAccepts:
    """Logs at most once a minute that connections could not be accepted.

    Without this handler, asyncio would log every failure.
    """

    def __init__(self) -> None:
        self._last = -_BETWEEN_WARNINGS

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not context["message"].startswith("socket.accept() "):
            loop.default_exception_handler(context)
        elif time.monotonic() - self._last >= _BETWEEN_WARNINGS:
            self._last = time.monotonic()
            _log.warning(
                "Connections cannot be accepted: %s. Raise the limit for open files (ulimit -n), "
                "or start more services. This message appears at most once a minute.",
                context.get("exception"),
            )


class Server(uvicorn.Server):
    """uvicorn's server with the limits of `Connection`."""

    async def startup(self, *arguments: Any, **options: Any) -> None:
        """Start listening.

        Raises:
          SystemExit: if the port is in use, or the address does not belong to this machine. uvicorn
            has logged the reason.
        """
        asyncio.get_running_loop().set_exception_handler(_FailedAccepts())
        try:
            await super().startup(*arguments, **options)
        except SystemExit as error:
            address = f"{self.config.host}:{self.config.port}"
            raise SystemExit(
                f"Cannot listen at {address}; the log says why. Pass another --port or --host."
            ) from error


def make_server(application: Any, **options: Any) -> Server:
    """Return the server for an application.

    Args:
      application: web application, from `application.make_application`.
      **options: options of `uvicorn.Config`, such as `host` and `port`.
    """
    config = uvicorn.Config(
        application,
        http=Connection,
        access_log=False,
        backlog=_ACCEPTED_AT_ONCE,
        limit_concurrency=_most_connections() + 1,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
        **options,
    )
    return Server(config)


def _most_connections() -> int:
    """Return the maximum number of connections that leaves enough file descriptors for files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    opened = len(os.listdir("/dev/fd"))
    return max(1, min(_MOST_CONNECTIONS, files - opened - _ACCEPTED_AT_ONCE - _OTHER_FILES))
