"""Texts to vectors with an exported model."""

import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from convert_tf.backend import COMPUTE_DTYPES, Backend, open_backend
from convert_tf.data.progress import Progress
from convert_tf.text_batches import (
    Columns,
    encode_columns,
    in_memory,
    is_stream,
    is_text,
    joined,
    text_bytes,
    windows,
)

BATCH_SIZE = 256
OUTPUTS = {"sentence": "default", "context": "encode_context", "response": "encode_response"}

Texts = Iterable[str] | Iterable[bytes]
Ranking = list[tuple[str, float]]


class SentenceEncoder:
    """Encodes texts with an exported model.

    Texts are sorted by length and encoded in batches, equal ones once; results come in the order of
    the texts. They may be in a list, a tuple, a numpy array, a column of a table, or come from an
    iterator, which is read as it is encoded: its texts are never all in memory. str is encoded as
    UTF-8; bytes are taken as they are. May be used by several threads at once.

    Args:
      model: folder of a module, or an `.onnx` file; or a `Backend`.
      batch_size: most texts of a batch; fewer where they are long.
      compute_dtype: of the network: `"float32"`, `"bfloat16"`, or `"auto"` for bfloat16 where this
        machine multiplies matrices faster in it.

    Attributes:
      reads_history: whether contexts have a second text, the turns before.

    Raises:
      ValueError: the model is none, or a damaged one.

    Example:
      encoder = SentenceEncoder("hub_modules/convert/1")
      vectors = encoder.encode(["how do I reset my password?", "where is my card?"])
      best = encoder.rank("how are you?", ["fine, and you?", "a fish"], top_k=1)
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Backend,
        *,
        batch_size: int = BATCH_SIZE,
        compute_dtype: str = "auto",
    ):
        if compute_dtype not in COMPUTE_DTYPES:
            raise ValueError(
                f"compute_dtype is one of {', '.join(COMPUTE_DTYPES)}. "
                f"Received: {compute_dtype!r}. float16 is slow on CPUs; use auto."
            )
        self.batch_size = _checked_batch_size(batch_size)
        if isinstance(model, str | os.PathLike):
            path = os.fspath(model)
            model = open_backend(path, compute_dtype=compute_dtype)
            if not {*model.outputs} & {*OUTPUTS.values()}:
                raise ValueError(
                    f"A model that encodes has one of {', '.join(OUTPUTS.values())}. "
                    f"Received: {path!r}, with {', '.join(sorted(model.outputs)) or 'none'}. Name "
                    "a module that export.py wrote."
                )
        self._model = model
        self.reads_history = model.reads_history

    def encode(
        self,
        texts: Texts | str | bytes,
        *,
        batch_size: int | None = None,
        show_progress: bool = False,
    ) -> np.ndarray:
        """r of texts, for classifiers and search: the reduced sequence, not normalised.

        Args:
          texts: of any container; or one text.
          batch_size: of this call.
          show_progress: whether sentences per second and the time left go to standard error.

        Returns:
          float32 `[texts, reduced_dim]`; `[reduced_dim]` for one text that is not in a list.

        Raises:
          ValueError: one of them is no text; it says which.
        """
        return self._encode("sentence", texts, None, batch_size, show_progress)

    def encode_contexts(
        self,
        texts: Texts | str | bytes,
        extra_contexts: Texts | str | bytes | None = None,
        *,
        batch_size: int | None = None,
        show_progress: bool = False,
    ) -> np.ndarray:
        """h of contexts, of length 1: its dot product with a response's h is their score.

        Args:
          texts: the last turn of each conversation.
          extra_contexts: of each the turns before, joined with spaces, the most recent first; `""`
            for none. Only for models that read history.
          batch_size: of this call.
          show_progress: as in `encode`.

        Returns:
          float32 `[texts, encoding_dim]`; `[encoding_dim]` for one text that is not in a list.

        Raises:
          ValueError: one of them is no text, the two are not equally many, or the model reads no
            history.
        """
        return self._encode("context", texts, extra_contexts, batch_size, show_progress)

    def encode_responses(
        self,
        texts: Texts | str | bytes,
        *,
        batch_size: int | None = None,
        show_progress: bool = False,
    ) -> np.ndarray:
        """h of responses, of length 1; arguments and result as in `encode`."""
        return self._encode("response", texts, None, batch_size, show_progress)

    def iter_encode(
        self,
        texts: Texts,
        extra_contexts: Texts | None = None,
        *,
        kind: str = "sentence",
        batch_size: int | None = None,
        show_progress: bool = False,
    ) -> Iterator[np.ndarray]:
        """Encodings piece by piece, for more texts than memory holds.

        Args:
          texts: any number of them.
          extra_contexts: as in `encode_contexts`.
          kind: `"sentence"`, `"context"` or `"response"`.
          batch_size: of this call. Texts are sorted, and equal ones encoded once, among some
            thousand that follow one another.
          show_progress: as in `encode`.

        Yields:
          float32 `[some, dim]`, in the order of the texts; `[0, dim]` once where there are none.

        Raises:
          ValueError: as in `encode_contexts`, when the text in question is reached.
        """
        size = self.batch_size if batch_size is None else _checked_batch_size(batch_size)
        columns = self._columns(kind, texts, extra_contexts)
        pieces = windows(columns, batch_size=size)
        return self._pieces(kind, pieces, size, show_progress, total=_number(texts))

    def rank(
        self,
        context: str | tuple[str, str] | list[str] | list[tuple[str, str]],
        responses: Texts,
        *,
        top_k: int | None = None,
    ) -> Ranking | list[Ranking]:
        """The responses that suit a context best.

        Args:
          context: a text; or `(text, extra_context)`, with the turns before; or a list or a column
            of these.
          responses: texts.
          top_k: how many are returned; None for all.

        Returns:
          `(response, cosine)` pairs, best first, equal ones in the order given; for a list of
          contexts a list of such lists.

        Raises:
          ValueError: there is no response, `top_k` is not positive, or what is given is no text or
            no list of texts.
        """
        if is_text(responses):
            raise ValueError(
                f"Responses are several texts. Received: {responses!r}. Put it in a list."
            )
        candidates = responses if isinstance(responses, list) else [*responses]
        if not candidates or (top_k is not None and top_k < 1):
            raise ValueError(
                "There must be a response, and top_k must be at least 1. "
                f"Received: {len(candidates)} responses, top_k={top_k}."
            )
        is_one = is_text(context) or isinstance(context, tuple)
        contexts: list[Any] = [context] if is_one else [*context]
        parts: list[tuple[Any, Any]] = [
            each if isinstance(each, tuple) else (each, "") for each in contexts
        ]
        if wrong := [each for each in parts if len(each) != 2]:
            raise ValueError(
                "A context is a text, or a text and the turns before it, joined. "
                f"Received: {wrong[0]!r}. Pass several contexts as a list."
            )
        has_history = any(extra for _, extra in parts)
        encodings = self.encode_contexts(
            [text for text, _ in parts], [extra for _, extra in parts] if has_history else None
        )
        cosines = encodings @ self.encode_responses(candidates).T
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :top_k]
        rankings = [
            [(candidates[i], float(row[i])) for i in order]
            for row, order in zip(cosines, best, strict=True)
        ]
        return rankings[0] if is_one else rankings

    def _encode(
        self,
        kind: str,
        texts: Any,
        extra_contexts: Any,
        batch_size: int | None,
        show_progress: bool,
    ) -> np.ndarray:
        size = self.batch_size if batch_size is None else _checked_batch_size(batch_size)
        if is_text(texts):
            extra = None if extra_contexts is None else [extra_contexts]
            return self._encode(kind, [texts], extra, size, show_progress)[0]
        columns = self._columns(kind, texts, extra_contexts)
        if is_stream(texts):
            pieces = windows(columns, batch_size=size)
        else:
            pieces = iter([in_memory(columns)])
        total = _number(texts)
        return joined(self._pieces(kind, pieces, size, show_progress, total=total))

    def _columns(self, kind: str, texts: Any, extra_contexts: Any) -> list[Iterator[bytes]]:
        """What is encoded, checked as it is read."""
        if kind not in OUTPUTS:
            raise ValueError(f"kind is one of {', '.join(OUTPUTS)}. Received: {kind!r}.")
        if OUTPUTS[kind] not in self._model.outputs:
            raise ValueError(
                f"A {kind} is encoded by the signature {OUTPUTS[kind]}. Received: a model without "
                f"it, with {', '.join(sorted(self._model.outputs))}. Use a model that has it."
            )
        columns = [text_bytes(texts)]
        if extra_contexts is not None:
            if kind != "context" or not self.reads_history:
                raise ValueError(
                    "Extra contexts are read by contexts of multi-context models. Received: "
                    f"extra contexts for a {kind} of a model that "
                    f"{'reads' if self.reads_history else 'does not read'} them. Leave them out."
                )
            columns.append(text_bytes(extra_contexts, what="Extra contexts"))
        return columns

    def _pieces(
        self,
        kind: str,
        pieces: Iterator[Columns],
        batch_size: int,
        show_progress: bool,
        *,
        total: int,
    ) -> Iterator[np.ndarray]:
        def run(columns: Columns) -> np.ndarray:
            return self._run(kind, columns)

        columns: Columns | None = None
        with Progress("sentences", total=total) if show_progress else nullcontext() as progress:
            on_batch = progress.add if progress else lambda number: None
            for columns in pieces:
                yield encode_columns(
                    columns,
                    run,
                    batch_size=batch_size,
                    on_batch=on_batch,
                    concurrent_batches=getattr(self._model, "concurrent_batches", 1),
                )
        if columns is None:
            yield self._run(kind, [[]])

    def _run(self, kind: str, columns: Columns) -> np.ndarray:
        if kind == "context" and self.reads_history and len(columns) == 1:
            columns = [columns[0], [b""] * len(columns[0])]
        return np.asarray(self._model.run(OUTPUTS[kind], columns), np.float32)


def _number(texts: Any) -> int:
    """How many texts there are; 0 when that is not known."""
    return 0 if is_stream(texts) else len(texts)


def _checked_batch_size(batch_size: int) -> int:
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(
            f"A batch has a text or more. Received: batch_size={batch_size!r}. Pass 1 or more; the "
            f"default is {BATCH_SIZE}."
        )
    return batch_size
