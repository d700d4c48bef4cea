"""BERT once more, as loops over tokens in float64.

Written from arXiv 1810.04805 §3 and arXiv 1706.03762 §3.1, with the names of Hugging Face's
tensors: one sequence at a time, no padding, no masks, query, key and value apart.
"""

import math

import numpy as np


def gelu(x: float) -> float:
    return 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0)))


def layer_norm(x, weight, bias, epsilon: float = 1e-12) -> np.ndarray:
    mean = sum(map(float, x)) / len(x)
    variance = sum((float(v) - mean) ** 2 for v in x) / len(x)
    return (x - mean) / math.sqrt(variance + epsilon) * weight + bias


def linear(x, weights, name: str) -> np.ndarray:
    """PyTorch's: the weight is `[out, in]`."""
    return weights[f"{name}.weight"].astype(np.float64) @ x + weights[f"{name}.bias"]


def attention(x, weights, layer: str, num_heads: int) -> np.ndarray:
    n, dim = x.shape
    size = dim // num_heads
    queries, keys, values = (
        [linear(row, weights, f"{layer}.attention.self.{name}") for row in x]
        for name in ("query", "key", "value")
    )
    result = np.zeros((n, dim))
    for head in range(num_heads):
        part = slice(head * size, (head + 1) * size)
        for i in range(n):
            scores = [float(queries[i][part] @ keys[j][part]) / math.sqrt(size) for j in range(n)]
            exponentials = [math.exp(s - max(scores)) for s in scores]
            for j, e in enumerate(exponentials):
                result[i, part] += e / sum(exponentials) * values[j][part]
    return np.stack([linear(row, weights, f"{layer}.attention.output.dense") for row in result])


def block(x, weights, layer: str, num_heads: int) -> np.ndarray:
    def norm(row, name):
        return layer_norm(row, weights[f"{name}.weight"], weights[f"{name}.bias"])

    attended = attention(x, weights, layer, num_heads)
    x = np.stack([norm(row, f"{layer}.attention.output.LayerNorm") for row in x + attended])
    fed = []
    for row in x:
        hidden = np.array([gelu(v) for v in linear(row, weights, f"{layer}.intermediate.dense")])
        fed.append(linear(hidden, weights, f"{layer}.output.dense"))
    return np.stack([norm(row, f"{layer}.output.LayerNorm") for row in x + np.stack(fed)])


def bert(ids, segments, weights, *, num_layers: int, num_heads: int) -> np.ndarray:
    """The last layer's vectors of one sequence: `[tokens, dim]`."""
    rows = []
    for place, (token, segment) in enumerate(zip(ids, segments, strict=True)):
        row = (
            weights["embeddings.word_embeddings.weight"][token].astype(np.float64)
            + weights["embeddings.position_embeddings.weight"][place]
            + weights["embeddings.token_type_embeddings.weight"][segment]
        )
        norm = "embeddings.LayerNorm"
        rows.append(layer_norm(row, weights[f"{norm}.weight"], weights[f"{norm}.bias"]))
    x = np.stack(rows)
    for i in range(num_layers):
        x = block(x, weights, f"encoder.layer.{i}", num_heads)
    return x
