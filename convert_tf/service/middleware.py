"""Middleware for all requests: ids, API keys, counts, limits on size and time, and errors."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from convert_tf.service.access import ID_HEADER, OPEN_PATHS, has_key, request_id
from convert_tf.service.batching import BusyError
from convert_tf.storage.messages import shortened

_SECONDS_TO_WAIT = "1"  # seconds after which a client should try again
_FOR_BODY = 30.0  # maximum number of seconds from the head of a request to the end of its body
_LENGTHS = {b"content-length", b"transfer-encoding"}
_CLIENT_LEFT = 499  # nginx's status for a client that has left; it is counted but never sent


class _Error(BaseModel):
    message: str
    type: Literal["invalid_request_error", "server_error"]
    code: int


class Refusal(BaseModel):
    """The body of an error response, in the form that OpenAI's clients expect."""

    error: _Error


# Descriptions of the error responses, for `/docs`.
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": description}
    for status, description in {
        400: "the body is not JSON in UTF-8, or the vectors cannot have the requested dimensions",
        401: "the request has no API key, or a wrong one",
        408: "the body did not arrive in time",
        404: "the service has no such model, or no classifier",
        413: "there are too many texts, or a text is too long",
        422: "a field is missing, unknown, or of the wrong type",
        500: "an error occurred in the service",
        503: "too many texts are waiting, or the service is starting or stopping",
    }.items()
}


class RefusedError(HTTPException):
    """Refusal of a request, with an HTTP status and a message for the client."""


def _refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    body = {"error": {"message": message, "type": kind, "code": status}}
    return Response(json.dumps(body), status, headers, media_type="application/json")


async def _answer_error(request: Request, error: Exception) -> Response:
    match error:
        case RefusedError():
            return _refusal(error.status_code, error.detail)
        case HTTPException(status_code=404 | 405):
            asked = f"{request.method} {request.url.path}"
            message = f"The service has no {asked}. See /docs for the requests that it answers."
            return _refusal(error.status_code, message, error.headers)
        case HTTPException():
            return _refusal(
                error.status_code, "The body of the request is not valid JSON in UTF-8."
            )
        case BusyError():
            return _refusal(503, str(error), {"Retry-After": _SECONDS_TO_WAIT})
        case RequestValidationError():
            first = error.errors()[0]
            if first["type"] == "json_invalid":
                return _refusal(
                    400,
                    f"The body of the request is not valid JSON: {first['ctx']['error']} at "
                    f"character {first['loc'][-1]}.",
                )
            kind = request.headers.get("content-type", "")
            if first["loc"] == ("body",) and "json" not in kind.lower() and "input" in first:
                received = f"Received: {shortened(kind, 100)}" if kind else "It has no such header"
                return _refusal(
                    422,
                    "The request needs the header Content-Type: application/json and a JSON body. "
                    f"{received}.",
                )
            place = ".".join(map(str, first["loc"]))
            said = first["msg"].removeprefix("Value error, ")  # pydantic adds this prefix
            return _refusal(
                422, f"Wrong value of {place}: {said}. See /docs for the fields of requests."
            )
    # The message of the error is only logged, because it may contain texts of other requests.
    return _refusal(
        500,
        f"Internal error while answering this request ({type(error).__name__}). The service's log "
        "has the details.",
    )


HANDLERS: dict[Any, Any] = dict.fromkeys(
    (HTTPException, BusyError, RequestValidationError, Exception), _answer_error
)


