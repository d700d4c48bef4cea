"""Load a module's encoder as numpy arrays, to write it as ONNX without TensorFlow and Keras."""

import itertools
import os
from types import SimpleNamespace
from typing import Any

import numpy as np

from convert_tf.checkpoints.configs import load_config
from convert_tf.checkpoints.facts import read_tokens, training_facts
from convert_tf.checkpoints.kinds import CheckpointError
from convert_tf.checkpoints.tensor_bundle import EncoderVariables, ModuleVariables
from convert_tf.checkpoints.vocabulary import checked_vocabulary
from convert_tf.config.model import ModelConfig
from convert_tf.export.source import EncoderSource
from convert_tf.storage.checksums import check_files

GELU_SLOPE = np.float32(1.702)


def load_plain_source(folder: str | os.PathLike, max_tokens: int | None) -> EncoderSource:
    """Load an encoder's module. The arguments and errors are those of `load_source`.

    The layers of the result's `encoder` are namespaces of arrays, which have the names of the
    corresponding attributes of Keras layers.
    """
    training = training_facts(folder)
    max_tokens = read_tokens(training, max_tokens)
    config = load_config(folder)
    vocabulary = checked_vocabulary(folder, config)
    check_files(folder)
    try:
        values = ModuleVariables(folder)
        encoder = plain_encoder(config, values)
        similarity_map = values.similarity_map
    except ValueError as error:
        raise CheckpointError(
            f"The weights of the module {os.fspath(folder)!r} are damaged or do not match its "
            f"configuration ({error}). Use another module, or export it again."
        ) from error
    return EncoderSource(encoder, vocabulary, similarity_map, training, max_tokens)


class _Weights:
    """An encoder's weights, which must be taken one by one in the order of `network_variables`.

    Raises:
      ValueError: if a requested weight is missing, has another shape, or is not finite.
    """

    def __init__(self, values: EncoderVariables) -> None:
        self._values = values
        self.slope = GELU_SLOPE if values.is_folded else np.float32(1)
        self._numbers = itertools.count()

    def take(self, *shape: int) -> np.ndarray:
        number = next(self._numbers)
        return _checked(self._values.weight(number), shape, f"weight {number}")

    def norm(self, width: int) -> SimpleNamespace:
        return SimpleNamespace(gamma=self.take(width), beta=self.take(width))

    def dense(self, inputs: int, outputs: int) -> SimpleNamespace:
        return SimpleNamespace(kernel=self.take(inputs, outputs), bias=self.take(outputs))


def plain_encoder(config: ModelConfig, values: EncoderVariables) -> Any:
    """Return stored weights as layers: namespaces of arrays, named as attributes of Keras layers.

    Raises:
      ValueError: if a weight is missing, has another shape, or is not finite.
    """
    weights = _Weights(values)
    dim = config.embedding_dim
    embedding = _embedding(config, values)
    embedding.position_tables = [weights.take(size, dim) for size in config.position_table_sizes]
    embedding.norm = weights.norm(dim)
    blocks = [_block(config, weights, distance) for distance in config.max_relative_attention]
    width = 2 * config.reduction_heads * config.reduction_dim
    reduction = SimpleNamespace(
        num_heads=config.reduction_heads,
        attention_dim=config.reduction_dim,
        query_key_kernel=weights.take(dim, width),
    )
    encoder = SimpleNamespace(
        config=config,
        trunk=SimpleNamespace(embedding=embedding, blocks=blocks),
        reduction=reduction,
        context_side=_side(config, weights, config.reduced_dim),
        response_side=_side(config, weights, config.reduced_dim),
    )
    if config.multi_context:
        encoder.extra_context_side = _side(config, weights, config.reduced_dim)
        encoder.both_side = _side(config, weights, config.encoding_dim)
    return encoder


def _block(config: ModelConfig, weights: _Weights, max_distance: int) -> SimpleNamespace:
    dim, hidden_dim, heads = config.embedding_dim, config.feed_forward_dim, config.num_heads
    attention = SimpleNamespace(
        num_heads=heads,
        attention_dim=config.attention_dim,
        max_distance=max_distance,
        use_relative_bias=config.use_relative_bias,
        query_key_kernel=weights.take(dim, 2 * heads * config.attention_dim),
    )
    if config.use_relative_bias:
        attention.relative_bias = weights.take(heads, 2 * max_distance + 1)
    attention_norm = weights.norm(dim)
    feed_forward = SimpleNamespace(
        hidden_kernel=weights.take(dim, hidden_dim) / weights.slope,
        hidden_bias=weights.take(hidden_dim) / weights.slope,
        output_kernel=weights.take(hidden_dim, dim) * weights.slope,
        output_bias=weights.take(dim),
    )
    return SimpleNamespace(
        attention=attention,
        attention_norm=attention_norm,
        feed_forward=feed_forward,
        feed_forward_norm=weights.norm(dim),
    )


def _side(config: ModelConfig, weights: _Weights, inputs: int) -> SimpleNamespace:
    widths = [inputs, *[config.side_hidden_dim] * config.side_layers]
    return SimpleNamespace(
        hidden_dim=config.side_hidden_dim,
        use_skip=config.use_side_skip,
        hidden=[weights.dense(*pair) for pair in itertools.pairwise(widths)],
        norms=[weights.norm(width) for width in widths[1:]],
        linear=weights.dense(widths[-1], config.encoding_dim),
    )


def _embedding(config: ModelConfig, values: EncoderVariables) -> SimpleNamespace:
    """Return the embedding with its subword table and the range of an 8-bit table."""
    table, ranges = values.table()
    if (ranges is None) != (config.embedding_bits == 32):
        raise ValueError("the subword table does not have the number of bits in embedding_bits")
    return SimpleNamespace(
        dim=config.embedding_dim,
        table=_checked(table, (config.num_ids, config.embedding_dim), "table"),
        quantizer=ranges and "8 bits",
        quantizer_weights=ranges and dict(zip(("range_min", "range_max"), ranges, strict=True)),
    )


def _checked(array: np.ndarray, shape: tuple[int, ...], name: str) -> np.ndarray:
    if array.shape != shape:
        raise ValueError(f"{name} has the shape {array.shape}, not {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has NaN or infinite numbers")
    return array
