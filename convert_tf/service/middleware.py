"""What happens around every request: it is counted, bounded, and left when its client leaves."""

import asyncio
import time
from typing import Any

from starlette.exceptions import HTTPException

from convert_tf.service.counters import Counters
from convert_tf.service.refusals import refusal

_CLIENT_LEFT = 499  # as nginx counts it; nobody reads it


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
            # Only paths that exist, or whoever asks for others would fill the memory.
            route = scope.get("route")
            path = getattr(route, "path", "other")
            self._counters.request(path, status, time.perf_counter() - started)


class LeftWithClient:
    """Cancels the work for a client that closed its connection: servers of ASGI do not."""

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
            await is_read.wait()  # two that read at once would take each other's messages
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
    """Refuses bodies that are too long before they are read whole."""

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
                # Which FastAPI hands on, unlike others.
                raise HTTPException(413, self._message(f"{received:,} and more"))
            return message

        await self._application(scope, counted, send)

    def _message(self, received: str) -> str:
        return f"A request has at most {self._max_bytes:,} bytes. Received: {received}. Divide it."
