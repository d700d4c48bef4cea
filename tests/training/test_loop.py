"""The training loop that all tasks share, tested on a model with two weights."""

import dataclasses
import errno
import fcntl
import itertools
import json
import math
import os
import shutil
import signal
import threading
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops
from support.commands import ROOT
from support.damage import flip_a_bit
from support.processes import results_on_jax
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.config.model import ModelConfig
from convert_tf.storage.checksums import CHECKSUMS_FILE, check_files, record_checksums
from convert_tf.storage.files import FileWriteError
from convert_tf.training import loop, state
from convert_tf.training.encoder.options import EncoderTraining
from convert_tf.training.loop import (
    LOCK_FILE,
    METRICS_FILE,
    NonFiniteError,
    carry_out,
    only_run_in,
    take_steps,
)
from convert_tf.training.optimizers import current_learning_rate, decaying_on_plateau
from convert_tf.training.processes import NotFinishedError
from convert_tf.training.state import STATE_FILE, newest_checkpoint, saved_checkpoints
from convert_tf.training.step import Objective, compile_with
from convert_tf.training.task import RUN_FILE, Batch, Task

pytestmark = pytest.mark.traced

CONFIG = EncoderTraining(
    steps=8, batch_size=4, learning_rate=0.1, eval_every=4, checkpoint_every=4, data="lines"
)


class Line(keras.Model):
    """`w x + b` with dropout, so that a resumed run has to restore the seeds."""

    config = ModelConfig(vocab_size=1)

    def __init__(self, rate=0.2):
        super().__init__()
        self.slope, self.offset = (self.add_weight(shape=(), name=name) for name in "wb")
        self.slope.assign(0.5)
        self.offset.assign(0.0)
        self.dropout = keras.layers.Dropout(rate, seed=1)
        self.built = True

    def call(self, x, training=False):
        return self.dropout(ops.convert_to_tensor(x), training=training) * self.slope + self.offset


class Fit(Objective):
    def __init__(self, rate):
        super().__init__(Line(rate))
        self.built = True

    def outputs_of(self, inputs, training):
        return self.encoder(inputs["x"], training=training)

    def loss_of(self, inputs, outputs):
        return ops.mean(ops.square(outputs - inputs["y"]))


def batches_from(step):
    while True:
        x = np.random.default_rng(step).standard_normal(4).astype(np.float32)
        step += 1
        yield Batch({"x": x, "y": 2 * x + 1}, 4, {"drawn": step})


def one_batch(step):
    yield from itertools.islice(batches_from(step), 1)
    raise ValueError("no more batches")


class FitTask(Task):
    """Fits a line to points of another line."""

    def __init__(self, folder, dropout, config):
        self.folder, self.config = folder, config
        self.model = Fit(dropout)
        compile_with(self.model, decaying_on_plateau(keras.optimizers.Adam)(config.learning_rate))
        self.vocabulary = folder.parent / "vocab.txt"
        self.vocabulary.write_text("a\n")

    def options(self):
        return {"train": self.config}

    def batches(self, step):
        return batches_from(step)

    def evaluate(self, step, logs, rows):
        error = float((self.model.encoder.slope - 2.0) ** 2)
        if rows and error >= rows[-1]["dev"]["error"]:
            self.model.optimizer.decay(0.5)
        return {**logs, "dev": {"error": error}}

    def score(self, row):
        return -row["dev"]["error"]

    def curve(self, rows):
        return b"PNG"

    def facts(self):
        return {}

    def model_changes(self, earlier):
        return {}


def make_task(folder, *, dropout=0.2, replaced=None, **changes):
    """Return a task. `replaced` overrides attributes, `changes` overrides training options."""
    task = FitTask(folder, dropout, dataclasses.replace(CONFIG, **changes))
    vars(task).update(replaced or {})
    return task


def carried_out(folder, **changes):
    with only_run_in(folder):
        return carry_out(make_task(folder, **changes))


def weights(folder):
    line = Line()
    checkpoint.load_weights(line, folder)
    return [float(v) for v in line.trainable_variables]


def rows_of(folder):
    return [json.loads(line) for line in (folder / METRICS_FILE).read_text().splitlines()]


