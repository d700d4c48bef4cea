"""Training on JAX equals training on TensorFlow, also with several devices and processes."""

import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.commands import ROOT
from support.encoder_runs import MODEL, flags_of, rows_of
from support.model_cases import texts_in
from support.processes import ON_JAX
from support.token_corpus import NUM_OOV_BUCKETS, write_corpus

from convert_tf.config.model import model_preset
from convert_tf.data.batches import TrainingBatches
from convert_tf.data.shards import list_shards
from convert_tf.data.token_arrays import ArrayFolder, ids_file
from convert_tf.export.hub.writing import export_module
from convert_tf.storage.checksums import record_checksums
from convert_tf.training import loop
from convert_tf.training.encoder.data import EncoderData
from convert_tf.training.encoder.options import EncoderTraining
from convert_tf.training.encoder.task import EncoderTask, train
from convert_tf.training.processes import (
    Processes,
    as_share,
    check_same,
    join_processes,
    refuse_failed,
    rows_of_a_share,
)
from convert_tf.training.state import saved_checkpoints

pytestmark = pytest.mark.traced

CONFIG = EncoderTraining(
    steps=50, batch_size=48, optimizer="adam", learning_rate=0.003, warmup_steps=5,
    scale_start=20.0, l2=1e-5, precision="float32", eval_every=25, eval_examples=100,
    checkpoint_every=25,
)  # fmt: skip

# Runs train.py with the flags in argv[2:], and writes observations to argv[1].
WATCHED = """
import json, os, runpy, signal, sys
from convert_tf.training import processes as distribution
from convert_tf.training import loop
from convert_tf.training.encoder.objective import EncoderObjective

told, sys.argv = sys.argv[1], ["train.py", *sys.argv[2:]]
signal_step = int(os.environ.get("SIGNAL_STEP", 0))
number = int(os.environ.get("SIGNAL", signal.SIGTERM))
means, shapes = [], []
distribution.SECONDS_UNTIL_SHARED = 0.5
loop.STEPS_BETWEEN_SUMMARIES = 5
count, train_step = loop._Steps.count, EncoderObjective.train_step

def watched_count(self, batch, logs):
    means.append((self.step, self.clock._steps, float(logs["ranking_loss"])))
    if self.step == signal_step:
        os.kill(os.getpid(), number)
    count(self, batch, logs)

def watched_train_step(self, state, data):
    shapes.append(data[0]["token_ids"].shape)  # this is Python: run once for each compilation
    return train_step(self, state, data)

loop._Steps.count = watched_count
EncoderObjective.train_step = watched_train_step
try:
    runpy.run_path("train.py", run_name="__main__")
finally:
    modules = [name for name in sys.modules if name.split(".")[0] in ("tensorflow", "tf_keras")]
    with open(told, "w") as file:
        json.dump({"means": means, "shapes": shapes, "tensorflow": modules}, file)
"""


def losses_of(means):
    """Return each step's loss, computed from the running means since the last pause."""
    losses, total = {}, 0.0
    for step, batch, mean in means:
        total = 0.0 if batch == 0 else total
        losses[step] = (batch + 1) * mean - total
        total = (batch + 1) * mean
    return losses


def run_flags(arrays, output, **changes):
    return flags_of(CONFIG, data=arrays, output=output, shuffle_buffer=200, **changes)


started = []


@pytest.fixture(autouse=True)
def nothing_left_running():
    yield
    while started:
        started.pop().kill()


