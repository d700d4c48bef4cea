"""Commands of the base installation, in a process without TensorFlow and Keras."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.commands import own_environment
from support.intent_examples import LABELS, TEXTS, write_csv

ROOT = Path(__file__).resolve().parents[2]
# Runs a list of commands. Packages installed by extras cannot be imported.
PROGRAM = """
import json, sys
for name in ("tensorflow", "tensorflow_text", "tensorflow_hub", "tensorflow_model_optimization",
             "keras", "tf_keras", "sentencepiece", "duckdb", "zstandard", "matplotlib"):
    sys.modules[name] = None
from convert_tf.cli.main import main
for command in json.loads(sys.argv[1]):
    if status := main(command):
        sys.exit(f"{command}: {status}")
"""


def called(folder, *commands):
    """Run the commands, and check that ONNX Runtime's telemetry wrote no database."""
    words, home = [command.split() for command in commands], folder / "home"
    home.mkdir(exist_ok=True)
    environment = {**own_environment(), "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(words)],
        env=environment, cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    assert not [*home.rglob("*onnxruntime*")]
    return done


@pytest.fixture
def folder(tmp_path, tiny_onnx):
    (tmp_path / "encoder.onnx").symlink_to(tiny_onnx)
    write_csv(tmp_path / "train.csv", TEXTS, LABELS)
    (tmp_path / "log.txt").write_text("\n".join(TEXTS * 4) + "\n")
    return tmp_path


def test_vectors_and_search(folder):
    done = called(
        folder,
        "embed --encoder encoder.onnx --input log.txt --output v.npy",
        "index build --encoder encoder.onnx --input log.txt --output index",
        "index search --encoder encoder.onnx --candidates log.txt --queries hello --top_k 2",
        "translate --encoder encoder.onnx --to encoder.onnx --input v.npy --output w.npy",
    )
    assert done.returncode == 0, done.stderr
    assert np.load(folder / "v.npy").shape == (len(TEXTS * 4), 128)
    np.testing.assert_allclose(np.load(folder / "w.npy"), np.load(folder / "v.npy"), atol=0.1)


def test_intents(folder):
    # Messages that are already examples are not suggested.
    (folder / "new.txt").write_text("".join(f"{text} now\n" for text in TEXTS))
    done = called(
        folder,
        "intent train --encoder encoder.onnx --data train.csv --output model",
        "intent evaluate --model model --data train.csv",
        "intent predict --model model --input log.txt",
        "intent export --model model --output intents.onnx --network_bits 32",
        "intent predict --model intents.onnx --input log.txt",
        "intent discover --model model --input log.txt --output groups --min_confidence 1.0 "
        "--min_size 1",
        "intent suggest --model model --input new.txt --output suggested.csv --budget 3",
        "intent monitor --model model --input log.txt --output report",
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "intents.onnx").is_file()


@pytest.mark.parametrize(
    "command",
    [
        "train --data train.csv --model tiny --output run",
        "pretrain --data train.csv --output run",
        "export --encoder run --output module",
        "embed --encoder run --input log.txt --output v.npy",
        "embed --encoder module --input log.txt --output v.npy",
    ],
)
def test_what_needs_the_extra_says_what_to_run(command, folder):
    (folder / "run").mkdir()
    (folder / "run" / "config.json").write_text("{}")
    (folder / "module").mkdir()
    (folder / "module" / "saved_model.pb").touch()
    if command.startswith("export"):
        (folder / "module" / "saved_model.pb").unlink()
    done = called(folder, command)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("convert-tf")]
    assert line.endswith(f"Run pip install '{ROOT}[train]'.")


@pytest.mark.parametrize(
    ("encoder", "reason"),
    [
        ("convrt_small", "does not exist.*convert_small"),
        ("nowhere", "does not exist"),
        ("encoder.onnx", r"is an \.onnx file"),
        ("ranker", "is the module of a ranker.* Pass the run of a dual encoder"),
        ("", "is not a"),
    ],
)
def test_what_is_no_source_of_an_export_needs_no_library(folder, encoder, reason):
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "ranker").mkdir()
    (folder / "ranker" / "saved_model.pb").write_bytes(b"\n\x09score_all\x12")
    done = called(folder, f"export --encoder {encoder or 'empty'} --output module.onnx")
    assert done.returncode == 1
    assert re.search(rf"^convert-tf export: '.*' {reason}", done.stderr, re.MULTILINE)
