r"""Answer HTTP requests: vectors, rankings, intents, and OpenAI's embeddings.

```
convert-tf serve --intents model/ --port 8000
```

The paths are `/encode`, `/rank`, `/classify`, `/v1/embeddings`, `/v1/models`, `/health` and
`/metrics`. `/docs` describes these paths. Texts from simultaneous requests are encoded in one
batch. After SIGTERM, the service answers the open requests within 45 s and then stops.

Flags:
  encoder: Encoder for all paths except /classify. Default: the encoder in the .onnx file of
    --intents, otherwise convert_small.
  intents: Classifier for /classify: a folder from convert-tf intent train, or an .onnx file from
    convert-tf intent export.
  english_only: In /classify, answer texts in other languages with the language instead of an
    intent. Needs the extra languages.
  name: Name of the model in /v1/embeddings. Default: the name of the encoder.
  host: Address to listen on; 0.0.0.0 for all addresses of this machine.
  port: Port; 0 for any free port.
  compute_dtype: Number format of the network.
  num_threads: Number of threads that compute. Default: the number of cores that the process may
    use, given its CPU affinity and the CPU quota of its container.
  api_key_file: File with the API keys of clients, one per line. Requests without a valid key get
    status 401, except for /health, /docs, /redoc and /openapi.json.
  access_log: Print a line of JSON for each request to standard output.
"""

import os
import re
from pathlib import Path
from typing import Any

from convert_tf.checkpoints.released import model_path
from convert_tf.cli.flags import (
    DEFAULT_ENCODER,
    Define,
    check_read,
    define_encoder,
    define_fields,
    given_fields,
)
from convert_tf.encoding.sentence_encoder import COMPUTE_DTYPES
from convert_tf.extras import needs
from convert_tf.intents.languages import other_languages
from convert_tf.numerics.processor import use_threads
from convert_tf.service.batching import Limits


def define_flags(define: Define) -> None:
    define_encoder(define, None)
    define("intents", None)
    define("english_only", False)
    define("name", None)
    define("host", "127.0.0.1")
    define("port", 8000, lower_bound=0, upper_bound=65_535)
    define_fields(define, Limits)
    define("compute_dtype", "auto", choices=COMPUTE_DTYPES)
    define("num_threads", None, kind=int, lower_bound=1)
    define("api_key_file", None)
    define("access_log", False)


def run(values: Any) -> None:
    with needs("serve", "convert-tf serve"):
        from convert_tf.service.access import api_keys, write_access
        from convert_tf.service.application import make_application, opened_model
        from convert_tf.service.server import make_server

    has_own = values.encoder is None and (values.intents or "").endswith(".onnx")
    check_read(
        values,
        {
            "without --intents": () if values.intents else ("english_only",),
            "with the encoder in --intents": ("backend",) if has_own else (),
        },
    )
    if values.english_only:
        other_languages([])  # raises an error for a missing library before the first request
    limits = Limits(**given_fields(values, Limits))
    keys = api_keys(values.api_key_file) if values.api_key_file else ()
    if values.num_threads is not None:
        use_threads(values.num_threads)
    if values.encoder is None and not has_own:
        wants_module = values.backend == "tensorflow"
        values["encoder"].value = model_path(DEFAULT_ENCODER, wants_module=wants_module)
    path = values.encoder or values.intents
    model = opened_model(
        path,
        values.intents,
        name=values.name or _name(path),
        compute_dtype=values.compute_dtype,
        max_texts=max(limits.max_texts, limits.batch_size),
    )
    model.encoder.rank("warm", ["up"])  # the first call of a module unpacks its weights
    application = make_application(
        model,
        limits,
        api_keys=keys,
        on_access=write_access if values.access_log else None,
        english_only=values.english_only,
    )
    make_server(application, host=values.host, port=values.port, log_level="info").run()


def _name(path: str) -> str:
    """Return an encoder's name: `convert` for `hub_modules/convert/2` and for `convert-2.onnx`.

    The name of an encoder from the Hugging Face hub is `OWNER/NAME`.
    """
    place = Path(os.path.abspath(path))
    # The hub's cache stores a model in models--OWNER--NAME/snapshots/COMMIT.
    if hub_model := re.fullmatch(r"models--(.+)/snapshots", "/".join(place.parent.parts[-2:])):
        return hub_model[1].replace("--", "/")
    if place.name.isdigit():
        return place.parent.name
    name = place.stem if place.suffix == ".onnx" else place.name
    return re.sub(r"-\d+\Z", "", name)
