"""Errors of the service as JSON, in the form that OpenAI's clients show."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from convert_tf.service.batching import BusyError

_SECONDS_TO_WAIT = "1"  # until a client should try again


class _Error(BaseModel):
    message: str
    type: Literal["invalid_request_error", "server_error"]
    code: int


class Refusal(BaseModel):
    """The body of an error."""

    error: _Error


# For `/docs`.
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": description}
    for status, description in {
        400: "the body is not JSON in UTF-8, or vectors have other dimensions",
        404: "the service has no such model, or no intents",
        413: "too many or too long texts",
        422: "a field is missing, unknown, or of another kind",
        500: "an error in the service",
        503: "too many texts wait, or the service starts or stops",
    }.items()
}


class RefusedError(Exception):
    """A request that is refused, with an HTTP status."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def refusal(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that says why there is no other."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    body = {"error": {"message": message, "type": kind, "code": status}}
    return Response(
        json.dumps(body), status, media_type="application/json", headers=dict(headers or {})
    )


def add_refusals(application: FastAPI) -> None:
    """Answer all errors of an application with a `Refusal`."""

    @application.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> Response:
        return refusal(error.status, str(error))

    @application.exception_handler(HTTPException)
    async def not_served(request: Request, error: HTTPException) -> Response:
        message = str(error.detail)
        if error.status_code in (404, 405):
            asked = f"{request.method} {request.url.path}"
            message = f"The service has no {asked}. See /docs for its requests."
        elif error.status_code == 400:
            message = "The body of the request is not valid JSON in UTF-8."
        return refusal(error.status_code, message, error.headers)

    @application.exception_handler(BusyError)
    async def busy(_: Request, error: BusyError) -> Response:
        return refusal(503, str(error), {"Retry-After": _SECONDS_TO_WAIT})

    @application.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        said = first["msg"].removeprefix("Value error, ")  # pydantic's words
        return refusal(
            422, f"Wrong value of {place}: {said}. See /docs for the fields of requests."
        )

    @application.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> Response:
        # The server logs the error. Its message may contain texts of other requests.
        return refusal(
            500,
            f"Internal error while answering this request ({type(error).__name__}). The log of the "
            "service has the details.",
        )
