"""Modules before they are saved: networks without padding, odd texts, batches and threads."""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from support import model_cases
from support.tiny_checkpoint import random_texts, write_checkpoint
from support.token_ids import encoder_and_ids

from convert_tf.checkpoints.folder import load_checkpoint
from convert_tf.config.model import model_preset
from convert_tf.export.hub import network as graph_batches
from convert_tf.export.hub.encoder_module import EncoderModule
from convert_tf.export.hub.network import _normalised, encode_row
from convert_tf.models.encoder import DualEncoder
from convert_tf.text.plain_tokenizer import restored_texts
from convert_tf.text.tokenizer import load_tokenizer

MAX_TOKENS = 20
STRANGE = {
    "invalid UTF-8": b"how \xff\xfe are\xc3 you \xed\xa0\x80",
    "NUL": b"how\0are\0you",
    "only spaces": b" " * 500,
    "other spaces": "\u00a0\u2003\u3000 \u200b\n\t".encode(),
    "right to left": "שלום how مرحبا".encode(),
    "combining marks": ("a" + "\u0301" * 10_000).encode(),
    "markers": "\ufe4f\ufe4e\ufe4d the \ufe4f".encode(),
    "emoji": "👩‍👩‍👧‍👦 train 🏳️‍🌈".encode(),
    "200 KB": b"late train today " * 12_000,
    "200 KB without spaces": b"passwordplease" * 15_000,
    "200 KB of invalid bytes": b"\xff" * 200_000,
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("module") / "checkpoint")


def make_module(checkpoint, **kwargs):
    encoder, vocabulary = load_checkpoint(checkpoint)
    return EncoderModule(
        encoder, load_tokenizer(vocabulary, num_oov_buckets=7), max_tokens=MAX_TOKENS, **kwargs
    )


@pytest.fixture(scope="module")
def module(checkpoint):
    return make_module(checkpoint)


def encode(module, texts) -> np.ndarray:
    return module(tf.constant(texts, tf.string)).numpy()


