"""What the runs of all kinds have in common."""

import dataclasses
import fcntl
import json

import keras
import pytest
from support.tiny_checkpoint import write_checkpoint
from support.token_corpus import write_corpus

from convert_tf.config.head import HeadConfig
from convert_tf.config.model import model_preset
from convert_tf.config.pretrain import Pretraining
from convert_tf.config.train import EncoderTraining
from convert_tf.training.encoder.objective import ResponseRanking
from convert_tf.training.encoder.run import train
from convert_tf.training.pretraining.objective import PretrainingObjective
from convert_tf.training.pretraining.run import pretrain
from convert_tf.training.ranker.objective import CandidateRanking
from convert_tf.training.ranker.run import train_ranker
from convert_tf.training.recorder import NonFiniteError
from convert_tf.training.run import LOCK_FILE
from convert_tf.training.state import saved_checkpoints

OBJECTIVES = {
    "encoder": ResponseRanking,
    "ranker": CandidateRanking,
    "pretraining": PretrainingObjective,
}
INTERVALS = {"eval_every": 8, "checkpoint_every": 2, "precision": "float32", "warmup_steps": 2}

pytestmark = [
    pytest.mark.parametrize("kind", OBJECTIVES),
    pytest.mark.usefixtures("no_graphs"),
]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with records, token ids, and a trained model."""
    folder = tmp_path_factory.mktemp("runs")
    write_corpus(folder, num_train=120)
    write_checkpoint(folder / "trunk")
    return folder


def run(kind, root, output, *, steps):
    options = {"steps": steps, **INTERVALS}
    if kind == "encoder":
        sizes = {"embedding_dim": 16, "feed_forward_dim": 32, "side_hidden_dim": 32}
        return train(
            model_preset("tiny", encoding_dim=16, num_oov_buckets=5, **sizes),
            dataclasses.replace(
                EncoderTraining(batch_size=8, optimizer="adam", learning_rate=0.01, **options),
                data=str(root / "ids"),
                shuffle_buffer=100,
            ),
            output=str(output),
        )
    if kind == "ranker":
        records = str(root / "records")
        own = {"batch_size": 8, "max_examples": 16, "data": records, "dev_data": records}
        return train_ranker(
            HeadConfig(max_context_tokens=24), {**own, **options},
            init_from=str(root / "trunk"), output=str(output),
        )  # fmt: skip
    return pretrain(
        Pretraining(
            data=str(root / "ids"), max_tokens=60, batch_tokens=500, eval_examples=20, **options
        ),
        output=str(output),
        model="bert_tiny",
        overrides={"dim": 16, "num_layers": 1, "num_heads": 2},
    )


@pytest.mark.parametrize(
    ("broken", "message"),
    [("loss", r"a loss of nan at step 3\b"), ("weight", r"a value that is no number in .* step 4")],
)
def test_numbers_that_are_not_finite_end_a_run(kind, broken, message, root, tmp_path, monkeypatch):
    """Weights are looked at before they are saved, at step 4; the loss at every step."""
    train_step = OBJECTIVES[kind].train_step

    def broken_step(model, data):
        logs = train_step(model, data)
        is_due = keras.ops.equal(model.steps_done, 3 if broken == "loss" else 4)
        nan = keras.ops.where(is_due, float("nan"), 0.0)
        if broken == "loss":
            return {**logs, "loss": logs["loss"] + nan}
        weight = model.trainable_variables[-1]
        weight.assign(weight + nan)
        return logs

    monkeypatch.setattr(OBJECTIVES[kind], "train_step", broken_step)
    with pytest.raises(NonFiniteError, match=message):
        run(kind, root, tmp_path / "run", steps=5)
    assert [p.name for p in saved_checkpoints(tmp_path / "run")] == ["step-00000002"]


@pytest.mark.slow
def test_a_run_goes_on_with_other_options_and_says_so(kind, root, tmp_path, capsys):
    folder = run(kind, root, tmp_path / "run", steps=3)
    run(kind, root, folder, steps=4)
    said = capsys.readouterr()
    assert "resuming with another steps: 3 → 4" in said.out
    assert f"resuming at step 3 from {folder}" in said.out
    assert "step 4/4  " in said.err
    run(kind, root, folder, steps=4)
    assert "nothing to do: the run has its 4 steps" in capsys.readouterr().out
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 3, 4]
    assert list((folder / "logs").glob("events.out.tfevents.*"))


def test_a_folder_is_held_by_one_run(kind, root, tmp_path):
    with open(tmp_path / LOCK_FILE, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another process is training"):
            run(kind, root, tmp_path, steps=2)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_FILE]
