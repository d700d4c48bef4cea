"""Files that are written whole or not at all, and what folders of arrays say of themselves."""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any


class FileWriteError(OSError):
    """A file that could not be written; `errno`, `strerror` and `filename` say why and where."""

    def __str__(self) -> str:
        return (
            f"A file must be written whole. Received: {self.strerror}, at {self.filename!r}. "
            "Nothing new was left under that name; free some space or choose another place, and "
            "run the same command again."
        )


def write_file(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Writes a file under a temporary name beside the final one, then renames it.

    Args:
      path: the file; one that is there is replaced.
      content: bytes, or text that is written as UTF-8.

    Raises:
      FileWriteError: it could not be written; what was at `path` is as it was.
    """
    path = os.fspath(path)
    content = content.encode("utf-8") if isinstance(content, str) else content
    temporary = f"{path}.tmp-{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise FileWriteError(error.errno, error.strerror or str(error), path) from error
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def read_facts(
    path: Path,
    *,
    what: str,
    version: int,
    kinds: Mapping[str, Any],
    dtypes: Collection[str],
    remedy: str,
) -> dict[str, Any]:
    """The JSON object that says what a folder of arrays holds.

    Args:
      path: the file.
      what: what the folder is called in messages.
      version: the version of its format that is read.
      kinds: the type of each entry that there must be.
      dtypes: what `dtype` may be.
      remedy: the last sentence of messages.

    Raises:
      ValueError: there is no such file, or it says something else.
    """
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"A {what} must hold {path.name}. Received: {path} ({error}). {remedy}"
        ) from error
    found = facts.get("version") if isinstance(facts, dict) else None
    if found != version:
        raise ValueError(
            f"A {what} is read in version {version} of its format. Received: version {found!r} in "
            f"{path}. {remedy}"
        )
    wrong = [name for name, kind in kinds.items() if not isinstance(facts.get(name), kind)]
    if wrong or facts["dtype"] not in dtypes:
        raise ValueError(
            f"{path.name} must say what a {what} holds. Received: {path}, with "
            f"{', '.join(wrong or ['dtype'])} missing or of another kind. {remedy}"
        )
    return facts
