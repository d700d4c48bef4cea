"""Exported multi-context modules."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
from support.texts import random_texts

from convert_tf.checkpoints.folder import load_checkpoint
from convert_tf.export.cards import CARD_FILE
from convert_tf.text.loading import load_tokenizer

MAX_TOKENS = 20  # of `tiny_modules`
CONTEXTS = ["how do i reset my password?", "", "the cat sat on the mat, today.", "Zebra 你 42!"]
HISTORIES = ["yes. what time is it", "thanks", "", " ".join(random_texts(5))]


@pytest.fixture(scope="module")
def checkpoint(tiny_modules):
    return tiny_modules["multi"][0]


@pytest.fixture(scope="module")
def folder(tiny_modules):
    return tiny_modules["multi"][1]


@pytest.fixture(scope="module")
def module(folder):
    return hub.load(str(folder))


def encode(module, contexts, histories) -> np.ndarray:
    function = module.signatures["encode_context"]
    return function(
        context=tf.constant(contexts, tf.string), extra_context=tf.constant(histories, tf.string)
    )["default"].numpy()


def test_outputs_equal_the_checkpoint(module, checkpoint):
    encoder, vocabulary = load_checkpoint(checkpoint)
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=encoder.config.num_oov_buckets)

    def ids(texts):
        tokens = tokenizer.token_ids(tf.constant(texts))[:, :MAX_TOKENS]
        return tokens.to_tensor(tokenizer.padding_id)

    both = np.asarray(encoder.encode_both(ids(CONTEXTS), ids(HISTORIES)))
    np.testing.assert_allclose(encode(module, CONTEXTS, HISTORIES), both, atol=4e-3)
    alone = np.asarray(encoder.encode_both(ids(CONTEXTS), ids([""] * len(CONTEXTS))))
    np.testing.assert_allclose(encode(module, CONTEXTS, [""] * 4), alone, atol=4e-3)
    differences = np.abs(both - alone).max(axis=1)
    assert [d > 0.01 for d in differences] == [history != "" for history in HISTORIES]
    context = np.asarray(encoder.encode_context(ids(CONTEXTS)))
    np.testing.assert_array_equal(alone, context)


def test_both_sides_at_once(module):
    """As the original's: with the earlier turns, and with another number of responses."""
    pair = module.signatures["encode_context_and_response"](
        context=tf.constant(CONTEXTS),
        extra_context=tf.constant(HISTORIES),
        response=tf.constant(HISTORIES[:2]),
    )
    both = encode(module, CONTEXTS, HISTORIES)
    np.testing.assert_allclose(pair["context_encoding"], both, atol=1e-6)
    responses = module.signatures["encode_response"](tf.constant(HISTORIES[:2]))["default"]
    np.testing.assert_allclose(pair["response_encoding"], responses, atol=1e-6)


def test_batch_mates_and_empty_batches(module):
    together = encode(module, CONTEXTS, HISTORIES)
    assert np.isfinite(together).all()
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)
    for i in range(len(CONTEXTS)):
        alone = encode(module, CONTEXTS[i : i + 1], HISTORIES[i : i + 1])
        np.testing.assert_allclose(alone[0], together[i], atol=1e-5)
    assert encode(module, [], []).shape == (0, 64)


def test_the_card_tells_of_the_earlier_turns(folder):
    card = (folder / CARD_FILE).read_text()
    assert '(context=tensor, extra_context=earlier)["default"]' in card
    assert "the most recent first" in card
