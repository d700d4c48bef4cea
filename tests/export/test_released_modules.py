"""The modules in hub_modules/: the claims of the README, and use as by users."""

import gc
import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401 (registers the operations of the modules)
from support.documents import README, ROOT, blocks, run_block

from convert_tf import SentenceEncoder, load_model
from convert_tf.checkpoints.configs import load_config
from convert_tf.checkpoints.folder import load_similarity_map
from convert_tf.checkpoints.released import RELEASED
from convert_tf.config.model import model_preset
from convert_tf.encoding.signatures import SIGNATURES
from convert_tf.export.model import export_model
from convert_tf.text.tokenizer import load_tokenizer

MODULES = ROOT / "hub_modules"
MEGABYTES = {"convert_small": 31, "convert": 40, "convert_multi_context": 48}
NAMES = sorted(MEGABYTES)
TEXTS = ["", "how are you?", "word " * 2000, "żółć ﹏ \ud7ff", "where is my card?"]
ALIKE = [  # other spellings of the last of TEXTS
    "where\tis\tmy\tcard?", "where\u00a0is\u00a0my\u00a0card?", "where is\r\nmy card?\n",
    "ｗｈｅｒｅ ｉｓ ｍｙ ｃａｒｄ？", "\ufeffwhere is my ca\u00adrd?",
]  # fmt: skip
PAIRS = {
    "How do I reset my password?": "You can change it under Settings, Security.",
    "What did you have for dinner?": "I had pasta with my sister.",
    "I got the job!": "Congratulations! When does it start?",
    "When do you close today?": "We are open from nine to five.",
    "Can I pay with Visa?": "Yes, we take all major credit cards.",
}
# A question, two histories, and the response that fits each history.
HISTORIES = [
    ("What are you going to do?", ("My car broke down.", "I have an exam tomorrow."),
     ("Take it to a mechanic.", "Study all night.")),
    ("Which one did you like best?", ("I watched all the Star Wars movies.",
                                      "I tried all their ice cream."),
     ("The Empire Strikes Back.", "Chocolate with mint.")),
    ("Sure, where to?", ("I need a taxi.", "I want to book a flight."),
     ("To the train station on Main Street.", "To New York on Friday.")),
]  # fmt: skip


def newest(name):
    return f"{name}/{RELEASED[name]}"


@pytest.fixture(scope="module", params=NAMES)
def name(request):
    return request.param


def test_files(name):
    folder = MODULES / newest(name)
    sizes = {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    assert sum(sizes.values()) <= MEGABYTES[name] * 1e6
    assert {"variables.data-00000-of-00002", "variables.data-00001-of-00002"} <= set(sizes)
    config = load_config(folder)
    assert config == model_preset(name, vocab_size=config.vocab_size)


def test_card_says_where_it_is_from_and_how_good_it_is(name):
    card = (MODULES / newest(name) / "MODEL_CARD.md").read_text(encoding="utf-8")
    for heading in ("Model", "Training", "Data", "Results", "Limits"):
        assert f"\n## {heading}\n" in card
    teacher = "[^`]*(MiniLM-L6-v2|minilm_l6_v2)|opposites_turned"  # a recipe's folder
    assert re.search(f"(distilled from|fitted to) [|] `({teacher})", card)
    assert "Apache-2.0" in card
    notes = MODULES / "recipes" / f"{name}.md"
    assert notes.read_text(encoding="utf-8").strip() in card


def test_encodings_are_those_of_the_first_writing(name):
    """The first eight numbers equal those computed by TensorFlow 2.21 when version 1 was exported.

    A multi-context module gets the texts in reverse order as earlier turns.
    """
    known = json.loads(Path(__file__).with_name("released_encodings.json").read_text())
    module = hub.load(str(MODULES / name / "1"))  # keeps its variables alive
    texts = tf.constant(known["texts"])
    for signature, expected in known[name].items():
        inputs = {"default": texts}
        if signature == "encode_context" and name == "convert_multi_context":
            inputs = {"context": texts, "extra_context": texts[::-1]}
        found = module.signatures[signature](**inputs)["default"].numpy()[:, :8]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4)
    assert module(["how do I reset my password?"]).shape == (1, 1024)


