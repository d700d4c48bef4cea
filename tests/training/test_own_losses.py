"""User-defined losses and evaluators passed to `train`."""

import dataclasses
import json
from types import MappingProxyType

import keras
import numpy as np
import pytest
from support.encoder_runs import CONFIG, MODEL, differ, final_weights, rows_of

from convert_tf import Loss, train
from convert_tf.storage.checksums import record_checksums
from convert_tf.training.state import STATE_FILE, saved_checkpoints

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
    # Without a layer in a loss, earlier versions can read the checkpoints.
    kinds = {name.rpartition("_")[0] for name in _state_of(plain)}
    assert kinds == {"", "optimizer"}
    unweighted = _train(corpus, tmp_path / "unweighted", losses=[Length(weight=0.0)])
    assert not differ(final_weights(plain), final_weights(unweighted))


class Normalized(Loss):
    """Distance of the normalised encodings from −1, with a layer that has moving averages."""

    name = "normalized"

    def build(self, model):
        super().build(model)
        model.norm = keras.layers.BatchNormalization()
        model.norm.build((None, MODEL.reduced_dim))

    def __call__(self, inputs, outputs):
        normalized = self.model.norm(outputs["reduced_context"], training=True)
        return keras.ops.mean(keras.ops.square(normalized + 1.0), axis=-1)


def _state_of(run):
    return dict(np.load(saved_checkpoints(run)[0] / STATE_FILE))


def test_a_resumed_run_keeps_the_state_of_a_layer_in_a_loss(corpus, tmp_path):
    def trained(name, steps):
        options = {"data": corpus.arrays, "eval_splits": (), "checkpoint_every": 1}
        config = dataclasses.replace(CONFIG, steps=steps, **options)
        return train(MODEL, config, output=str(tmp_path / name), losses=[Normalized()])

    expected = _state_of(trained("whole", 2))
    trained("broken", 1)
    resumed = _state_of(trained("broken", 2))
    assert np.abs(expected["not_trained_0"]).max() > 0  # the moving mean, initially 0
    assert [*resumed] == [*expected]
    for name, values in expected.items():
        np.testing.assert_array_equal(values, resumed[name], err_msg=name)
    # Checkpoints of earlier versions lack this state.
    newest = saved_checkpoints(tmp_path / "broken")[0]
    earlier = {name: x for name, x in resumed.items() if not name.startswith("not_trained")}
    np.savez(newest / STATE_FILE, **earlier)
    record_checksums(newest, [STATE_FILE])
    assert len(_state_of(trained("broken", 3))) == len(expected)


def test_two_losses_with_the_same_metric_are_refused(corpus, tmp_path):
    losses = [Length(weight=2.0), Length(weight=1.0)]
    with pytest.raises(ValueError, match="Two losses report the same metric: length_loss"):
        _train(corpus, tmp_path / "run", losses=losses)


def test_an_evaluator_with_the_name_of_a_split_is_refused(corpus, tmp_path):
    with pytest.raises(ValueError, match=r"name of an evaluation split, .* Received: dev"):
        _train(corpus, tmp_path / "run", evaluators={"dev": lambda _: {"score": 1.0}})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["pairs", "step", "seconds", "ranking_loss", "length_loss"])
def test_an_evaluator_with_the_name_of_another_entry_is_refused(corpus, tmp_path, name):
    """With the name `pairs`, the curves could not be drawn; with `step`, no run could resume."""
    evaluators = {name: lambda _: {"score": 1.0}}
    with pytest.raises(ValueError, match=rf"another entry of metrics\.jsonl\. Received: {name}\."):
        _train(corpus, tmp_path / "run", evaluators=evaluators, losses=[Length(weight=1.0)])
    assert not (tmp_path / "run").exists()


def test_an_evaluator_may_have_the_name_of_a_metric_that_is_not_reported(corpus, tmp_path):
    class Unused(Length):
        metrics = ("unused",)

    run = _train(
        corpus, tmp_path / "run", losses=[Unused(weight=0.0)],
        evaluators={"unused": lambda _: {"score": 1.0}},
    )  # fmt: skip
    assert rows_of(run)[-1]["unused"] == {"score": 1.0}


def test_every_other_entry_of_a_row_is_a_name_that_no_evaluator_may_have(corpus, tmp_path):
    run = _train(corpus, tmp_path / "run", options={"eval_splits": ("dev",)})
    names = {name for row in rows_of(run) for name in row} - {"dev"}
    assert "evaluated_on" in names
    for name in names:
        with pytest.raises(ValueError, match=f"Received: {name}"):
            _train(corpus, tmp_path / "other", evaluators={name: lambda _: {"score": 1.0}})


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
