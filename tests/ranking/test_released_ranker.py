"""The ranker in hub_modules/, used as users do."""

import numpy as np
import pytest
from support.documents import ROOT

from convert_tf import Ranker, module_path
from convert_tf.search.cache import write_cache
from convert_tf.search.encoders import load_encoder
from convert_tf.search.index import CandidateIndex
from convert_tf.search.reranked import RerankedIndex

NAME = "convert_rerank_poly"
ANSWERS = {
    "How do I reset my password?": "You can change it under Settings, Security.",
    "What did you have for dinner?": "I had pasta with my sister.",
    "I got the job!": "Congratulations! When does it start?",
    "When do you close today?": "We are open from nine to five.",
}


@pytest.fixture(scope="module")
def ranker():
    return Ranker(NAME)


def test_it_finds_the_answers(ranker):
    responses = [*ANSWERS.values()]
    best = np.argmax(ranker.scores([*ANSWERS], responses), axis=1)
    assert best.tolist() == [0, 1, 2, 3]


def test_it_reads_earlier_turns(ranker):
    question, foods = "Which one did you like best?", ["The Empire Strikes Back.", "Chocolate."]
    for earlier, answer in (
        ("I watched all the Star Wars movies.", foods[0]),
        ("I tried all their ice cream.", foods[1]),
    ):
        ((best, _),) = ranker.rank((earlier, question), foods, top_k=1)
        assert best == answer


def test_it_ranks_the_best_of_an_encoder_again(ranker, tmp_path):
    encoder = load_encoder("convert_small")
    cache = write_cache(
        tmp_path / "cache", [*ANSWERS.values()], encoder.encode_candidates,
        fingerprint=encoder.fingerprint,
    )  # fmt: skip
    first = CandidateIndex(cache, encoder)
    ids, scores = RerankedIndex(first, ranker, top_n=4).search([*ANSWERS], top_k=4)
    assert ids[:, 0].tolist() == [0, 1, 2, 3]
    logits = 20 * first.score([("I got the job!",)], ids[2:3])
    own = ranker.candidate_scores(["I got the job!"], [[cache.text(i) for i in ids[2]]])
    np.testing.assert_allclose(scores[2], (logits + own)[0], rtol=1e-4)


def test_its_folder():
    folder = ROOT / module_path(NAME)
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 31e6
    card = (folder / "MODEL_CARD.md").read_text(encoding="utf-8")
    notes = (ROOT / "hub_modules" / "recipes" / f"{NAME}.md").read_text(encoding="utf-8")
    assert notes.strip() in card and "## Results" in card