def saved_steps(folder):
    return [int(path.name[5:]) for path in saved_checkpoints(folder)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return carried_out(tmp_path_factory.mktemp("runs") / "finished")


def test_a_run_leaves_everything_it_promises(finished):
    rows = rows_of(finished)
    assert [row["step"] for row in rows] == [0, 4, 8]
    assert rows[2]["loss"] < rows[1]["loss"]
    assert saved_steps(finished) == [8, 4]
    assert weights(finished) == weights(saved_checkpoints(finished)[0])  # the last is the best
    facts = checkpoint.training_facts(finished)
    assert facts["evaluation"]["dev"] == rows[2]["dev"]
    assert facts["drawn"] == 8
    assert facts["time"]["seconds"] > 0
    assert (finished / "curve.png").read_bytes() == b"PNG"
    assert list((finished / "logs").iterdir())


@pytest.mark.parametrize(
    ("changes", "evaluated", "saved"),
    [
        ({"eval_every": 2}, [0, 2, 4, 6, 8], [8, 4]),
        ({"checkpoint_every": 3}, [0, 4, 8], [8, 6]),
        ({"keep_checkpoints": 1}, [0, 4, 8], [8]),
        ({"steps": 6}, [0, 4, 6], [6, 4]),
    ],
)
def test_intervals_and_kept_checkpoints(tmp_path, changes, evaluated, saved):
    folder = carried_out(tmp_path / "run", **changes)
    assert [row["step"] for row in rows_of(folder)] == evaluated
    assert saved_steps(folder) == saved


def test_a_resumed_run_ends_as_an_uninterrupted_one(finished, tmp_path):
    told = []
    folder = shutil.copytree(finished, tmp_path / "run")
    shutil.rmtree(saved_checkpoints(folder)[0])
    carried_out(folder, replaced={"start": told.append})
    assert told[0]["drawn"] == 4
    assert weights(folder) == weights(finished)
    known = ("step", "loss", "dev")
    assert [[row.get(n) for n in known] for row in rows_of(folder)] == [
        [row.get(n) for n in known] for row in rows_of(finished)
    ]


def test_a_damaged_checkpoint_gives_way_to_the_one_before(finished, tmp_path, capsys):
    folder = shutil.copytree(finished, tmp_path / "run")
    newest, before = saved_checkpoints(folder)
    flip_a_bit(newest / checkpoint.WEIGHTS_FILE)
    assert newest_checkpoint(folder) == before
    assert "model.weights.h5' was damaged or changed: its SHA-256 is not" in capsys.readouterr().err
    carried_out(folder)
    assert newest_checkpoint(folder) == newest
    assert weights(folder) == weights(finished)
    for kept in (newest, before):
        (kept / STATE_FILE).unlink()
    with pytest.raises(checkpoint.CheckpointError, match="Remove checkpoints/ to start"):
        carried_out(folder)


def test_a_new_checkpoint_is_kept_and_damaged_later_ones_are_removed(tmp_path):
    folder = carried_out(tmp_path / "run", checkpoint_every=2)
    flip_a_bit(saved_checkpoints(folder)[0] / checkpoint.WEIGHTS_FILE)
    with pytest.raises(ValueError, match="no more batches"):
        carried_out(folder, checkpoint_every=1, keep_checkpoints=1, replaced={"batches": one_batch})
    assert saved_steps(folder) == [7]
    assert newest_checkpoint(folder).name == "step-00000007"


def test_a_finished_run_does_nothing_more(finished, capsys):
    before = (finished / METRICS_FILE).read_text()

    def started(facts):
        raise AssertionError("a finished run must not open its data")

    carried_out(finished, replaced={"start": started})
    assert "nothing to do: the run has already taken its 8 steps" in capsys.readouterr().out
    assert (finished / METRICS_FILE).read_text() == before


def test_a_run_goes_on_with_other_options_and_says_so(tmp_path, capsys):
    """A run with changed options resumes, also from a step that is no multiple of the intervals."""
    folder = carried_out(tmp_path / "run", steps=2)
    carried_out(folder, steps=9, keep_checkpoints=9, batch_size=5)
    said = capsys.readouterr()
    assert "resuming with changed steps: 2 → 9" in said.out
    assert "resuming with changed batch_size: 4 → 5" in said.out
    assert "this may change the order of the examples" in said.out
    assert f"resuming at step 2 from {folder}" in said.out
    assert "step 9/9  loss" in said.err
    assert [row["step"] for row in rows_of(folder)] == [0, 2, 4, 8, 9]
    assert saved_steps(folder) == [9, 8, 4, 2]


def test_a_run_with_an_option_that_is_gone_is_refused(tmp_path):
    folder = carried_out(tmp_path / "run", steps=2)
    options = json.loads((folder / RUN_FILE).read_text())
    options["train"]["loss_reduction"] = "sum"
    (folder / RUN_FILE).write_text(json.dumps(options))
    with pytest.raises(
        checkpoint.CheckpointError, match="options that no longer exist: loss_reduction"
    ):
        carried_out(folder, steps=9)


@pytest.mark.parametrize("line", [b"{'step': 3}", b"[3]", b"{}", b'{"step": "3"}', b"\xff", b"3"])
def test_a_damaged_line_of_the_metrics_is_named(finished, tmp_path, line):
    folder = shutil.copytree(finished, tmp_path / "run")
    first, *others = (folder / METRICS_FILE).read_bytes().splitlines()
    (folder / METRICS_FILE).write_bytes(b"\n".join([first, line, *others]))
    with pytest.raises(checkpoint.CheckpointError, match=r"metrics\.jsonl', line 2, is damaged"):
        carried_out(folder, steps=9)


@pytest.mark.parametrize("content", ["[1]", "null", '{"train": '])
def test_a_damaged_run_file_is_named(finished, tmp_path, content):
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / RUN_FILE).write_text(content)
    with pytest.raises(ValueError, match=rf"{RUN_FILE}' is (damaged|not valid JSON)"):
        carried_out(folder, steps=9)


