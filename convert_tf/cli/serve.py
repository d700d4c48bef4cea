r"""Answer HTTP requests: vectors, rankings, intents, and OpenAI's embeddings.

```
convert-tf serve --intents model/ --port 8000
```

The paths are `/encode`, `/rank`, `/classify`, `/v1/embeddings`, `/v1/models`, `/health` and
`/metrics`. `/docs` describes them. Texts of simultaneous requests are computed in one batch. After
SIGTERM the service answers the open requests within 45 s and stops.

Flags:
  intents: Classifier for /classify: a folder from convert-tf intent train, or an .onnx file from
    convert-tf intent export.
  name: Name of the model in /v1/embeddings. Default: the name of the encoder.
  host: Address to listen on; 0.0.0.0 for all of this machine.
  port: Port; 0 for a free one.
  compute_dtype: Number format of the network.
"""

import re
from pathlib import Path
from typing import Any

from convert_tf.cli.flags import (
    DEFAULT_ENCODER,
    Define,
    define_encoder,
    define_fields,
    given_fields,
)
from convert_tf.encoding.sentence_encoder import COMPUTE_DTYPES
from convert_tf.extras import needs
from convert_tf.service.batching import Limits


def define_flags(define: Define) -> None:
    define_encoder(define, DEFAULT_ENCODER)
    define("intents", None)
    define("name", None)
    define("host", "127.0.0.1")
    define("port", 8000, lower_bound=0, upper_bound=65_535)
    define_fields(define, Limits)
    define("compute_dtype", "auto", choices=COMPUTE_DTYPES)


def run(values: Any) -> None:
    with needs("serve", "convert-tf serve"):
        from convert_tf.service.application import Model, make_application, served_classifier
        from convert_tf.service.server import make_server
    from convert_tf.encoding.sentence_encoder import SentenceEncoder

    limits = Limits(**given_fields(values, Limits))
    encoder = SentenceEncoder(values.encoder, compute_dtype=values.compute_dtype)
    classifier = None
    if values.intents is not None:
        classifier = served_classifier(
            values.intents,
            module=values.encoder,
            encoder=encoder,
            max_texts=max(limits.max_texts, limits.batch_size),
        )
    model = Model(encoder, values.name or _name(values.encoder), classifier)
    encoder.rank("warm", ["up"])  # the first call of a module unpacks its weights
    application = make_application(model, limits)
    make_server(application, host=values.host, port=values.port, log_level="info").run()


def _name(path: str) -> str:
    """Return the name of an encoder: `convert` for `hub_modules/convert/1` or `convert-1.onnx`."""
    place = Path(path)
    return place.parent.name if place.name.isdigit() else re.sub(r"-\d+\Z", "", place.stem)
