"""Serve a page that runs a model in the browser: ranking, intents and duplicates as you type.

```
convert-tf demo --port 8001
```

In a clone, `make web` writes the page to `web/dist`. Without a clone, the page of the release is
downloaded once. The browser computes everything, and no text is sent to a server.

Flags:
  folder: Folder of the page. Default: web/dist in a clone, otherwise the page of the release.
  host: Address to listen on.
  port: Port; 0 for any free port.
"""

from pathlib import Path
from typing import Any

from convert_tf.cli.flags import Define
from convert_tf.service.page import page_folder, page_server


def define_flags(define: Define) -> None:
    define("folder", None)
    define("host", "127.0.0.1")
    define("port", 8001, lower_bound=0, upper_bound=65_535)


def run(values: Any) -> None:
    folder = Path(values.folder) if values.folder else page_folder()
    with page_server(folder, host=values.host, port=values.port) as server:
        print(f"http://{values.host}:{server.server_address[1]} (Ctrl-C to stop)", flush=True)
        server.serve_forever()