@pytest.mark.parametrize("scores", [[math.nan, 1, 3, 2], [math.nan, 1, 2, math.nan]])
def test_a_nan_is_not_the_best_score(tmp_path, scores):
    remaining = iter(scores)
    folder = carried_out(
        tmp_path / "run",
        eval_every=2,
        steps=6,
        replaced={
            "evaluate": lambda *_: {"dev": {"error": next(remaining)}},
            "score": lambda row: row["dev"]["error"],
        },
    )
    evaluation = checkpoint.training_facts(folder)["evaluation"]
    assert evaluation["step"] == 4
    assert evaluation["dev"]["error"] == max(scores[1:3])


@pytest.mark.parametrize(
    ("reciprocals", "best"), [([0.1, 0.2, 0.4, 0.3], 4), ([0.4, 0.2, 0.4, 0.3], 0), ([None] * 4, 0)]
)
def test_the_mrr_decides_between_equal_scores(tmp_path, reciprocals, best):
    remaining = iter(reciprocals)

    def evaluate(*_):
        reciprocal = next(remaining)
        dev = {"R100@1": 0.5} | ({} if reciprocal is None else {"MRR": reciprocal})
        return {"dev": dev, "test": {"MRR": 1 - (reciprocal or 0)}}

    replaced = {"evaluate": evaluate, "score": lambda row: row["dev"]["R100@1"]}
    folder = carried_out(tmp_path / "run", eval_every=2, steps=6, replaced=replaced)
    assert checkpoint.training_facts(folder)["evaluation"]["step"] == best


def _scored(folder, scores, **replaced):
    """Take six steps in a run whose evaluations, every two steps, have these scores by step.

    `keep_checkpoints` is 9, so that a test can remove the newest checkpoints.
    """

    def evaluate(step, logs, rows):
        return {"dev": {"error": scores[step]}, "compared": len(rows)}

    replaced |= {"evaluate": evaluate, "score": lambda row: row["dev"]["error"]}
    options = {"eval_every": 2, "checkpoint_every": 2, "keep_checkpoints": 9, "steps": 6}
    return carried_out(folder, replaced=replaced, **options)


def _kept(folder):
    evaluation = checkpoint.training_facts(folder)["evaluation"]
    return evaluation["step"], evaluation["dev"]["error"]


def _forget(folder, *steps):
    """Remove checkpoints, as if the run had ended before they were written."""
    for step in steps:
        shutil.rmtree(folder / "checkpoints" / state.step_folder(step))


def test_scores_on_other_data_are_not_compared(tmp_path, capsys):
    folder = _scored(tmp_path / "run", {0: 1, 2: 8, 4: 6, 6: 7}, evaluated_on="a")
    assert _kept(folder) == (2, 8)
    _forget(folder, 4, 6)
    capsys.readouterr()
    _scored(folder, {4: 3, 6: 4}, evaluated_on="b")
    assert _kept(folder) == (6, 4)
    assert capsys.readouterr().err.count("the evaluation data has changed, or") == 1
    assert [(r["evaluated_on"], r["compared"]) for r in rows_of(folder)] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1)
    ]  # fmt: skip
    _forget(folder, 6)
    _scored(folder, {6: 2}, evaluated_on="b")
    assert _kept(folder) == (6, 4)
    assert "the evaluation data has changed" not in capsys.readouterr().err


