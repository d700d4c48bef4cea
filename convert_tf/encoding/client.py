"""PolyAI's client for the original modules, adapted to the encoders of convert_tf."""

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec

import numpy as np

from convert_tf.encoding.cache import EncodingCache
from convert_tf.encoding.sentence_encoder import Backend, SentenceEncoder, Texts
from convert_tf.encoding.text_batches import is_count, rows_of, text_bytes

_Arguments = ParamSpec("_Arguments")


class _CachedMethod(Generic[_Arguments]):
    """A method of the client with an attribute `cache_hits()`, as in the original client.

    Args:
      cache: name of the client's attribute that contains the cache of the method.
      function: the method.
      client: the client; None in the class.
    """

    def __init__(
        self,
        cache: str,
        function: Callable[Concatenate[Any, _Arguments], np.ndarray],
        client: Any = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self._cache, self._function, self._client = cache, function, client

    def __get__(self, client: Any, owner: type) -> "_CachedMethod[_Arguments]":
        return _CachedMethod(self._cache, self._function, client)

    def __call__(self, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> np.ndarray:
        return self._function(self._client, *args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._client, self._function.__name__)

    def cache_hits(self) -> int:
        """Return the number of requested encodings that were in the cache of this method."""
        return getattr(self._client, self._cache).hits


class EncoderClient:
    """A drop-in replacement for PolyAI's client that works with the encoders of convert_tf.

    This class has the constructor, methods and defaults of `encoder_client.EncoderClient`. Texts
    are encoded in batches of similar length, and equal texts are encoded once. Recent encodings are
    cached in memory. Each method has `cache_hits`: `client.encode_sentences.cache_hits()` returns
    the number of hits. Callers may change the returned arrays.

    Args:
      uri: anything that `SentenceEncoder` opens, such as the folder of a module or run, or an
        `.onnx` file.
      use_extra_context: whether contexts include earlier turns; requires a multi-context model.
      use_extra_context_prefixes: whether earlier turns are numbered, with `"0: "` for the most
        recent turn. If None, the setting that the model was trained with (`--turn_prefixes`).
      max_extra_contexts: maximum number of earlier turns. The most recent turns are used.
      cache_size: maximum number of cached encodings for each method; 0 turns caching off.
      internal_batch_size: maximum number of texts per batch.
      compute_dtype: as in `SentenceEncoder`.

    Raises:
      ValueError: if `uri` is not an encoder or is damaged, if `use_extra_context` is set but the
        model does not read extra contexts, or if a number is negative.

    Example:
      client = EncoderClient("convert_small")
      scores = client.encode_responses(["I'm Matt.", "Hey."]) @ client.encode_contexts(["Who?"]).T
    """

    def __init__(
        self,
        uri: str | os.PathLike[str] | Backend,
        use_extra_context: bool = False,
        use_extra_context_prefixes: bool | None = None,
        max_extra_contexts: int = 10,
        cache_size: int = 65_536,
        internal_batch_size: int = 64,
        *,
        compute_dtype: str = "auto",
    ) -> None:
        if not all(number == 0 or is_count(number) for number in (cache_size, max_extra_contexts)):
            raise ValueError(
                "cache_size and max_extra_contexts must be whole numbers of at least 0. Received: "
                f"cache_size={cache_size!r}, max_extra_contexts={max_extra_contexts!r}."
            )
        self._encoder = encoder = SentenceEncoder(
            uri, batch_size=internal_batch_size, compute_dtype=compute_dtype
        )
        if use_extra_context and not encoder.reads_history:
            raise ValueError(
                f"use_extra_context needs a multi-context encoder, and {uri!r} is not one. Omit "
                "the argument, or pass a multi-context encoder."
            )
        self._use_extra_context = use_extra_context
        if use_extra_context_prefixes is None:
            use_extra_context_prefixes = encoder.numbers_turns
        self._use_extra_context_prefixes = use_extra_context_prefixes
        self._max_extra_contexts = max_extra_contexts
        self._sentences = EncodingCache(encoder.encode, size=cache_size)
        self._contexts = EncodingCache(self._encode_pairs, size=cache_size)
        self._responses = EncodingCache(encoder.encode_responses, size=cache_size)

    @functools.partial(_CachedMethod, "_sentences")
    def encode_sentences(self, sentences: Texts) -> np.ndarray:
        """Return the results of `SentenceEncoder.encode`, float32 `[sentences, reduced_dim]`."""
        return self._sentences([*text_bytes(sentences)])

    @functools.partial(_CachedMethod, "_contexts")
    def encode_contexts(
        self, contexts: Texts, extra_contexts: Iterable[Iterable[str]] | None = None
    ) -> np.ndarray:
        """Encode contexts as vectors h of length 1.

        Args:
          contexts: the last turn of each conversation.
          extra_contexts: the earlier turns of each conversation, the oldest first. Only a client
            with `use_extra_context` accepts them.

        Returns:
          The encodings, float32 `[contexts, encoding_dim]`.

        Raises:
          ValueError: if the client does not use extra contexts, or the numbers of contexts and
            extra contexts differ.
        """
        texts = [*text_bytes(contexts)]
        if extra_contexts is None:
            return self._contexts([(text, b"") for text in texts])
        if not self._use_extra_context:
            raise ValueError(
                "This client does not use extra contexts. Create it with use_extra_context=True "
                "and a multi-context encoder."
            )
        history = [self._joined(turns) for turns in extra_contexts]
        return self._contexts([*rows_of([iter(texts), iter(history)])])

    @functools.partial(_CachedMethod, "_responses")
    def encode_responses(self, responses: Texts) -> np.ndarray:
        """Encode responses as vectors h of length 1, float32 `[responses, encoding_dim]`."""
        return self._responses([*text_bytes(responses)])

    def _encode_pairs(self, pairs: Sequence[tuple[bytes, bytes]]) -> np.ndarray:
        texts = [text for text, _ in pairs]
        if not self._use_extra_context:
            return self._encoder.encode_contexts(texts)
        return self._encoder.encode_contexts(texts, [history for _, history in pairs])

    def _joined(self, turns: Iterable[str]) -> bytes:
        """Join the turns before a context in the order that models read: the most recent first."""
        newest = [*text_bytes(turns, what="The turns of an extra context")][::-1]
        newest = [*filter(None, newest[: self._max_extra_contexts])]
        if self._use_extra_context_prefixes:
            newest = [b"%d: %s" % numbered for numbered in enumerate(newest)]
        return b" ".join(newest)
