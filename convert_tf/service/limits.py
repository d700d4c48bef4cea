"""Limits of requests to the service."""

import dataclasses

from convert_tf.config.base import Config, option


@dataclasses.dataclass(frozen=True)
class Limits(Config):
    """Limits of requests, which are flags of `convert-tf serve`."""

    max_texts: int = option(2048, "Largest number of texts in a request.", at_least=1)
    max_characters: int = option(20_000, "Longest text of a request, in characters.", at_least=1)
    max_bytes: int = option(8 * 2**20, "Longest request, in bytes.", at_least=1)
    max_queue: int = option(
        20_000,
        "Largest number of waiting texts. Further requests are refused with status 503.",
        at_least=1,
    )
    batch_size: int = option(256, "Largest number of texts to compute in one batch.", at_least=1)
