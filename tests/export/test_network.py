"""The network of a module, which runs without padding, against the encoder's own."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.model_cases import fill_weights, one_per_row, random_texts

from convert_tf.config.model import model_preset
from convert_tf.export.hub.network import _normalised, encode_row
from convert_tf.models.encoder import DualEncoder

LENGTHS = [5, 0, 1, 70, 3, 12]  # 70 is longer than any block looks
OPTIONS = {
    "defaults": {},
    "several heads": {"num_heads": 4},
    "no relative bias": {"use_relative_bias": False},
    "one reduction head": {"reduction_heads": 1},
    "unrounded table": {"embedding_bits": 32},
    "other distances": {"max_relative_attention": (1, 2, 9)},
    "no skip": {"use_side_skip": False},
    "multi-context": {"multi_context": True},
    "other positions": {"position_table_sizes": (5, 3)},
}


def make_encoder(**options) -> DualEncoder:
    encoder = DualEncoder(model_preset("tiny", vocab_size=90, num_oov_buckets=7, **options))
    fill_weights(encoder.trainable_variables)
    return encoder


def run(encoder, texts):
    row = np.concatenate(texts) if texts else np.zeros(0, np.int32)
    lengths = np.array([len(text) for text in texts], np.int32)
    return encode_row(encoder.trunk, encoder.reduction, tf.constant(row), tf.constant(lengths))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_equals_the_encoder(options):
    encoder = make_encoder(**options)
    texts = random_texts(encoder.config, LENGTHS)
    rows = one_per_row(texts, encoder.config.num_ids)
    sequences, reduced = encoder.encode_sequence(rows).numpy(), encoder.reduce(rows).numpy()
    for block in encoder.trunk.blocks:
        block.feed_forward.fold_slope()
        block.feed_forward.fold_slope()  # the second time nothing is left to do
    sequence, got = run(encoder, texts)
    expected = np.concatenate([rows[: len(t)] for rows, t in zip(sequences, texts, strict=True)])
    np.testing.assert_allclose(sequence, expected, atol=1e-5)
    np.testing.assert_allclose(got, reduced, atol=1e-5 * np.abs(reduced).max())
    assert not got[1].numpy().any()  # the empty text


def test_fused_norm_equals_the_layer():
    norm = keras.layers.LayerNormalization(epsilon=1e-6, dtype="mixed_bfloat16")
    norm.build((None, 64))
    rng = np.random.default_rng(3)
    norm.gamma.assign(rng.normal(1.0, 0.3, 64))
    norm.beta.assign(rng.normal(0.0, 0.3, 64))
    x = tf.constant(rng.normal(2.0, 3.0, (300, 64)), tf.bfloat16)
    expected = np.asarray(tf.cast(norm(x), tf.float32))
    rows = tf.function(
        lambda x: _normalised(norm, x), input_signature=[tf.TensorSpec([None, 64], tf.bfloat16)]
    )
    for number in (300, 5, 0):
        got = np.asarray(tf.cast(rows(x[:number]), tf.float32))
        np.testing.assert_allclose(got, expected[:number], atol=0.04)  # two units of bfloat16 at 4


@pytest.mark.parametrize("texts", [[], [[]], [[], []]])
def test_no_tokens(texts):
    encoder = make_encoder()
    sequence, reduced = run(encoder, [np.array(text, np.int32) for text in texts])
    assert sequence.shape == (0, encoder.config.embedding_dim)
    np.testing.assert_array_equal(reduced, np.zeros((len(texts), encoder.config.reduced_dim)))


def test_gradients_are_finite_beside_padding():
    """A padded query far behind its text has no key within reach."""
    encoder = make_encoder(max_relative_attention=(1, 2))
    texts = random_texts(encoder.config, [1, 40])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(run(encoder, texts)[1]))
    kernels = [v.value for v in encoder.trunk.trainable_variables if v.name.endswith("kernel")]
    for gradient in tape.gradient(loss, kernels):
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0
