"""Encode texts with a trained model of any format.

Importing this module loads neither TensorFlow nor ONNX Runtime. Opening a model loads one of them.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

import numpy as np

from convert_tf.checkpoints.kinds import Kind, checked_backend, kind_of
from convert_tf.checkpoints.released import RELEASED, SCHEME, model_path
from convert_tf.encoding import text_batches
from convert_tf.encoding.signatures import BY_NAME, SIGNATURES, signature_name
from convert_tf.encoding.text_batches import Columns, is_count, is_stream, is_text, text_bytes
from convert_tf.extras import needs
from convert_tf.numerics.vectors import unit_rows
from convert_tf.storage.folders import put_aside
from convert_tf.storage.progress import Progress

BATCH_SIZE = 256
COMPUTE_DTYPES = ("auto", "float32", "bfloat16")
_KINDS = (Kind.ENCODER_MODULE, Kind.DUAL_ENCODER, Kind.ONNX, Kind.HUGGING_FACE_ENCODER)
# Advice for models without `encode_similarity`.
SIMILARITY_REMEDY = (
    "Fit a similarity map with `convert-tf similarity` and export it again, or use another encoder."
)
_REMEDIES = {
    "similarity": SIMILARITY_REMEDY,
    "reduced": "An earlier version wrote it. Export its run or module again (convert-tf export).",
}

Texts = Iterable[str] | Iterable[bytes]
# `History` is the turns before one context, as a list or as one text; `Histories` is for several.
History = str | Sequence[str]
Histories = Texts | Iterable[Sequence[str]]
Ranking = list[tuple[str, float]]


class Backend(Protocol):
    """Interface of models that encode: modules, ONNX files, Hugging Face folders and runs.

    Attributes:
      outputs: names of the signatures.
      reads_history: whether `encode_context` has a second column, `extra_context`.

    Two more attributes are optional. `concurrent_batches` is the number of batches to encode at
    once, each in a thread; 1 by default. `numbers_turns` says whether earlier turns are numbered;
    false by default.
    """

    @property
    def outputs(self) -> Collection[str]: ...

    @property
    def reads_history(self) -> bool: ...

    def run(self, output: str, columns: Columns) -> np.ndarray:
        """Encode a batch. Several threads may call this at once.

        Args:
          output: one of `outputs`.
          columns: one column of texts, any bytes; or two for `encode_context` of a model that reads
            history. Columns may be empty.

        Returns:
          The vectors, float `[rows, dim]`. A vector does not depend on the other rows.
        """
        ...


def open_backend(path: str, *, compute_dtype: str = "auto", backend: str = "auto") -> Backend:
    """Open a model.

    Args:
      path: the folder of a module or run, a Hugging Face folder, an `.onnx` file, or the name of a
        released encoder.
      compute_dtype: number format of the network, one of `COMPUTE_DTYPES`. It must be `"auto"` for
        `.onnx` files and Hugging Face folders.
      backend: what a released name stands for: with `"tensorflow"` the module, with `"auto"` the
        `.onnx` file.

    Raises:
      ValueError: if the model cannot be opened, or cannot compute in this format.
    """
    path = checked_backend(model_path(path, wants_module=backend == "tensorflow"), backend)
    if not os.path.exists(path):
        raise ValueError(
            f"{path!r} is neither a file or folder nor one of {', '.join(RELEASED)}. Pass a path, "
            f"or {SCHEME}owner/name for an encoder of the Hugging Face hub.{put_aside(path)}"
        )
    kind = kind_of(path, *_KINDS)
    if kind.runs_onnx and compute_dtype != "auto":
        raise ValueError(
            f"compute_dtype={compute_dtype!r} has no effect on {path!r}, which computes as it was "
            "exported. Omit it, or open the module with backend='tensorflow' (--backend "
            "tensorflow)."
        )
    if kind is Kind.ONNX:
        from convert_tf.encoding.backends.onnx import OnnxBackend

        return OnnxBackend(path)
    if kind is Kind.HUGGING_FACE_ENCODER:
        from convert_tf.encoding.backends.huggingface import HuggingFaceBackend

        return HuggingFaceBackend(path)
    if kind is Kind.ENCODER_MODULE:
        with needs("train", "A module"):
            from convert_tf.encoding.backends.module import ModuleBackend

        return ModuleBackend(path, compute_dtype=compute_dtype)
    with needs("train", "A run's folder"):
        from convert_tf.encoding.backends.checkpoint import CheckpointBackend

    precisions = {"bfloat16": "mixed_bfloat16"}
    return CheckpointBackend(path, precision=precisions.get(compute_dtype, compute_dtype))


class SentenceEncoder:
    """Encodes texts with a module, an `.onnx` file, a run, or a folder for Hugging Face programs.

    Texts are sorted by length and encoded in batches. Equal texts are encoded once. Results are in
    the order of the texts. Texts may be in a list, a tuple, a numpy array, a column of a table, or
    an iterator. An iterator is never read into memory as a whole. str is encoded as UTF-8; bytes
    are used unchanged. Several threads may use an encoder at once. A pickle stores the path of the
    model.

    Args:
      model: name of a released encoder (`"convert_small"`), which opens its 8-bit `.onnx` file;
        folder of a module, of a run or for Hugging Face programs; an `.onnx` file;
        `hf://owner/name`; or a `Backend`.
      batch_size: maximum number of texts per batch; batches of long texts are smaller.
      compute_dtype: `"float32"`, `"bfloat16"`, or `"auto"` for bfloat16 if this machine multiplies
        matrices faster in that format. It must be `"auto"` for `.onnx` files and names.
      backend: `"tensorflow"` to open the module of a name instead of the `.onnx` file.
      numbers_turns: whether earlier turns are numbered, `"0: "` for the most recent, as in training
        with `--turn_prefixes`; None for the setting that the model was trained with.

    Attributes:
      reads_history: whether the model reads the turns before a context.
      numbers_turns: whether these turns are numbered; false if unknown.
      path: absolute path of the model; None for a `Backend` without a path.

    Raises:
      ValueError: if `model` is not an encoder, or is damaged.

    Example:
      encoder = SentenceEncoder("convert_small")
      vectors = encoder.encode(["how do I reset my password?", "where is my card?"])
      best = encoder.rank("how are you?", ["fine, and you?", "a fish"], top_k=1)
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Backend,
        *,
        batch_size: int = BATCH_SIZE,
        compute_dtype: str = "auto",
        backend: str = "auto",
        numbers_turns: bool | None = None,
    ) -> None:
        if compute_dtype not in COMPUTE_DTYPES:
            raise ValueError(
                f"compute_dtype must be one of {', '.join(COMPUTE_DTYPES)}. "
                f"Received: {compute_dtype!r}. Use auto if in doubt."
            )
        self.batch_size = _checked_batch_size(batch_size)
        if isinstance(model, str | os.PathLike):
            path = os.fspath(model)
            model = open_backend(path, compute_dtype=compute_dtype, backend=backend)
            names = [signature.name for signature in SIGNATURES.values()]
            if not {*model.outputs} & {*names}:
                raise ValueError(
                    f"{path!r} is not an encoder. An encoder has one of {', '.join(names)}. "
                    f"Received: a model with {', '.join(sorted(model.outputs)) or 'none'}. Pass a "
                    "module that convert-tf export wrote."
                )
        elif not callable(getattr(model, "run", None)):
            raise ValueError(
                f"An encoder must be a path, a name or a Backend. Received: {model!r}. Pass the "
                "folder of a module or a run, or an .onnx file."
            )
        self._model = model
        self.path: str | None = getattr(model, "weights_path", None)
        self.reads_history = model.reads_history
        if numbers_turns is None:
            numbers_turns = getattr(model, "numbers_turns", False)
        self.numbers_turns = numbers_turns

    @property
    def outputs(self) -> set[str]:
        """The names of all signatures of the model that turn texts into vectors."""
        return {*self._model.outputs}

    @property
    def kinds(self) -> list[str]:
        """The kinds of encodings that the model has, such as `"sentence"` and `"context"`."""
        return [s.kind for s in SIGNATURES.values() if s.name in self._model.outputs]

    def encode(
        self,
        texts: Texts | str | bytes,
        *,
        kind: str = "sentence",
        batch_size: int | None = None,
        show_progress: bool = False,
    ) -> np.ndarray:
        """Encode texts, by default as sentence encodings, which suit classifiers.

        Sentence encodings are the reduced encodings r, not normalised. If the model has similarity
        vectors, sentence encodings are computed from r by
        `convert_tf.models.distillation.sentence_encodings`.

        Args:
          texts: texts in any container, or one text.
          kind: one of `kinds`, or the name of another signature of a module.
          batch_size: batch size of this call.
          show_progress: whether to print sentences per second and the time left on standard error.

        Returns:
          The vectors, float32 `[texts, dim]`; `[dim]` for one text that is not in a list.

        Raises:
          ValueError: if an item is not a text, in which case the message names the item; or if the
            model has no such encodings.
        """
        return self._encode(kind, texts, batch_size=batch_size, show_progress=show_progress)

    def encode_reduced(
        self,
        texts: Texts | str | bytes,
        *,
        batch_size: int | None = None,
        show_progress: bool = False,
    ) -> np.ndarray:
        """Encode texts as r, the pooled output of the transformer.

        The papers use r for transfer to other tasks. It is not normalised. If the model has no
        vectors for similarity, `encode` returns r too. Arguments and result are as for `encode`.

        Reference: arXiv 1911.03688 §2.1, §3.2 ("Intent Classification", footnote 11).
        """
        return self._encode("reduced", texts, batch_size=batch_size, show_progress=show_progress)

    def encode_contexts(
        self,
        texts: Texts | str | bytes,
        extra_contexts: Histories | str | bytes | None = None,
        *,
        batch_size: int | None = None,
        show_progress: bool = False,
    ) -> np.ndarray:
        """Encode contexts as h, of length 1. The dot product with a response's h is their score.

        Args:
          texts: the last turn of each conversation.
          extra_contexts: for each conversation, the earlier turns: a list, the oldest turn first;
            or one text, the most recent turn first, `""` for none. Only for models that read
            history.
          batch_size: batch size of this call.
          show_progress: as in `encode`.

        Returns:
          The vectors, float32 `[texts, encoding_dim]`; `[encoding_dim]` for one text that is not in
          a list.

        Raises:
          ValueError: if an item is not a text, there are not as many histories as texts, or the
            model does not read history.
        """
        options = {"batch_size": batch_size, "show_progress": show_progress}
        return self._encode("context", texts, extra_contexts, **options)

    def encode_responses(
        self,
        texts: Texts | str | bytes,
        *,
        batch_size: int | None = None,
        show_progress: bool = False,
    ) -> np.ndarray:
        """Encode responses as h, of length 1. Arguments and result are as for `encode`."""
        return self._encode("response", texts, batch_size=batch_size, show_progress=show_progress)

    def encode_similarity(
        self,
        texts: Texts | str | bytes,
        dim: int | None = None,
        *,
        batch_size: int | None = None,
        show_progress: bool = False,
    ) -> np.ndarray:
        """Encode texts as vectors of length 1 whose dot products measure similarity.

        Use them to find duplicates or similar questions. All texts are encoded in the same space,
        unlike contexts and responses. The vector of an empty text is zero.

        Args:
          texts: texts in any container, or one text.
          dim: length of the vectors; None for their full length. Shorter vectors consist of the
            first numbers, which matter most.
          batch_size: batch size of this call.
          show_progress: as in `encode`.

        Returns:
          The vectors, float32 `[texts, dim]`; `[dim]` for one text that is not in a list.

        Raises:
          ValueError: if an item is not a text, or the model has no similarity vectors, or only
            shorter ones.
        """
        options = {"batch_size": batch_size, "show_progress": show_progress}
        vectors = self._encode("similarity", texts, **options)
        if dim is None:
            return vectors
        if not is_count(dim) or dim > vectors.shape[-1]:
            raise ValueError(
                f"dim must be from 1 to {vectors.shape[-1]}, the length of the vectors. Received: "
                f"dim={dim!r}. Pass 256, 128 or 64, or None for all."
            )
        return unit_rows(vectors, dim)

    def text_similarity(
        self, texts: Texts | str | bytes, others: Texts | str | bytes, *, dim: int | None = None
    ) -> np.ndarray:
        """Return the similarity of texts: the dot products of their `encode_similarity` vectors.

        Args:
          texts, others: texts, or one text. Each of `texts` is compared with each of `others`.
          dim: as in `encode_similarity`.

        Returns:
          The similarities, float32 `[texts, others]`, from −1 to 1. The dimension of a single text
          is omitted.

        Raises:
          ValueError: as for `encode_similarity`.
        """
        vectors, other = (self.encode_similarity(sentences, dim) for sentences in (texts, others))
        return vectors @ other.T

    def iter_encode(
        self,
        texts: Texts,
        extra_contexts: Histories | None = None,
        *,
        kind: str = "sentence",
        batch_size: int | None = None,
        show_progress: bool = False,
    ) -> Iterator[np.ndarray]:
        """Encode texts piece by piece, for more texts than fit into memory.

        Args:
          texts: any number of texts.
          extra_contexts: as in `encode_contexts`.
          kind: as in `encode`.
          batch_size: batch size of this call. Texts are sorted by length and compared for equality
            only within some thousand consecutive texts.
          show_progress: as in `encode`.

        Yields:
          The vectors of some texts, float32 `[some, dim]`, in the order of the texts. Without
          texts, a single array `[0, dim]`.

        Raises:
          ValueError: as in `encode_contexts`, when the iteration reaches the text.
        """
        return self._pieces(
            kind, texts, extra_contexts, batch_size=batch_size, show_progress=show_progress
        )

    def rank(
        self,
        context: str | tuple[str, History] | list[str] | list[tuple[str, History]],
        responses: Texts,
        *,
        top_k: int | None = None,
    ) -> Ranking | list[Ranking]:
        """Return the best responses to a context.

        Args:
          context: a text; or `(text, extra_context)`, with earlier turns as in `encode_contexts`;
            or a list or a column of contexts.
          responses: texts.
          top_k: number of responses to return; None for all.

        Returns:
          A list of `(response, cosine)` pairs, the best first. Responses with equal cosines keep
          their order. For a list of contexts, a list of such lists.

        Raises:
          ValueError: if there is no response, `top_k` is not a positive whole number, or an
            argument is not a text or a list of texts.
        """
        if is_text(responses) or not isinstance(responses, Iterable):
            raise ValueError(
                f"responses must be a list of strings. Received: {responses!r}. Pass "
                f"[{responses!r}] for a single text."
            )
        candidates = responses if isinstance(responses, list) else [*responses]
        if not candidates or (top_k is not None and not is_count(top_k)):
            raise ValueError(
                "Pass at least one response, and a top_k of at least 1 or None for all. "
                f"Received: {len(candidates)} responses, top_k={top_k!r}."
            )
        is_one = is_text(context) or isinstance(context, tuple) or not isinstance(context, Iterable)
        contexts: list[Any] = [context] if is_one else [*context]
        parts: list[tuple[Any, Any]] = [
            context if isinstance(context, tuple) else (context, "") for context in contexts
        ]
        if wrong := [part for part in parts if len(part) != 2]:
            raise ValueError(
                "A context must be a text, or a tuple of a text and the turns before it, joined. "
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
        self, kind: str, texts: Any, extra_contexts: Any = None, **options: Any
    ) -> np.ndarray:
        if is_text(texts):
            extra = None if extra_contexts is None else [extra_contexts]
            return self._encode(kind, [texts], extra, **options)[0]
        at_once = not is_stream(texts)
        pieces = self._pieces(kind, texts, extra_contexts, at_once=at_once, **options)
        return text_batches.joined(pieces)

    def _pieces(
        self,
        kind: str,
        texts: Any,
        extra_contexts: Any,
        *,
        batch_size: int | None,
        show_progress: bool,
        at_once: bool = False,
    ) -> Iterator[np.ndarray]:
        """Check the arguments, and return the vectors of some texts at a time."""
        size = self.batch_size if batch_size is None else _checked_batch_size(batch_size)
        columns = self._columns(kind, texts, extra_contexts)
        if at_once:
            pieces = iter([text_batches.in_memory(columns)])
        else:
            pieces = text_batches.windows(columns, batch_size=size)
        total = 0 if is_stream(texts) else len(texts)  # 0 if it is unknown
        progress = Progress("sentences", total=total) if show_progress else None
        return self._vectors(kind, pieces, size, progress)

    def _columns(self, kind: str, texts: Any, extra_contexts: Any) -> list[Iterator[bytes]]:
        """Yield the texts to encode, checked while they are read."""
        name = signature_name(kind)
        if name not in self._model.outputs:
            kinds = sorted(
                BY_NAME[output].kind if output in BY_NAME else output
                for output in self._model.outputs
            )
            raise ValueError(
                f"This encoder does not have the kind {kind!r}, only {', '.join(kinds)}. "
                f"{_REMEDIES.get(kind, 'Use an encoder that has it.')}"
            )
        columns = [text_bytes(texts)]
        if extra_contexts is not None:
            if kind != "context" or not self.reads_history:
                raise ValueError(
                    "Only multi-context encoders read extra contexts, for the kind context. "
                    f"Received: extra contexts for the kind {kind} of an encoder that "
                    f"{'reads' if self.reads_history else 'does not read'} them. Omit them."
                )
            columns.append(
                text_bytes(extra_contexts, what="Extra contexts", numbered=self.numbers_turns)
            )
        return columns

    def _vectors(
        self, kind: str, pieces: Iterator[Columns], batch_size: int, progress: Progress | None
    ) -> Iterator[np.ndarray]:
        columns: Columns | None = None
        with progress or nullcontext():
            for columns in pieces:
                vectors = text_batches.encode_columns(
                    columns,
                    partial(self._run, kind),
                    batch_size=batch_size,
                    on_batch=progress.add if progress else lambda number: None,
                    concurrent_batches=getattr(self._model, "concurrent_batches", 1),
                )
                yield np.require(vectors, requirements="W")  # arrays from TensorFlow are read-only
        if columns is None:
            yield np.require(self._run(kind, [[]]), requirements="W")

    def _run(self, kind: str, columns: Columns) -> np.ndarray:
        name = signature_name(kind)
        if name == "encode_context" and self.reads_history and len(columns) == 1:
            columns = [columns[0], [b""] * len(columns[0])]
        return np.asarray(self._model.run(name, columns), np.float32)


def _checked_batch_size(batch_size: int) -> int:
    if not is_count(batch_size):
        raise ValueError(
            f"batch_size must be at least 1. Received: batch_size={batch_size!r}. The default is "
            f"{BATCH_SIZE}."
        )
    return batch_size
