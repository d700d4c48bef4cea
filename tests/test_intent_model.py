"""Saved classifiers of real modules: fresh processes, other encoders, serving, fine-tuning."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from intent_examples import LABELS, OUTSIDE, TEXTS, WordEncoder, write_csv
from script_calls import call_script
from tiny_checkpoint import write_checkpoint

import convert_tf.intent
from convert_tf.hub import export_module
from convert_tf.intent import IntentClassifier
from convert_tf.intent_finetuning import CheckpointSentences, FinetuneOptions, finetune
from convert_tf.intent_head import accuracy_of, train_network
from convert_tf.intent_model import HEAD_FILE, MODEL_FILE, load_classifier

ROOT = Path(__file__).resolve().parents[1]
QUICK = {"epochs": 30, "hidden_dim": 8}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two checkpoints, a module of each, and a classifier on the first."""
    folder = tmp_path_factory.mktemp("intents")
    for name, seed in (("a", 0), ("b", 1)):
        write_checkpoint(folder / f"checkpoint_{name}", seed=seed)
        export_module(folder / f"checkpoint_{name}", folder / f"module_{name}")
    classifier = IntentClassifier(str(folder / "module_a"), out_of_scope="confidence", **QUICK)
    classifier.fit([*TEXTS, *OUTSIDE], [*LABELS, *["oos"] * len(OUTSIDE)])
    classifier.save(folder / "model")
    return folder


def in_a_fresh_process(script, *arguments, path=ROOT):
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_it_predicts_the_same_in_a_fresh_process(folders):
    script = (
        "import json, sys\nfrom convert_tf.intent import IntentClassifier\n"
        "c = IntentClassifier.load(sys.argv[1])\n"
        "texts = sys.argv[2:]\n"
        "print(json.dumps([c.predict(texts).tolist(), c.predict_proba(texts).tolist()]))"
    )
    intents, probabilities = in_a_fresh_process(script, folders / "model", *TEXTS, OUTSIDE[0])
    here = load_classifier(folders / "model")
    assert intents == here.predict([*TEXTS, OUTSIDE[0]]).tolist()
    np.testing.assert_allclose(probabilities, here.predict_proba([*TEXTS, OUTSIDE[0]]), atol=1e-4)
    assert here.threshold_ is not None


def test_another_encoder_is_refused(folders, tmp_path):
    with pytest.raises(ValueError, match=r"module_b', whose files differ.*train again"):
        load_classifier(folders / "model", encoder=str(folders / "module_b"))
    shutil.copytree(folders / "module_a", tmp_path / "moved")
    moved = load_classifier(folders / "model", encoder=str(tmp_path / "moved"))
    assert moved.predict(TEXTS[:2]).tolist() == load_classifier(folders / "model").predict(
        TEXTS[:2]
    ).tolist()  # fmt: skip
    with pytest.raises(ValueError, match=r"encodes .* differently"):
        load_classifier(folders / "model", encoder=WordEncoder())
    with pytest.raises(ValueError, match="2 encoders instead of 1"):
        load_classifier(folders / "model", encoder=["x", "y"])
    described = json.loads((folders / "model" / MODEL_FILE).read_text())
    described["encoders"][0]["path"] = str(tmp_path / "gone")
    shutil.copytree(folders / "model", tmp_path / "model")
    (tmp_path / "model" / MODEL_FILE).write_text(json.dumps(described))
    with pytest.raises(ValueError, match=r"gone', which does not exist.*--module"):
        load_classifier(tmp_path / "model")


def test_a_function_is_given_again(tmp_path):
    classifier = IntentClassifier(WordEncoder(), **QUICK).fit(TEXTS, [ord(x[0]) for x in LABELS])
    classifier.save(tmp_path / "model")
    with pytest.raises(ValueError, match="needs it again"):
        load_classifier(tmp_path / "model")
    with pytest.raises(ValueError, match=r"encodes .* differently"):
        load_classifier(tmp_path / "model", encoder=WordEncoder(seed=1))
    again = load_classifier(tmp_path / "model", encoder=WordEncoder())
    assert again.predict(TEXTS).tolist() == classifier.predict(TEXTS).tolist()
    assert again.get_params()["hidden_dim"] == 8


