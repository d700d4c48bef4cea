"""Encoders without a network, for tests of the index: vectors are computed from a text's bytes."""

import zlib

import numpy as np
from scipy.special import softmax
from support.texts import random_texts

from convert_tf.search.cache import write_cache

DIM = 24


def _vectors(text: str, *, number: int, scale: float) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(text.encode()))
    vectors = rng.standard_normal((number, DIM))
    return (scale * vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


class StubEncoder:
    """Gives contexts vectors of length `scale`, and candidates vectors of length 1.

    Args:
      num_vectors: number of vectors for each context.
      scale: factor of the scores.
      has_mask: whether a context has only as many real vectors as words; an empty one has none.
    """

    logit_scale = 0.25

    def __init__(self, num_vectors: int = 1, *, scale: float = 4.0, has_mask: bool = False):
        self.num_vectors = num_vectors
        self.scale = scale
        self.has_mask = has_mask
        self.fingerprint = self.name = "stub"
        self.calls: list[int] = []

    def encode_candidates(self, texts):
        self.calls.append(len(texts))
        return np.concatenate([_vectors(text, number=1, scale=1.0) for text in texts])

    def encode_contexts(self, contexts):
        texts = [" ".join(turns) for turns in contexts]
        vectors = np.stack([_vectors(t, number=self.num_vectors, scale=self.scale) for t in texts])
        if not self.has_mask:
            return vectors, None
        words = np.array([len(text.split()) for text in texts])
        mask = np.arange(self.num_vectors) < words[:, None]
        vectors[~mask] = np.nan  # must not be read
        return vectors, mask


class StubRanker:
    """Ranks texts by length."""

    name = "length"

    def candidate_scores(self, contexts, candidate_lists):
        return [np.array([float(len(text)) for text in own]) for own in candidate_lists]


def brute_force(encoder, candidates, contexts, k):
    """Return ids and scores in float64, from explicit attended vectors."""
    vectors, mask = encoder.encode_contexts(contexts)
    candidates = candidates.astype(np.float64)
    ids, scores = [], []
    for b in range(len(contexts)):
        own = (vectors[b] if mask is None else vectors[b][mask[b]]).astype(np.float64)
        attended = softmax(candidates @ own.T, axis=1) @ own if len(own) else 0 * candidates
        row = (attended * candidates).sum(axis=1).astype(np.float32)
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]
        ids.append(order)
        scores.append(row[order])
    return np.array(ids), np.array(scores)


TEXTS = random_texts(150, seed=1)
CONTEXTS = [(text,) for text in [*random_texts(5, seed=2), "one"]]


def make_cache(folder, texts=TEXTS, encoder=None, **options):
    encoder = encoder or StubEncoder()
    return write_cache(
        folder, texts, encoder.encode_candidates, fingerprint=encoder.fingerprint, **options
    )
