"""Middleware: count requests, limit their size, and cancel them when the client leaves."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from starlette.exceptions import HTTPException

from convert_tf.service.refusals import refusal

_CLIENT_LEFT = 499  # the status of nginx for this case; it is only counted

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Counters:
    """Thread-safe counts of requests, batches and texts since the service started.

    Args:
      queued: returns the number of waiting texts.

    Reference: Prometheus, "Exposition formats", text format 0.0.4.
    """

    def __init__(self, queued: Callable[[], int] = lambda: 0):
        self._lock = threading.Lock()
        self._queued = queued
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: dict[str, Counter[float]] = {}
        self._seconds: dict[str, float] = {}
        self._batches: Counter[str] = Counter()
        self._texts: Counter[str] = Counter()
        self._busy_seconds = 0.0

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        with self._lock:
            self._requests[path, status] += 1
            self._seconds[path] = self._seconds.get(path, 0.0) + seconds
            buckets = self._buckets.setdefault(path, Counter())
            buckets.update(bound for bound in _SECONDS if seconds <= bound)

    def batch(self, what: str, texts: int, seconds: float) -> None:
        """Count a batch of the model."""
        with self._lock:
            self._batches[what] += 1
            self._texts[what] += texts
            self._busy_seconds += seconds

    def text(self) -> str:
        """Return all counts, one per line."""
        with self._lock:
            return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield "# TYPE convert_tf_requests_total counter"
        for (path, status), number in sorted(self._requests.items()):
            yield f'convert_tf_requests_total{{path="{path}",status="{status}"}} {number}'
        yield "# TYPE convert_tf_request_seconds histogram"
        for path, buckets in sorted(self._buckets.items()):
            total = sum(n for (own, _), n in self._requests.items() if own == path)
            name = "convert_tf_request_seconds"
            for bound in _SECONDS:
                yield f'{name}_bucket{{path="{path}",le="{bound:g}"}} {buckets[bound]}'
            yield f'{name}_bucket{{path="{path}",le="+Inf"}} {total}'
            yield f'{name}_sum{{path="{path}"}} {self._seconds[path]:.6f}'
            yield f'{name}_count{{path="{path}"}} {total}'
        for name, counts in (("batches", self._batches), ("texts", self._texts)):
            yield f"# TYPE convert_tf_{name}_total counter"
            for what, number in sorted(counts.items()):
                yield f'convert_tf_{name}_total{{kind="{what}"}} {number}'
        yield "# TYPE convert_tf_model_seconds_total counter"
        yield f"convert_tf_model_seconds_total {self._busy_seconds:.6f}"
        yield "# TYPE convert_tf_queued_texts gauge"
        yield f"convert_tf_queued_texts {self._queued()}"


class Counted:
    """Counts each answer with its path and seconds."""

    def __init__(self, application: Any, *, counters: Counters):
        self._application, self._counters = application, counters

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def noted(message: Any) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._application(scope, receive, noted)
        finally:
            # Paths that do not exist count as one, or they could fill the memory.
            route = scope.get("route")
            path = getattr(route, "path", "other")
            self._counters.request(path, status, time.perf_counter() - started)


class LeftWithClient:
    """Cancels the work for a client that closed its connection. ASGI servers do not do this."""

    def __init__(self, application: Any):
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        is_read, is_answered = asyncio.Event(), False

        async def read() -> Any:
            message = await receive()
            if not message.get("more_body", False):
                is_read.set()
            return message

        async def answer(message: Any) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        async def leave() -> None:
            await is_read.wait()  # two readers would take each other's messages
            while (await receive())["type"] != "http.disconnect":
                pass

        work = asyncio.create_task(self._application(scope, read, answer))
        gone = asyncio.create_task(leave())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done() or is_answered:
                await work
                return
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await refusal(_CLIENT_LEFT, "The client has left.")(scope, receive, send)
        finally:
            work.cancel()
            gone.cancel()


class BodyLimit:
    """Refuses bodies that are too long before they are read completely."""

    def __init__(self, application: Any, *, max_bytes: int):
        self._application, self._max_bytes = application, max_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._max_bytes:
            await refusal(413, self._message(f"{int(length):,}"))(scope, receive, send)
            return
        received = 0

        async def counted() -> Any:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                # FastAPI does not turn this exception into another error.
                raise HTTPException(413, self._message(f"{received:,} and more"))
            return message

        await self._application(scope, counted, send)

    def _message(self, received: str) -> str:
        allowed = f"{self._max_bytes:,}"
        return f"The request has {received} bytes, and at most {allowed} are allowed. Split it."
