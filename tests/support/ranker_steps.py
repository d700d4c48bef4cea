"""Training steps of each kind of ranker on either backend, and training files for rankers."""

import json
from pathlib import Path

import numpy as np
from support.model_cases import SMALL, fill_weights
from support.texts import random_texts

from convert_tf.config.ranker import HeadConfig, RankerConfig, RankerTraining
from convert_tf.models.ranker import make_ranker
from convert_tf.training.ranker.task import make_ranker_training

KINDS = {
    "bi": HeadConfig(scale=5.0),
    "poly": HeadConfig(head="poly", poly_codes=3, scale=5.0),
    "cross": HeadConfig(head="cross"),
}


def eight_pairs() -> dict:
    """Return a batch of eight contexts, each with its response among eight candidates."""
    ids = np.random.RandomState(0).randint(0, SMALL.num_ids, size=(2, 8, 6)).astype("int32")
    return {
        "context_ids": ids[0],
        "candidate_ids": ids[1],
        "labels": np.arange(8, dtype="int32"),
        "candidate_mask": np.ones((8, 8), bool),
    }


def results_of_steps() -> dict[str, np.ndarray]:
    """Return the losses of three steps, with a learning rate decay in between, and final scores."""
    train = RankerTraining(steps=9, batch_size=8, learning_rate=0.02, warmup_steps=0)
    batch = eight_pairs()
    batch["candidate_ids"] = np.broadcast_to(batch["candidate_ids"], (8, 8, 6)).copy()
    results = {}
    for kind, head in KINDS.items():
        ranker = make_ranker(RankerConfig(SMALL, head))
        fill_weights([v for v in ranker.variables if v.path != "head/log_scale"])
        model = make_ranker_training(ranker, train, precision="float32")
        losses = [model.train_on_batch(batch)]
        model.optimizer.decay(0.5)
        losses += [model.train_on_batch(batch) for _ in range(2)]
        results[kind] = np.array(losses)
        results[f"{kind}_scores"] = np.asarray(
            ranker.score(batch["context_ids"], batch["candidate_ids"])
        )
    return results


def write_candidates(folder: Path, **numbers: int) -> None:
    """Write files with the given numbers of contexts; correct candidates share words with them."""
    texts = iter(random_texts(6 * sum(numbers.values()), seed=5))
    for name, number in numbers.items():
        lines = []
        for i in range(number):
            turns = [next(texts), next(texts)]
            candidates = [next(texts) for _ in range(3)]
            candidates.insert(i % 4, " ".join(turns[1].split()[:3]))
            lines.append({"context": turns, "candidates": candidates, "label": i % 4})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
