"""The weights of an encoder under the names of `modeling_convert.py`."""

from typing import Any

import numpy as np

from convert_tf.export.onnx.ops import as_array
from convert_tf.models.encoder import DualEncoder
from convert_tf.numerics.quantization import pack_table


def torch_weights(encoder: DualEncoder, similarity_map: np.ndarray | None) -> dict[str, np.ndarray]:
    """Return float32 arrays by name, matrices as `torch.nn.Linear` holds them.

    Args:
      encoder: the encoder. Its table has the values that 8 bits hold, as in exported modules.
      similarity_map: float32 `[reduced_dim, dim]`, or None.
    """
    embedding = encoder.trunk.embedding
    weights = {"tokens.weight": _table(embedding, encoder.config.vocab_size)}
    for i, table in enumerate(embedding.position_tables):
        weights[f"positions.{i}.weight"] = as_array(table)
    weights |= _norm("norm", embedding.norm)
    for i, block in enumerate(encoder.trunk.blocks):
        weights |= {f"blocks.{i}.{name}": array for name, array in _block(block).items()}
    weights["reduction.weight"] = as_array(encoder.reduction.query_key_kernel).T
    for name in ("context", "response"):
        side = getattr(encoder, f"{name}_side")
        for i, (hidden, norm) in enumerate(zip(side.hidden, side.norms, strict=True)):
            weights |= _dense(f"sides.{name}.hidden.{i}", hidden.kernel, hidden.bias)
            weights |= _norm(f"sides.{name}.norms.{i}", norm)
        weights |= _dense(f"sides.{name}.linear", side.linear.kernel, side.linear.bias)
    if similarity_map is not None:
        weights["similarity.weight"] = similarity_map.T
    return {name: np.ascontiguousarray(array, np.float32) for name, array in weights.items()}


def _table(embedding: Any, vocab_size: int) -> np.ndarray:
    """Rows of the vocabulary, then the mean of the rows of the hash buckets."""
    table = as_array(embedding.table)
    table = np.concatenate([table[:vocab_size], table[vocab_size:].mean(axis=0, keepdims=True)])
    if embedding.quantizer is None:
        return table
    ranges = embedding.quantizer_weights
    codes, offset, step = pack_table(table, ranges["range_min"], ranges["range_max"])
    return np.float32(offset) + np.float32(step) * codes


def _block(block: Any) -> dict[str, np.ndarray]:
    attention, layer = block.attention, block.feed_forward
    bias = np.zeros((attention.num_heads, 2 * attention.max_distance + 1), np.float32)
    return (
        {
            "query_key.weight": as_array(attention.query_key_kernel).T,
            "relative_bias": as_array(attention.relative_bias)
            if attention.use_relative_bias
            else bias,
        }
        | _norm("attention_norm", block.attention_norm)
        | _dense("hidden", layer.hidden_kernel, layer.hidden_bias)
        | _dense("output", layer.output_kernel, layer.output_bias)
        | _norm("output_norm", block.feed_forward_norm)
    )


def _norm(name: str, norm: Any) -> dict[str, np.ndarray]:
    return {f"{name}.weight": as_array(norm.gamma), f"{name}.bias": as_array(norm.beta)}


def _dense(name: str, kernel: Any, bias: Any) -> dict[str, np.ndarray]:
    return {f"{name}.weight": as_array(kernel).T, f"{name}.bias": as_array(bias)}