def test_a_folder_is_written_once_and_read_whole(folders, tmp_path):
    classifier = load_classifier(folders / "model")
    with pytest.raises(ValueError, match=r"new folder.*--overwrite"):
        classifier.save(folders / "model")
    shutil.copytree(folders / "model", tmp_path / "model")
    classifier.set_params(rejected_share=0.2).save(tmp_path / "model", overwrite=True)
    assert load_classifier(tmp_path / "model").rejected_share == 0.2
    for name, content, message in (
        (MODEL_FILE, b"{}", "'version'.*train again"),
        (MODEL_FILE, b'{"version": 9}', "version 9"),
        (MODEL_FILE, b'{"version": 1}', "without best_params"),
        (MODEL_FILE, b"[", "train again"),
        (HEAD_FILE, b"x", "train again"),
    ):
        (tmp_path / "model" / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            load_classifier(tmp_path / "model")
    with pytest.raises(ValueError, match="No such file"):
        load_classifier(tmp_path)


def test_one_saved_model_serves_without_the_package(folders, monkeypatch, tmp_path):
    data = write_csv(tmp_path / "train.csv", [*TEXTS, *OUTSIDE], [*LABELS, *["oos"] * 3])
    serving = tmp_path / "serving"
    call_script(
        monkeypatch, convert_tf.intent, "train", f"--module={folders / 'module_a'}",
        f"--module={folders / 'module_b'}", f"--data={data}", f"--output={tmp_path / 'model'}",
        "--epochs=30", "--hidden_dim=8", "--out_of_scope=distance", f"--serving_module={serving}",
    )  # fmt: skip
    script = (
        "import json, sys\nimport tensorflow as tf, tensorflow_text\n"
        "served = tf.saved_model.load(sys.argv[1]).signatures['serving_default']\n"
        "try:\n    import convert_tf\n    raise SystemExit('convert_tf is there')\n"
        "except ImportError:\n    pass\n"
        "out = served(texts=tf.constant(sys.argv[2:]))\n"
        "print(json.dumps({k: v.numpy().astype(str).tolist() if v.dtype == tf.string\n"
        "                  else v.numpy().tolist() for k, v in out.items()}))"
    )
    texts = [*TEXTS, *OUTSIDE]
    monkeypatch.chdir(tmp_path)
    # -P and no PYTHONPATH would still see an editable install.
    script = "import sys\nsys.modules['convert_tf'] = None\n" + script
    served = in_a_fresh_process(script, serving, *texts, path=tmp_path)
    classifier = load_classifier(tmp_path / "model")
    # The client may compute in bfloat16, which can turn a close call.
    answers = zip(served["intent"], classifier.predict(texts), strict=True)
    assert sum(one != (other or "") for one, other in answers) <= 1
    best = classifier.classes_[np.argmax(served["probabilities"], axis=1)]
    assert all(one in ("", other) for one, other in zip(served["intent"], best, strict=True))
    assert 0 < served["intent"].count("") < len(texts)
    np.testing.assert_allclose(served["probabilities"], classifier.predict_proba(texts), atol=0.02)
    assert served["labels"] == [classifier.classes_.tolist()] * len(texts)
    np.testing.assert_allclose(served["confidence"], np.max(served["probabilities"], axis=1))


@pytest.mark.parametrize("bits", [16, 8])
def test_a_served_model_is_as_large_as_what_it_is_made_of(folders, tmp_path, bits):
    from convert_tf.intent_serving import export_serving

    def size(folder):
        return sum(file.stat().st_size for file in (folder / "variables").iterdir())

    # Wide layers, or 8 bits would change nothing and names would weigh more than weights.
    wide = {"feed_forward_dim": 1024, "side_hidden_dim": 512}
    write_checkpoint(tmp_path / "checkpoint", **wide)
    export_module(tmp_path / "checkpoint", tmp_path / "module", network_bits=bits)
    classifier = IntentClassifier(str(tmp_path / "module"), **QUICK).fit(TEXTS, LABELS)
    export_serving(classifier, tmp_path / "serving")
    head = sum(4 * array.size for layer in classifier.head_.layers for array in layer)
    head += 4 * classifier.centroids_.size
    assert size(tmp_path / "serving") < 1.05 * (size(tmp_path / "module") + head)


def test_only_modules_are_served(tmp_path):
    from convert_tf.intent_serving import export_serving

    classifier = IntentClassifier(WordEncoder(), **QUICK).fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match="made of modules"):
        export_serving(classifier, tmp_path / "serving")
    with pytest.raises(ValueError, match="new folder"):
        export_serving(classifier, tmp_path)


