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


def joint_block(x, weights, places, biases, *, max_distance, **sizes):
    """A block over a joint sequence; `places` are (text, place in it), text 0 for [S]."""
    relative = weights["attention/relative_bias"]

    def bias(h, i, j):
        if not places[i][0] == places[j][0] != 0:
            return float(biases[h])
        distance = places[j][1] - places[i][1]
        return None if abs(distance) > max_distance else float(relative[h, max_distance + distance])

    return naive.block(x, weights, max_distance=max_distance, bias=bias, **sizes)
