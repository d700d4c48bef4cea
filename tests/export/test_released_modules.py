"""The modules under hub_modules/: what the README says of them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401 (registers the operations of the modules)
from support.documents import ROOT

from convert_tf.checkpoints.folder import load_config
from convert_tf.config.model import model_preset

MODULES = ROOT / "hub_modules"
MEGABYTES = {"convert_small": 30, "convert": 40, "convert_multi_context": 48}


@pytest.fixture(scope="module", params=sorted(MEGABYTES))
def name(request):
    return request.param


def test_files(name):
    folder = MODULES / name / "1"
    sizes = {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    assert sum(sizes.values()) <= MEGABYTES[name] * 1e6
    assert {"variables.data-00000-of-00002", "variables.data-00001-of-00002"} <= set(sizes)
    config = load_config(folder)
    assert config == model_preset(name, vocab_size=config.vocab_size)


def test_card_says_where_it_is_from_and_how_good_it_is(name):
    card = (MODULES / name / "1" / "MODEL_CARD.md").read_text(encoding="utf-8")
    for heading in ("Model", "Training", "Data", "Results", "Limits"):
        assert f"\n## {heading}\n" in card
    assert re.search("(distilled from|fitted to) [|] `[^`]*(MiniLM-L6-v2|minilm_l6_v2)", card)
    assert "Apache-2.0" in card
    notes = MODULES / "recipes" / f"{name}.md"
    assert notes.read_text(encoding="utf-8").strip() in card


def test_encodings_are_those_of_the_first_writing(name):
    """The first eight numbers, as TensorFlow 2.21 gave them when the modules were written.

    A multi-context module gets the texts from the last to the first as earlier turns.
    """
    known = json.loads(Path(__file__).with_name("released_encodings.json").read_text())
    module = hub.load(str(MODULES / name / "1"))  # without which its variables are gone
    texts = tf.constant(known["texts"])
    for signature, expected in known[name].items():
        inputs = {"default": texts}
        if signature == "encode_context" and name == "convert_multi_context":
            inputs = {"context": texts, "extra_context": texts[::-1]}
        found = module.signatures[signature](**inputs)["default"].numpy()[:, :8]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4)
    assert module(["how do I reset my password?"]).shape == (1, 1024)
