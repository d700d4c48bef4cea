"""Heads once more, as loops over single numbers in float64, one text at a time and no masks.

Written from arXiv 1905.01969 §4.2 to §4.4 and appendix C. A text is `[N, dim]`, its real outputs.
"""

import numpy as np
from support import naive


def reduction(outputs, kind, *, kernel=None, num_heads=2, attention_dim=64):
    if kind == "sqrt_n":
        return naive.sqrt_n_reduction(
            outputs, kernel, num_heads=num_heads, attention_dim=attention_dim
        )
    n, dim = outputs.shape
    used = 1 if kind == "first" else n
    first = 1 if kind == "mean_without_first" else 0
    rows = [outputs[j] for j in range(first, n) if j < used]
    result = np.zeros(dim)
    for row in rows:
        for d in range(dim):
            result[d] += float(row[d]) / len(rows)
    return result


def context_vectors(outputs, variant, *, m, codes=None) -> list:
    n, dim = outputs.shape
    if variant == "learnt":
        vectors = []
        for code in codes:
            vector = np.zeros(dim)
            if n:
                for weight, row in zip(
                    naive.softmax([dot(code, row) for row in outputs]), outputs, strict=True
                ):
                    for d in range(dim):
                        vector[d] += weight * float(row[d])
            vectors.append(vector)
        return vectors
    if variant == "first_m":
        places = [j for j in range(n) if j < m]
    else:
        places = [j for j in range(n) if j >= n - m]
        if variant == "last_m_and_first" and n and 0 not in places:
            places = [0, *places]
    return [outputs[j].astype(float) for j in places] or [np.zeros(dim)]


def dot(a, b) -> float:
    return sum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def attended_score(vectors, candidate, scale: float = 1.0) -> float:
    """The attended vector is formed, as §4.4 writes it, and read by its dot product."""
    weights = naive.softmax([scale * dot(candidate, v) for v in vectors])
    attended = np.zeros(len(candidate))
    for weight, vector in zip(weights, vectors, strict=True):
        for d in range(len(candidate)):
            attended[d] += weight * float(vector[d])
    return scale * dot(attended, candidate)


def joint_block(x, weights, places, biases, *, attention_dim, max_distance, num_heads):
    """A block over a joint sequence; `places` are (text, place in it), text 0 for [S]."""
    attended = _joint_attention(
        x,
        naive.below(weights, "attention"),
        places,
        biases,
        attention_dim=attention_dim,
        max_distance=max_distance,
        num_heads=num_heads,
    )
    first = naive.below(weights, "attention_norm")
    second = naive.below(weights, "feed_forward_norm")
    result = []
    for own, read in zip(x, attended, strict=True):
        middle = naive.layer_norm(own + read, first["gamma"], first["beta"])
        forward = naive.feed_forward(middle, naive.below(weights, "feed_forward"))
        result.append(naive.layer_norm(middle + forward, second["gamma"], second["beta"]))
    return np.array(result)


def _joint_attention(x, weights, places, biases, *, attention_dim, max_distance, num_heads):
    n, dim = x.shape
    value_dim = dim // num_heads
    projected = [naive.linear(row, weights["query_key_kernel"]) for row in x]
    result = np.zeros((n, dim))
    for h in range(num_heads):
        queries = [row[h * attention_dim :][:attention_dim] for row in projected]
        keys = [row[(num_heads + h) * attention_dim :][:attention_dim] for row in projected]
        for i in range(n):
            scores, readable = [], []
            for j in range(n):
                score = dot(queries[i], keys[j]) / attention_dim**0.5
                if places[i][0] == places[j][0] != 0:
                    distance = places[j][1] - places[i][1]
                    if abs(distance) > max_distance:
                        continue
                    score += float(weights["relative_bias"][h, max_distance + distance])
                else:
                    score += float(biases[h])
                scores.append(score)
                readable.append(j)
            for j, probability in zip(readable, naive.softmax(scores), strict=True):
                for v in range(h * value_dim, (h + 1) * value_dim):
                    result[i, v] += probability * float(x[j][v])
    return result
