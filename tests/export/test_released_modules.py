"""The modules under hub_modules/: what the README says of them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401 (registers the operations of the modules)
from support.documents import README, ROOT, blocks, run_block

from convert_tf import SentenceEncoder
from convert_tf.checkpoints.folder import load_config
from convert_tf.config.model import model_preset
from convert_tf.intents.classifier import IntentClassifier

MODULES = ROOT / "hub_modules"
MEGABYTES = {"convert_small": 30, "convert": 40, "convert_multi_context": 48}


@pytest.fixture(scope="module", params=sorted(MEGABYTES))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def encoder(name):
    return SentenceEncoder(str(MODULES / name / "1"))


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
    recipes = MODULES / "recipes"
    assert (recipes / f"{name}.md").read_text(encoding="utf-8").strip() in card
    steps = re.search(r"--steps=(\d+)", (recipes / f"{name}.flags").read_text())
    assert f"| steps | {steps[1]} |" in card


def test_encodings_are_finite_and_of_length_1(encoder):
    texts = ["", "how are you?", "word " * 2000, "żółć ﹏ \ud7ff"]
    for encodings in (encoder.encode_contexts(texts), encoder.encode_responses(texts)):
        np.testing.assert_allclose(np.linalg.norm(encodings, axis=1), 1, atol=1e-3)


def test_encodings_are_those_of_the_first_writing(name):
    """As TensorFlow 2.21 first read them, their first eight numbers; of two of the modules before
    their graphs were written for 2.6.

    Of a multi-context module the texts, from the last to the first, are the earlier turns.
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


def test_the_first_example_of_the_readme():
    (block,) = blocks(README, language="python", section="Rank responses")
    names = run_block(block)
    rank, responses = names["encoder"].rank, names["responses"]
    questions = re.findall(r'rank\("(.*?)"', block.text)
    found = [rank(question, responses, top_k=1)[0][0] for question in questions]
    assert found == ["You can change it under Settings, Security.", "I had pasta with my sister."]


def test_every_module_ranks_responses(encoder):
    pairs = {
        "How do I reset my password?": "You can change it under Settings, Security.",
        "What did you have for dinner?": "I had pasta with my sister.",
        "I got the job!": "Congratulations! When does it start?",
        "When do you close today?": "We are open from nine to five.",
        "Can I pay with Visa?": "Yes, we take all major credit cards.",
    }
    responses = list(pairs.values())
    best = [encoder.rank(question, responses, top_k=1)[0][0] for question in pairs]
    assert best == responses


@pytest.mark.parametrize(
    ("context", "history", "responses"),
    [
        ("What are you going to do?", ("My car broke down.", "I have an exam tomorrow."),
         ("Take it to a mechanic.", "Study all night.")),
        ("Which one did you like best?", ("I watched all the Star Wars movies.",
                                          "I tried all their ice cream."),
         ("The Empire Strikes Back.", "Chocolate with mint.")),
        ("Sure, where to?", ("I need a taxi.", "I want to book a flight."),
         ("To the train station on Main Street.", "To New York on Friday.")),
    ],
)  # fmt: skip
def test_history_draws_towards_what_fits_it(context, history, responses):
    encoder = SentenceEncoder(str(MODULES / "convert_multi_context" / "1"))
    contexts = encoder.encode_contexts([context, context], list(history))
    scores = contexts @ encoder.encode_responses(list(responses)).T
    leaning = scores[:, 0] - scores[:, 1]
    assert leaning[0] > leaning[1] + 0.02


def test_without_history_the_multi_context_module_is_convert():
    """One index of responses serves both."""
    convert, multi = (
        SentenceEncoder(str(MODULES / name / "1")) for name in ("convert", "convert_multi_context")
    )
    texts = ["where is my card?", "", "What did you have for dinner?"]
    for method in ("encode_contexts", "encode_responses", "encode_similarity"):
        own, others = (getattr(encoder, method)(texts) for encoder in (multi, convert))
        np.testing.assert_allclose(own, others, atol=5e-4)


def test_hub_load_needs_nothing_of_this_project(name):
    module = hub.load(str(MODULES / name / "1"))
    assert module(["how do I reset my password?"]).shape == (1, 1024)
    encode = module.signatures["encode_response"]
    assert encode(tf.constant(["fine, thanks"]))["default"].shape == (1, 512)


def test_a_dozen_sentences_make_a_classifier():
    (block,) = blocks(README, language="csv")
    lines = block.text.strip().splitlines()[1:]
    texts, labels = zip(*(line.rsplit(",", 1) for line in lines), strict=True)
    assert len(texts) == 12
    classifier = IntentClassifier(str(MODULES / "convert" / "1")).fit(list(texts), list(labels))
    asked = {
        "my package never came": "delivery",
        "the courier left it at the wrong house": "delivery",
        "can you pay me back for this": "refund",
        "I would like to return my jacket": "refund",
        "it says my username is wrong": "login",
        "I cannot sign in to the app": "login",
    }
    found = classifier.predict(list(asked))
    assert sum(own == label for own, label in zip(found, asked.values(), strict=True)) >= 5
