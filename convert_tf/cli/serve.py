r"""Serves a model over HTTP: vectors, rankings, intents, and OpenAI's embeddings.

```
convert-tf serve --intents model/ --port 8000
```

It has `/encode`, `/rank`, `/classify`, `/v1/embeddings`, `/v1/models`, `/health` and `/metrics`;
`/docs` says what they take. Texts that arrive at the same time are computed together. On SIGTERM
what was asked is answered first.
"""

import re
from pathlib import Path
from typing import Any

from convert_tf.cli.flags import Define, define_encoder
from convert_tf.encoding.backends.protocol import COMPUTE_DTYPES
from convert_tf.extras import needs

# Seconds that an idle connection stays open. Clients close theirs after 5 (httpx, so OpenAI's, too)
# or 60 (many proxies): where the service is first, what they send at that moment is lost.
_KEEP_ALIVE = 75


def define_flags(define: Define) -> None:
    define_encoder(define)
    define(
        "intents", None, "Folder of convert-tf intent train, or .onnx of intent export: /classify."
    )
    define("name", None, "What /v1/embeddings calls the model; the encoder's name by default.")
    define("host", "127.0.0.1", "Address to listen at; 0.0.0.0 for all of this machine's.")
    define("port", 8000, "0 for one that is free.", lower_bound=0, upper_bound=65_535)
    define("max_texts", 2048, "Most texts of a request.", lower_bound=1)
    define("max_characters", 20_000, "Longest text.", lower_bound=1)
    define("max_bytes", 8 * 2**20, "Longest request.", lower_bound=1)
    define("max_queue", 20_000, "Most texts that wait; more are refused with 503.", lower_bound=1)
    define("batch_size", 256, "Most texts that are computed together.", lower_bound=1)
    define("compute_dtype", "auto", "Of the network.", choices=COMPUTE_DTYPES)


def run(values: Any) -> None:
    with needs("serve", "convert-tf serve"):
        import uvicorn

        from convert_tf.service.application import Model, make_application, served_classifier
        from convert_tf.service.requests import Limits
    from convert_tf.encoding.sentence_encoder import SentenceEncoder

    limits = Limits(
        texts=values.max_texts,
        characters=values.max_characters,
        body_bytes=values.max_bytes,
        queued=values.max_queue,
        batch=values.batch_size,
    )
    encoder = SentenceEncoder(values.encoder, compute_dtype=values.compute_dtype)
    classifier = None
    if values.intents is not None:
        classifier = served_classifier(
            values.intents,
            module=values.encoder,
            encoder=encoder,
            max_texts=max(limits.texts, limits.batch),
        )
    model = Model(encoder, values.name or _name(values.encoder), classifier)
    encoder.rank("warm", ["up"])  # the first call of a module unpacks its weights
    uvicorn.run(
        make_application(model, limits),
        host=values.host,
        port=values.port,
        log_level="info",
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE,
    )


def _name(path: str) -> str:
    """`convert` of `hub_modules/convert/1` and of `convert-1.onnx`."""
    place = Path(path)
    return place.parent.name if place.name.isdigit() else re.sub(r"-\d+\Z", "", place.stem)
