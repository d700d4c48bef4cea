"""The network and its loss once more, as loops over single numbers in float64.

Written from arXiv 1911.03688 §2.1, not from the code under test: one text at a time, no padding, no
masks, no fused operations. Weights are the arrays of a layer by the last parts of their paths.
"""

import math

import numpy as np


def softmax(scores: list[float]) -> list[float]:
    largest = max(scores)
    exponentials = [math.exp(score - largest) for score in scores]
    total = sum(exponentials)
    return [e / total for e in exponentials]


def gelu(x: float) -> float:
    return x / (1.0 + math.exp(-1.702 * x))


def linear(x, kernel, bias=None) -> np.ndarray:
    result = np.zeros(kernel.shape[1])
    for o in range(kernel.shape[1]):
        result[o] = sum(float(x[i]) * float(kernel[i, o]) for i in range(kernel.shape[0]))
        if bias is not None:
            result[o] += float(bias[o])
    return result


def layer_norm(x, gamma, beta, epsilon: float = 1e-6) -> np.ndarray:
    mean = sum(map(float, x)) / len(x)
    variance = sum((float(v) - mean) ** 2 for v in x) / len(x)
    return np.array(
        [
            (float(v) - mean) / math.sqrt(variance + epsilon) * float(g) + float(b)
            for v, g, b in zip(x, gamma, beta, strict=True)
        ]
    )


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
    """x `[tokens, dim]`; `allowed(i, j)`: whether token i may read token j, besides distance.

    `bias(head, i, j)` replaces both: what is added to a score, None where i may not read j.
    """
    n, dim = x.shape
    value_dim = dim // num_heads
    projected = [linear(row, weights["query_key_kernel"]) for row in x]
    result = np.zeros((n, dim))

    def relative_bias(h, i, j):
        if abs(i - j) > max_distance or not (allowed is None or allowed(i, j)):
            return None
        return float(weights["relative_bias"][h, max_distance - i + j]) if biased else 0.0

    biased, bias = "relative_bias" in weights, bias or relative_bias
    for h in range(num_heads):
        query_at = h * attention_dim
        key_at = (num_heads + h) * attention_dim
        for i in range(n):
            readable = [j for j in range(n) if bias(h, i, j) is not None]
            scores = []
            for j in readable:
                product = sum(
                    projected[i][query_at + a] * projected[j][key_at + a]
                    for a in range(attention_dim)
                )
                scores.append(product / math.sqrt(attention_dim) + bias(h, i, j))
            for j, probability in zip(readable, softmax(scores), strict=True):
                for v in range(h * value_dim, (h + 1) * value_dim):
                    result[i, v] += probability * float(x[j][v])
    return result


def sqrt_n_reduction(x, query_key_kernel, *, num_heads: int, attention_dim: int) -> np.ndarray:
    """The two steps that footnote 4 fuses: the attended sequence, then its sum over √N."""
    n, dim = x.shape
    result = np.zeros(num_heads * dim)
    if n == 0:
        return result
    projected = [linear(row, query_key_kernel) for row in x]
    for h in range(num_heads):
        query_at, key_at = h * attention_dim, (num_heads + h) * attention_dim
        for i in range(n):
            probabilities = softmax(
                [
                    sum(
                        projected[i][query_at + a] * projected[j][key_at + a]
                        for a in range(attention_dim)
                    )
                    for j in range(n)
                ]
            )
            for j in range(n):
                result[h * dim : (h + 1) * dim] += probabilities[j] * x[j] / math.sqrt(n)
    return result


def feed_forward(x, weights) -> np.ndarray:
    """x `[dim]`."""
    hidden = linear(x, weights["hidden_kernel"], weights["hidden_bias"])
    return linear([gelu(v) for v in hidden], weights["output_kernel"], weights["output_bias"])