@pytest.fixture(scope="module")
def answers():
    """The outputs of each module by name. Only one module is in memory at a time."""
    found = {}
    for name in NAMES:
        encoder = SentenceEncoder(str(MODULES / newest(name)))
        responses = list(PAIRS.values())
        found[name] = {
            "vectors": [
                encoder.encode(TEXTS),
                encoder.encode_contexts(TEXTS),
                encoder.encode_responses(TEXTS),
                encoder.encode_similarity(TEXTS[-1:]),
            ],
            "alike": encoder.encode([TEXTS[-1], *ALIKE]),
            "best": [encoder.rank(text, responses, top_k=1)[0][0] for text in PAIRS],
        }
        if encoder.reads_history:
            leanings = []  # towards the first response, for each history
            for question, history, replies in HISTORIES:
                first, second = encoder.encode_responses(list(replies))
                contexts = encoder.encode_contexts([question, question], list(history))
                leanings.append(contexts @ (first - second))
            found[name]["leanings"] = leanings
        del encoder
        gc.collect()  # two modules at once would need more memory than any other test
    return found


@pytest.mark.slow
def test_every_form_of_a_released_encoder_returns_the_same_vectors_of_each_kind(tmp_path):
    folder, texts = MODULES / newest("convert_small"), list(PAIRS)
    encoder, vocabulary = load_model("convert_small")
    tokenizer = load_tokenizer(vocabulary, encoder.config.num_oov_buckets)
    ids = tokenizer.token_ids(texts).to_tensor(tokenizer.padding_id).numpy()
    reduced, kernel = np.asarray(encoder(ids)), load_similarity_map(folder)
    projected = reduced @ kernel
    expected = {
        "sentence": 0.4 * (reduced + projected / np.linalg.norm(kernel, axis=0) @ kernel.T),
        "reduced": reduced,
        "context": encoder.encode_context(ids),
        "response": encoder.encode_response(ids),
        "similarity": projected / np.linalg.norm(projected, axis=1, keepdims=True),
    }
    module = hub.load(str(folder))
    of_module = SentenceEncoder(folder, compute_dtype="float32")
    file = export_model(folder, tmp_path / "encoder.onnx", network_bits=32)
    of_file = SentenceEncoder(file)
    assert of_module.kinds == of_file.kinds == [*expected]
    for kind, vectors in expected.items():
        signature = module.signatures[SIGNATURES[kind].name]
        forms = [
            signature(tf.constant(texts))["default"],
            *(form.encode(texts, kind=kind) for form in (of_module, of_file)),
        ]
        size = np.abs(vectors).max()
        for found in forms:
            np.testing.assert_allclose(found / size, vectors / size, atol=1e-4)
    assert np.abs(expected["sentence"] - reduced).max() > 1


@pytest.mark.slow
def test_a_text_has_one_vector_in_every_batch():
    """Vectors in different batches agree within the bound of docs/encode.md (8-bit `.onnx`)."""
    texts = [text for pair in PAIRS.items() for text in pair]
    texts += [f"{text} {' '.join(texts[: i % 7])}" for i, text in enumerate(texts * 3)]
    encoder = SentenceEncoder("convert_small")
    together = encoder.encode(texts)
    for found in (encoder.encode(texts[::-1], batch_size=7)[::-1], map(encoder.encode, texts)):
        for one, other in zip(together, found, strict=True):
            assert one @ other >= 0.9999 * np.linalg.norm(one) * np.linalg.norm(other)


def test_encodings_are_finite_and_rank_responses(answers, name):
    _, contexts, responses, _ = answers[name]["vectors"]
    for encodings in (contexts, responses):
        np.testing.assert_allclose(np.linalg.norm(encodings, axis=1), 1, atol=1e-3)
    assert answers[name]["best"] == list(PAIRS.values())


def test_texts_that_a_person_reads_as_the_same_have_one_vector(answers, name):
    first, *others = answers[name]["alike"]
    np.testing.assert_allclose(others, np.tile(first, (len(others), 1)), atol=2e-3)


def test_history_draws_towards_what_fits_it(answers):
    for first, second in answers["convert_multi_context"]["leanings"]:
        assert first > second + 0.02


def test_without_history_the_multi_context_module_is_convert(answers):
    """Both modules give equal vectors, so one index of responses can serve both."""
    pairs = zip(*(answers[name]["vectors"] for name in NAMES[:2]), strict=True)
    for own, others in pairs:
        # Sums have another order, so an 8-bit activation may be rounded differently.
        np.testing.assert_allclose(own, others, atol=2e-3)


def test_the_first_example_of_the_readme():
    (block,) = blocks(README, language="python", section="Rank responses")
    names = run_block(block)
    rank, responses = names["encoder"].rank, names["responses"]
    questions = re.findall(r'rank\("(.*?)"', block.text)
    found = [rank(question, responses, top_k=1)[0] for question in questions]
    texts, cosines = zip(*found, strict=True)
    assert texts == ("You can change it under Settings, Security.", "I had pasta with my sister.")
    told = re.search(r"cosines of (0\.\d\d) and (0\.\d\d)", (ROOT / README).read_text("utf-8"))
    assert told is not None
    assert [float(number) for number in told.groups()] == pytest.approx(cosines, abs=0.01)
