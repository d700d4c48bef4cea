"""User-defined losses and evaluators passed to `train`."""

import dataclasses
import json
from types import MappingProxyType

import keras
import numpy as np
import pytest
from support.encoder_runs import CONFIG, MODEL, differ, final_weights, rows_of

from convert_tf import Loss, train

NUM_TRAIN = 60

pytestmark = pytest.mark.usefixtures("no_graphs")


class Length(Loss):
    """Mean square of the reduced encodings, with a weight for each example."""

    name = "length"
    is_opened = False

    def open(self, data):
        self.is_opened = data.trained_on.num_examples == NUM_TRAIN
        return [Halves()]

    def __call__(self, inputs, outputs):
        squares = keras.ops.mean(keras.ops.square(outputs["reduced_context"]), axis=-1)
        return inputs["half"] * squares


class Halves:
    names = ()

    def of_batch(self, numbers, positions, epochs):
        return None, {"half": np.full(len(numbers), 0.5, np.float32)}


def _train(corpus, folder, *, options=MappingProxyType({}), **further):
    config = dataclasses.replace(CONFIG, data=corpus.arrays, steps=2, eval_every=2, **options)
    return train(MODEL, config, output=str(folder), **further)


def test_a_loss_is_added_with_its_weight_and_reported(corpus, tmp_path):
    plain = _train(corpus, tmp_path / "plain")
    loss = Length(weight=2.0)
    own = _train(corpus, tmp_path / "own", losses=[loss])
    assert loss.is_opened
    assert differ(final_weights(plain), final_weights(own))
    assert rows_of(own)[-1]["length_loss"] > 0
    unweighted = _train(corpus, tmp_path / "unweighted", losses=[Length(weight=0.0)])
    assert not differ(final_weights(plain), final_weights(unweighted))


def test_an_evaluator_is_reported_and_selects_the_weights_where_no_split_does(corpus, tmp_path):
    for first, last in ((3.0, 5.0), (5.0, 3.0)):
        scores = iter([first, last])
        run = _train(
            corpus, tmp_path / str(first), options={"eval_splits": ()},
            evaluators={"mine": lambda _, scores=scores: {"score": next(scores)}},
        )  # fmt: skip
        assert [row["mine"]["score"] for row in rows_of(run)] == [first, last]
        best = json.loads((run / "training.json").read_text())["evaluation"]
        assert best["mine"]["score"] == 5.0


def test_an_evaluator_may_return_numbers_of_numpy(corpus, tmp_path):
    scores = {"score": np.float32(0.5), "texts": np.int64(3)}
    run = _train(corpus, tmp_path / "run", evaluators={"mine": lambda _: scores})
    assert [row["mine"] for row in rows_of(run)] == [{"score": 0.5, "texts": 3}] * 2


def test_a_tracker_gets_the_evaluations(corpus, tmp_path):
    numbers = []
    run = _train(
        corpus, tmp_path / "run", trackers=[lambda step, values: numbers.append((step, values))]
    )
    rows = [(row["step"], split, row[split]) for row in rows_of(run) for split in ("dev", "test")
            if split in row]  # fmt: skip
    assert numbers == [
        (step, pytest.approx({f"{split}/{name}": value for name, value in measured.items()}))
        for step, split, measured in rows
    ]
    assert numbers


def test_options_that_have_no_effect_are_named_in_python_too(corpus, tmp_path):
    with pytest.raises(ValueError, match="--negatives_per_pair has no effect"):
        train("tiny", {"data": corpus.arrays, "negatives_per_pair": 2}, output=str(tmp_path))
