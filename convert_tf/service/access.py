"""Access control and logging for the service: API keys, request ids and the access log."""

import hmac
import json
import re
import sys
import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

# Paths that need no key. Their answers only say that the service is running, and how to use it.
OPEN_PATHS = frozenset({"/health", "/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"})
ID_HEADER = b"x-request-id"
_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_KEY = re.compile(r"[!-~]+")

Headers = Iterable[tuple[bytes, bytes]]


def api_keys(path: str) -> tuple[str, ...]:
    """Read API keys from a file, one per line. Empty lines and `#` comment lines are ignored.

    Raises:
      ValueError: if the file cannot be read, contains no key, or contains a key that cannot be sent
        in a header.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"The file in --api_key_file, {path!r}, cannot be read ({error}). Pass a text file "
            "with one key per line."
        ) from error
    keys: list[str] = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        if not _KEY.fullmatch(line):  # the message does not repeat the line, which is secret
            raise ValueError(
                f"Line {number} of {path} has a space or a non-ASCII character. Write one key per "
                "line, made of letters, digits and punctuation."
            )
        keys.append(line)
    if not keys:
        raise ValueError(f"{path} has no keys. Write one key per line, or omit --api_key_file.")
    return tuple(keys)


def has_key(headers: Headers, keys: Sequence[str]) -> bool:
    """Return whether the header `Authorization: Bearer KEY` contains one of the keys."""
    given = dict(headers).get(b"authorization", b"")
    scheme, _, key = given.partition(b" ")
    # All keys are compared, and the time of a comparison does not depend on where two keys differ.
    # So response times reveal nothing about the keys.
    matches = [hmac.compare_digest(key.strip(), allowed.encode()) for allowed in keys]
    return scheme.lower() == b"bearer" and any(matches)


def request_id(headers: Headers) -> str:
    """Return the id that the client or a proxy gave to a request, or a new id if there is none."""
    given = dict(headers).get(ID_HEADER, b"")
    return given.decode("ascii") if _ID.fullmatch(given) else uuid.uuid4().hex


def write_access(facts: dict[str, Any]) -> None:
    """Print a line of the access log as JSON: the time, followed by `facts`."""
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    print(json.dumps({"time": now, **facts}), file=sys.stdout, flush=True)