def test_scores_of_earlier_versions_are_not_compared(tmp_path, capsys):
    """Their rows do not say which data they were measured on."""
    folder = _scored(tmp_path / "run", {0: 1, 2: 8, 4: 6, 6: 7})
    assert "evaluated_on" not in rows_of(folder)[0]
    _forget(folder, 4, 6)
    _scored(folder, {4: 3, 6: 4}, evaluated_on="b")
    assert _kept(folder) == (6, 4)
    assert capsys.readouterr().err.count("the evaluation data has changed") == 1


@pytest.mark.parametrize(
    ("again", "kept"),
    [
        ({4: 5, 6: 6}, (4, 8)),  # for example with a lower learning rate
        ({4: 5, 6: 9}, (6, 9)),
        ({4: 8, 6: 3}, (4, 8)),
    ],
)
def test_a_run_that_resumes_before_its_best_evaluation_keeps_its_weights(
    tmp_path, capsys, again, kept
):
    folder = _scored(tmp_path / "run", {0: 1, 2: 2, 4: 8, 6: 3})
    before = weights(folder)
    _forget(folder, 4, 6)
    assert "the best weights are from" not in capsys.readouterr().err
    _scored(folder, again)
    assert "the best weights are from step 4, after the step to resume from (score 8)" in (
        capsys.readouterr().err
    )
    assert _kept(folder) == kept
    assert (weights(folder) == before) == (kept[0] == 4)
    assert [row["dev"]["error"] for row in rows_of(folder)] == [1, 2, *again.values()]


def test_an_evaluation_is_repeated_if_the_run_was_killed_while_saving_its_weights(tmp_path):
    """The files are written one after another, so some of them may be of other weights."""
    folder = _scored(tmp_path / "run", {0: 1, 2: 2, 4: 8, 6: 3})
    expected = weights(folder)
    early = folder / "checkpoints" / state.step_folder(2) / checkpoint.WEIGHTS_FILE
    shutil.copy(early, folder / checkpoint.WEIGHTS_FILE)
    record_checksums(folder, [checkpoint.WEIGHTS_FILE])
    _forget(folder, 4, 6)
    _scored(folder, {4: 8, 6: 3})
    assert weights(folder) == expected


@pytest.mark.parametrize("content", ["{", '{"evaluation": {"step": "4"}}'])
def test_damaged_facts_of_the_best_weights_do_not_stop_a_run(tmp_path, content):
    folder = _scored(tmp_path / "run", {0: 1, 2: 2, 4: 8, 6: 3})
    (folder / checkpoint.TRAINING_FILE).write_text(content)
    record_checksums(folder, [checkpoint.TRAINING_FILE])
    _forget(folder, 4, 6)
    _scored(folder, {4: 5, 6: 3})
    assert _kept(folder) == (4, 5)


def test_a_run_started_again_keeps_no_map_of_the_earlier_model(finished, tmp_path):
    parts = (checkpoint.SIMILARITY_FILE, checkpoint.PROJECTION_FILE)
    folder = shutil.copytree(finished, tmp_path / "run")
    for name in parts:
        (folder / name).write_bytes(b"earlier")
    record_checksums(folder, parts)
    carried_out(folder, steps=9)  # resumed
    assert [name for name in parts if (folder / name).is_file()] == [*parts]
    shutil.rmtree(folder / "checkpoints")
    carried_out(folder)
    assert not [name for name in parts if (folder / name).exists()]
    check_files(folder)
    assert not {*parts} & {*json.loads((folder / CHECKSUMS_FILE).read_text())}
    assert weights(folder) == weights(finished)


def test_another_model_or_vocabulary_is_refused(finished, tmp_path):
    with pytest.raises(checkpoint.CheckpointError, match=r"keep its model.*\n  width: 1 → 2\n"):
        carried_out(finished, replaced={"model_changes": lambda earlier: {"width": (1, 2)}})
    other = tmp_path / "vocab.txt"
    other.write_text("b\n")
    with pytest.raises(checkpoint.CheckpointError, match="must keep its vocabulary"):
        carried_out(finished, replaced={"vocabulary": other})


