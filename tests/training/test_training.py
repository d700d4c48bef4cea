"""Whole training runs on a small real corpus: results, resuming, and what goes wrong."""

import dataclasses
import itertools
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.full_disk import room_for
from support.record_files import read_pairs
from support.token_corpus import pair_batches

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.checkpoints.vocabulary import fitting_tokenizer
from convert_tf.config.model import ModelConfig, model_preset
from convert_tf.config.train import EncoderTraining
from convert_tf.corpora.dumps import find_files
from convert_tf.corpora.local import PrepareOptions, prepare
from convert_tf.corpora.sample import write_sample
from convert_tf.corpora.vocabulary import SubwordConfig, learn
from convert_tf.data.batches import EvaluationBatches, ExampleRange, TrainingBatches
from convert_tf.data.packing import padding_share
from convert_tf.data.record_examples import RecordFolder
from convert_tf.text.loading import load_tokenizer
from convert_tf.training.encoder.run import train
from convert_tf.training.loop import METRICS_FILE
from convert_tf.training.state import (
    saved_checkpoints,
)

pytestmark = pytest.mark.traced

ROOT = Path(__file__).resolve().parents[2]
REAL_DUMP = ROOT.parent / "shared" / "data" / "reddit" / "RC_2005-12_2006-03.zst"
MODEL_FIELDS = {"embedding_dim": 16, "feed_forward_dim": 32, "side_hidden_dim": 32,
                "encoding_dim": 16, "num_oov_buckets": 10}  # fmt: skip
MODEL = model_preset("tiny", **MODEL_FIELDS)
CONFIG = EncoderTraining(
    steps=8, batch_size=16, optimizer="adam", learning_rate=0.01, scale_start=20.0, l2=0.0,
    embedding_dropout=0.1, attention_dropout=0.1, precision="float32", eval_every=4,
    eval_examples=100, checkpoint_every=4,
)  # fmt: skip


def changed(config, **fields):
    return type(config).from_dict({**config.to_dict(), **fields})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """(data folder, vocabulary path) of 700 sample threads."""
    folder = tmp_path_factory.mktemp("corpus")
    write_sample(str(folder / "dumps"), seed=0, num_threads=700)
    prepare(
        find_files([str(folder / "dumps" / "RC_*.zst")]),
        str(folder / "data"),
        submissions=find_files([str(folder / "dumps" / "RS_*.zst")]),
        options=PrepareOptions(dev_fraction=0.1),
    )
    learn([str(folder / "data")], str(folder / "vocab.txt"), config=SubwordConfig(min_count=5))
    return str(folder / "data"), str(folder / "vocab.txt")


def run(corpus, output, config=CONFIG, *, model=MODEL, **kwargs):
    data, vocabulary = corpus
    kwargs.setdefault("vocabulary", vocabulary)
    config = dataclasses.replace(config, data=data, shuffle_buffer=500)
    return train(model, config, output=str(output), **kwargs)


def first_batches(corpus, count, **options):
    """The first training batches of records."""
    data, vocabulary = corpus
    folder = RecordFolder(data, vocabulary=vocabulary, num_oov_buckets=10)
    batches = TrainingBatches(folder.open("train", max_tokens=60), row_tokens=64, **options)
    return list(itertools.islice(batches, count))


def final_weights(folder):
    newest = saved_checkpoints(folder)[0]
    encoder, _ = checkpoint.load_checkpoint(newest)
    return [np.array(v) for v in encoder.variables]


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    return run(corpus, tmp_path_factory.mktemp("runs") / "finished")


