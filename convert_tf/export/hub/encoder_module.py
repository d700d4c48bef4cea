"""A dual encoder as a `tf.Module` that maps strings to encodings, for a TF Hub module.

The module applies the encoder's own layers without padding (`convert_tf.export.hub.network`), to a
limited number of tokens at a time. All signatures share one graph of the trunk and the reduction.
The module contains this graph twice: in float32, and in bfloat16 for machines on which bfloat16 is
faster. Functions are traced without AutoGraph, which would take most of the time of an export.
Conditions on tensors therefore need `tf.cond`.

Reference: arXiv 1911.03688 §2.1, §2.2.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from convert_tf.config.model import MAX_TOKENS
from convert_tf.encoding.signatures import BY_NAME
from convert_tf.export.hub.network import (
    encode_row,
    ids_of_beginnings,
    in_length_batches,
    use_plain_gelu,
)
from convert_tf.export.hub.weights import Bfloat16Copies, StoredMap, StoredTable, StoredWeights
from convert_tf.layers.reduction import SqrtNReduction
from convert_tf.models.encoder import DualEncoder, Trunk
from convert_tf.text.tokenizer import Tokenizer

_TEXTS = tf.TensorSpec([None], tf.string, name="default")
_CONTEXTS = tf.TensorSpec([None], tf.string, name="context")
_EXTRA_CONTEXTS = tf.TensorSpec([None], tf.string, name="extra_context")
_RESPONSES = tf.TensorSpec([None], tf.string, name="response")
_NUMBERS = tf.TensorSpec([None], tf.int32)


class _Ids(NamedTuple):
    """Token ids of texts, and the number of tokens that the network reads.

    Attributes:
      values: int32 `[total]`, the token ids of all texts, uncut and concatenated.
      starts: int32 `[texts]`, the index of each text's first token in `values`.
      lengths: int32 `[texts]`, the number of tokens of each text that the network reads.
    """

    values: tf.Tensor
    starts: tf.Tensor
    lengths: tf.Tensor


class EncoderModule(tf.Module):
    """A dual encoder with its tokenizer, which maps strings to encodings.

    The network reads at most `max_tokens` subwords per text, but `tokenize` does not cut texts.
    `encode_sequence` returns a row for each token from `tokenize`. The rows of tokens beyond
    `max_tokens` are zeros. Clients rely on these rows: they count the tokens from `tokenize` and
    slice the result of `encode_sequence`.

    The module computes in float32. After a call of `use_bfloat16(True)`, which also works on a
    loaded module, all signatures compute the trunk and the reduction in bfloat16, with copies of
    the weights. Train the module in float32, because the copies are not trained. After training,
    call `use_bfloat16(True)` again to update the copies.

    Masking: neither padding nor the other texts in a batch change the row of a text.

    Args:
      encoder: a float32 encoder, whose weights are copied. It becomes part of the module and must
        not be used on its own any more.
      tokenizer: tokenizer for the encoder's vocabulary.
      network_bits: number of bits per stored weight of the network; see `StoredWeights`. A subword
        table that was trained with 8 bits is always stored with 8 bits; see `StoredTable`.
      max_tokens: maximum number of subwords per text that the network reads.
      similarity_map: float32 `[reduced_dim, dim]`, the map from the reduced encodings r to
        similarity vectors; None if the encoder has none. With a map, the module has the signature
        `encode_similarity`, from strings to vectors of length 1, `[batch, dim]`, and the signature
        `default` returns `convert_tf.models.distillation.sentence_encodings` of r. The signature
        `reduced` always returns r.

    Call arguments:
      strings: the texts, string `[batch]`.

    Returns:
      The result of the signature `default`: float32 `[batch, reduced_dim]`, not normalised.

    Attributes:
      variables: the stored variables, and those that are computed from them.
      trainable_variables: the variables that `hub.KerasLayer` may train: the weights of the network
        in float32. The subword table is not trainable.
      regularization_losses: an empty list, which `hub.KerasLayer` requires.

    Raises:
      ValueError: if a weight is NaN, infinite or too large for 16 bits.

    Example:
      module = tf.saved_model.load("hub_modules/convert/2")
      module.use_bfloat16(True)
      module(["how do I reset my password?"])  # [1, 1024]

    Reference: arXiv 1911.03688 §2.1, "Quantization".
    """

    # The next two are attributes, because tf.Module's properties of the same names are not saved.
    variables: Any = None
    trainable_variables: Any = None

    def __init__(
        self,
        encoder: DualEncoder,
        tokenizer: Tokenizer,
        *,
        network_bits: int = 16,
        max_tokens: int = MAX_TOKENS,
        similarity_map: np.ndarray | None = None,
    ) -> None:
        super().__init__(name="encoder_module")
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens
        # A function hides the encoder from tf.Module, which would save the encoder's variables too.
        self._encoder: Callable[[], DualEncoder] = lambda: encoder
        use_plain_gelu(encoder)
        fast = fast_trunk, fast_reduction = _bfloat16_copy(encoder)
        self._fast: Callable[[], tuple[Trunk, SqrtNReduction]] = lambda: fast
        for block in (*encoder.trunk.blocks, *fast_trunk.blocks):
            block.feed_forward.fold_slope()

        self.table = StoredTable(encoder.trunk.embedding)
        self.weights = StoredWeights(encoder.network_variables, bits=network_bits)
        for trunk in (encoder.trunk, fast_trunk):
            trunk.embedding.gather_rows = self.table.gather_rows  # type: ignore[method-assign]
        self.trainable_variables = list(self.weights.trainable_variables)
        self.variables = [*self.weights.variables, *self.table.variables]
        if similarity_map is not None:
            self.similarity = StoredMap(similarity_map, bits=network_bits)
            self.variables += self.similarity.variables
            # `_similarity` is not decorated, because it would be traced even if there is no map.
            self.encode_similarity = tf.function(
                self._similarity, autograph=False, input_signature=[_TEXTS]
            )
        self.regularization_losses: list[Any] = []

        copied = [*fast_trunk.block_variables, *fast_reduction.trainable_variables]
        self.copies = Bfloat16Copies(copied, self.weights)
        self.computes_in_bfloat16 = tf.Variable(False, trainable=False)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.bool, name="flag")])
    def use_bfloat16(self, flag: tf.Tensor) -> None:
        """Turn bfloat16 on or off for every signature.

        Args:
          flag: bool scalar, true to compute in bfloat16.
        """
        self.weights.unpack()
        self.copies.update()
        self.computes_in_bfloat16.assign(flag)

    @tf.function(autograph=False, input_signature=[_TEXTS])
    def __call__(self, strings: tf.Tensor) -> tf.Tensor:
        reduced = self._reduce(strings)
        has_map = hasattr(self, "similarity")
        return self.similarity.sentence_encodings(reduced) if has_map else reduced

    @tf.function(autograph=False, input_signature=[_TEXTS])
    def default(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return sentence encodings, `[batch, reduced_dim]`, not normalised."""
        return {"default": self(strings)}

    @tf.function(autograph=False, input_signature=[_TEXTS])
    def reduced(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the reduced encodings r, `[batch, reduced_dim]`, not normalised."""
        return {"default": self._reduce(strings)}

    @tf.function(autograph=False, input_signature=[_TEXTS])
    def encode_context(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the encodings h of contexts, `[batch, encoding_dim]`, with length 1."""
        return {"default": self._context_encoding(strings)}

    @tf.function(autograph=False, input_signature=[_TEXTS])
    def encode_response(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the encodings h of responses, `[batch, encoding_dim]`, with length 1."""
        return {"default": self._response_encoding(strings)}

    @tf.function(autograph=False, input_signature=[_CONTEXTS, _RESPONSES])
    def encode_context_and_response(
        self, context: tf.Tensor, response: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Encode contexts and responses. The numbers of contexts and responses may differ.

        Returns:
          A dict with
          - `context_encoding`: float32 `[contexts, encoding_dim]`, the encodings h of contexts;
          - `response_encoding`: float32 `[responses, encoding_dim]`, the encodings h of responses.
        """
        return {
            "context_encoding": self._context_encoding(context),
            "response_encoding": self._response_encoding(response),
        }

    @tf.function(autograph=False, input_signature=[_TEXTS])
    def encode_sequence(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the trunk's outputs for each token.

        Returns:
          A dict with
          - `sequence_encoding`: float32 `[batch, tokens, embedding_dim]`, the outputs of the trunk;
          - `tokens`: string `[batch, tokens]`, the subwords of the texts, padded with `""`.
        """
        self.weights.unpack()
        strings = _without_first_space(strings)
        tokens = self.tokenizer.tokenize(strings).to_tensor(default_value="")
        ids = self._ids(strings, as_written=True)
        width = tf.shape(tokens)[1]
        dim = self._encoder().config.embedding_dim

        def encode(places: tf.Tensor) -> tf.Tensor:
            lengths = tf.gather(ids.lengths, places)
            sequence, _ = self._encode_row(*_one_row(ids, places))
            sequence = tf.RaggedTensor.from_row_lengths(sequence, lengths, validate=False)
            return sequence.to_tensor(shape=tf.stack([tf.size(places), width, dim]))

        sequence = in_length_batches(ids.lengths, encode, result_shape=(None, dim))
        return {"sequence_encoding": sequence, "tokens": tokens}

    @tf.function(autograph=False, input_signature=[_TEXTS])
    def tokenize(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the subwords of texts, string `[batch, tokens]`, padded with `""`."""
        tokens = self.tokenizer.tokenize(_without_first_space(strings))
        return {"default": tokens.to_tensor(default_value="")}

    @property
    def signatures(self) -> dict[str, Any]:
        """The module's functions, by the names of the signatures to save them as."""
        names = [*BY_NAME, "encode_sequence", "tokenize", "encode_context_and_response"]
        functions = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return {"serving_default": self.default, **functions}

    def _similarity(self, strings: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return similarity vectors, `[batch, dim]`, with length 1."""
        return {"default": self.similarity(self._reduce(strings))}

    @tf.function(autograph=False, input_signature=[_TEXTS])
    def _reduce(self, strings: tf.Tensor) -> tf.Tensor:
        self.weights.unpack()
        ids = self._ids(strings)
        return in_length_batches(
            ids.lengths,
            lambda places: self._encode_row(*_one_row(ids, places))[1],
            result_shape=(self._encoder().config.reduced_dim,),
        )

    @tf.function(autograph=False, input_signature=[_NUMBERS, _NUMBERS])
    def _encode_row(self, token_ids: tf.Tensor, lengths: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the trunk's outputs, `[total, embedding_dim]`, and r, `[texts, reduced_dim]`."""

        def in_float32() -> tuple[tf.Tensor, tf.Tensor]:
            encoder = self._encoder()
            with self.weights.scope():
                return encode_row(encoder.trunk, encoder.reduction, token_ids, lengths)

        def in_bfloat16() -> tuple[tf.Tensor, tf.Tensor]:
            with self.copies.scope():
                results = encode_row(*self._fast(), token_ids, lengths)
            return tf.cast(results[0], tf.float32), tf.cast(results[1], tf.float32)

        return tf.cond(self.computes_in_bfloat16, in_bfloat16, in_float32)

    @tf.function(autograph=False, input_signature=[_TEXTS])
    def _context_encoding(self, strings: tf.Tensor) -> tf.Tensor:
        reduced = self._reduce(strings)
        with self.weights.scope():
            return self._encoder().context_side(reduced)

    @tf.function(autograph=False, input_signature=[_TEXTS])
    def _response_encoding(self, strings: tf.Tensor) -> tf.Tensor:
        reduced = self._reduce(strings)
        with self.weights.scope():
            return self._encoder().response_side(reduced)

    def _ids(self, strings: tf.Tensor, *, as_written: bool = False) -> _Ids:
        ids = ids_of_beginnings(self.tokenizer, strings, self.max_tokens, as_written=as_written)
        splits = tf.cast(ids.row_splits, tf.int32)
        lengths = tf.minimum(splits[1:] - splits[:-1], self.max_tokens)
        return _Ids(ids.values, splits[:-1], lengths)


class MultiContextEncoderModule(EncoderModule):
    """A multi-context dual encoder.

    `encode_context` and `encode_context_and_response` also take the earlier turns of each context,
    joined into one text with the most recent turn first. The text is `""` if there are no earlier
    turns.

    Reference: arXiv 1911.03688 §2.2.
    """

    @tf.function(autograph=False, input_signature=[_CONTEXTS, _EXTRA_CONTEXTS])
    def encode_context(self, context: tf.Tensor, extra_context: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the encodings h of contexts with earlier turns, `[batch, encoding_dim]`."""
        return {"default": self._both_encoding(context, extra_context)}

    @tf.function(autograph=False, input_signature=[_CONTEXTS, _EXTRA_CONTEXTS, _RESPONSES])
    def encode_context_and_response(  # type: ignore[override]
        self, context: tf.Tensor, extra_context: tf.Tensor, response: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Return the encodings h of contexts with earlier turns, and of responses."""
        return {
            "context_encoding": self._both_encoding(context, extra_context),
            "response_encoding": self._response_encoding(response),
        }

    @tf.function(autograph=False, input_signature=[_CONTEXTS, _EXTRA_CONTEXTS])
    def _both_encoding(self, context: tf.Tensor, extra_context: tf.Tensor) -> tf.Tensor:
        # Both inputs go through the trunk in one call, because the trunk does most of the work.
        texts = tf.concat([context, extra_context], axis=0)
        reduced = self._reduce(texts)
        context_reduced = reduced[: tf.size(context)]
        extra_reduced = reduced[tf.size(context) :]
        # If there are no earlier turns, their text has no tokens and its reduced encoding is zero.
        has_extra_context = tf.reduce_any(extra_reduced != 0, axis=1, keepdims=True)
        encoder = self._encoder()
        with self.weights.scope():
            extra = tf.where(has_extra_context, encoder.extra_context_side(extra_reduced), 0.0)
            return encoder.combine(encoder.context_side(context_reduced), extra)


def _without_first_space(strings: tf.Tensor) -> tf.Tensor:
    """Remove one space before the first character of each text.

    Rasa replaces punctuation at the start of a text with a space. It then expects only the tokens
    of the words, without a token for this space.
    """
    return tf.strings.regex_replace(strings, "(?s)^ (.)", r"\1", replace_global=False)


def _one_row(ids: _Ids, places: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the concatenated token ids of the texts at `places`, and their lengths."""
    lengths = tf.gather(ids.lengths, places)
    starts = tf.gather(ids.starts, places)
    own_starts = tf.cumsum(lengths, exclusive=True)
    within = tf.range(tf.reduce_sum(lengths)) + tf.repeat(starts - own_starts, lengths)
    return tf.gather(ids.values, within), lengths


def _bfloat16_copy(encoder: DualEncoder) -> tuple[Trunk, SqrtNReduction]:
    """Return bfloat16 layers like the encoder's. The weights of these layers are never read."""
    config, dtype = encoder.config, "mixed_bfloat16"
    trunk = Trunk(config, dtype=dtype, name="trunk")
    trunk.build((None, None))
    heads, dim = config.reduction_heads, config.reduction_dim
    reduction = SqrtNReduction(heads, dim, dtype=dtype, name="reduction")
    reduction.build((None, None, config.embedding_dim))
    return trunk, reduction
