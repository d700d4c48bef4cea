"""Serves a page in which a model runs: ranking, intents and duplicates, as you type.

```
convert-tf demo --port 8001
```

The page is what `make web` writes into `web/dist` of a clone, else that of the release, which is
downloaded once. Everything in it is computed by the browser.
"""

from pathlib import Path
from typing import Any

from convert_tf.cli.flags import Define
from convert_tf.service.page import page_folder, page_server


def define_flags(define: Define) -> None:
    define("folder", None, "The page; that of the clone or of the release by default.")
    define("host", "127.0.0.1", "Address to listen at.")
    define("port", 8001, "0 for one that is free.", lower_bound=0, upper_bound=65_535)


def run(values: Any) -> None:
    folder = Path(values.folder) if values.folder else page_folder()
    with page_server(folder, host=values.host, port=values.port) as server:
        print(f"http://{values.host}:{server.server_address[1]} (Ctrl-C ends it)", flush=True)
        server.serve_forever()