def block(x, weights, **attention_args) -> np.ndarray:
    """x `[tokens, dim]`; weights by `attention/…`, `attention_norm/…`, `feed_forward/…`, …"""
    attended = attention(x, below(weights, "attention"), **attention_args)
    first = below(weights, "attention_norm")
    second = below(weights, "feed_forward_norm")
    result = []
    for own, read in zip(x, attended, strict=True):
        middle = layer_norm(own + read, first["gamma"], first["beta"])
        forward = feed_forward(middle, below(weights, "feed_forward"))
        result.append(layer_norm(middle + forward, second["gamma"], second["beta"]))
    return np.array(result).reshape(x.shape)


def side_network(reduced, weights, *, num_layers: int, use_skip: bool = True) -> np.ndarray:
    x = np.asarray(reduced, dtype=np.float64)
    for layer in range(num_layers):
        hidden = below(weights, f"hidden_{layer}")
        y = np.array([gelu(v) for v in linear(x, hidden["kernel"], hidden["bias"])])
        norm = below(weights, f"norm_{layer}")
        x = layer_norm(x + y if use_skip and len(x) == len(y) else y, norm["gamma"], norm["beta"])
    last = below(weights, "linear")
    return l2_normalize(linear(x, last["kernel"], last["bias"]))


def l2_normalize(x) -> np.ndarray:
    length = math.sqrt(sum(float(v) ** 2 for v in x))
    return np.array([float(v) / length for v in x])


def fake_quantize(value: float, low: float, high: float, num_bits: int = 8) -> float:
    """The nearest of 2^bits values, equally far apart, one of which is 0."""
    levels = 2**num_bits - 1
    step = (high - low) / levels
    zero = min(max(math.floor(-low / step + 0.5), 0), levels)
    code = min(max(math.floor(value / step + zero + 0.5), 0), levels)
    return (code - zero) * step


def embed(token_ids, weights, *, bits: int) -> np.ndarray:
    table = weights["table"]
    dim = table.shape[1]
    first, second = (weights[k] for k in position_keys(weights))
    result = np.zeros((len(token_ids), dim))
    for i, token in enumerate(token_ids):
        for d in range(dim):
            value = float(table[token, d])
            if bits < 32:
                low, high = float(weights["table_range_min"]), float(weights["table_range_max"])
                value = fake_quantize(value, low, high, bits)
            result[i, d] = (
                value * math.sqrt(dim)
                + float(first[i % len(first), d])
                + float(second[i % len(second), d])
            )
        norm = below(weights, "norm")
        result[i] = layer_norm(result[i], norm["gamma"], norm["beta"])
    return result


def position_keys(weights) -> list[str]:
    return [name for name in weights if name.startswith("positions_")]


def encode(token_ids, weights, config, *, side: str) -> np.ndarray:
    """h of one text, without padding; `side` is `context_side` or `response_side`."""
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
    """Mean over rows of the cross-entropy among their candidates, all of them by default.

    The target of the label, by default the diagonal, is 1 − s; the others share s.
    """
    total = 0.0
    for i, row in enumerate(scores):
        kept = [j for j in range(len(row)) if is_candidate is None or is_candidate[i][j]]
        label = i if labels is None else labels[i]
        probabilities = softmax([float(row[j]) for j in kept])
        for j, probability in zip(kept, probabilities, strict=True):
            share = label_smoothing / max(len(kept) - 1, 1)
            total -= (1.0 - label_smoothing if j == label else share) * math.log(probability)
    return total / len(scores)


def below(weights: dict, prefix: str) -> dict:
    """The weights under a path, by the rest of their paths."""
    return {
        name[len(prefix) + 1 :]: value
        for name, value in weights.items()
        if name.startswith(prefix + "/")
    }


def arrays(model, *, root: str = "") -> dict:
    """A model's variables as arrays by path, without the leading part `root`."""
    return {
        variable.path.removeprefix(root + "/") if root else variable.path: np.asarray(variable)
        for variable in model.variables
    }
