"""JSON that somebody else may have written or damaged."""

import json
import os
from typing import Any


def parsed_json(text: str | bytes) -> Any:
    """The value of a JSON text; the one place where JSON is read.

    Raises:
      ValueError: it is no JSON, or nested deeper than Python's parser goes, for which that raises
        no ValueError of its own.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def written_json(value: Any, **options: Any) -> str:
    """JSON as files hold it, for people to read, too; options as of `json.dumps`."""
    return json.dumps(value, indent=2, **options) + "\n"


def json_file(path: str | os.PathLike[str]) -> Any:
    """What a file holds as JSON in UTF-8.

    Raises:
      ValueError: as of `parsed_json`, with the path.
      OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        content = file.read()
    try:
        return parsed_json(content.decode("utf-8"))
    except ValueError as error:
        raise ValueError(
            f"A .json file must be whole. Received: {os.fspath(path)!r} ({error}). Copy it again, "
            "or run again what wrote it, in a new folder."
        ) from error