@pytest.mark.parametrize("text", STRANGE.values(), ids=list(STRANGE))
def test_strange_texts_are_encoded_as_the_checkpoint_does(checkpoint, module, text):
    encoder, token_ids = encoder_and_ids(checkpoint, max_tokens=MAX_TOKENS)
    expected = encoder.reduce(token_ids([text])).numpy()
    got = encode(module, [text, b"how are you"])
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got[:1], expected, atol=2e-3 * np.abs(expected).max())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=60) | st.text(max_size=40).map(str.encode), max_size=4))
def test_any_bytes_are_encoded_whatever_stands_beside_them(module, texts):
    together = encode(module, texts)
    assert together.shape == (len(texts), 128)
    assert np.isfinite(together).all()
    np.testing.assert_array_equal(encode(module, texts), together)
    for text, row in zip(texts, together, strict=True):
        np.testing.assert_allclose(encode(module, [text])[0], row, atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(st.text("ab é\u0130.\ufe4f\0 Σ👩", max_size=30), st.text(max_size=30), st.integers(1, 6))
def test_what_follows_changes_no_earlier_token(module, text, after, number):
    """Bytes beyond the limit of a module do not affect the tokens that it reads."""
    tokenizer = module.tokenizer
    tokens_of = tokenizer.ids_as_written  # takes folded texts, which are cut after folding
    limit = tokenizer.bytes_of(number)
    whole = (text * 100 + after).encode()
    cut = tf.strings.substr([whole], 0, limit)
    tokens = tokens_of(tf.constant([whole])).to_list()[0][:number]
    assert tokens_of(cut).to_list()[0][:number] == tokens


def test_encodings_fold_texts_and_sequences_keep_their_characters(module):
    plain, written = "how are you, 10?", "\thow\u00a0are\r\n\r\nyou\u200b, １0\uff1f "
    long = " " * 9_000 + plain
    together = encode(module, [plain, written, long])
    np.testing.assert_allclose(together[1:], together[[0, 0]], atol=1e-5)
    for signature in (module.encode_context, module.encode_response):
        vectors = signature(tf.constant([plain, written]))["default"].numpy()
        np.testing.assert_allclose(vectors[1], vectors[0], atol=1e-5)
    outputs = module.encode_sequence(tf.constant([written]))
    tokens = module.tokenize(tf.constant([written]))["default"].numpy().tolist()
    assert outputs["tokens"].numpy().tolist() == tokens
    assert restored_texts(b"".join(tokens[0]).decode()) == [written]
    assert outputs["sequence_encoding"].shape[1] == len(tokens[0])


def test_large_batches_are_computed_in_parts(module, monkeypatch):
    texts = [*random_texts(300), " ".join(random_texts(30)), ""]
    together = encode(module, texts)
    for place in (0, 299, 300, 301):
        np.testing.assert_allclose(encode(module, [texts[place]])[0], together[place], atol=1e-4)
    monkeypatch.setattr(graph_batches, "BATCH_TOKENS", 64)
    parts = module._reduce.python_function(tf.constant(texts))
    np.testing.assert_allclose(parts, together, atol=1e-4)


def test_threads_get_equal_results(module):
    texts = random_texts(12)
    expected = encode(module, texts)
    with ThreadPoolExecutor(8) as pool:
        for got in pool.map(lambda _: encode(module, texts), range(16)):
            np.testing.assert_allclose(got, expected, atol=1e-5)


def cosines(first, second) -> np.ndarray:
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(axis=1) / lengths


def test_bfloat16_is_turned_on_and_off(checkpoint):
    module, texts = make_module(checkpoint), random_texts(20)
    expected = encode(module, texts)
    module.use_bfloat16(True)
    rounded = encode(module, texts)
    assert rounded.dtype == np.float32
    assert np.abs(rounded - expected).max() > 1e-4
    assert cosines(rounded, expected).min() > 0.999
    kernel = next(v for v in module.trainable_variables if v.shape.as_list() == [64, 64 * 2])
    kernel.assign(-kernel)
    np.testing.assert_array_equal(encode(module, texts), rounded)  # the copies are unchanged
    module.use_bfloat16(True)
    assert np.abs(encode(module, texts) - rounded).max() > 0.01
    kernel.assign(-kernel)
    module.use_bfloat16(False)
    np.testing.assert_array_equal(encode(module, texts), expected)


def test_8_bits_are_near_16(checkpoint, module):
    texts = random_texts(50)
    small = make_module(checkpoint, network_bits=8)
    names = {v.dtype.name for v in small.variables}
    assert "int8" in names
    got, expected = encode(small, texts), encode(module, texts)
    assert np.abs(got - expected).max() > 1e-3
    assert cosines(got, expected).min() > 0.999


LENGTHS = [5, 0, 1, 70, 3, 12]  # 70 exceeds the distance limit of every block
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
    model_cases.fill_weights(encoder.trainable_variables)
    return encoder


def run(encoder, texts):
    row = np.concatenate(texts) if texts else np.zeros(0, np.int32)
    lengths = np.array([len(text) for text in texts], np.int32)
    return encode_row(encoder.trunk, encoder.reduction, tf.constant(row), tf.constant(lengths))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_equals_the_encoder(options):
    encoder = make_encoder(**options)
    texts = model_cases.random_texts(encoder.config, LENGTHS)
    rows = model_cases.one_per_row(texts, encoder.config.num_ids)
    sequences, reduced = encoder.encode_sequence(rows).numpy(), encoder.reduce(rows).numpy()
    for block in encoder.trunk.blocks:
        block.feed_forward.fold_slope()
        block.feed_forward.fold_slope()  # the second call changes nothing
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
    """A padded query far from its text has no key within its distance limit."""
    encoder = make_encoder(max_relative_attention=(1, 2))
    texts = model_cases.random_texts(encoder.config, [1, 40])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(run(encoder, texts)[1]))
    kernels = [v.value for v in encoder.trunk.trainable_variables if v.name.endswith("kernel")]
    for gradient in tape.gradient(loss, kernels):
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0
