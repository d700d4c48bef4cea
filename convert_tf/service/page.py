"""Serve the static files of the web page that runs a model in the browser."""

import io
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

from convert_tf.checkpoints.released import URL_VARIABLE, release_file
from convert_tf.storage.downloads import ARCHIVE_SUFFIX, DownloadError
from convert_tf.storage.json_text import parsed_json

BUILT_PAGE = Path(__file__).resolve().parents[2] / "web" / "dist"
# The files of a release never change, so a new version of the page needs a new number in its name.
PAGE_ARCHIVE = f"page-2{ARCHIVE_SUFFIX}"
_FILES = (
    "index.html", "style.css", "main.js", "worker.js", "arithmetic.js", "assets.json",
    "model.onnx.gz", "ort.wasm.gz", "tokenizer.json.gz",
)  # fmt: skip


def missing_files(folder: Path) -> list[str]:
    """Return the names of the page's files that a folder lacks."""
    return [name for name in _FILES if not (folder / name).is_file()]


def page_folder() -> Path:
    """Return the folder of the page.

    If `make web` has built the page in this clone, the folder is `web/dist`. Otherwise, the page of
    the release is downloaded and its folder is returned.

    Raises:
      ValueError: if the page was not built and cannot be downloaded.
    """
    if not missing_files(BUILT_PAGE):
        return BUILT_PAGE
    try:
        return release_file(PAGE_ARCHIVE)
    except DownloadError as error:
        raise ValueError(
            f"The page has not been built, and downloading it failed: {error} Run make web in a "
            f"clone. Without a network, set {URL_VARIABLE} to file:// and the folder of a release, "
            f"or unpack {PAGE_ARCHIVE} from the release and pass that folder as --folder."
        ) from error


_UNCHANGED = (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED)


class _Handler(SimpleHTTPRequestHandler):
    """Serves files with the headers that the page needs, without logging requests."""

    extensions_map = {  # noqa: RUF012 (the base class has this type)
        **SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".gz": "application/octet-stream",  # the page itself unpacks these files
    }

    path = ""  # until a request is parsed
    _status = 0

    def send_response(self, code: int, message: str | None = None) -> None:
        self._status = code
        super().send_response(code, message)

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        if not self._has_checksum():
            # Files have the same time in all releases, so the time does not show that a file is
            # unchanged.
            del self.headers["If-Modified-Since"]
        elif not self._is_current():
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def _has_checksum(self) -> bool:
        """Return whether the URL contains a checksum, as the URLs of the page's large files do."""
        # `assets.json` of an earlier version has no `hash`, so the page requests `undefined`.
        return ".gz?v=" in self.path and not self.path.endswith("?v=undefined")

    def _is_current(self) -> bool:
        """Return whether the checksum in the URL is the one in `assets.json`."""
        name, _, checksum = self.path.removeprefix("/").partition("?v=")
        try:
            assets = parsed_json((Path(self.directory) / "assets.json").read_text("utf-8"))
            return bool(assets["files"][name]["hash"] == checksum)
        except (OSError, ValueError, LookupError, TypeError):
            return False

    def end_headers(self) -> None:
        # Browsers may keep a file if its URL contains a checksum of its content.
        is_dated = self._has_checksum() and self._status in _UNCHANGED
        self.send_header("Cache-Control", "max-age=31536000" if is_dated else "no-cache")
        super().end_headers()

    def log_message(self, *args: object) -> None:
        pass


def page_server(folder: Path, *, host: str, port: int) -> ThreadingHTTPServer:
    """Return a server for the page, which runs when its method `serve_forever` is called.

    Args:
      folder: folder that `make web` wrote, or the result of `page_folder`.
      host: address to listen on.
      port: port to listen on, or 0 for any free port.

    Raises:
      ValueError: if the folder lacks files of the page.
      OSError: if another program uses the port.
    """
    if missing := missing_files(folder):
        raise ValueError(
            f"{str(folder)!r} is not the built page: it lacks {', '.join(missing)}. Run make web "
            "in a clone, or pass another --folder."
        )
    return ThreadingHTTPServer((host, port), partial(_Handler, directory=str(folder)))
