"""Encode texts with a trained model of any format.

Importing this module loads neither TensorFlow nor ONNX Runtime. Opening a model loads one of them.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

import numpy as np

from convert_tf.checkpoints.kinds import Kind, checked_backend, kind_of
from convert_tf.checkpoints.released import RELEASED, SCHEME, model_path
from convert_tf.encoding import text_batches
from convert_tf.encoding.signatures import BY_NAME, SIGNATURES, signature_name
from convert_tf.encoding.text_batches import (
    BATCH_SIZE,
    Columns,
    is_count,
    is_stream,
    is_text,
    items_in_order,
    text_bytes,
)
from convert_tf.extras import needs
from convert_tf.numerics.vectors import dot_products, unit_rows
from convert_tf.storage.folders import put_aside
from convert_tf.storage.progress import Progress

COMPUTE_DTYPES = ("auto", "float32", "bfloat16")
_KINDS = (Kind.ENCODER_MODULE, Kind.DUAL_ENCODER, Kind.ONNX, Kind.HUGGING_FACE_ENCODER)
# Advice for users of models without `encode_similarity`.
SIMILARITY_REMEDY = (
    "Fit a similarity map with `convert-tf similarity` and export it again, or use another encoder."
)
_REMEDIES = {
    "similarity": SIMILARITY_REMEDY,
    "reduced": "An earlier version wrote it. Export the run or module again (convert-tf export).",
}

Texts = Iterable[str] | Iterable[bytes]
# The turns before one context, as a list or as one text, and the same for several contexts.
History = str | Sequence[str]
Histories = Texts | Iterable[Sequence[str]]
Ranking = list[tuple[str, float]]


class Backend(Protocol):
    """Interface of models that encode: modules, ONNX files, Hugging Face folders and runs.

    Attributes:
      outputs: the names of the model's signatures.
      reads_history: whether `encode_context` has a second column, `extra_context`.

    Two more attributes are optional. `concurrent_batches` is the number of batches to encode at
    once, each in its own thread (default: 1). `numbers_turns` says whether earlier turns are
    numbered (default: False).
    """

    @property
    def outputs(self) -> Collection[str]: ...

    @property
    def reads_history(self) -> bool: ...

    def run(self, output: str, columns: Columns) -> np.ndarray:
        """Encode a batch. Several threads may call this at once.

        Args:
          output: one of `outputs`.
          columns: one column of texts, or two columns for `encode_context` of a model that reads
            history. Texts may be any bytes, and columns may be empty.

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
      backend: which form of a released encoder to open: `"tensorflow"` opens its module, and
        `"auto"` its `.onnx` file.

    Raises:
      ValueError: if the model cannot be opened, or cannot compute in this number format.
    """
    path = checked_backend(model_path(path, wants_module=backend == "tensorflow"), backend)
    if not os.path.exists(path):
        remedy = f"Pass a path, or {SCHEME}owner/name for an encoder of the Hugging Face hub."
        raise ValueError(
            f"{path!r} is neither a file or folder nor one of {', '.join(RELEASED)}. "
            f"{put_aside(path) or remedy}"
        )
    kind = kind_of(path, *_KINDS)
    if kind.runs_onnx and compute_dtype != "auto":
        raise ValueError(
            f"compute_dtype={compute_dtype!r} has no effect on {path!r}, whose number format was "
            "fixed when it was exported. Omit compute_dtype, or open the module with "
            "backend='tensorflow' (--backend tensorflow)."
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
    an iterator. An iterator is never read into memory as a whole. Strings are encoded as UTF-8, and
    bytes are used unchanged. Several threads may use an encoder at once. A pickle of an encoder
    contains the path of the model, not its weights.

    Args:
      model: the name of a released encoder (`"convert_small"`); the folder of a module or run; a
        Hugging Face folder; an `.onnx` file; `hf://owner/name`; or a `Backend`. By default, a name
        stands for the encoder's 8-bit `.onnx` file.
      batch_size: maximum number of texts per batch. Batches of long texts are smaller. If
        `batch_size` is at least 256, an `.onnx` file or a Hugging Face folder may form batches of
        up to 512 texts on several cores.
      compute_dtype: number format of the network: `"float32"`, `"bfloat16"`, or `"auto"`. `"auto"`
        uses bfloat16 if this machine multiplies matrices faster in bfloat16. For `.onnx` files, and
        for names that stand for them, the format must be `"auto"`.
      backend: `"tensorflow"` opens the module of a released encoder instead of the `.onnx` file.
      numbers_turns: whether earlier turns are numbered, with `"0: "` for the most recent turn, as
        in training with `--turn_prefixes`. If None, the setting that the model was trained with.

    Attributes:
      reads_history: whether the model reads the turns before a context.
      numbers_turns: whether earlier turns are numbered; False if this is unknown.
      path: the absolute path of the model; None for a `Backend` without a path.

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
                    f"{path!r} is not an encoder: it has none of the outputs {', '.join(names)}. "
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

        If the model has similarity vectors, sentence encodings are computed from the reduced
        encodings r by `convert_tf.models.distillation.sentence_encodings`. Otherwise they are r.
        Sentence encodings are not normalised.

        Args:
          texts: texts in any container, or one text.
          kind: the kind of encodings: one of `kinds`, or the name of another signature of a module.
          batch_size: maximum number of texts per batch in this call; None for that of the encoder.
          show_progress: whether to print the number of texts per second and the time left on
            standard error.

        Returns:
          The vectors, float32 `[texts, dim]`; `[dim]` for one text that is not in a list.

        Raises:
          ValueError: if an item is not a text, or the model does not have these encodings.
        """
        return self._encode(kind, texts, batch_size=batch_size, show_progress=show_progress)

    def encode_reduced(
        self,
        texts: Texts | str | bytes,
        *,
        batch_size: int | None = None,
        show_progress: bool = False,
    ) -> np.ndarray:
        """Encode texts as the reduced encodings r, the pooled output of the transformer.

        The papers use r for transfer to other tasks. The vectors are not normalised. If the model
        has no similarity vectors, `encode` returns r too. Arguments and result are as in `encode`.

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
        """Encode contexts as vectors h of length 1.

        The score of a context and a response is the dot product of their vectors h.

        Args:
          texts: the last turn of each conversation.
          extra_contexts: the earlier turns of each conversation: a list of turns, the oldest first,
            or one text with the most recent turn first. Use `""` if there are no earlier turns.
            Only models that read history accept `extra_contexts`.
          batch_size, show_progress: as in `encode`.

        Returns:
          The vectors, float32 `[texts, encoding_dim]`; `[encoding_dim]` for one text that is not in
          a list.

        Raises:
          ValueError: if an item is not a text, the numbers of texts and extra contexts differ, or
            extra contexts are passed to a model that does not read history.
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
        """Encode responses as vectors h of length 1. Arguments and result are as in `encode`."""
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

        Use these vectors to find duplicates or similar questions. All texts are encoded in the same
        space, unlike contexts and responses. The vector of an empty text is zero.

        Args:
          texts: texts in any container, or one text.
          dim: number of dimensions of the vectors; None for all. Shorter vectors consist of the
            first dimensions, which matter most, scaled to length 1.
          batch_size, show_progress: as in `encode`.

        Returns:
          The vectors, float32 `[texts, dim]`; `[dim]` for one text that is not in a list.

        Raises:
          ValueError: if an item is not a text, the model has no similarity vectors, or `dim` is out
            of range.
        """
        options = {"batch_size": batch_size, "show_progress": show_progress}
        vectors = self._encode("similarity", texts, **options)
        if dim is None:
            return vectors
        if not is_count(dim) or dim > vectors.shape[-1]:
            raise ValueError(
                f"dim must be from 1 to {vectors.shape[-1]}, the size of the vectors. Received: "
                f"dim={dim!r}. Pass 256, 128 or 64, or None for all dimensions."
            )
        return unit_rows(vectors, dim)

    def text_similarity(
        self, texts: Texts | str | bytes, others: Texts | str | bytes, *, dim: int | None = None
    ) -> np.ndarray:
        """Return the similarity of texts: the dot products of their `encode_similarity` vectors.

        Args:
          texts, others: texts, or one text. Every text in `texts` is compared with every text in
            `others`.
          dim: as in `encode_similarity`.

        Returns:
          The similarities, float32 `[texts, others]`, from −1 to 1. The dimension of a single text
          is omitted.

        Raises:
          ValueError: as in `encode_similarity`.
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

        Texts are sorted by length, and compared for equality, only within some thousand consecutive
        texts.

        Args:
          texts: any number of texts.
          extra_contexts: as in `encode_contexts`.
          kind, batch_size, show_progress: as in `encode`.

        Yields:
          The vectors of some texts, float32 `[some, dim]`, in the order of the texts. If there are
          no texts, a single array `[0, dim]`.

        Raises:
          ValueError: as in `encode_contexts`. The error is raised when the iteration reaches the
            invalid item.
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
          context: a context, or a list or column of contexts. A context is a text, or a tuple
            `(text, extra_context)` with earlier turns as in `encode_contexts`.
          responses: the responses to rank.
          top_k: number of responses to return; None for all.

        Returns:
          A list of `(response, cosine)` pairs, the best response first. Responses with equal
          cosines stay in the given order. For several contexts, a list of such lists.

        Raises:
          ValueError: if there is no response, `top_k` is not a positive whole number, or an
            argument is not a text or a list of texts (for example, a set, a mapping or a table with
            several columns).
        """
        if is_text(responses) or not isinstance(responses, Iterable):
            raise ValueError(
                f"responses must be a list of strings. Received: {responses!r}. Pass "
                f"[{responses!r}] for a single text."
            )
        is_set = isinstance(responses, Set)  # its order matters only for equal scores
        candidates = [*(responses if is_set else items_in_order(responses, what="responses"))]
        if not candidates or (top_k is not None and not is_count(top_k)):
            raise ValueError(
                "Pass at least one response, and a top_k of at least 1 or None for all. "
                f"Received: {len(candidates)} responses, top_k={top_k!r}."
            )
        is_one = is_text(context) or isinstance(context, tuple) or not isinstance(context, Iterable)
        contexts = [context] if is_one else [*items_in_order(context, what="Contexts")]
        parts: list[tuple[Any, Any]] = [
            context if isinstance(context, tuple) else (context, "") for context in contexts
        ]
        if wrong := [part for part in parts if len(part) != 2]:
            raise ValueError(
                "A context must be a text, or a tuple of a text and the joined turns before it. "
                f"Received: {wrong[0]!r}. Pass several contexts as a list."
            )
        has_history = any(extra for _, extra in parts)
        encodings = self.encode_contexts(
            [text for text, _ in parts], [extra for _, extra in parts] if has_history else None
        )
        cosines = dot_products(encodings, self.encode_responses(candidates))
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
        total = 0 if is_stream(texts) else len(texts)  # 0 stands for an unknown number
        progress = Progress("sentences", total=total) if show_progress else None
        return self._vectors(kind, pieces, size, progress)

    def _columns(self, kind: str, texts: Any, extra_contexts: Any) -> list[Iterator[bytes]]:
        """Return iterators over the columns of texts to encode. Texts are checked when read."""
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
                    "Extra contexts need a multi-context encoder and the kind context. "
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
