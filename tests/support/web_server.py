"""A local web server for the files of a folder."""

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple


class Served(NamedTuple):
    """The state of a running server.

    Attributes:
      url: its address, without a trailing slash.
      requests: requested paths, in order.
    """

    url: str
    requests: list[str]


class Quiet(SimpleHTTPRequestHandler):
    """Records requests instead of printing them."""

    def __init__(self, *args, requests, **kwargs):
        self.requests = requests
        super().__init__(*args, **kwargs)

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.requests.append(self.path)
        super().do_GET()


@contextlib.contextmanager
def serving(folder: Path, *, handler: type[SimpleHTTPRequestHandler] = Quiet) -> Iterator[Served]:
    """Serve a folder on a free port while the block runs."""
    requests: list[str] = []
    make = partial(handler, directory=str(folder), requests=requests)
    server = ThreadingHTTPServer(("127.0.0.1", 0), make)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{server.server_address[1]}", requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
