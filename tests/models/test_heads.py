"""Reductions and heads: comparison with loops, masks, and known results in simple cases."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import naive_heads
from support.model_cases import fill_weights

from convert_tf.config.ranker import POLY_VARIANTS, REDUCTIONS
from convert_tf.layers.reduction import Reduction, SqrtNReduction
from convert_tf.models.heads import CrossHead, PolyHead, poly_scores

pytestmark = pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1")
LENGTHS = [5, 0, 1, 9, 3]
DIM = 6
SMALL_SQRT_N = {"num_heads": 2, "attention_dim": 3}


def _texts(lengths=LENGTHS, *, seed=0, dim=DIM) -> list[np.ndarray]:
    random = np.random.RandomState(seed)
    return [random.standard_normal((n, dim)).astype("float32") for n in lengths]


def _batch(texts, *, width=None, garbage=7.0):
    """Return outputs and their mask; padding contains values that must be ignored."""
    width = max(1, *map(len, texts)) if width is None else width
    sequence = np.full((len(texts), width, texts[0].shape[1]), garbage, "float32")
    mask = np.zeros((len(texts), width), bool)
    for row, text in enumerate(texts):
        sequence[row, : len(text)] = text
        mask[row, : len(text)] = True
    return sequence, mask


def _built(layer, dim=DIM):
    layer.build((None, None, dim))
    fill_weights(layer.variables)
    return layer


def _poly(variant, m, **kwargs):
    return _built(PolyHead(num_codes=m, variant=variant, **kwargs))


def _scores(head, texts, candidates, **batch_args) -> np.ndarray:
    vectors, mask = head.context_vectors(*_batch(texts, **batch_args))
    return np.asarray(head.score_encoded(vectors, mask, candidates))


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_reductions_parity_with_loop(kind):
    shared = SqrtNReduction(**SMALL_SQRT_N) if kind == "sqrt_n" else None
    layer = _built(Reduction(kind, num_tokens=4, shared=shared))
    texts = _texts()
    result = np.asarray(layer(*_batch(texts)))
    kernel = np.asarray(layer.variables[0]) if layer.variables else None
    expected = [
        naive_heads.reduction(text, kind, m=4, kernel=kernel, **SMALL_SQRT_N) for text in texts
    ]
    np.testing.assert_allclose(result, expected, atol=1e-5)
    assert result.shape[1] == layer.width(DIM)
    np.testing.assert_array_equal(result[1], 0.0)  # the empty text


@pytest.mark.parametrize("m", [1, 3, 7, 360])
@pytest.mark.parametrize("variant", POLY_VARIANTS)
def test_poly_parity_with_loop(variant, m):
    """The contexts include an empty one and some with fewer than m tokens."""
    head = _poly(variant, m, scale=1.7)
    texts = _texts()
    codes = np.asarray(head.codes) if variant == "learnt" else None
    candidates = np.random.RandomState(1).standard_normal((4, DIM)).astype("float32")
    vectors = [naive_heads.context_vectors(t, variant, m=m, codes=codes) for t in texts]
    expected = [[naive_heads.attended_score(v, c, 1.7) for c in candidates] for v in vectors]
    np.testing.assert_allclose(_scores(head, texts, candidates), expected, atol=2e-5)
    computed, mask = (np.asarray(x) for x in head.context_vectors(*_batch(texts)))
    for row, own in enumerate(vectors):
        assert mask[row].sum() == len(own)
        kept = computed[row][mask[row]]
        own = np.array(own)
        np.testing.assert_allclose(kept[np.lexsort(kept.T)], own[np.lexsort(own.T)], atol=1e-5)


def test_cross_parity_with_loop():
    head = _built(CrossHead(reduction="first"))
    texts = _texts([3, 1, 5])
    kernel = np.asarray(head.linear.kernel)[:, 0]
    expected = [text[0].astype(float) @ kernel for text in texts]
    np.testing.assert_allclose(np.asarray(head.joint_score(*_batch(texts))), expected, atol=1e-5)


@pytest.mark.parametrize("variant", POLY_VARIANTS)
def test_all_scores_negative(variant):
    """A masked vector scores 0, which would be the maximum here and get all attention."""
    head = _poly(variant, 4)
    texts = [np.abs(text) + 1 for text in _texts()]
    candidates = -np.abs(np.random.RandomState(1).standard_normal((4, DIM)).astype("float32")) - 1
    scores = _scores(head, texts, candidates, width=12, garbage=0.0)
    assert (np.delete(scores, 1, axis=0) < -1).all()
    codes = np.asarray(head.codes) if variant == "learnt" else None
    for row, text in enumerate(texts):
        vectors = naive_heads.context_vectors(text, variant, m=4, codes=codes)
        expected = [naive_heads.attended_score(vectors, c) for c in candidates]
        np.testing.assert_allclose(scores[row], expected, rtol=1e-5, atol=1e-5)


def test_large_scores_stay_finite():
    products = np.array([[[1e5, -1e5], [9e4, 3e4]]], "float32")
    scores = np.asarray(poly_scores(products, np.ones((1, 2), bool)))
    np.testing.assert_allclose(scores, [[1e5, 3e4]], rtol=1e-6)


@pytest.mark.parametrize("variant", POLY_VARIANTS)
def test_gradients_are_finite_and_ignore_padding(variant):
    head, texts = _poly(variant, 3), _texts()
    candidates = np.random.RandomState(1).standard_normal((4, DIM)).astype("float32")
    gradients = []
    for width in (9, 14):
        sequence, mask = _batch(texts, width=width)
        sequence = tf.constant(sequence)
        with tf.GradientTape() as tape:
            tape.watch(sequence)
            loss = keras.ops.sum(
                keras.ops.square(
                    head.score_encoded(*head.context_vectors(sequence, mask), candidates)
                )
            )
        gradient = np.asarray(tape.gradient(loss, sequence))
        assert np.isfinite(gradient).all()
        np.testing.assert_array_equal(gradient[~mask], 0.0)
        gradients.append(gradient[:, :9])
    np.testing.assert_allclose(gradients[0], gradients[1], atol=1e-4)