def start(told, *flags, devices=1, **environment):
    xla = f"{ON_JAX['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHED, str(told), *flags],
        cwd=ROOT, env={**os.environ, **ON_JAX, "XLA_FLAGS": xla, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    started.append(process)
    return process


def start_two(folder, arrays, output, *, signal_in=1, **environment):
    """Start two processes; process `signal_in` sends itself a signal at SIGNAL_STEP."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    outputs = [output, output] if isinstance(output, Path) else output
    return [
        start(
            folder / f"told{index}.json",
            *run_flags(arrays, outputs[index]),
            "--num_processes=2",
            f"--process_id={index}",
            f"--coordinator={address}",
            **(environment if index == signal_in else {}),
        )
        for index in range(2)
    ]


def finish(process, *, status=0):
    out, err = process.communicate(timeout=900)
    if status is not None:
        assert process.returncode == status, err
    return out, err


def told_in(path):
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_train=400).arrays


@pytest.fixture(scope="module")
def on_jax(arrays, tmp_path_factory):
    """`(run folder, observations)` of one process with one device."""
    folder = tmp_path_factory.mktemp("jax")
    finish(start(folder / "told.json", *run_flags(arrays, folder / "run")))
    return folder / "run", told_in(folder / "told.json")


@pytest.fixture(scope="module")
def on_tensorflow(arrays, tmp_path_factory):
    """`(run folder, losses by step)`."""
    folder = tmp_path_factory.mktemp("tensorflow") / "run"
    return folder, run_here(arrays, folder, CONFIG)


def run_here(arrays, folder, config):
    """Train in this process on TensorFlow, and return the losses by step."""
    means = []
    count = loop._Steps.count

    def watched(self, batch, logs):
        means.append((self.step, self.clock._steps, float(logs["ranking_loss"])))
        count(self, batch, logs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop._Steps, "count", watched)
        config = dataclasses.replace(config, data=arrays, shuffle_buffer=200)
        train(MODEL, config, output=str(folder))
    return losses_of(means)


def assert_close(losses, expected, steps, *, tolerance):
    assert sorted(losses) == list(steps)
    np.testing.assert_allclose(
        [losses[step] for step in steps], [expected[step] for step in steps], atol=tolerance
    )


@pytest.mark.slow
def test_jax_gives_the_losses_of_tensorflow_for_the_same_seed(on_jax, on_tensorflow):
    run, told = on_jax
    expected = on_tensorflow[1]
    assert_close(losses_of(told["means"]), expected, range(1, 51), tolerance=1e-4)
    assert expected[1] - expected[50] > 0.5  # the loss falls
    assert told["tensorflow"] == []
    shapes = [tuple(shape) for shape in told["shapes"]]
    assert len(shapes) == len(set(shapes)) <= 3  # each shape is compiled
    assert all(rows % 32 == 0 for rows, _ in shapes)
    for row, other in zip(rows_of(run), rows_of(on_tensorflow[0]), strict=True):
        assert row["dev"]["MRR"] == pytest.approx(other["dev"]["MRR"], abs=2e-3)


@pytest.mark.slow
def test_checkpoints_go_both_ways(on_jax, on_tensorflow, arrays, tmp_path):
    """Runs resume at step 25 on the other backend with their optimizer; JAX's can be exported."""
    for name, (run, _) in {"jax": on_jax, "tensorflow": on_tensorflow}.items():
        shutil.copytree(run, tmp_path / name)
        shutil.rmtree(saved_checkpoints(tmp_path / name)[0])
    finish(start(tmp_path / "told.json", *run_flags(arrays, tmp_path / "tensorflow")))
    losses = losses_of(told_in(tmp_path / "told.json")["means"])
    assert_close(losses, on_tensorflow[1], range(26, 51), tolerance=2e-4)
    losses = run_here(arrays, tmp_path / "jax", CONFIG)
    assert_close(losses, on_tensorflow[1], range(26, 51), tolerance=2e-4)
    export_module(on_jax[0], tmp_path / "module")


@pytest.mark.slow
def test_two_processes_give_the_losses_of_one(on_jax, arrays, tmp_path):
    """SIGTERM to one process ends both after the step; two devices resume with micro-batches."""
    expected = losses_of(on_jax[1]["means"])
    run = tmp_path / "run"
    processes = start_two(tmp_path, arrays, run, SIGNAL_STEP="5")
    (out, err), (silent_out, silent_err) = [finish(process, status=75) for process in processes]
    assert "training on 2 devices in 2 processes" in out
    assert "stopped by a signal: saved step 6" in err
    assert "R100@1" in err
    assert "padding" not in silent_out
    assert "R100@1" not in silent_err
    for index in range(2):
        told = told_in(tmp_path / f"told{index}.json")
        assert_close(losses_of(told["means"]), expected, range(1, 7), tolerance=1e-5)
    assert [p.name for p in saved_checkpoints(run)] == ["step-00000006"]
    evaluations = rows_of(on_jax[0])
    assert rows_of(run)[0]["dev"] == pytest.approx(evaluations[0]["dev"], abs=1e-5)
    flags = run_flags(arrays, run, micro_batch=16)
    resumed = start(tmp_path / "told.json", *flags, devices=2)
    assert "training on 2 devices in 1 processes" in finish(resumed)[0]
    losses = losses_of(told_in(tmp_path / "told.json")["means"])
    assert_close(losses, expected, range(7, 51), tolerance=1e-4)
    for row, other in zip(rows_of(run), evaluations, strict=True):
        assert row["dev"]["MRR"] == pytest.approx(other["dev"]["MRR"], abs=2e-3)


@pytest.mark.slow
def test_a_process_that_dies_ends_the_other_with_a_message(arrays, tmp_path):
    killed = {"SIGNAL_STEP": "3", "SIGNAL": str(int(signal.SIGKILL))}
    first, second = start_two(tmp_path, arrays, tmp_path / "run", **killed)
    finish(second, status=-signal.SIGKILL)
    _, err = finish(first, status=76)
    assert "another process of the run ended" in err


@pytest.mark.slow
def test_processes_need_one_folder(arrays, tmp_path):
    processes = start_two(tmp_path, arrays, [tmp_path / "a", tmp_path / "b"], signal_in=None)
    for process in processes:
        _, err = finish(process, status=1)
        assert "does not see the folder" in err
        assert "Traceback" not in err


@pytest.mark.slow
def test_auto_needs_a_cluster(arrays, tmp_path):
    flags = run_flags(arrays, tmp_path / "run")
    _, err = finish(start(tmp_path / "told.json", *flags, "--coordinator=auto"), status=1)
    assert "--coordinator=auto found no cluster" in err.splitlines()[-1]


def test_several_processes_need_jax_and_each_other(monkeypatch):
    with pytest.raises(ValueError, match="Set KERAS_BACKEND=jax"):
        join_processes(2, 0, "localhost:1")
    join_processes(1)
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "2")
    with pytest.raises(ValueError, match="Set KERAS_BACKEND=jax"):
        join_processes()


