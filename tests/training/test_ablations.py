"""The scripts that compare training runs: what they run, read and print, and that they go on."""

import dataclasses
import json
from pathlib import Path

import pytest
from support.commands import call_command
from support.script_calls import call_script

from convert_tf.config.model import ModelConfig, model_preset
from convert_tf.models.encoder import DualEncoder, count_parameters
from convert_tf.training.encoder import run as training
from convert_tf.training.encoder.sources import open_data

NUM_TRAIN = 700

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
SIZE = ("--embedding_dim=8", "--max_relative_attention=3,5")


@pytest.fixture
def runs(monkeypatch):
    """`training_runs`, whose runs get as far as `train` and write what one would; and the runs."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import training_runs

    started = []

    def train(model, config, *, output, vocabulary, init_from):
        _, model = open_data(config.data, vocabulary, model, init_from)
        folder = Path(output)
        steps = [*range(0, config.steps, config.eval_every), config.steps]
        scores = {"R100@1": 0.5 + config.learning_rate, "MRR": 0.6, "examples": 100}
        rows = [
            {
                "step": step,
                "pairs": step * config.batch_size,
                "seconds": 1.0 + 0.5 * step,
                "cpu_seconds": 2.0 + step * config.batch_size / 100,
                "ranking_loss": 4.0 if step else None,
                config.eval_splits[0]: scores,
            }
            for step in steps
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        parameters = count_parameters(DualEncoder(model))
        facts = {"parameters": parameters, "precision": "float32"}
        (folder / "training.json").write_text(json.dumps(facts))
        started.append((folder.name, model, config))

    def run(command, folder):
        call_command(*command[3:])  # behind python -m convert_tf

    monkeypatch.setattr(training, "train", train)
    monkeypatch.setattr(training_runs, "_run", run)
    return started


def _call(monkeypatch, script, *arguments):
    call_script(monkeypatch, BENCHMARKS / script, *arguments)


def _changes(model: ModelConfig, other: ModelConfig) -> dict:
    return {name: values[1] for name, values in model.differences(other).items()}


@pytest.mark.slow
def test_each_ablation_changes_what_table_4_says(corpus, runs, tmp_path, monkeypatch, capsys):
    arguments = (f"--data={corpus.arrays}", f"--output={tmp_path}", "--steps=8", *SIZE)
    _call(monkeypatch, "ablations.py", *arguments)
    models = {name.removesuffix("-seed0"): model for name, model, _ in runs}
    base = models["ConveRT"]
    paper = model_preset("convert")
    assert base.feed_forward_dim / base.embedding_dim == 2048 / 512
    assert base.side_hidden_dim == base.reduced_dim  # so that the first layer has its skip too
    assert (base.num_heads, base.use_relative_bias, base.reduction_heads, base.use_side_skip) == (
        paper.num_heads, paper.use_relative_bias, paper.reduction_heads, paper.use_side_skip,
    )  # fmt: skip
    one = {
        "A": {"num_heads": 8},
        "B": {"use_relative_bias": False},
        "C": {"max_relative_attention": (5, 5)},
        "D": {"num_oov_buckets": 1},
        "E": {"reduction_heads": 1},
        "F": {"use_side_skip": False},
    }
    several = {name: {} for name in ("D+E+F", "B+C+D+E+F")}
    for name in several:
        for letter in name.split("+"):
            several[name] |= one[letter]
    assert {name: _changes(base, model) for name, model in models.items()} == {
        "ConveRT": {}, **one, **several,
    }  # fmt: skip
    # Trained alike: with one bucket, the token ids are others.
    assert len({dataclasses.replace(c, seed=0, data="") for _, _, c in runs}) == 1
    printed = capsys.readouterr().out
    lines = [line.split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    assert [line[0].strip("| ").split(":")[0] for line in lines[1:]] == list(models)
    assert lines[2][9:11] == ["0.3", "1.20"]  # 68.5 against 68.2, $102 against $85
    assert "50.10" in lines[1][1]
    assert "% of the training tokens are hashed" in printed
    assert (tmp_path / "ablations.png").read_bytes().startswith(b"\x89PNG")
    done = len(runs)
    _call(monkeypatch, "ablations.py", *arguments)
    assert len(runs) == done  # all of them were read
    with pytest.raises(SystemExit, match=r"keep their flags.*--steps=9"):
        _call(monkeypatch, "ablations.py", *arguments, "--steps=9")
    with pytest.raises(SystemExit, match=r"A variant is one of ConveRT, A.*Received: G"):
        _call(monkeypatch, "ablations.py", *arguments, "--variants=G")


@pytest.mark.slow
def test_ablations_of_records_over_seeds(corpus, runs, tmp_path, monkeypatch, capsys):
    _call(
        monkeypatch, "ablations.py", f"--data={corpus.records}", f"--vocab={corpus.vocabulary}",
        f"--output={tmp_path}", "--variants=D", "--seeds=2", *SIZE, "--", "--batch_size=50",
    )  # fmt: skip
    assert [name for name, *_ in runs] == [
        "ConveRT-seed0", "D-seed0", "ConveRT-seed1", "D-seed1",
    ]  # fmt: skip
    assert {model.num_oov_buckets for _, model, _ in runs} == {1, 1000}
    assert {config.batch_size for *_, config in runs} == {50}
    assert [config.seed for *_, config in runs] == [0, 0, 1, 1]
    assert "50.10 ± 0.00" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="Records need --vocab"):
        _call(monkeypatch, "ablations.py", f"--data={corpus.records}", f"--output={tmp_path}")


@pytest.mark.slow
def test_recipes_have_equal_cpu_time(corpus, runs, tmp_path, monkeypatch, capsys):
    arguments = (f"--data={corpus.arrays}", f"--output={tmp_path}", "--cpu_minutes=2", *SIZE)
    _call(monkeypatch, "recipe.py", *arguments)
    configs = {name: config for name, _, config in runs}
    calibrations = [name for name in configs if name.startswith("calibration")]
    assert len(calibrations) == len(set(calibrations)) == 5
    # A step of n pairs takes n / 100 CPU seconds here.
    steps = {config.batch_size: config.steps for name, config in configs.items()
             if name not in calibrations}  # fmt: skip
    assert steps == {64: 188, 128: 94, 512: 23}
    paper = configs["adadelta-paper"]
    assert (paper.optimizer, paper.scale_start, paper.l2, paper.warmup_steps) == (
        "adadelta", 1.0, 1e-5, 0,
    )  # fmt: skip
    assert configs["adam-3e-3-batch-128"].learning_rate == 3e-3
    assert configs["adam-1e-3-batch-64"].warmup_steps == 18
    assert (tmp_path / "recipe.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "| adam-1e-3-batch-512 | 512 | 23 | 11,776 | 2.00 | 50.10 |" in printed
    done = len(runs)
    _call(monkeypatch, "recipe.py", *arguments, "--runs=adam-1e-3-batch-64,adadelta-paper")
    assert len(runs) == done
    with pytest.raises(SystemExit, match=r"A run is one of .*Received: sgd"):
        _call(monkeypatch, "recipe.py", *arguments, "--runs=sgd")


def test_cost_leaves_the_first_interval_out(runs):
    from training_runs import cost

    rows = [
        {"step": step, "seconds": seconds, "cpu_seconds": 2 * seconds}
        for step, seconds in ((0, 0.0), (10, 50.0), (20, 60.0), (30, 70.0))
    ]
    assert cost(rows) == (1.0, 2.0)


def test_a_failed_run_is_told_with_its_last_lines(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from training_runs import train

    with pytest.raises(
        ValueError, match=r"status 0\. Received: 1 in .*There is nothing at --data"
    ) as told:
        train(tmp_path / "run", {"data": "missing", "model": "tiny", "steps": 2}, [])
    assert "train.log" in str(told.value)
