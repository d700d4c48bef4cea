"""Whole training runs of an encoder: results, resuming, compilation and errors."""

import dataclasses
import itertools
import math
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.commands import ROOT, call_command
from support.encoder_runs import CONFIG, MODEL, final_weights, flags_of, rows_of, run, weights
from support.full_disk import room_for
from support.token_corpus import NUM_OOV_BUCKETS

from convert_tf import train
from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.vocabulary import fitting_tokenizer
from convert_tf.data.packing import partly_compiled_row_multiple
from convert_tf.numerics import tensorflow_cpu
from convert_tf.storage.files import FileWriteError
from convert_tf.training.encoder.data import EncoderData
from convert_tf.training.state import saved_checkpoints

NUM_TRAIN = 400

pytestmark = pytest.mark.traced

CHANGES = {"steps": 8, "embedding_dropout": 0.1, "attention_dropout": 0.1}


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    return run(corpus.arrays, tmp_path_factory.mktemp("runs") / "finished", **CHANGES)


def test_run_leaves_everything_it_promises(finished):
    rows = rows_of(finished)
    assert [row["step"] for row in rows] == [0, 4, 8]
    assert all(row["dev"]["examples"] == 100 for row in rows)
    assert (finished / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((finished / "logs").rglob("events.out.tfevents.*"))
    encoder, vocabulary = checkpoint.load_checkpoint(finished)
    assert fitting_tokenizer(vocabulary, encoder.config).num_oov_buckets == NUM_OOV_BUCKETS
    best = max(rows, key=lambda row: row["dev"]["R100@1"])
    facts = checkpoint.training_facts(finished)
    assert facts["evaluation"]["dev"] == best["dev"]
    assert 0 < facts["unknown_tokens"] < 0.1  # digits and question marks are not in the vocabulary


# Kills itself at the point of a run named in argv[1]; the rest are flags of train.py.
DYING = """
import os, runpy, signal, sys
from convert_tf.training import state
from convert_tf.training.loop import _Steps

moment, sys.argv = sys.argv[1], ["train.py", *sys.argv[2:]]
write_file, rename, count = state.write_file, os.rename, _Steps.count

def die(number=signal.SIGKILL):
    os.kill(os.getpid(), number)

states = 0

def half_a_state(path, content):
    global states
    states += 1
    if moment == "writing" and states == 2:
        with open(path, "wb") as file:
            file.write(content[: len(content) // 2])
        die()
    write_file(path, content)

def no_rename(source, target):
    if moment == "renaming":
        die()
    rename(source, target)

def at_step_5(self, batch, logs):
    if self.step == 5 and moment == "terminated":
        die(signal.SIGTERM)
    count(self, batch, logs)
    if self.step == 5 and moment == "training":
        die()

state.write_file, os.rename, _Steps.count = half_a_state, no_rename, at_step_5
runpy.run_path("train.py", run_name="__main__")
"""


@pytest.mark.slow
def test_killed_runs_end_with_the_weights_of_an_uninterrupted_one(corpus, finished, tmp_path):
    folder = tmp_path / "run"
    config = dataclasses.replace(CONFIG, data=corpus.arrays, **CHANGES)
    saved = {}
    for moment in ("writing", "training", "renaming", "terminated", "never"):
        command = [sys.executable, "-c", DYING, moment, *flags_of(config, output=folder)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        status = {"terminated": 75, "never": 0}.get(moment, -signal.SIGKILL)
        assert done.returncode == status, done.stderr
        saved[moment] = [int(p.name[5:]) for p in saved_checkpoints(folder)]
    assert saved == {
        "writing": [2],
        "training": [4, 2],
        "renaming": [4, 2],
        "terminated": [5, 4],
        "never": [8, 6],
    }
    for read in (weights, final_weights):
        for a, b in zip(read(finished), read(folder), strict=True):
            np.testing.assert_array_equal(a, b)
    rows, uninterrupted = rows_of(folder), rows_of(finished)
    assert [(r["step"], r["dev"]) for r in rows] == [(r["step"], r["dev"]) for r in uninterrupted]


def test_resuming_refuses_another_model(corpus, finished):
    with pytest.raises(checkpoint.CheckpointError, match=r"side_layers: 1 → 2"):
        run(corpus.arrays, finished, model=dataclasses.replace(MODEL, side_layers=2))


def test_resuming_refuses_another_optimizer(corpus, finished):
    """The states of Adadelta and Adam have equal shapes."""
    with pytest.raises(checkpoint.CheckpointError, match=r"optimizer: 'adam' → 'adadelta'"):
        run(corpus.arrays, finished, **{**CHANGES, "steps": 10, "optimizer": "adadelta"})


def test_init_from_refuses_another_vocabulary(corpus, finished, tmp_path):
    other = tmp_path / "vocab.txt"
    other.write_text(Path(corpus.vocabulary).read_text() + "zz\n")
    with pytest.raises(checkpoint.CheckpointError, match="must keep the vocabulary"):
        run(corpus.records, tmp_path / "run", model=None, vocabulary=other, init_from=finished)


def test_weights_that_do_not_fit_leave_the_ones_before(finished, tmp_path):
    """A real limit on file sizes raises an error; HDF5 alone would end the process with SIGSEGV."""
    encoder, vocabulary = checkpoint.load_checkpoint(finished)
    folder = tmp_path / "copy"
    checkpoint.save_checkpoint(folder, encoder, vocabulary=vocabulary, training={})
    before = (folder / checkpoint.WEIGHTS_FILE).read_bytes()
    with (
        room_for(int(0.9 * len(before))),
        pytest.raises(FileWriteError, match=r"model\.weights\.h5': File too large"),
    ):
        checkpoint.save_checkpoint(folder, encoder, vocabulary=vocabulary, training={})
    assert (folder / checkpoint.WEIGHTS_FILE).read_bytes() == before
    assert not [p for p in folder.iterdir() if "new" in p.name or p.suffix == ".tmp"]
    checkpoint.load_checkpoint(folder)


@pytest.mark.parametrize(
    ("dev", "changes", "message"),
    [
        (b"", {}, r"dev split needs at least 100 .* has 0.*dev_fraction"),
        (b"no record at all", {}, r"dev-00000.*is incomplete: its 16 bytes"),
        (None, {"train_examples": 15}, r"train split needs .*raise --train_examples"),
        (None, {"first_train_example": 10**6}, r"has 0\. .*lower .*--first_train_example"),
    ],
    ids=["no dev", "no record", "few", "none"],
)
def test_too_few_examples_are_refused(corpus, tmp_path, dev, changes, message):
    data = shutil.copytree(corpus.records, tmp_path / "data")
    if dev is not None:
        (data / "dev-00000-of-00001.tfrecord").write_bytes(dev)
    with pytest.raises(ValueError, match=message):
        run(data, tmp_path / "run", vocabulary=corpus.vocabulary, **changes)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--max_relative_attention=3,x", "train: invalid literal"),
        ("--vocab=missing.txt", "train: Cannot open 'missing.txt': No such file"),
        ("--data=missing", "train: .*missing"),
    ],
)
def test_flags_that_cannot_be_used_are_named(corpus, tmp_path, flag, message):
    flags = [f"--data={corpus.records}", f"--vocab={corpus.vocabulary}", "--model=tiny"]
    with pytest.raises(SystemExit, match=message):
        call_command("train", *flags, f"--output={tmp_path / 'run'}", flag)


