"""A reference implementation of the network and its loss in float64.

Written from arXiv 1911.03688 §2.1, not from the code under test: one text at a time, without
padding, masks or fused operations. `weights` maps the last parts of variable paths to arrays.
"""

import math

import numpy as np
from scipy.special import softmax


def gelu(x) -> np.ndarray:
    return x / (1.0 + np.exp(-1.702 * x))


def linear(x, kernel, bias=0.0) -> np.ndarray:
    return np.asarray(x, np.float64) @ np.asarray(kernel, np.float64) + bias


def layer_norm(x, gamma, beta, epsilon: float = 1e-6) -> np.ndarray:
    """Return the layer norm of x `[…, dim]`."""
    centred = np.asarray(x, np.float64) - np.mean(x, axis=-1, keepdims=True, dtype=np.float64)
    variance = np.mean(centred**2, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + epsilon) * gamma + beta


def attention(
    x,
    weights,
    *,
    attention_dim: int,
    max_distance: int,
    num_heads: int = 1,
    allowed=None,
    bias=None,
) -> np.ndarray:
    """Return the attention output for x `[tokens, dim]`.

    `allowed(i, j)` tells whether token i may read token j, in addition to the distance limit.
    `bias(head, i, j)` replaces both: the number added to a score, or None if i may not read j.
    """
    n, dim = x.shape

    def relative_bias(h, i, j):
        if abs(i - j) > max_distance or not (allowed is None or allowed(i, j)):
            return None
        return float(weights["relative_bias"][h, max_distance - i + j]) if biased else 0.0

    biased, bias = "relative_bias" in weights, bias or relative_bias
    result = np.zeros((n, dim))
    for h in range(num_heads):
        query, key = queries_and_keys(x, weights["query_key_kernel"], h, num_heads, attention_dim)
        part = slice(h * dim // num_heads, (h + 1) * dim // num_heads)
        for i in range(n):
            readable = [j for j in range(n) if bias(h, i, j) is not None]
            biases = [bias(h, i, j) for j in readable]
            scores = key[readable] @ query[i] / math.sqrt(attention_dim) + biases
            result[i, part] = softmax(scores) @ x[readable, part]
    return result


def queries_and_keys(x, kernel, head: int, num_heads: int, attention_dim: int) -> list[np.ndarray]:
    """Return one head's queries and keys, `[tokens, attention_dim]`, from a joint kernel."""
    projected = linear(x, kernel)
    starts = (head * attention_dim, (num_heads + head) * attention_dim)
    return [projected[:, start : start + attention_dim] for start in starts]


def sqrt_n_reduction(x, query_key_kernel, *, num_heads: int, attention_dim: int) -> np.ndarray:
    """Compute the two steps that footnote 4 fuses: the attended sequence, then its sum over √N."""
    n, dim = x.shape
    result = np.zeros((num_heads, dim))
    for h in range(num_heads):
        query, key = queries_and_keys(x, query_key_kernel, h, num_heads, attention_dim)
        for i in range(n):
            result[h] += softmax(key @ query[i]) @ x / math.sqrt(n)
    return result.ravel()


def feed_forward(x, weights) -> np.ndarray:
    """Return the feed-forward output for x `[…, dim]`."""
    hidden = gelu(linear(x, weights["hidden_kernel"], weights["hidden_bias"]))
    return linear(hidden, weights["output_kernel"], weights["output_bias"])


def block(x, weights, **attention_args) -> np.ndarray:
    """Return the block output for x `[tokens, dim]`; weights are named `attention/…` and so on."""
    attended = attention(x, below(weights, "attention"), **attention_args)
    middle = layer_norm(x + attended, **below(weights, "attention_norm"))
    forward = feed_forward(middle, below(weights, "feed_forward"))
    return layer_norm(middle + forward, **below(weights, "feed_forward_norm"))


def side_network(reduced, weights, *, num_layers: int, use_skip: bool = True) -> np.ndarray:
    x = np.asarray(reduced, dtype=np.float64)
    for layer in range(num_layers):
        y = gelu(linear(x, **below(weights, f"hidden_{layer}")))
        norm = below(weights, f"norm_{layer}")
        x = layer_norm(x + y if use_skip and len(x) == len(y) else y, **norm)
    return l2_normalize(linear(x, **below(weights, "linear")))


def l2_normalize(x) -> np.ndarray:
    return x / math.sqrt(sum(float(v) ** 2 for v in x))


def fake_quantize(values, low: float, high: float, num_bits: int = 8):
    """Round to the nearest of 2^bits evenly spaced values, one of which is 0."""
    levels = 2**num_bits - 1
    step = (high - low) / levels
    zero = min(max(math.floor(-low / step + 0.5), 0), levels)
    codes = np.clip(np.floor(values / step + zero + 0.5), 0, levels)
    return (codes - zero) * step


def embed(token_ids, weights, *, bits: int) -> np.ndarray:
    rows = weights["table"][np.asarray(token_ids, int)].astype(np.float64)
    if bits < 32:
        low, high = float(weights["table_range_min"]), float(weights["table_range_max"])
        rows = fake_quantize(rows, low, high, bits)
    rows *= math.sqrt(rows.shape[1])
    for positions in (weights[name] for name in weights if name.startswith("positions_")):
        rows += positions[np.arange(len(rows)) % len(positions)]
    return layer_norm(rows, **below(weights, "norm"))


def encode(token_ids, weights, config, *, side: str) -> np.ndarray:
    """Return h for one text without padding; `side` is `context_side` or `response_side`."""
    return side_network(
        reduce(token_ids, weights, config),
        below(weights, side),
        num_layers=config.side_layers,
        use_skip=config.use_side_skip,
    )


def reduce(token_ids, weights, config) -> np.ndarray:
    return sqrt_n_reduction(
        sequence(token_ids, weights, config),
        weights["reduction/query_key_kernel"],
        num_heads=config.reduction_heads,
        attention_dim=config.reduction_dim,
    )


def sequence(token_ids, weights, config) -> np.ndarray:
    x = embed(token_ids, below(weights, "trunk/embedding"), bits=config.embedding_bits)
    for number, max_distance in enumerate(config.max_relative_attention):
        x = block(
            x,
            below(weights, f"trunk/block_{number}"),
            attention_dim=config.attention_dim,
            max_distance=max_distance,
            num_heads=config.num_heads,
        )
    return x


def loss(scores, label_smoothing: float, *, labels=None, is_candidate=None) -> float:
    """Return the mean cross-entropy of rows over their candidates, by default all columns.

    The target of the label, by default the diagonal, is 1 − s; the other candidates share s.
    """
    total = 0.0
    for i, row in enumerate(scores):
        kept = [j for j in range(len(row)) if is_candidate is None or is_candidate[i][j]]
        label = i if labels is None else labels[i]
        share = label_smoothing / max(len(kept) - 1, 1)
        targets = [1.0 - label_smoothing if j == label else share for j in kept]
        total -= targets @ np.log(softmax(np.asarray(row, np.float64)[kept]))
    return total / len(scores)


def below(weights: dict, prefix: str) -> dict:
    """Return the weights under a path, keyed by the rest of their paths."""
    return {
        name[len(prefix) + 1 :]: value
        for name, value in weights.items()
        if name.startswith(prefix + "/")
    }


def arrays(model, *, root: str = "") -> dict:
    """Return a model's variables as arrays by path, without the leading part `root`."""
    return {
        variable.path.removeprefix(root + "/") if root else variable.path: np.asarray(variable)
        for variable in model.variables
    }
