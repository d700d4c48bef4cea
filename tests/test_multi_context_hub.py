"""Exported multi-context modules."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
from tiny_checkpoint import random_texts, write_checkpoint

from convert_tf.checkpoint import load_checkpoint
from convert_tf.hub import export_module
from convert_tf.model_card import CARD_FILE
from convert_tf.text.tokenizer import load_tokenizer

MAX_TOKENS = 20
CONTEXTS = ["how do i reset my password?", "", "the cat sat on the mat, today.", "Zebra 你 42!"]
HISTORIES = ["yes. what time is it", "thanks", "", " ".join(random_texts(5))]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("hub") / "checkpoint", multi_context=True)


@pytest.fixture(scope="module")
def folder(checkpoint):
    return export_module(checkpoint, checkpoint.parent / "module", max_tokens=MAX_TOKENS)


@pytest.fixture(scope="module")
def module(folder):
    return hub.load(str(folder))


def encode(module, contexts, histories) -> np.ndarray:
    function = module.signatures["encode_context"]
    return function(
        context=tf.constant(contexts, tf.string), extra_context=tf.constant(histories, tf.string)
    )["default"].numpy()


def test_signatures(module):
    function = module.signatures["encode_context"]
    specs = function.structured_input_signature[1]
    assert set(specs) == {"context", "extra_context"}
    assert all((s.dtype, s.shape.as_list()) == (tf.string, [None]) for s in specs.values())
    (output,) = function.structured_outputs.items()
    assert (output[0], output[1].shape.as_list()) == ("default", [None, 64])
    assert set(module.signatures) == {
        "serving_default", "default", "encode_context", "encode_response", "encode_sequence",
        "tokenize", "encode_context_and_response",
    }  # fmt: skip


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
    assert np.abs(alone - context).max() > 0.01  # not the encoding of the context alone


def test_the_pair_signature_has_no_history(module):
    pair = module.signatures["encode_context_and_response"](
        context=tf.constant(CONTEXTS), response=tf.constant(HISTORIES[:2])
    )
    without = encode(module, CONTEXTS, [""] * len(CONTEXTS))
    np.testing.assert_allclose(pair["context_encoding"], without, atol=1e-6)
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


_IN_A_FRESH_PROCESS = """
import sys

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text

function = hub.load(sys.argv[1]).signatures["encode_context"]
texts = np.load(sys.argv[2])
out = function(context=tf.constant(texts["c"]), extra_context=tf.constant(texts["h"]))["default"]
assert not [name for name in sys.modules if name.startswith("convert_tf")]
np.save(sys.argv[3], out.numpy())
"""


def test_same_encodings_in_a_fresh_process(module, folder, tmp_path):
    texts = {"c": np.array([t.encode() for t in CONTEXTS]),
             "h": np.array([t.encode() for t in HISTORIES])}  # fmt: skip
    np.savez(tmp_path / "texts.npz", **texts)
    paths = [str(path) for path in (folder, tmp_path / "texts.npz", tmp_path / "out.npy")]
    subprocess.run([sys.executable, "-c", _IN_A_FRESH_PROCESS, *paths], check=True, cwd=tmp_path)
    np.testing.assert_allclose(
        np.load(tmp_path / "out.npy"), encode(module, CONTEXTS, HISTORIES), atol=1e-6
    )
