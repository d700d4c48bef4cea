"""Evaluation of checkpoints and modules, and the nearest responses."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from script_calls import call_script
from tiny_checkpoint import random_texts, write_checkpoint, write_records

import convert_tf.evaluate
import convert_tf.nearest
from convert_tf.data.pipeline import read_pairs
from convert_tf.evaluate import ModuleEncoder, evaluate, table
from convert_tf.hub import export_module
from convert_tf.nearest import nearest_responses, read_candidates

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    checkpoint = write_checkpoint(folder / "checkpoint")
    return {
        "checkpoint": str(checkpoint),
        "module": str(export_module(checkpoint, folder / "module")),
        "data": str(write_records(folder / "data", 450)),
    }


@pytest.fixture(scope="module")
def encoder(paths):
    return ModuleEncoder(paths["module"], batch_size=7)


@pytest.fixture(scope="module")
def reports(paths):
    data = paths["data"]
    return (
        evaluate(data, checkpoint=paths["checkpoint"]),
        evaluate(data, module=paths["module"]),
    )


def run_module(name, *arguments):
    return subprocess.run(
        [sys.executable, "-m", name, *arguments],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )


def test_checkpoint_and_module_agree(reports):
    scores, module_scores = (report["metrics"] for report in reports)
    assert set(scores) == {"R100@1", "R100@3", "R100@10", "MRR"}
    assert 0.05 < scores["R100@1"] < scores["R100@3"] < scores["R100@10"] < 1
    for name, score in scores.items():
        assert abs(module_scores[name] - score) <= 0.01


def test_the_score_equals_a_naive_one(paths, reports):
    signatures = tf.saved_model.load(paths["module"]).signatures
    contexts, responses = read_pairs(paths["data"], "test")
    h_c = signatures["encode_context"](tf.constant(contexts))["default"].numpy()
    h_r = signatures["encode_response"](tf.constant(responses))["default"].numpy()
    hits = 0
    for start in range(0, 400, 100):
        for i in range(start, start + 100):
            own = h_c[i] @ h_r[i]
            hits += all(h_c[i] @ h_r[j] < own for j in range(start, start + 100) if j != i)
    assert reports[1]["metrics"]["R100@1"] == pytest.approx(hits / 400, abs=0.0051)


def test_the_report_says_what_was_scored(paths, reports):
    for report, name in zip(reports, ("checkpoint", "module"), strict=True):
        assert report[name] == paths[name]
        assert report["examples"] == 400  # 450, without the last partial block
        assert report["split"] == "test"
        assert report["data"] == paths["data"]
        assert report["seconds"] > 0
        text = table(report)
        assert f"{report['metrics']['R100@1']:.2%}" in text
        assert "MRR" in text


def test_options_change_what_is_scored(paths):
    report = evaluate(
        paths["data"], module=paths["module"], ks=(2,), block_size=20, max_examples=130
    )
    assert report["examples"] == 120
    assert set(report["metrics"]) == {"R20@2", "MRR"}


def test_precision_of_a_checkpoint(paths, reports):
    report = evaluate(paths["data"], checkpoint=paths["checkpoint"], precision="mixed_bfloat16")
    assert report["precision"] == "mixed_bfloat16"
    assert report["metrics"] != reports[0]["metrics"]
    assert abs(report["metrics"]["R100@10"] - reports[0]["metrics"]["R100@10"]) < 0.05


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"checkpoint": None}, "Received: neither"),
        ({"module": "m"}, "Received: both"),
        ({"split": "nowhere"}, "Received: 'nowhere'"),
        ({"split": "dev"}, "holds no dev-"),
        ({"max_examples": 99}, "at least 100 examples. Received: 99 of the split 'test'"),
        ({"ks": (101,)}, r"k \[101\], block size 100"),
        ({"ks": ()}, "k must be from 1"),
        ({"precision": "float8"}, "Received: 'float8'"),
        ({"checkpoint": "nowhere"}, "without config.json"),
        ({"checkpoint": None, "module": "nowhere"}, "folder that export.py wrote"),
        (
            {"checkpoint": None, "module": "m", "precision": "mixed_bfloat16"},
            "its own precision",
        ),
    ],
)
def test_errors(paths, changes, message):
    arguments = {"checkpoint": paths["checkpoint"], **changes}
    with pytest.raises(ValueError, match=message):
        evaluate(paths["data"], **arguments)


def test_module_without_the_signatures(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "other"))
    with pytest.raises(ValueError, match="without encode_context, encode_response"):
        ModuleEncoder(tmp_path / "other")


def test_sorting_and_duplicates_keep_the_order(paths, encoder):
    texts = [*random_texts(30), "", *random_texts(30)[::-1], "a" * 50]
    signature = tf.saved_model.load(paths["module"]).signatures["encode_context"]
    expected = np.concatenate([signature(tf.constant([t]))["default"].numpy() for t in texts])
    np.testing.assert_allclose(encoder.encode_contexts(texts), expected, atol=1e-5)
    assert encoder.encode_contexts([]).shape == (0, 64)
    differ = encoder.encode_responses(texts) - encoder.encode_contexts(texts)
    assert np.abs(differ).max() > 0.01


def test_nearest_equals_brute_force(encoder):
    candidates = random_texts(50, seed=3)
    queries = random_texts(4, seed=4)
    found = nearest_responses(encoder, queries, [*candidates, *candidates], top_k=5)
    assert [len(results) for results in found] == [5] * 4
    for query, results in zip(queries, found, strict=True):
        h = encoder.encode_contexts([query])[0]
        scores = {c: float(h @ encoder.encode_responses([c])[0]) for c in candidates}
        best = sorted(scores.values(), reverse=True)[:5]
        np.testing.assert_allclose([cosine for _, cosine in results], best, atol=1e-5)
        assert len({text for text, _ in results}) == 5
        for text, cosine in results:
            assert scores[text] == pytest.approx(cosine, abs=1e-5)


def test_nearest_needs_candidates(encoder, tmp_path):
    with pytest.raises(ValueError, match="0 candidates"):
        nearest_responses(encoder, ["how are you"], [])
    with pytest.raises(ValueError, match="lines of a UTF-8 file"):
        read_candidates(tmp_path / "nowhere.txt")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match="lines of a UTF-8 file"):
        read_candidates(tmp_path / "latin.txt")


def test_commands(paths, tmp_path):
    output = tmp_path / "report.json"
    done = run_module(
        "convert_tf.evaluate", f"--module={paths['module']}", f"--data={paths['data']}",
        "--k=1,5", f"--output={output}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "R100@5" in done.stdout
    assert set(json.loads(output.read_text())["metrics"]) == {"R100@1", "R100@5", "MRR"}

    candidates = tmp_path / "candidates.txt"
    candidates.write_text("reset my password\n\nthe cat sat\nreset my password\n")
    done = run_module(
        "convert_tf.nearest", f"--module={paths['module']}", f"--candidates={candidates}",
        "--queries=how, do i reset my password", "--top_k=3",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert lines[0] == "how, do i reset my password"
    assert sorted(line.split(maxsplit=1)[1] for line in lines[1:]) == [
        "reset my password",
        "the cat sat",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint=c"], "evaluate: Either a checkpoint or a module is evaluated."),
        (["--k=one"], "--k is a list of numbers"),
    ],
)
def test_command_errors_have_no_traceback(paths, arguments, message):
    data, module = f"--data={paths['data']}", f"--module={paths['module']}"
    done = run_module("convert_tf.evaluate", data, module, *arguments)
    assert done.returncode != 0
    assert message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def error_line(monkeypatch, script, *arguments):
    with pytest.raises(SystemExit) as caught:
        call_script(monkeypatch, script, *arguments)
    message = caught.value.code
    assert isinstance(message, str)  # what Python exits with 1 for, after printing it
    assert "\n" not in message
    return message


DAMAGES = {
    "graph": lambda folder: cut(folder / "saved_model.pb"),
    "no graph in it": lambda folder: (folder / "saved_model.pb").write_bytes(b"x" * 100),
    "index": lambda folder: cut(folder / "variables" / "variables.index"),
    "shard": lambda folder: cut(folder / "variables" / "variables.data-00000-of-00002"),
    "no shard": lambda folder: (folder / "variables" / "variables.data-00001-of-00002").unlink(),
    "no variables": lambda folder: shutil.rmtree(folder / "variables"),
    "nothing": lambda folder: shutil.rmtree(folder),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_modules(paths, tmp_path, monkeypatch, damage):
    module = Path(shutil.copytree(paths["module"], tmp_path / "module"))
    DAMAGES[damage](module)
    candidates = tmp_path / "candidates"
    candidates.write_text("one\n")
    scripts = {
        convert_tf.evaluate: (f"--data={paths['data']}",),
        convert_tf.nearest: (f"--candidates={candidates}", "--queries=two"),
    }
    for script, arguments in scripts.items():
        message = error_line(monkeypatch, script, f"--module={module}", *arguments)
        assert f"A module is a folder that export.py wrote. Received: {str(module)!r}" in message


def test_module_that_fails_at_texts(paths, monkeypatch):
    encoder = ModuleEncoder(paths["module"])

    def fail(_):
        raise tf.errors.InvalidArgumentError(None, None, "indices[3] = 70\nis not in [0, 60)")

    encoder._module = type("Module", (), {"signatures": {"encode_context": fail}})
    with pytest.raises(ValueError, match=r"export\.py wrote") as caught:
        encoder.encode_contexts(["text"])
    assert paths["module"] in str(caught.value)


@pytest.mark.parametrize("script", [convert_tf.evaluate, convert_tf.nearest])
def test_damaged_records(paths, tmp_path, monkeypatch, script):
    data = Path(shutil.copytree(paths["data"], tmp_path / "data"))
    cut(next(data.iterdir()))
    arguments = ["--queries=two"] if script is convert_tf.nearest else []
    arguments += [f"--module={paths['module']}", f"--data={data}"]
    assert str(data) in error_line(monkeypatch, script, *arguments)


def test_places_that_cannot_be_read_or_written(paths, tmp_path, monkeypatch):
    arguments = (f"--module={paths['module']}", f"--data={paths['data']}")
    output = tmp_path / "nowhere" / "report.json"
    message = error_line(monkeypatch, convert_tf.evaluate, *arguments, f"--output={output}")
    assert f"No such file or directory, at {str(output)!r}" in message

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "data/test")

    monkeypatch.setattr("convert_tf.data.pipeline.read_pairs", refuse)
    for script, more in ((convert_tf.evaluate, ()), (convert_tf.nearest, ("--queries=two",))):
        assert "data/test" in error_line(monkeypatch, script, *arguments, *more)