def test_a_failure_is_raised_where_it_was_and_names_the_process():
    with pytest.raises(ValueError, match="Process 1, 3 stopped"):
        refuse_failed(np.array([0, 1, 0, 1]))
    with pytest.raises(KeyError), Processes().together():
        raise KeyError


def test_a_process_with_other_facts_is_named():
    class WithAnother(Processes):
        def gather(self, *values):
            own = np.array([values])
            return np.concatenate([own, own, own + 1])

    with pytest.raises(ValueError, match=r"initial weights of process 2 differ"):
        check_same(WithAnother(), "facts")
    check_same(Processes(), "facts")


def agreed_on(data, vocabulary=None, **options):
    """Return what several processes that train on this data compare."""
    config = EncoderTraining(data=str(data), batch_size=8, **options)
    opened = EncoderData(
        model_preset("tiny", num_oov_buckets=NUM_OOV_BUCKETS), config, vocabulary=vocabulary,
        init_from=None,
    )  # fmt: skip
    return EncoderTask.to_agree_on(SimpleNamespace(data=opened, config=config), None)


def test_processes_compare_the_texts_and_not_only_their_number(tmp_path):
    corpus = write_corpus(tmp_path, num_train=60)
    ids, records = tmp_path / "other_ids", tmp_path / "other_records"
    shutil.copytree(corpus.arrays, ids)
    assert agreed_on(ids) == agreed_on(corpus.arrays)
    path = ids / ids_file("dev", "response")
    values = np.load(path)
    values[:6] = 7
    np.save(path, values)
    record_checksums(ids, [path.name])
    assert agreed_on(ids) != agreed_on(corpus.arrays)

    shutil.copytree(corpus.records, records)
    given = {"vocabulary": corpus.vocabulary}
    assert agreed_on(records, **given) == agreed_on(corpus.records, **given)
    first, second, _ = map(Path, list_shards(str(records), "train"))
    contents = first.read_bytes(), second.read_bytes()
    second.write_bytes(contents[0])
    first.write_bytes(contents[1])
    assert agreed_on(records, **given) != agreed_on(corpus.records, **given)


