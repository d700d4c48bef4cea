"""Scripts that measure or try a release report no figures of other inputs, flags or files."""

import json
import os
import re
import string
import sys
import types
from pathlib import Path

import pytest
from support.intent_examples import WordEncoder, write_csv
from support.script_calls import call_script, script_with_flags
from support.tiny_checkpoint import write_checkpoint, write_records

from convert_tf.data.token_writer import tokenize_records
from convert_tf.text.vocabulary import write_vocabulary
from scripts import try_release

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def recipe(monkeypatch, tmp_path):
    """A function that calls recipe.py and returns its results, without training.

    A step takes as many CPU seconds as the model is wide. The batch size is always 256.
    """
    script, values = script_with_flags(monkeypatch, BENCHMARKS / "recipe.py")
    monkeypatch.setattr(script, "data_options", lambda data, vocabulary: {"data": data})
    monkeypatch.setattr(script, "write_picture", lambda path, draw: None)
    started = {}

    def train(folder, options, more):
        if started.setdefault(folder.name, (options, more)) != (options, more):
            raise ValueError(f"{folder.name} was started with other flags")
        folder.mkdir(exist_ok=True)
        training = {"train": {"batch_size": 256, "learning_rate": 0.5}}
        (folder / "training.json").write_text(json.dumps(training))
        row = {"dev": {"R100@1": 0.5, "MRR": 0.5}, "ranking_loss": 1.0}
        return [
            {**row, "cpu_seconds": step * options["embedding_dim"]}
            | dict.fromkeys(("step", "pairs", "seconds"), step)
            for step in (options["steps"] // 2, options["steps"])
        ]

    monkeypatch.setattr(script, "train", train)

    def call(*arguments):
        script.main(values(["recipe.py", "--data=ids", f"--output={tmp_path}", *arguments]))
        return json.loads((tmp_path / "recipe.json").read_text())

    return call


def test_runs_with_the_same_optimizer_and_batch_share_a_calibration(recipe, tmp_path):
    assert len(recipe("--runs=adam-3e-3-batch-128")) == 1
    assert len(recipe("--runs=")) == 7
    assert len([*tmp_path.glob("calibration-*")]) == 5


def test_a_calibration_with_other_flags_is_not_used(recipe):
    assert recipe("--runs=adam-1e-3-batch-128", "--embedding_dim=5")[0]["rows"][-1]["step"] == 60
    with pytest.raises(SystemExit, match="calibration-adam-batch-128 was started with other flags"):
        recipe("--runs=adam-3e-3-batch-128", "--embedding_dim=10")


def test_the_table_has_the_batch_size_and_the_rate_of_the_training(recipe, capsys):
    (result,) = recipe("--runs=adam-1e-3-batch-64", "--", "--batch_size=256")
    assert (result["batch_size"], result["learning_rate"]) == (256, 0.5)
    assert "| adam-1e-3-batch-64 | 0.5 | 256 |" in " ".join(capsys.readouterr().out.split())


def test_data_sets_with_the_same_file_name_are_all_measured(monkeypatch, tmp_path):
    script, values = script_with_flags(monkeypatch, BENCHMARKS / "unknown_intents.py")
    paths = [tmp_path / name / "test.csv" for name in ("one", "two")]
    for path in paths:
        path.parent.mkdir()
        rows = "".join(f"{path.parent.name} {i},intent {i % 8}\n" for i in range(160))
        path.write_text(f"text,label\n{rows}")
    values(["unknown_intents.py", f"--data={paths[0]},{paths[1]}"])
    sets = script.read_sets()
    assert [*sets] == [str(path) for path in paths]
    assert all(len(texts) == 160 for texts in sets.values())


def test_suggested_labels_are_compared_until_no_more_are_left(monkeypatch, tmp_path, capsys):
    script, values = script_with_flags(monkeypatch, BENCHMARKS / "labels.py")
    monkeypatch.setattr(script, "encodes", lambda encoder, kind: False)
    monkeypatch.setattr(script, "IntentEncodings", lambda encoder, kind: WordEncoder())
    path = write_csv(tmp_path / "train.csv")
    arguments = ["labels.py", f"--train={path}", f"--test={path}", "--start=6", "--budget=4"]
    script.main(values(arguments))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [name, number] for name in ("chance", "suggest") for number in ("6", "10")
    ]
    script.main(values([*arguments, "--budget=6", "--rounds=1"]))  # all labels are used
    assert capsys.readouterr().out.count(" 12 labels") == 2