SMALL = {"steps": 2, "batch_size": 8, "eval_every": 2, "checkpoint_every": 1}


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch", [0, 4])
def test_a_run_in_16_bits_compiles_parts_and_ends_where_others_do(
    corpus, tmp_path, monkeypatch, micro_batch
):
    traced, compute = [], tensorflow_cpu._silu
    monkeypatch.setattr(tensorflow_cpu, "_silu", lambda *own: traced.append(1) or compute(*own))
    exact = run(corpus.arrays, tmp_path / "exact", **SMALL)
    assert not traced
    options = {"precision": "mixed_bfloat16", "micro_batch": micro_batch}
    own = run(corpus.arrays, tmp_path / "own", **SMALL, **options)
    assert traced
    encoders = [checkpoint.load_checkpoint(saved_checkpoints(f)[0])[0] for f in (exact, own)]
    for one, other in zip(*(e.trainable_variables for e in encoders), strict=True):
        # Adam's first steps are as large as the learning rate, in either direction.
        assert np.abs(np.array(one) - np.array(other)).mean() <= 0.5 * CONFIG.learning_rate


def batches_of(corpus, tmp_path, model=MODEL, data="arrays", precision="float32", **fields):
    config = dataclasses.replace(
        CONFIG, **{**SMALL, **fields}, data=getattr(corpus, data), eval_splits=()
    )
    data = EncoderData(model, config, vocabulary=corpus.vocabulary, init_from=None)
    batches = data.batches(precision=precision)
    return [batch["token_ids"].shape for batch in itertools.islice(batches, 6)]


@pytest.mark.parametrize(("max_tokens", "expected"), [(60, 64), (70, 70)])
def test_a_row_holds_the_longest_text(corpus, tmp_path, max_tokens, expected):
    model = dataclasses.replace(MODEL, max_tokens=max_tokens)
    assert batches_of(corpus, tmp_path, model, "records")[0][1] == expected


def test_batches_in_16_bits_have_few_numbers_of_rows(corpus, tmp_path):
    exact, own = (
        [rows for rows, _ in batches_of(corpus, tmp_path, precision=precision, batch_size=48)]
        for precision in ("float32", "mixed_bfloat16")
    )
    assert [math.ceil(rows / 3) * 3 for rows in exact] == own
    assert len({*own}) < len({*exact})


def test_small_batches_are_not_padded(corpus, tmp_path):
    exact = batches_of(corpus, tmp_path)
    assert batches_of(corpus, tmp_path, precision="mixed_bfloat16") == exact
    assert [partly_compiled_row_multiple(pairs) for pairs in (8, 64, 256, 8192)] == [1, 4, 16, 16]


def test_nothing_is_prepared_in_a_module(tmp_path):
    (tmp_path / "faq.csv").write_text("question,answer\nhi,hello\n")
    module = tmp_path / "module"
    (module / "variables").mkdir(parents=True)
    (module / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ValueError, match="cannot hold a training run"):
        train("tiny", {"data": str(tmp_path / "faq.csv")}, output=str(module))
    assert sorted(path.name for path in module.iterdir()) == ["saved_model.pb", "variables"]
