"""What is exported: a TF Hub module that needs neither this package nor a checkpoint to be loaded.

The network is the encoder's own: its layers are traced once, in float32, with their weights read
from the module's 16-bit variables. The subword table is stored in 8 bits, as training has seen it;
the rows of a batch are gathered first and made floats then.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from convert_tf.checkpoint import CheckpointError, check_vocabulary, load_checkpoint, training_facts
from convert_tf.encoders import DualEncoder
from convert_tf.model_card import CARD_FILE, model_card
from convert_tf.quantization import pack_table
from convert_tf.text.tokenizer import Tokenizer, load_tokenizer

MAX_TOKENS = 512

_TEXTS = tf.TensorSpec([None], tf.string, name="default")
_CONTEXTS = tf.TensorSpec([None], tf.string, name="context")
_EXTRA_CONTEXTS = tf.TensorSpec([None], tf.string, name="extra_context")
_RESPONSES = tf.TensorSpec([None], tf.string, name="response")


class ExportError(ValueError):
    """A module that cannot be written."""


class EncoderModule(tf.Module):
    """A dual encoder with its tokenizer, from strings to encodings.

    Texts are cut to `max_tokens` subwords before the network reads them. `tokenize` is not cut, and
    `encode_sequence` has a row for each token that `tokenize` gives, zeros after `max_tokens`:
    clients count the tokens of the one and slice the other.

    Masking: padding and the other texts of a batch never change a row.

    Args:
      encoder: whose weights are copied; a float32 one. It becomes part of the module and must not
        be used by itself any more.
      tokenizer: of the encoder's vocabulary.
      max_tokens: longest sequence, in subwords, that the network reads.

    Call arguments:
      strings: string `[batch]`.

    Returns:
      float32 `[batch, reduced_dim]`: r, not normalised, the output of the signature `default`.

    Attributes:
      variables, trainable_variables: the stored variables, and those that `hub.KerasLayer` may
        train: the network's. The subword table is in 8 bits and stays as it is.
      regularization_losses: empty; `hub.KerasLayer` asks for it.

    Raises:
      CheckpointError: a weight is no number or too large for 16 bits.
      ValueError: `max_tokens` is not positive, or the encoder does not compute in float32.

    Reference: arXiv 1911.03688 §2.1, "Quantization".
    """

    # Attributes are saved with a module; the properties of tf.Module by these names are not.
    variables: Any = None
    trainable_variables: Any = None

    def __init__(self, encoder: DualEncoder, tokenizer: Tokenizer, *, max_tokens: int = MAX_TOKENS):
        super().__init__(name="encoder_module")
        if max_tokens < 1:
            raise ValueError(
                f"A text must have room for a token. Received: max_tokens={max_tokens}. "
                f"Pass 1 or more; the default is {MAX_TOKENS}."
            )
        if encoder.compute_dtype != "float32":
            raise ValueError(
                f"A module computes in float32. Received: an encoder in {encoder.compute_dtype}. "
                "Load the checkpoint with dtype='float32'."
            )
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        # Behind a function, where tf.Module does not find, and save, the encoder's own variables.
        self._encoder: Callable[[], DualEncoder] = lambda: encoder

        embedding = encoder.trunk.embedding
        network = [v for v in encoder.trainable_variables if v is not embedding.table]
        stored = [tf.Variable(_as_float16(v), name=v.path) for v in network]
        self._stored_weights: Callable[[], list[tuple[Any, tf.Variable]]] = lambda: list(
            zip(network, stored, strict=True)
        )
        self.table, self.table_code = _stored_table(embedding)
        embedding.gather_rows = self._gather_rows
        self.trainable_variables = stored
        self.variables = [*stored, self.table, *self.table_code]
        self.regularization_losses: list[Any] = []

    @tf.function(input_signature=[_TEXTS])
    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        return self._encode(strings, lambda encoder, ids: encoder.reduce(ids))

    @tf.function(input_signature=[_TEXTS])
    def default(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """r of contexts, `[batch, reduced_dim]`, not normalised."""
        return {"default": self(strings)}

    @tf.function(input_signature=[_TEXTS])
    def encode_context(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """h of contexts, `[batch, encoding_dim]`, of length 1."""
        return {"default": self._encode(strings, DualEncoder.encode_context)}

    @tf.function(input_signature=[_TEXTS])
    def encode_response(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """h of responses, `[batch, encoding_dim]`, of length 1."""
        return {"default": self._encode(strings, DualEncoder.encode_response)}

    @tf.function(input_signature=[_CONTEXTS, _RESPONSES])
    def encode_context_and_response(
        self, context: tf.Tensor, response: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """h of contexts and of responses, which need not be equally many."""
        return {
            "context_encoding": self._context_encoding(context),
            "response_encoding": self._encode(response, DualEncoder.encode_response),
        }

    def _context_encoding(self, context: tf.Tensor) -> tf.Tensor:
        return self._encode(context, DualEncoder.encode_context)

    @tf.function(input_signature=[_TEXTS])
    def encode_sequence(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """The trunk's result for each token, `[batch, tokens, embedding_dim]`, and the tokens."""
        tokens = self.tokenizer.tokenize(strings).to_tensor(default_value="")

        def encode(encoder: DualEncoder, ids: tf.Tensor) -> tf.Tensor:
            is_real = (ids != self.tokenizer.padding_id)[:, :, None]
            return tf.where(is_real, encoder.encode_sequence(ids), 0.0)

        sequence = self._encode(strings, encode)
        missing = tf.shape(tokens)[1] - tf.shape(sequence)[1]
        sequence = tf.pad(sequence, [[0, 0], [0, missing], [0, 0]])
        return {"sequence_encoding": sequence, "tokens": tokens}

    @tf.function(input_signature=[_TEXTS])
    def tokenize(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """Subwords, string `[batch, tokens]`, padded with `""`."""
        return {"default": self.tokenizer.tokenize(strings).to_tensor(default_value="")}

    @property
    def signatures(self) -> dict[str, Any]:
        """The functions of the saved module, by the names of its signatures."""
        return {
            "serving_default": self.default,
            "default": self.default,
            "encode_context": self.encode_context,
            "encode_response": self.encode_response,
            "encode_sequence": self.encode_sequence,
            "tokenize": self.tokenize,
            "encode_context_and_response": self.encode_context_and_response,
        }

    def _encode(
        self, strings: tf.Tensor, encode: Callable[[DualEncoder, tf.Tensor], tf.Tensor]
    ) -> tf.Tensor:
        ids = self._padded_ids(strings)
        with self._weights():
            return encode(self._encoder(), ids)

    def _padded_ids(self, strings: tf.Tensor) -> tf.Tensor:
        ids = self.tokenizer.token_ids(strings)[:, : self.max_tokens]
        return ids.to_tensor(default_value=self.tokenizer.padding_id)

    def _weights(self) -> keras.StatelessScope:
        """Where the encoder reads the stored weights."""
        weights = [(v, tf.cast(stored, tf.float32)) for v, stored in self._stored_weights()]
        return keras.StatelessScope(state_mapping=weights)

    def _gather_rows(self, token_ids: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        rows = tf.cast(tf.gather(self.table, token_ids), tf.float32)
        if self.table_code:
            offset, step = self.table_code
            rows = offset + rows * step
        return rows


class MultiContextEncoderModule(EncoderModule):
    """A multi-context dual encoder: `encode_context` also takes the earlier turns.

    They are one text each, the most recent turn first; `""` is no history. Where a signature has no
    `extra_context`, contexts have none.

    Reference: arXiv 1911.03688 §2.2.
    """

    @tf.function(input_signature=[_CONTEXTS, _EXTRA_CONTEXTS])
    def encode_context(  # type: ignore[override]
        self, context: tf.Tensor, extra_context: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """h of contexts with their earlier turns, `[batch, encoding_dim]`, of length 1."""
        ids = self._padded_ids(context), self._padded_ids(extra_context)
        with self._weights():
            return {"default": self._encoder().encode_both(*ids)}

    def _context_encoding(self, context: tf.Tensor) -> tf.Tensor:
        ids = self._padded_ids(context)
        with self._weights():
            encoding = self._encoder().encode_context(ids)
            return self._encoder().combine(encoding, tf.zeros_like(encoding))


def _as_float16(variable: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        value = keras.ops.convert_to_numpy(variable).astype(np.float16)
    if not np.isfinite(value).all():
        raise CheckpointError(
            "The weights of a module must be numbers that 16 bits hold, up to 65,504. "
            f"Received: others in {variable.path}. Export an earlier checkpoint of the run."
        )
    return value


def _stored_table(embedding: Any) -> tuple[tf.Variable, list[tf.Variable]]:
    """The subword table: uint8 with `[offset, step]`, or float16 with nothing."""
    if embedding.quantizer is None:
        return tf.Variable(_as_float16(embedding.table), trainable=False, name="table"), []
    _as_float16(embedding.table)  # refuses what is no number, which bytes would hide
    weights = embedding.quantizer_weights
    codes, *code = pack_table(embedding.table, weights["range_min"], weights["range_max"])
    return tf.Variable(codes, trainable=False, name="table"), [
        tf.Variable(value, trainable=False, dtype=tf.float32, name=name)
        for name, value in zip(("table_offset", "table_step"), code, strict=True)
    ]


class TwoShards(tf.train.experimental.ShardingCallback):
    """Writes variables as two files, cut where half of the bytes are.

    Clients of the original modules look for `variables.data-00000-of-00002` and `-00001-of-00002`.
    TensorFlow's `MaxShardSizePolicy` takes a size, not a number: how many files come out depends on
    the order of the tensors, and it cuts single tensors to fill a file. Here each is whole.
    """

    @property
    def description(self) -> str:
        return "Two shards of about equal size."

    def __call__(self, shardable_tensors: Sequence[Any]) -> list[Mapping[str, Any]]:
        def size(tensor: Any) -> int:
            if tensor.dtype == tf.string:  # the object graph, whose size is not known while saving
                return 0
            return tensor.shape.num_elements() * tensor.dtype.size

        shards: list[dict[str, Any]] = [{}, {}]
        filled = [0, 0]
        for tensor in sorted(shardable_tensors, key=size, reverse=True):
            smaller = filled.index(min(filled))
            filled[smaller] += size(tensor)
            slices = shards[smaller].setdefault(tensor.checkpoint_key, {})
            slices[tensor.slice_spec] = tensor.tensor
        return shards


def export_module(
    checkpoint: str | os.PathLike,
    output: str | os.PathLike,
    *,
    max_tokens: int = MAX_TOKENS,
    overwrite: bool = False,
) -> Path:
    """Writes the module of a checkpoint, with a model card.

    Args:
      checkpoint: a model directory.
      output: the module's folder; its parents are made, and a link is followed.
      max_tokens: longest sequence, in subwords, that the network reads.
      overwrite: whether a folder of that name is replaced.

    Returns:
      `output`.

    Raises:
      ExportError: `output` exists, or cannot be written.
      CheckpointError: the checkpoint is incomplete, damaged, or its vocabulary is another one.
    """
    output = Path(os.path.abspath(output))
    if output.exists() and not overwrite:
        raise ExportError(
            f"A module is written to a new folder. Received: {str(output)!r}, which exists. "
            "Choose another --output, or pass --overwrite."
        )
    place = Path(os.path.realpath(output))
    if place.exists() and not place.is_dir():
        raise ExportError(
            f"A module is a folder. Received: {str(output)!r}, a file. Choose another --output."
        )
    encoder, vocabulary = load_checkpoint(checkpoint)
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=encoder.config.num_oov_buckets)
    check_vocabulary(tokenizer, encoder.config)
    kind = MultiContextEncoderModule if encoder.config.multi_context else EncoderModule
    module = kind(encoder, tokenizer, max_tokens=max_tokens)
    card = model_card(encoder.config, training_facts(checkpoint), max_tokens=max_tokens)

    temporary = place.with_name(f".{place.name}.new-{os.getpid()}")
    replaced = place.with_name(f".{place.name}.old-{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        options = tf.saved_model.SaveOptions(experimental_sharding_callback=TwoShards())
        tf.saved_model.save(module, str(temporary), signatures=module.signatures, options=options)
        (temporary / CARD_FILE).write_text(card, encoding="utf-8")
        if place.exists():
            os.rename(place, replaced)
        os.rename(temporary, place)
    except (OSError, tf.errors.OpError) as error:
        if replaced.exists():
            os.rename(replaced, place)
        reason = getattr(error, "strerror", None) or getattr(error, "message", None) or error
        raise ExportError(
            f"A module must be written whole. Received: {reason}, at {str(output)!r}. Nothing new "
            "was left under that name; free some space or choose another folder."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(replaced, ignore_errors=True)
    return output