@pytest.mark.parametrize(
    ("broken", "message"),
    [("loss", r"a loss of nan at step 3\b"), ("weight", r"a NaN or infinite value in .* step 4")],
)
def test_numbers_that_are_not_finite_end_a_run(broken, message, tmp_path, monkeypatch):
    """The loss is checked at every step; the weights are checked before saving, at step 4."""
    train_step = Fit.train_step

    def broken_step(model, data):
        logs = train_step(model, data)
        is_due = ops.equal(model.steps_done, 3 if broken == "loss" else 4)
        nan = ops.where(is_due, float("nan"), 0.0)
        if broken == "loss":
            return {**logs, "loss": logs["loss"] + nan}
        model.encoder.offset.assign(model.encoder.offset + nan)
        return logs

    monkeypatch.setattr(Fit, "train_step", broken_step)
    with pytest.raises(NonFiniteError, match=message):
        carried_out(tmp_path / "run", checkpoint_every=2)
    assert saved_steps(tmp_path / "run") == [2]


def test_a_run_that_is_told_to_end_saves_its_state(tmp_path, monkeypatch, capsys):
    count = loop._Steps.count

    def told_at_step_3(steps, batch, logs):
        count(steps, batch, logs)
        if steps.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(loop._Steps, "count", told_at_step_3)
        with pytest.raises(NotFinishedError) as raised:
            carried_out(tmp_path / "run")
    folder = tmp_path / "run"
    assert raised.value.code == 75
    assert "stopped by a signal: saved step 3" in capsys.readouterr().err
    assert saved_steps(folder) == [3]
    carried_out(folder)
    assert [row["step"] for row in rows_of(folder)] == [0, 4, 8]


def test_an_evaluation_that_a_signal_prevented_comes_first_in_the_resumed_run(
    tmp_path, monkeypatch
):
    """This is so even if the resumed run is killed between this evaluation and a checkpoint."""
    # The slope overshoots 2, so the evaluation at step 4 halves the learning rate.
    changes = {"learning_rate": 2.0, "eval_every": 2, "checkpoint_every": 8}
    expected = make_task(tmp_path / "whole", **changes)
    with only_run_in(expected.folder):
        carry_out(expected)
    count, stop = loop._Steps.count, {}

    def stopped(steps, batch, logs):
        count(steps, batch, logs)
        if steps.step in stop:
            stop[steps.step]()

    def end():
        os.kill(os.getpid(), signal.SIGTERM)

    def crash():
        raise KeyboardInterrupt

    monkeypatch.setattr(loop._Steps, "count", stopped)
    folder = tmp_path / "run"
    stop[4] = end
    with pytest.raises(NotFinishedError):
        carried_out(folder, **changes)
    assert [row["step"] for row in rows_of(folder)] == [0, 2]
    stop[5] = crash
    with pytest.raises(KeyboardInterrupt):
        carried_out(folder, **changes)
    assert [row["step"] for row in rows_of(folder)] == [0, 2, 4]
    stop.clear()
    with only_run_in(folder):
        carry_out(task := make_task(folder, **changes))
    known = ("step", "loss", "dev")
    assert [[row.get(n) for n in known] for row in rows_of(folder)] == [
        [row.get(n) for n in known] for row in rows_of(expected.folder)
    ]
    assert weights(folder) == weights(expected.folder)
    factors = [float(run.model.optimizer.plateau_factor) for run in (task, expected)]
    assert factors[0] == factors[1] < 1.0


def test_what_goes_wrong_with_a_batch_is_raised_and_the_run_can_go_on(tmp_path, monkeypatch, capfd):
    def broken(task, step):
        yield from itertools.islice(batches_from(step), 6)
        raise ValueError("the data are damaged")

    with monkeypatch.context() as patch:
        patch.setattr(FitTask, "batches", broken)
        with pytest.raises(ValueError, match="the data are damaged"):
            carried_out(tmp_path / "run")
    assert "Traceback" not in capfd.readouterr().err
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("prefetch")]
    assert saved_steps(carried_out(tmp_path / "run")) == [8, 4]


def test_a_full_disk_keeps_earlier_checkpoints(tmp_path, monkeypatch):
    folder = carried_out(tmp_path / "run", steps=4)

    def no_space(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state.np, "savez", no_space)
    with pytest.raises(FileWriteError, match="No space left on device"):
        carried_out(folder)
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-00000004"]