def test_ids_with_one_bucket_are_copied_from_the_given_folder(monkeypatch, tmp_path):
    script, values = script_with_flags(monkeypatch, BENCHMARKS / "ablations.py")
    records, folders, copies = write_records(tmp_path / "records", 3), [], []
    letters = string.ascii_lowercase
    write_vocabulary(tmp_path / "vocab.txt", [*(f"\ufe4f{one}" for one in letters), *letters])
    for name in ("one", "two"):
        folders.append(tmp_path / name)
        tokenize_records(
            str(records), str(folders[-1]), vocabulary=str(tmp_path / "vocab.txt"),
            num_oov_buckets=7,
        )  # fmt: skip
    for folder in (*folders, folders[0]):
        values(["ablations.py", f"--data={folder}", f"--output={tmp_path / 'runs'}"])
        copies.append(script.data_of("D")["data"])
        assert json.loads((copies[-1] / "arrays.json").read_text())["num_oov_buckets"] == 1
    assert copies[0] == copies[2] != copies[1]
    (folders[0] / "sha256.json").write_text("{}")  # as if other records had been tokenized
    assert script.data_of("D")["data"] != copies[0]


def test_exports_of_another_encoder_are_not_measured(monkeypatch, tmp_path):
    script, values = script_with_flags(monkeypatch, BENCHMARKS / "inference.py")
    exported = []

    def export(command, **options):
        target = command[command.index("--output") + 1]
        exported.append(Path(target).name)
        Path(target).touch()

    monkeypatch.setattr(script, "subprocess", types.SimpleNamespace(run=export, DEVNULL=None))
    folder, paths = tmp_path / "exports", []
    folder.mkdir()
    first, second = (write_checkpoint(tmp_path / f"run_{seed}", seed=seed) for seed in (0, 1))
    for run in (first, second, second):
        values(["inference.py", f"--encoder={run}", "--forms=light int8"])
        ((_, _, path),) = script._exported(folder).values()
        paths.append(path)
    assert exported == ["convert_8.onnx"] * 2
    assert paths[0] != paths[1] == paths[2]


def test_repeated_dumps_of_other_files_are_refused(monkeypatch, tmp_path):
    script, _ = script_with_flags(monkeypatch, BENCHMARKS / "prepare.py")
    comments, other = tmp_path / "RC_a", tmp_path / "RC_b"
    comments.write_text("{}\n")
    other.write_text("{}\n{}\n")
    folder = tmp_path / "scaling"
    folder.mkdir()
    script.check_inputs(folder, [str(other)], [])  # without dumps, anything may follow
    script.check_inputs(folder, [str(comments)], [])
    (folder / "RC_1.zst").touch()
    script.check_inputs(folder, [str(comments)], [])
    for inputs, submissions in (([other], []), ([comments], [other])):
        with pytest.raises(SystemExit, match=r"has RC_1\.zst, made from other or unknown files"):
            script.check_inputs(folder, [*map(str, inputs)], [*map(str, submissions)])


def test_a_missing_npm_package_is_not_said_to_work(monkeypatch, tmp_path, capsys):
    tried = []
    monkeypatch.setattr(try_release, "Environment", lambda folder, python: tried.append(folder))
    arguments = ["try_release.py", "--release", os.fspath(tmp_path)]
    monkeypatch.setattr(try_release, "ENVIRONMENTS", (try_release.node,))
    monkeypatch.setattr(sys, "argv", arguments)
    try_release.main()
    said = capsys.readouterr().out
    assert said == "node: not tried, because the release has no npm package\n"
    monkeypatch.setattr(sys, "argv", [*arguments, "--only", "node"])
    with pytest.raises(SystemExit, match="has no npm package"):
        try_release.main()
    assert not tried


def test_attention_weights_of_a_poly_encoder(tmp_path, monkeypatch, capsys):
    trunk, data = write_checkpoint(tmp_path / "run"), tmp_path / "given.jsonl"
    rows = [
        {"context": [f"a cat {i}", "a fish"], "candidates": ["a", "b"], "label": 1} for i in "xy"
    ]
    data.write_text("\n".join(map(json.dumps, rows)))
    weights = []
    for codes in (1, 3):
        options = (f"--trunk={trunk}", f"--data={data}", f"--poly_codes={codes}")
        call_script(monkeypatch, BENCHMARKS / "poly_attention.py", *options)
        printed = capsys.readouterr().out
        assert printed.startswith(f"2 contexts, first_m with {codes} codes: ")
        weights.append([float(number) for number in re.findall(r"\d\.\d{4}", printed)])
    assert weights[0] == [1, 1]
    assert 0 < weights[1][0] <= weights[1][1] and 1 / 3 <= weights[1][1] < 1