def test_a_checkpoint_encodes_as_its_module(folders):
    from convert_tf.client import SentenceEncoder

    encoder = SentenceEncoder(str(folders / "module_a"), compute_dtype="float32")
    own = CheckpointSentences(folders / "checkpoint_a").encode(TEXTS)
    np.testing.assert_allclose(own, encoder.encode(TEXTS), rtol=0.02, atol=0.02)
    untrained = CheckpointSentences(folders / "checkpoint_a", is_trained=False)
    assert np.abs(untrained.encode(TEXTS) - own).max() > 0.1


def test_encoder_and_head_are_trained_together(folders, tmp_path):
    sentences = CheckpointSentences(folders / "checkpoint_a")
    x = sentences.encode(TEXTS)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.unique(LABELS, return_inverse=True)[1]
    head = train_network(x, 0 * y + y, seed=0, epochs=1, hidden_dim=8)
    assert accuracy_of(head, x, y) < 1
    examples = (TEXTS, y)
    options = FinetuneOptions(learning_rate=3e-3, epochs=12, patience=12, batch_size=4, dropout=0)
    tuned = finetune(
        folders / "checkpoint_a", head, train=examples, validation=examples,
        output=tmp_path / "tuned", options=options,
    )  # fmt: skip
    facts = tuned.facts
    assert facts["validation_accuracy_after"] > facts["validation_accuracy_before"]
    assert facts["best_epoch"] >= 1
    assert facts["relative_change"] > 0
    again = CheckpointSentences(tmp_path / "tuned").encode(TEXTS)
    again /= np.linalg.norm(again, axis=1, keepdims=True)
    assert accuracy_of(tuned.head, again, y) == facts["validation_accuracy_after"]
    training = json.loads((tmp_path / "tuned" / "training.json").read_text())
    assert training["intent_finetuning"]["best_epoch"] == facts["best_epoch"]
    with pytest.raises(ValueError, match=r"validate on.*0 examples"):
        finetune(tmp_path, head, train=examples, validation=([], y[:0]), output=tmp_path / "x")


def test_a_fine_tuned_model_holds_its_module(folders, monkeypatch, tmp_path, capsys):
    data = write_csv(tmp_path / "train.csv")
    call_script(
        monkeypatch, convert_tf.intent, "train", "--finetune",
        f"--checkpoint={folders / 'checkpoint_a'}", f"--data={data}", f"--validation={data}",
        f"--output={tmp_path / 'model'}", "--epochs=2", "--hidden_dim=8", "--finetune_epochs=2",
        "--finetune_learning_rate=0.003", "--precision=float32",
    )  # fmt: skip
    printed = capsys.readouterr().out
    assert "weights of the encoder moved by" in printed
    shutil.move(tmp_path / "model", tmp_path / "elsewhere")
    classifier = load_classifier(tmp_path / "elsewhere")
    assert classifier.encoder == str(tmp_path / "elsewhere" / "module")
    accuracy = json.loads((tmp_path / "elsewhere" / MODEL_FILE).read_text())["facts"]["finetuning"]
    # 8-bit tables and 16-bit weights may turn a close call.
    assert classifier.score(TEXTS, LABELS) == pytest.approx(
        accuracy["validation_accuracy_after"], abs=0.2
    )
