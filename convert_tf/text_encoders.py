"""Texts to encodings, by an exported module or by a checkpoint, and their use as rankers."""

import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from convert_tf.data.candidates import extra_context, joined_context, last_turn
from convert_tf.text_batches import Columns, encode_columns, in_memory, text_bytes
from convert_tf.text_ranker import EncodingRanker, Turns

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")

Texts = Sequence[bytes] | Sequence[str]


class TextEncoder(Protocol):
    """Encodes the two sides of a conversation.

    Attributes:
      reads_history: whether contexts have a second text, the turns before (`extra_context`).
      numbers_turns: whether these turns are numbered.
    """

    reads_history: bool
    numbers_turns: bool

    def encode_contexts(self, texts: Texts, extra_contexts: Texts | None = None) -> np.ndarray:
        """float32 `[len(texts), dim]`."""
        ...

    def encode_responses(self, texts: Texts) -> np.ndarray:
        """float32 `[len(texts), dim]`."""
        ...


def encoder_ranker(name: str, encoder: TextEncoder, *, joins_turns: bool = False) -> EncodingRanker:
    """Ranks by the dot product of an encoder's encodings.

    An encoder that reads history gets the last turn and the turns before it; any other the last
    turn alone.

    Args:
      name: of its row.
      encoder: what encodes.
      joins_turns: whether an encoder of one text gets all turns, joined.
    """

    def encode_contexts(contexts: Sequence[Turns]) -> np.ndarray:
        if encoder.reads_history:
            newest = [last_turn(turns) for turns in contexts]
            numbered = encoder.numbers_turns
            earlier = [extra_context(turns, numbered=numbered) for turns in contexts]
            return encoder.encode_contexts(newest, earlier)
        read = joined_context if joins_turns else last_turn
        return encoder.encode_contexts([read(turns) for turns in contexts])

    return EncodingRanker(name, encode_contexts, encoder.encode_responses)


class ModuleEncoder:
    """An exported module or `.onnx` file, read through its signatures alone.

    Each text is encoded once, in batches of texts of similar length.

    Args:
      folder: a module, or an `.onnx` file.
      batch_size: texts of a batch.
      signature: encodes contexts and responses alike; None for `encode_context` and
        `encode_response`. A module without the signature `default` is called itself.

    Attributes:
      reads_history: whether `encode_context` takes `extra_context`.
      numbers_turns: false; a module does not say what it was fine-tuned with.

    Raises:
      ValueError: the folder is no module, a damaged one, or one without the signatures.

    Example:
      h = ModuleEncoder("hub_modules/convert/1").encode_contexts(["how are you?"])
    """

    numbers_turns = False

    def __init__(
        self, folder: str | os.PathLike, *, batch_size: int = 64, signature: str | None = None
    ):
        from convert_tf.backend import open_backend

        path = os.fspath(folder)
        # Of a module in float32: what is measured does not depend on the machine.
        compute_dtype = "auto" if path.endswith(".onnx") else "float32"
        self._module = open_backend(path, compute_dtype=compute_dtype)
        self._context = signature or "encode_context"
        self._response = signature or "encode_response"
        if missing := sorted({self._context, self._response} - {*self._module.outputs}):
            raise ValueError(
                "A module must encode contexts and responses. "
                f"Received: {path!r}, without {', '.join(missing)}. "
                "Name a module that export.py wrote, or a signature that it has "
                f"({', '.join(sorted(self._module.outputs)) or 'it has none'})."
            )
        self.reads_history = self._module.reads_history and self._context == "encode_context"
        self.batch_size = batch_size

    def encode_contexts(self, texts: Texts, extra_contexts: Texts | None = None) -> np.ndarray:
        """float32 `[len(texts), dim]`, of length 1."""
        if not self.reads_history:
            return self._encode(self._context, texts)
        history = [""] * len(texts) if extra_contexts is None else extra_contexts
        return self._encode(self._context, texts, history)

    def encode_responses(self, texts: Texts) -> np.ndarray:
        """float32 `[len(texts), dim]`, of length 1."""
        return self._encode(self._response, texts)

    def _encode(self, signature: str, *columns: Texts) -> np.ndarray:
        def run(batch: Columns) -> np.ndarray:
            return self._module.run(signature, batch)

        texts = in_memory([text_bytes(column) for column in columns])
        return encode_columns(texts, run, batch_size=self.batch_size)


class CheckpointEncoder:
    """A trained dual encoder with its vocabulary.

    Args:
      folder: a model directory.
      precision: policy of its computations.
      batch_size: texts of a batch.
      keeps_newest: whether contexts that are too long lose tokens at their start, where joined
        turns are the oldest; else at their end, as in training.

    Attributes:
      config: the model's.
      reads_history: whether it is a multi-context model.
      numbers_turns: whether it was trained with `turn_prefixes`.

    Raises:
      CheckpointError: the folder is incomplete or damaged.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        *,
        precision: str = "float32",
        batch_size: int = 256,
        keeps_newest: bool = False,
    ):
        from convert_tf.checkpoint import check_vocabulary, load_checkpoint, training_facts
        from convert_tf.text.tokenizer import load_tokenizer

        self._encoder, vocabulary = load_checkpoint(folder, dtype=precision)
        self.config = self._encoder.config
        self._tokenizer = load_tokenizer(vocabulary, num_oov_buckets=self.config.num_oov_buckets)
        check_vocabulary(self._tokenizer, self.config)
        self.batch_size = batch_size
        self.keeps_newest = keeps_newest
        self.reads_history = self.config.multi_context
        self.numbers_turns = bool(training_facts(folder).get("data", {}).get("turn_prefixes"))

    def encode_contexts(self, texts: Texts, extra_contexts: Texts | None = None) -> np.ndarray:
        """float32 `[len(texts), dim]`, of length 1: of both texts in a multi-context model."""
        if not self.reads_history:
            return self._encode("context_encoding", texts, keeps_newest=self.keeps_newest)
        history = [""] * len(texts) if extra_contexts is None else extra_contexts
        return self._encode("both_encoding", texts, history)

    def encode_responses(self, texts: Texts) -> np.ndarray:
        """float32 `[len(texts), dim]`, of length 1."""
        return self._encode("response_encoding", texts)

    def _encode(
        self, output: str, texts: Texts, history: Texts | None = None, *, keeps_newest: bool = False
    ) -> np.ndarray:
        encodings = [np.zeros((0, self.config.encoding_dim), np.float32)]
        for start in range(0, len(texts), self.batch_size):
            batch = slice(start, start + self.batch_size)
            columns = [list(texts[batch]), *([] if history is None else [list(history[batch])])]
            packed = self._packed(columns, keeps_newest)
            encodings.append(np.asarray(self._encoder.predict_on_batch(packed)[output]))
        return np.concatenate(encodings)

    def _packed(self, columns: list[list[Any]], keeps_newest: bool) -> dict[str, np.ndarray]:
        """The texts, each as context and as response: both are computed, one is used."""
        from convert_tf.data.packing import TokenIds, pack_batch

        limit = self.config.max_tokens
        token_ids = self._tokenizer.token_ids([text for column in columns for text in column])
        token_ids = token_ids[:, -limit:] if keeps_newest else token_ids[:, :limit]
        packed = pack_batch(
            TokenIds(token_ids.flat_values.numpy(), token_ids.row_splits.numpy()),
            ("context", "extra_context")[: len(columns)],
            row_tokens=max(64, limit),
            padding_id=self._tokenizer.padding_id,
        )
        packed["response_slots"] = packed["context_slots"]
        if self.reads_history:
            packed.setdefault("extra_context_slots", packed["context_slots"])
        return packed
