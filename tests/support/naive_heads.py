"""A reference implementation of the ranking heads in float64, one text at a time and without masks.

Written from arXiv 1905.01969 §4.2 to §4.4 and appendix C. A text is given by its real output
vectors, `[N, dim]`.
"""

import numpy as np
from support import naive


def reduction(outputs, kind, *, m=64, kernel=None, num_heads=2, attention_dim=64):
    if kind == "sqrt_n":
        return naive.sqrt_n_reduction(
            outputs, kernel, num_heads=num_heads, attention_dim=attention_dim
        )
    places = {"first": slice(1), "mean_without_first": slice(1, None), "first_m_mean": slice(m)}
    used = places.get(kind, slice(None))
    return outputs[used].astype(float).sum(axis=0) / max(len(outputs[used]), 1)


def context_vectors(outputs, variant, *, m, codes=None) -> list:
    n, dim = outputs.shape
    outputs = outputs.astype(float)
    if variant == "learnt":
        return [naive.softmax(outputs @ code) @ outputs if n else np.zeros(dim) for code in codes]
    if variant == "first_m":
        places = [j for j in range(n) if j < m]
    else:
        places = [j for j in range(n) if j >= n - m]
        if variant == "last_m_and_first" and n and 0 not in places:
            places = [0, *places]
    return [outputs[j] for j in places] or [np.zeros(dim)]


def attended_score(vectors, candidate, scale: float = 1.0) -> float:
    """Score the explicit attended vector of §4.4 by its dot product with the candidate."""
    vectors, candidate = np.array(vectors, float), np.array(candidate, float)
    attended = naive.softmax(scale * vectors @ candidate) @ vectors
    return float(scale * attended @ candidate)


def joint_block(x, weights, places, biases, *, max_distance, **sizes):
    """Apply a block to a joint sequence; `places` are (text, position), with text 0 for [S]."""
    relative = weights["attention/relative_bias"]

    def bias(h, i, j):
        if not places[i][0] == places[j][0] != 0:
            return float(biases[h])
        distance = places[j][1] - places[i][1]
        return None if abs(distance) > max_distance else float(relative[h, max_distance + distance])

    return naive.block(x, weights, max_distance=max_distance, bias=bias, **sizes)
