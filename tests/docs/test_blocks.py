"""The code blocks of the pages run: all Python blocks, and the first commands of each page.

They run in this process, in a folder where the paths that they name are tiny models.
"""

import contextlib
import csv
import gzip
import json
import shutil
import sys
from unittest import mock

import numpy as np
import pytest
from support.documents import PAGES, README, blocks, commands, run_block
from support.tiny_checkpoint import random_texts

from convert_tf.checkpoints.released import RELEASES
from convert_tf.cli.main import COMMANDS, main

PYTHON = [block for page in PAGES for block in blocks(page, language="python")]
# Blocks that other tests run in order to check their results.
RUN_ELSEWHERE = {
    (README, "Rank responses"): "tests/export/test_released_modules.py",
    ("docs/deployment.md", "Keras"): "tests/export/test_loading.py",
    ("docs/service.md", "Clients of OpenAI"): "tests/service/test_application.py",
    ("docs/rankers.md", "Rankers as modules"): "tests/export/test_ranker_module.py",
}
# Pages that do not begin with one of our commands, and the reason.
NO_FIRST_COMMANDS = {
    "CHANGELOG.md": "has none",
    "CONTRIBUTING.md": "the Makefile's, which CI runs",
    "docs/architecture.md": "has none",
    "docs/decisions.md": "has none",
    "docs/first_hour.md": "has none",
    "docs/deployment.md": "modules are loaded in Python",
    "docs/papers.md": "has none",
    "docs/your_own_loss.md": "Python alone",
    "docs/page.md": "the page is served until it is told to end",
    "docs/scale.md": "calculations",
    "docs/service.md": "the service runs until it is told to end",
    "docs/stability.md": "has none",
    "docs/results.md": "measurements, of hours together",
    "hub_modules/README.md": "the recipe, of hours",
    **{page: "measurements" for page in PAGES if page.startswith("docs/lab/")},
}
# Shortens training from minutes to seconds; if a flag is repeated, the last value applies.
_QUICK_DICT = {'"steps": 300': '"steps": 2, "batch_size": 8, "eval_every": 2'}
QUICKLY_IN_PYTHON = {
    ("docs/training.md", "In Python"): {'"steps": 1000': '"steps": 2, "batch_size": 8'},
    ("docs/training.md", "Weights & Biases, MLflow and other trackers"): _QUICK_DICT,
    ("docs/your_own_loss.md", "A loss in Python"): _QUICK_DICT,
    ("docs/your_own_loss.md", "Your own evaluation"): _QUICK_DICT,
}
QUICKLY = ["--steps=2", "--eval_every=2", "--checkpoint_every=2", "--batch_size=4"]
QUICKLY_WITH_A_HEAD = ["--max_examples=8", "--batch_size=4"]