class Counters:
    """Counts requests, batches and texts for Prometheus, since the start of the service.

    Args:
      queued: function that returns the number of waiting texts.
    """

    def __init__(self, queued: Callable[[], int] = lambda: 0) -> None:
        self.registry = CollectorRegistry()

        def metric(kind: type, name: str, text: str, labels: Sequence[str] = ()) -> Any:
            return kind(f"convert_tf_{name}", text, labels, registry=self.registry)

        self._requests = metric(Counter, "requests", "Answered requests.", ["path", "status"])
        self._times = metric(Histogram, "request_seconds", "Duration of requests.", ["path"])
        self._batches = metric(Counter, "batches", "Batches that the model computed.", ["kind"])
        self._texts = metric(Counter, "texts", "Texts that the model computed.", ["kind"])
        self._model_seconds = metric(Counter, "model_seconds", "Computing time of the model.")
        metric(Gauge, "queued_texts", "Waiting texts.").set_function(queued)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that has been answered."""
        self._requests.labels(path, status).inc()
        self._times.labels(path).observe(seconds)

    def batch(self, what: str, texts: int, seconds: float) -> None:
        """Count a batch that the model has computed."""
        self._batches.labels(what).inc()
        self._texts.labels(what).inc(texts)
        self._model_seconds.inc(seconds)


class Middleware:
    """Counts answers, refuses long and slow bodies, and cancels work for clients that have left.

    ASGI servers do not cancel the work for a client that closes its connection, so this middleware
    does. Each answer has the header `X-Request-ID`, with the id from the request or a new id. An
    error of the application is answered with status 500 and raised again.

    Args:
      app: ASGI application to wrap.
      counters: counters for requests.
      max_bytes: maximum size of a request's body, in bytes.
      api_keys: API keys, one of which each request must send. If there are none, requests need no
        key.
      on_access: function that is called after each request with a dict, or None. The dict has `id`,
        `client`, `method`, `path`, `status` and `seconds`. `received` and `sent` are the numbers of
        bytes in the bodies of the request and of the answer.
    """

    def __init__(
        self,
        app: Any,  # Starlette's name
        *,
        counters: Counters,
        max_bytes: int,
        api_keys: Sequence[str] = (),
        on_access: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._application, self._counters, self._max_bytes = app, counters, max_bytes
        self._keys, self._on_access = api_keys, on_access

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        started, exchange = time.perf_counter(), _Exchange(scope, receive, send, self._max_bytes)
        application = self._application
        is_guarded = self._keys and scope["path"] not in OPEN_PATHS
        if is_guarded and not has_key(scope["headers"], self._keys):
            application = _refusal(
                401,
                "This service needs an API key. Send the header Authorization: Bearer KEY.",
                {"WWW-Authenticate": "Bearer"},
            )
        work = asyncio.create_task(application(scope, exchange.read, exchange.answer))
        gone = asyncio.create_task(exchange.leave())
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done() or exchange.status:
                await work
            else:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                gone_answer = _refusal(_CLIENT_LEFT, "The client has closed the connection.")
                await gone_answer(scope, receive, exchange.answer)
        except Exception as error:
            if not exchange.status:
                failed = await _answer_error(Request(scope), error)
                await failed(scope, receive, exchange.answer)
            raise  # the server logs the error
        except asyncio.CancelledError:  # the service is stopping, and the time for requests is up
            if exchange.status:
                raise
            stopped = _refusal(
                503,
                "The service is stopping and will not answer this request. Send it again.",
                {"Retry-After": _SECONDS_TO_WAIT},
            )
            await stopped(scope, receive, exchange.answer)
        finally:
            work.cancel()
            gone.cancel()
            # All paths that do not exist are counted together, because separate counts could fill
            # the memory.
            path = getattr(scope.get("route"), "path", "other")
            seconds = time.perf_counter() - started
            self._counters.request(path, exchange.status or 500, seconds)
            if self._on_access is not None:
                self._on_access(exchange.facts(seconds))


class _Exchange:
    """A request that is being read, and the answer to it.

    Args:
      scope, receive, send: arguments that an ASGI application gets.
      max_bytes: maximum size of a request's body, in bytes.

    Attributes:
      status: HTTP status of the answer, or 0 before the answer begins.
    """

    def __init__(self, scope: Any, receive: Any, send: Any, max_bytes: int) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._max_bytes = max_bytes
        self._started = time.perf_counter()
        self._id = request_id(scope["headers"])
        self._is_read = asyncio.Event()
        self._received = self._sent = self.status = 0

    async def read(self) -> Any:
        """Return the next message of the request, within the limits of `Middleware`."""
        names = {name for name, _ in self._scope["headers"]}
        if self._scope["method"] == "POST" and not _LENGTHS & names:
            raise RefusedError(
                400,
                "The request has neither Content-Length nor Transfer-Encoding, so its body "
                "cannot be read. Send one of them.",
            )
        left = None
        if not self._is_read.is_set():
            left = max(self._started + _FOR_BODY - time.perf_counter(), 0)
        try:
            message = await asyncio.wait_for(self._receive(), left)
        except asyncio.TimeoutError:
            raise RefusedError(
                408, f"The body did not arrive within {_FOR_BODY:.0f} seconds. Send it again."
            ) from None
        self._received += len(message.get("body", b""))
        if self._received > self._max_bytes:
            raise RefusedError(
                413,
                f"The request has {self._received:,} or more bytes, but at most "
                f"{self._max_bytes:,} are allowed. Split the request.",
            )
        if not message.get("more_body", False):
            self._is_read.set()
        return message

    async def answer(self, message: Any) -> None:
        """Send a message of the answer, with the id of the request in its headers."""
        self.status = message.get("status", self.status)
        self._sent += len(message.get("body", b""))
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), (ID_HEADER, self._id.encode())]
            message = {**message, "headers": headers}
        await self._send(message)

    async def leave(self) -> None:
        """Wait until the client has left."""
        await self._is_read.wait()  # two readers at once would take each other's messages
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def facts(self, seconds: float) -> dict[str, Any]:
        """Return the facts about the request that the `on_access` of `Middleware` receives."""
        return {
            "id": self._id,
            "client": (self._scope.get("client") or [None])[0],
            "method": self._scope["method"],
            "path": self._scope["path"],
            "status": self.status or 500,
            "seconds": round(seconds, 6),
            "received": self._received,
            "sent": self._sent,
        }