def test_processes_compare_where_teachers_come_from(arrays, tmp_path):
    (tmp_path / "teacher.json").write_text("{}")
    options = {"ranking_teacher": str(tmp_path), "ranking_distillation": 1.0}
    before = agreed_on(arrays, **options)
    (tmp_path / "teacher.json").write_text('{"teacher": "another"}')
    assert agreed_on(arrays, **options) != before


def batches_of(arrays, **options):
    examples = ArrayFolder(arrays).open("train", max_tokens=60)
    batches = TrainingBatches(
        examples, batch_size=48, row_tokens=64, shuffle_buffer=200, seed=0, marks_duplicates=True,
        **options,
    )  # fmt: skip
    return iter(batches), examples


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_shares_make_up_the_batches_of_one_process(arrays, micro_batches):
    whole, examples = batches_of(arrays)
    options = {"micro_batches": micro_batches}
    parts = [batches_of(arrays, part=(index, 3), **options) for index in range(3)]
    for _ in range(20):  # beyond the end of an epoch
        expected = next(whole)
        packed = [next(part) for part, _ in parts]
        rows = max(len(batch["token_ids"]) for batch in packed) + 1
        shares = [
            as_share(batch, rows=rows, index=index, padding_id=examples.padding_id)
            for index, batch in enumerate(packed)
        ]
        joined = {name: np.concatenate([share[name] for share in shares]) for name in expected}
        assert len(joined["token_ids"]) == 3 * rows
        assert joined["token_ids"].shape[-1] == 64
        for name in ("context", "response"):
            assert texts_in(joined, name) == texts_in(expected, name)
        np.testing.assert_array_equal(joined["response_groups"], expected["response_groups"])
        assert (joined["token_ids"] != examples.padding_id).sum() == joined["segment_lengths"].sum()


def test_each_process_reads_its_own_examples(arrays, monkeypatch):
    read = []
    for index in range(2):
        batches, examples = batches_of(arrays, part=(index, 2))
        token_ids = examples.token_ids
        numbers = []
        monkeypatch.setattr(
            examples,
            "token_ids",
            lambda loaded, n=numbers, t=token_ids: n.extend(loaded) or t(loaded),
        )
        for _ in range(8):
            next(batches)
        read.append(numbers)
    assert not set(read[0]) & set(read[1])
    assert len(read[0]) == len(read[1]) == 8 * 24


@pytest.mark.parametrize(("number", "rows"), [(1, 32), (2, 16), (3, 11), (64, 1)])
def test_rows_of_all_shares_are_a_multiple_about_as_large(number, rows):
    assert rows_of_a_share(32, Processes(number)) == rows


def test_a_platform_without_devices_is_named(tmp_path):
    command = [sys.executable, "-m", "convert_tf", "train", "--data=pairs.csv", "--model=tiny",
               "--steps=1", "--output=run"]  # fmt: skip
    pairs = "".join(f"where is {i},it is here {i}\n" for i in range(100))
    (tmp_path / "pairs.csv").write_text(f"question,answer\n{pairs}")
    environment = {**os.environ, **ON_JAX, "JAX_PLATFORMS": "cuda"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "JAX cannot use any device of JAX_PLATFORMS='cuda'. Unset" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