def test_run_leaves_everything_it_promises(finished):
    rows = [json.loads(line) for line in (finished / METRICS_FILE).read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 4, 8]
    assert all(row["dev"]["examples"] == 100 for row in rows)
    assert (finished / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert list((finished / "logs").rglob("events.out.tfevents.*"))
    encoder, vocabulary = checkpoint.load_checkpoint(finished)
    assert fitting_tokenizer(vocabulary, encoder.config).num_oov_buckets == 10
    best = max(rows, key=lambda row: row["dev"]["R100@1"])
    assert checkpoint.training_facts(finished)["evaluation"]["dev"] == best["dev"]
    assert [p.name for p in saved_checkpoints(finished)] == [
        "step-00000008",
        "step-00000004",
    ]


def test_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(corpus, finished, tmp_path):
    half = run(corpus, tmp_path / "run")
    newest = saved_checkpoints(half)[0]
    for file in newest.iterdir():
        file.unlink()
    newest.rmdir()  # as if the run had been killed after step 4
    resumed = run(corpus, tmp_path / "run")
    for a, b in zip(final_weights(finished), final_weights(resumed), strict=True):
        np.testing.assert_array_equal(a, b)
    steps = [json.loads(line)["step"] for line in (resumed / METRICS_FILE).read_text().splitlines()]
    assert steps == [0, 4, 8]


# Ends itself at a moment of a run: argv[1] names it, the rest are flags of train.py.
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
    data, vocabulary = corpus
    folder = tmp_path / "run"
    defaults = EncoderTraining.defaults()
    given = {name: x for name, x in CONFIG.to_dict().items() if x != defaults[name]}
    # Without it the rate would fall to a thousandth of the peak.
    given["final_learning_rate"] = CONFIG.final_learning_rate
    options = {**given, "checkpoint_every": 2, "data": data, "vocab": vocabulary,
               "model": "tiny", "output": folder, "shuffle_buffer": 500}  # fmt: skip
    options |= MODEL_FIELDS
    flags = [f"--{name}={value}" for name, value in options.items()]

    def run_until(moment: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-c", DYING, moment, *flags]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)

    saved = {}
    for moment in ("writing", "training", "renaming", "terminated", "never"):
        done = run_until(moment)
        status = 0 if moment in ("terminated", "never") else -signal.SIGKILL
        assert done.returncode == status, done.stderr
        saved[moment] = [int(p.name[5:]) for p in saved_checkpoints(folder)]
    assert saved == {
        "writing": [2],
        "training": [4, 2],
        "renaming": [4, 2],
        "terminated": [5, 4],
        "never": [8, 6],
    }
    for a, b in zip(final_weights(finished), final_weights(folder), strict=True):
        np.testing.assert_array_equal(a, b)
    rows = [json.loads(line) for line in (folder / METRICS_FILE).read_text().splitlines()]
    uninterrupted = [json.loads(x) for x in (finished / METRICS_FILE).read_text().splitlines()]
    assert [(r["step"], r["dev"]) for r in rows] == [(r["step"], r["dev"]) for r in uninterrupted]
    kept, expected = (checkpoint.load_checkpoint(f)[0].variables for f in (folder, finished))
    for a, b in zip(kept, expected, strict=True):
        np.testing.assert_array_equal(np.array(a), np.array(b))


def test_resuming_refuses_another_model_and_another_vocabulary(corpus, finished, tmp_path):
    with pytest.raises(checkpoint.CheckpointError, match=r"side_layers: 1 → 2"):
        run(corpus, finished, model=changed(MODEL, side_layers=2))
    other = tmp_path / "vocab.txt"
    lines = Path(corpus[1]).read_text().splitlines()
    other.write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")
    with pytest.raises(checkpoint.CheckpointError, match="must keep its vocabulary"):
        run(corpus, finished, vocabulary=str(other))


@pytest.mark.slow
def test_init_from_starts_from_the_weights_of_a_checkpoint(corpus, finished, tmp_path):
    frozen = changed(CONFIG, learning_rate=1e-30, final_learning_rate=0.0, steps=4)
    tuned = run(corpus, tmp_path / "tuned", frozen, model=None, vocabulary=None,
                init_from=str(finished))  # fmt: skip
    first, _ = checkpoint.load_checkpoint(finished)
    second, _ = checkpoint.load_checkpoint(tuned)
    for a, b in zip(first.trainable_variables, second.trainable_variables, strict=True):
        np.testing.assert_array_equal(np.array(a), np.array(b))
    assert json.loads((tuned / "training.json").read_text())["initial_weights"] == str(finished)


def test_init_from_refuses_another_vocabulary(corpus, finished, tmp_path):
    shorter = tmp_path / "vocab.txt"
    learn([corpus[0]], str(shorter), config=SubwordConfig(min_count=50))
    with pytest.raises(checkpoint.CheckpointError, match="must keep the vocabulary"):
        run(corpus, tmp_path / "run", model=None, vocabulary=str(shorter), init_from=str(finished))


def test_weights_that_do_not_fit_leave_the_ones_before(finished, tmp_path):
    """A real limit on the size of files: HDF5 would end the process with SIGSEGV."""
    encoder, vocabulary = checkpoint.load_checkpoint(finished)
    folder = tmp_path / "copy"
    checkpoint.save_checkpoint(folder, encoder, vocabulary=vocabulary, training={})
    before = (folder / checkpoint.WEIGHTS_FILE).read_bytes()
    with (
        room_for(int(0.9 * len(before))),
        pytest.raises(checkpoint.CheckpointError, match=r"could not be written \(File too large"),
    ):
        checkpoint.save_checkpoint(folder, encoder, vocabulary=vocabulary, training={})
    assert (folder / checkpoint.WEIGHTS_FILE).read_bytes() == before
    assert not [p for p in folder.iterdir() if "new" in p.name or p.suffix == ".tmp"]
    checkpoint.load_checkpoint(folder)


def test_splits_without_enough_examples_are_refused(corpus, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for shard in Path(corpus[0]).glob("train-*"):
        (data / shard.name).write_bytes(shard.read_bytes())
    (data / "dev-00000-of-00001.tfrecord").write_bytes(b"")
    with pytest.raises(ValueError, match=r"dev split needs at least 100 .* has 0.*dev_fraction"):
        run((str(data), corpus[1]), tmp_path / "run")
    (data / "dev-00000-of-00001.tfrecord").write_bytes(b"no record at all")
    with pytest.raises(ValueError, match="is incomplete: its 16 bytes end within a record"):
        run((str(data), corpus[1]), tmp_path / "run")


def test_data_folder_without_examples_is_refused(corpus, tmp_path):
    with pytest.raises(ValueError, match=str(tmp_path)):
        train(MODEL, dataclasses.replace(CONFIG, data=str(tmp_path)), output=str(tmp_path / "run"),
              vocabulary=corpus[1])  # fmt: skip


def test_a_vocabulary_that_knows_hardly_a_token_is_said(corpus, tmp_path):
    (tmp_path / "other.txt").write_text("﹏ж\nж\n")
    vocabulary, output = str(tmp_path / "other.txt"), tmp_path / "run"
    config = changed(CONFIG, steps=1, eval_every=1, checkpoint_every=1)
    with pytest.warns(UserWarning, match=r"100% of the tokens .* are unknown to .*other\.txt"):
        run((corpus[0], vocabulary), output, config)
    assert json.loads((output / "training.json").read_text())["unknown_tokens"] == 1.0


def test_order_of_pairs_is_the_seeds_and_skipping_continues_it(corpus):
    def first(count, **kwargs):
        options = {"batch_size": 8, "shuffle_buffer": 500, "seed": 3, **kwargs}
        return [batch["token_ids"].tobytes() for batch in first_batches(corpus, count, **options)]

    six = first(6)
    assert first(6) == six
    assert first(2, skip_batches=4) == six[4:]
    assert first(6, seed=4) != six


def test_first_examples_are_those_of_a_split_that_ends_there(corpus):
    def responses(batches):
        texts = []
        for batch in batches:
            lengths = batch["segment_lengths"]
            for row, segment in zip(
                *np.divmod(batch["response_slots"], lengths.shape[1]), strict=True
            ):
                start = lengths[row, :segment].sum()
                stop = start + lengths[row, segment]
                texts.append(batch["token_ids"][row, start:stop].tobytes())
        return sorted(texts)

    data, vocabulary = corpus
    examples = RecordFolder(data, vocabulary=vocabulary, num_oov_buckets=10).open(
        "train", max_tokens=60
    )
    options = {"batch_size": 8, "row_tokens": 64, "shuffle_buffer": 500, "seed": 3}
    whole = EvaluationBatches(examples, max_examples=96, row_tokens=64, batch_size=48)
    for start, expected in zip((0, 48), whole, strict=True):
        own = ExampleRange(examples, start, start + 48)
        two_epochs = list(itertools.islice(TrainingBatches(own, **options), 12))
        assert responses(two_epochs[:6]) == responses(two_epochs[6:]) == responses([expected])


def test_fewer_first_examples_than_a_batch_are_refused(corpus, tmp_path):
    data = {"data": corpus[0], "train_examples": CONFIG.batch_size - 1}
    with pytest.raises(ValueError, match=r"train split needs .*raise --train_examples"):
        train(
            MODEL,
            dataclasses.replace(CONFIG, **data),
            output=str(tmp_path / "run"),
            vocabulary=corpus[1],
        )
    data = {"data": corpus[0], "first_train_example": 10**6}
    with pytest.raises(ValueError, match=r"has 0\. .*lower .*--first_train_example"):
        train(
            MODEL,
            dataclasses.replace(CONFIG, **data),
            output=str(tmp_path / "run"),
            vocabulary=corpus[1],
        )


def test_batches_are_drawn_without_regard_to_length(corpus):
    """Lengths vary as much within batches as in the corpus, which bucketing would prevent."""
    contexts, responses = read_pairs(corpus[0], "train")
    tokenizer = load_tokenizer(corpus[1])
    every = [b["segment_lengths"] for b in pair_batches(contexts, responses, tokenizer=tokenizer)]
    lengths = np.concatenate([s[s > 0] for s in every])
    spreads = [
        batch["segment_lengths"][batch["segment_lengths"] > 0].std()
        for batch in first_batches(corpus, 20, batch_size=32, shuffle_buffer=2000, seed=0)
    ]
    assert np.mean(spreads) > 0.9 * lengths.std()


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.skipif(not REAL_DUMP.is_file(), reason="needs the real dumps beside the project")
def test_little_padding_is_computed_at_real_lengths(corpus, tmp_path):
    prepare([str(REAL_DUMP)], str(tmp_path / "data"), options=PrepareOptions(dev_fraction=0.1))
    real = (str(tmp_path / "data"), corpus[1])
    batches = first_batches(real, 4, batch_size=128, shuffle_buffer=1000, seed=0)
    assert padding_share(batches) < 0.15


@pytest.mark.slow
def test_little_padding_is_computed_on_the_sample(corpus):
    batches = first_batches(corpus, 4, batch_size=64, shuffle_buffer=1000, seed=0)
    assert padding_share(batches) < 0.15


@pytest.mark.slow
def test_command_line_trains_and_refuses_what_it_does_not_know(corpus, tmp_path):
    data, vocabulary = corpus
    command = [sys.executable, str(ROOT / "train.py"), f"--data={data}", f"--vocab={vocabulary}",
               "--model=tiny", f"--output={tmp_path / 'run'}"]  # fmt: skip
    small = ["--steps=2", "--batch_size=4", "--eval_every=2", "--checkpoint_every=2",
             "--eval_examples=100", "--max_relative_attention=3,5"]  # fmt: skip
    done = subprocess.run([*command, *small], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "precision " in done.stdout
    assert "pairs/s" in done.stderr
    config = ModelConfig.from_json((tmp_path / "run" / "config.json").read_text())
    assert config.max_relative_attention == (3, 5)
    for wrong, message in (
        (["--learning_rat=1"], "There is no flag --learning_rat. Did you mean --learning_rate"),
        (["--model=giant"], "flag --model=giant: value should be one of"),
        (["--optimizer=sgd"], "flag --optimizer=sgd: value should be one of"),
        (["--max_relative_attention=3,x"], "train.py: invalid literal"),
        (["--vocab=missing.txt"], "train.py: [Errno 2] No such file"),
        (["--data=missing"], "train.py: "),
    ):
        failed = subprocess.run([*command, *wrong], capture_output=True, text=True, cwd=tmp_path)
        assert failed.returncode != 0
        assert message in failed.stderr + failed.stdout
        assert "Traceback" not in failed.stderr