def test_a_truncated_state_is_refused(finished, tmp_path):
    newest = shutil.copytree(saved_checkpoints(finished)[0], tmp_path / "step-00000008")
    content = (newest / STATE_FILE).read_bytes()
    (newest / STATE_FILE).write_bytes(content[: len(content) // 2])
    with pytest.raises(checkpoint.CheckpointError, match=r"is damaged.*Remove the folder"):
        state.load_training_state(newest, make_task(tmp_path / "run").model)


def test_a_task_in_memory_takes_the_same_steps_and_writes_nothing(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task = make_task(Path("run"), replaced={"in_memory": True, "remedy": "Do something else."})
    files = [*tmp_path.rglob("*")]
    take_steps(task)
    assert [float(v) for v in task.model.encoder.trainable_variables] == weights(finished)
    assert [*tmp_path.rglob("*")] == files
    task.model.encoder.slope.assign(math.inf)
    with pytest.raises(NonFiniteError, match=r"step 1\. Do something else\.$"):
        take_steps(task)


def test_a_folder_is_held_by_one_run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    with open(folder / LOCK_FILE, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="Another process is training"):
            carried_out(folder)
    assert [path.name for path in folder.iterdir()] == [LOCK_FILE]


def test_summaries_hold_the_curves_of_a_resumed_run(tmp_path, monkeypatch):
    """The logged learning rate is that of each step, including the factor of the optimizer."""
    monkeypatch.setattr(loop, "STEPS_BETWEEN_SUMMARIES", 2)
    # The slope overshoots 2, so one evaluation is worse than the previous one.
    changes = {"learning_rate": 2.0, "eval_every": 2}
    folder = carried_out(tmp_path / "run", steps=4, **changes)
    carried_out(folder, **changes)
    board = EventAccumulator(str(folder / "logs")).Reload()
    shown = {name: {e.step: e.value for e in board.Scalars(name)}
             for name in board.Tags()["scalars"]}  # fmt: skip
    for name in ("loss", "pairs_per_second", "learning_rate"):
        assert [*shown[name]] == [2, 4, 6, 8]
    rows = rows_of(folder)
    assert [*shown["dev/error"].values()] == pytest.approx([row["dev"]["error"] for row in rows])
    rate, expected = 2.0, {}
    for row, before in zip(rows[1:], rows, strict=False):
        expected[row["step"]] = rate  # at the step before the evaluation
        rate *= 0.5 if row["dev"]["error"] >= before["dev"]["error"] else 1.0
    assert shown["learning_rate"] == pytest.approx(expected)
    assert rate < 2.0


def test_trackers_get_what_tensorboard_gets(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "STEPS_BETWEEN_SUMMARIES", 2)
    numbers = {}

    def track(step, values):
        assert all(type(value) is float for value in values.values())
        for name, value in values.items():
            numbers.setdefault(name, {})[step] = value

    for steps in (4, 8):  # the second call resumes the run
        with only_run_in(tmp_path / "run"):
            carry_out(make_task(tmp_path / "run", replaced={"trackers": [track]}, steps=steps))
    board = EventAccumulator(str(tmp_path / "run" / "logs")).Reload()
    shown = {name: {e.step: e.value for e in board.Scalars(name)}
             for name in board.Tags()["scalars"]}  # fmt: skip
    assert {*numbers} == {*shown} == {"loss", "pairs_per_second", "learning_rate", "dev/error"}
    for name, values in numbers.items():
        assert values == pytest.approx(shown[name])

    monkeypatch.setattr(loop, "opened_summaries", lambda folder: None)  # no tensorboard
    numbers.clear()
    with only_run_in(tmp_path / "other"):
        carry_out(make_task(tmp_path / "other", replaced={"trackers": [track]}, steps=4))
    assert [*numbers["loss"]] == [2, 4] and [*numbers["dev/error"]] == [0, 4]


def results(folder):
    """Return losses, weights and the last learning rate of a run that is interrupted halfway.

    Dropout is off, because each backend draws it differently.
    """
    carried_out(folder, steps=4, dropout=0.0, eval_every=2)
    with only_run_in(folder):
        carry_out(task := make_task(folder, dropout=0.0, eval_every=2))
    losses = [row["loss"] for row in rows_of(folder)[1:]]
    return np.array([*losses, *weights(folder), current_learning_rate(task.model.optimizer)])


_JAX = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(ROOT / "tests")!r}, {str(ROOT / "tests/training")!r}]
import numpy as np
from test_loop import results
folder = Path(sys.argv[1])
np.savez(folder / "jax.npz", results=results(folder / "run"))
"""


@pytest.mark.slow
def test_jax_takes_the_same_steps(tmp_path):
    on_jax = results_on_jax(_JAX, tmp_path)["results"]
    np.testing.assert_allclose(on_jax, results(tmp_path / "tensorflow"), rtol=1e-5)
