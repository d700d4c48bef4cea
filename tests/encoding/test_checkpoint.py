"""SentenceEncoder on the folder of a run gives the checkpoint's encodings."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.processes import results_on_jax
from support.texts import random_texts
from support.token_ids import encoder_and_ids

from convert_tf import EncoderClient, SentenceEncoder
from convert_tf.checkpoints.folder import TRAINING_FILE
from convert_tf.export.model import export_model
from convert_tf.ranking.ranker import EncoderRanker, open_encoder

TEXTS = [*random_texts(40, seed=3), "", "yes", "yes", "Größe ☃", " ".join(["train"] * 80)]
HISTORY = ["", *random_texts(len(TEXTS) - 2, seed=4), "no"]


@pytest.fixture(scope="module")
def encoders(tiny_modules):
    return {
        kind: SentenceEncoder(checkpoint, compute_dtype="float32", batch_size=7)
        for kind, (checkpoint, _) in tiny_modules.items()
    }


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_encodings_are_the_checkpoints(tiny_modules, encoders, kind):
    model, ids = encoder_and_ids(tiny_modules[kind][0], max_tokens=60)
    encoder = encoders[kind]
    reduced = np.asarray(model.reduce(ids(TEXTS)))
    np.testing.assert_allclose(encoder.encode(TEXTS), reduced, atol=1e-5 * np.abs(reduced).max())
    np.testing.assert_allclose(
        encoder.encode_responses(TEXTS), model.encode_response(ids(TEXTS)), atol=1e-5
    )
    if kind == "single":
        contexts = encoder.encode_contexts(TEXTS)
        np.testing.assert_allclose(contexts, model.encode_context(ids(TEXTS)), atol=1e-5)
    else:
        both = encoder.encode_contexts(TEXTS, HISTORY)
        expected = np.asarray(model.encode_both(ids(TEXTS), ids(HISTORY)))
        np.testing.assert_allclose(both, expected, atol=1e-5)
        alone = encoder.encode_contexts(TEXTS)
        assert np.abs(alone[1:] - expected[1:]).max() > 1e-3
        np.testing.assert_allclose(alone[0], expected[0], atol=1e-5)
        run, expected = tiny_modules[kind][0], encoder.encode_contexts(TEXTS[1:3], ["b a", ""])
        client = EncoderClient(run, use_extra_context=True, compute_dtype="float32")
        found = client.encode_contexts(TEXTS[1:3], [["a", "b"], []])
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert encoder.encode([]).shape == (0, model.config.reduced_dim)
    assert encoder.encode_contexts([]).shape == (0, model.config.encoding_dim)


def test_compute_dtypes(tiny_modules, encoders, monkeypatch):
    from convert_tf.encoding.backends import checkpoint as backend

    folder = tiny_modules["single"][0]
    exact = encoders["single"].encode_contexts(TEXTS)
    rounded = SentenceEncoder(folder, compute_dtype="bfloat16").encode_contexts(TEXTS)
    assert 1e-4 < np.abs(exact - rounded).max() < 0.1
    for fast, chosen in (("mixed_bfloat16", rounded), ("float32", exact)):
        monkeypatch.setattr(backend, "choose_precision", {"auto": fast}.get)
        found = SentenceEncoder(folder).encode_contexts(TEXTS)
        np.testing.assert_allclose(found, chosen, atol=1e-5 if chosen is exact else 0.02)


@pytest.mark.slow
def test_every_form_of_a_model_numbers_turns_as_it_was_trained(tiny_modules, tmp_path):
    """Every form of a model numbers turns; `evaluate --encoder` once failed to do so."""
    run = Path(shutil.copytree(tiny_modules["multi"][0], tmp_path / "run"))
    (run / "sha256.json").unlink()
    facts = json.loads((run / TRAINING_FILE).read_text())
    facts["data"]["turn_prefixes"] = True
    (run / TRAINING_FILE).write_text(json.dumps(facts))
    export_model(run, tmp_path / "module")
    export_model(run, tmp_path / "x.onnx", network_bits=32)
    turns = ("hello there", "how are you", "fine thanks")
    expected = None
    for path in (run, tmp_path / "module", tmp_path / "x.onnx"):
        encoder = open_encoder(path)
        assert encoder.numbers_turns
        found = EncoderRanker(encoder).encode_contexts([turns])
        expected = found if expected is None else expected
        np.testing.assert_allclose(found, expected, atol=0.01)
        as_list = encoder.encode_contexts([turns[-1]], [list(turns[:-1])])
        as_text = encoder.encode_contexts([turns[-1]], ["0: how are you 1: hello there"])
        np.testing.assert_array_equal(as_list, as_text)
        np.testing.assert_array_equal(as_list, found)
        client = EncoderClient(path, use_extra_context=True, compute_dtype="auto")
        np.testing.assert_allclose(
            client.encode_contexts([turns[-1]], [turns[:-1]]), found, atol=0.02
        )
        for earlier in ((turns[0], "", turns[1]), ("",)):
            np.testing.assert_allclose(
                client.encode_contexts([turns[-1]], [earlier]),
                encoder.encode_contexts([turns[-1]], [[*filter(None, earlier)]]),
                atol=0.02,
            )
        plain = SentenceEncoder(path, numbers_turns=False)
        assert np.abs(plain.encode_contexts([turns[-1]], [turns[:-1]]) - found).max() > 0.02


ON_JAX = """
import sys

sys.modules["tensorflow"] = sys.modules["tensorflow_text"] = None
import json

import numpy as np
from convert_tf import SentenceEncoder

folder = sys.argv[1]
encoder = SentenceEncoder(folder + "/run", compute_dtype="float32")
texts = json.load(open(folder + "/texts.json"))
contexts, default = encoder.encode_contexts(texts), encoder.encode(texts)
np.savez(folder + "/jax.npz", contexts=contexts, default=default)
"""


@pytest.mark.slow
def test_without_tensorflow_encodings_are_the_same(tiny_modules, encoders, tmp_path):
    shutil.copytree(tiny_modules["single"][0], tmp_path / "run")
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    found = results_on_jax(ON_JAX, tmp_path)
    encoder = encoders["single"]
    np.testing.assert_allclose(found["contexts"], encoder.encode_contexts(TEXTS), atol=1e-4)
    default = encoder.encode(TEXTS)
    np.testing.assert_allclose(found["default"], default, atol=1e-4 * np.abs(default).max())
