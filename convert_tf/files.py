"""Files that are written whole or not at all."""

import os


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