def write_csv(path, header, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A separate cache, in which names of tiny encoders become `.onnx` files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONVERT_TF_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def place(tiny_modules, tmp_path_factory):
    """A folder with the files and models that the pages name."""
    from convert_tf.checkpoints.folder import save_checkpoint
    from convert_tf.checkpoints.loading import initial_ranker
    from convert_tf.config.ranker import HeadConfig

    folder = tmp_path_factory.mktemp("pages")
    kinds = {"convert": "single", "convert_small": "single", "convert_multi_context": "multi"}
    for name, kind in kinds.items():
        for version in map(str, RELEASES[name]):
            shutil.copytree(tiny_modules[kind][1], folder / "hub_modules" / name / version)
    checkpoint = tiny_modules["single"][0]
    shutil.copytree(checkpoint, folder / "runs" / "convert")
    ranker, vocabulary = initial_ranker(checkpoint, HeadConfig(head="poly", poly_codes=5))
    save_checkpoint(folder / "runs" / "poly", ranker, vocabulary=vocabulary, training={})
    texts = random_texts(1500)
    (folder / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    (folder / "candidates.txt").write_text("\n".join(texts), encoding="utf-8")
    write_csv(folder / "faq.csv", ["question", "answer"], zip(texts, texts[::-1], strict=True))
    (intents,) = blocks(README, language="csv")
    (folder / "train.csv").write_text(intents.text, encoding="utf-8")
    given = [
        json.dumps({"context": [text], "candidates": texts[i : i + 4], "label": i % 4})
        for i, text in enumerate(texts[:16])
    ]
    for name in ("train", "valid"):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(given))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_commands(
            "convert-tf prepare --pairs faq.csv --output data/ --dev_fraction 0.1",
            "convert-tf tokenize --data data/ --vocab hub_modules/convert/1/assets/vocab.txt "
            "--output ids/",
        )
    return folder


def run_commands(*lines):
    for line in lines:
        (command,) = commands(line, COMMANDS)
        assert main([*command.name.split(), *command.arguments]) == 0


def furnished(folder, place):
    """Return a writable folder with the same files and models."""
    for path in place.iterdir():
        if path.name != "runs":
            (folder / path.name).symlink_to(path)
    shutil.copytree(place / "runs", folder / "runs")
    return folder


@pytest.fixture(scope="module")
def finished(place, tmp_path_factory):
    """A folder that also has the files written by the commands."""
    folder = furnished(tmp_path_factory.mktemp("finished"), place)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_commands(
            "convert-tf export --encoder runs/convert --output convert.onnx",
            "convert-tf index build --encoder convert_small --input candidates.txt --output cache/",
            "convert-tf intent train --encoder hub_modules/convert/1 --data train.csv "
            "--output served_model/ --serving_module serving/1",
            "convert-tf intent export --model served_model/ --output intents.onnx",
        )
    return folder


def slow_but_the_readme(found):
    """Mark all but the README's tests as slow: the pages together take minutes."""
    return [
        each if str(each).startswith(README) else pytest.param(each, marks=pytest.mark.slow)
        for each in found
    ]


HERE = (block for block in PYTHON if (block.page, block.section) not in RUN_ELSEWHERE)


@pytest.mark.parametrize("block", slow_but_the_readme(HERE), ids=str)
def test_python(block, finished, monkeypatch):
    monkeypatch.chdir(finished)
    names = run_block(block, QUICKLY_IN_PYTHON.get((block.page, block.section)))
    arrays = [value for value in names.values() if isinstance(value, np.ndarray)]
    assert all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")


def test_blocks_that_run_elsewhere_are_there():
    sections = {(block.page, block.section) for block in PYTHON}
    assert {*RUN_ELSEWHERE} <= sections


@contextlib.contextmanager
def standard_input(text, path):
    """Let commands read a line from standard input, as from `echo`."""
    path.write_text(f"{text}\n", encoding="utf-8")
    with open(path, encoding="utf-8") as file, mock.patch.object(sys, "stdin", file):
        yield


@pytest.mark.parametrize(
    "page", slow_but_the_readme(page for page in PAGES if page not in NO_FIRST_COMMANDS)
)
def test_a_page_begins_with_commands_that_run(page, place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(furnished(tmp_path, place))
    if page == "docs/data.md":  # the page that writes these folders
        for name in ("data", "ids"):
            (tmp_path / name).unlink()
        assert main(["sample", "--output", "dumps/", "--num_threads", "300"]) == 0
    found = ([*commands(block.text, COMMANDS)] for block in blocks(page, language="sh"))
    for command in next(filter(None, found)):
        arguments = [*command.name.split(), *command.arguments]
        if command.name == "train":
            arguments += QUICKLY_WITH_A_HEAD if "--head" in arguments else QUICKLY
        with standard_input(command.stdin, tmp_path / "stdin"):
            status = main(arguments)
        printed = capsys.readouterr()
        assert status == 0, printed.err
        if "--output" in arguments:
            assert (tmp_path / arguments[arguments.index("--output") + 1]).exists()
        else:
            assert printed.out
