"""A reference implementation of BERT in float64.

Written from arXiv 1810.04805 §3 and arXiv 1706.03762 §3.1, with Hugging Face's tensor names: one
sequence at a time, without padding or masks, and with separate queries, keys and values.
"""

import math

import numpy as np
from scipy.special import erf, softmax
from support.naive import layer_norm


def gelu(x) -> np.ndarray:
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)))


def linear(x, weights, name: str) -> np.ndarray:
    """Apply a linear layer whose weight is `[out, in]`, as in PyTorch."""
    return x @ weights[f"{name}.weight"].astype(np.float64).T + weights[f"{name}.bias"]


def norm(x, weights, name: str) -> np.ndarray:
    return layer_norm(x, weights[f"{name}.weight"], weights[f"{name}.bias"], epsilon=1e-12)


def attention(x, weights, layer: str, num_heads: int) -> np.ndarray:
    n, dim = x.shape
    size = dim // num_heads
    queries, keys, values = (
        linear(x, weights, f"{layer}.attention.self.{name}") for name in ("query", "key", "value")
    )
    result = np.zeros((n, dim))
    for head in range(num_heads):
        part = slice(head * size, (head + 1) * size)
        for i in range(n):
            scores = keys[:, part] @ queries[i, part] / math.sqrt(size)
            result[i, part] = softmax(scores) @ values[:, part]
    return linear(result, weights, f"{layer}.attention.output.dense")


def block(x, weights, layer: str, num_heads: int) -> np.ndarray:
    attended = attention(x, weights, layer, num_heads)
    x = norm(x + attended, weights, f"{layer}.attention.output.LayerNorm")
    hidden = gelu(linear(x, weights, f"{layer}.intermediate.dense"))
    fed = linear(hidden, weights, f"{layer}.output.dense")
    return norm(x + fed, weights, f"{layer}.output.LayerNorm")


def bert(ids, segments, weights, *, num_layers: int, num_heads: int) -> np.ndarray:
    """Return the last layer's vectors for one sequence, `[tokens, dim]`."""
    x = weights["embeddings.word_embeddings.weight"][list(ids)].astype(np.float64)
    x += weights["embeddings.position_embeddings.weight"][: len(x)]
    x += weights["embeddings.token_type_embeddings.weight"][list(segments)]
    x = norm(x, weights, "embeddings.LayerNorm")
    for i in range(num_layers):
        x = block(x, weights, f"encoder.layer.{i}", num_heads)
    return x
