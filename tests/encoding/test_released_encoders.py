"""The modules under hub_modules/ as users have them: each test loads its own, one at a time."""

import gc
import re

import numpy as np
import pytest
from support.documents import README, ROOT, blocks, run_block

from convert_tf import SentenceEncoder

MODULES = ROOT / "hub_modules"


def load(name: str) -> SentenceEncoder:
    return SentenceEncoder(str(MODULES / name / "1"))


@pytest.mark.parametrize("name", ["convert", "convert_multi_context", "convert_small"])
def test_encodings_are_finite_and_rank_responses(name):
    encoder = load(name)
    texts = ["", "how are you?", "word " * 2000, "żółć ﹏ \ud7ff"]
    for encodings in (encoder.encode_contexts(texts), encoder.encode_responses(texts)):
        np.testing.assert_allclose(np.linalg.norm(encodings, axis=1), 1, atol=1e-3)
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
    encoder = load("convert_multi_context")
    contexts = encoder.encode_contexts([context, context], list(history))
    scores = contexts @ encoder.encode_responses(list(responses)).T
    leaning = scores[:, 0] - scores[:, 1]
    assert leaning[0] > leaning[1] + 0.02


def test_without_history_the_multi_context_module_is_convert():
    """One index of responses serves both."""
    texts = ["where is my card?", "", "What did you have for dinner?"]
    found = []
    for name in ("convert", "convert_multi_context"):
        encoder = load(name)
        found.append(
            [
                encoder.encode(texts),
                encoder.encode_contexts(texts),
                encoder.encode_responses(texts),
                encoder.encode_similarity(texts),
            ]
        )
        del encoder
        gc.collect()  # two at once would be the largest test of all
    for own, others in zip(*found, strict=True):
        # The order of sums differs, and an 8-bit activation may fall to the other side.
        np.testing.assert_allclose(own, others, atol=2e-3)
