"""Saved classifiers with real modules: new processes, other encoders, serving."""

import errno
import functools
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.commands import call_command
from support.intent_examples import LABELS, OUTSIDE, TEXTS, WordEncoder, give_words, write_csv
from support.processes import printed_by
from support.tiny_checkpoint import write_checkpoint

from convert_tf import MultiIntentClassifier, SentenceEncoder
from convert_tf.export.hub.writing import export_module
from convert_tf.intents.classifier import IntentClassifier
from convert_tf.intents.cross_validation import Mixture
from convert_tf.intents.folder import HEAD_FILE, MODEL_FILE
from convert_tf.intents.lexical import train_lexical
from convert_tf.intents.predictor import answer_texts
from convert_tf.intents.serving import export_serving

QUICK = {"head": "network", "epochs": 30, "hidden_dim": 8}


@pytest.fixture(scope="module")
def folders(tiny_modules, tmp_path_factory):
    """Folder with two checkpoints, a module of each, and a classifier on the first module."""
    folder = tmp_path_factory.mktemp("intents")
    for name, path in zip(("checkpoint_a", "module_a"), tiny_modules["single"], strict=True):
        shutil.copytree(path, folder / name)
    write_checkpoint(folder / "checkpoint_b", seed=1)
    export_module(folder / "checkpoint_b", folder / "module_b")
    classifier = IntentClassifier(str(folder / "module_a"), out_of_scope="confidence", **QUICK)
    classifier.fit([*TEXTS, *OUTSIDE], [*LABELS, *["oos"] * len(OUTSIDE)])
    classifier.save(folder / "model")
    return folder


def test_another_encoder_is_refused(folders, tmp_path):
    load = functools.partial(IntentClassifier.load, folders / "model")
    with pytest.raises(
        ValueError, match=r"an unreleased model \(checksum .*module_b'\. .*train again on"
    ):
        load(encoder=str(folders / "module_b"))
    shutil.copytree(folders / "module_a", tmp_path / "moved")
    moved = load(encoder=str(tmp_path / "moved"))
    assert moved.predict(TEXTS[:2]).tolist() == load().predict(TEXTS[:2]).tolist()
    with pytest.raises(ValueError, match="2 encoders instead of 1"):
        load(encoder=["x", "y"])
    copy = copied(folders / "model", tmp_path)
    changed_description(encoders=lambda x: [{**x[0], "path": str(tmp_path / "gone")}])(copy)
    with pytest.raises(
        ValueError, match=r"encoder of '\S+' is '\S+gone', which does not exist.*its.*--encoder"
    ):
        IntentClassifier.load(copy)


def test_advice_about_encoders_can_be_followed(tmp_path):
    one, two = (IntentClassifier(encoder, **QUICK).fit(TEXTS, LABELS)
                for encoder in (WordEncoder(), [WordEncoder(), WordEncoder(seed=1)]))  # fmt: skip
    one.save(tmp_path / "my model")
    with pytest.raises(ValueError, match=r"intent train --model '/.*/my model' --encoder NEW"):
        IntentClassifier.load(tmp_path / "my model", encoder=["a", "b"])
    one.save(tmp_path / "forgotten", keep_examples=False)
    several = MultiIntentClassifier(WordEncoder(), lexical=None).fit(TEXTS, [[x] for x in LABELS])
    several.save(tmp_path / "several")
    for kind, name in ((IntentClassifier, "forgotten"), (MultiIntentClassifier, "several")):
        with pytest.raises(ValueError, match=r"trained with, or train again on all examples\.$"):
            kind.load(tmp_path / name, encoder=["a", "b"])
    two.save(tmp_path / "two")
    gone = [{"path": f"/gone/{name}", "fingerprint": ""} for name in "ab"]
    changed_description(encoders=lambda _: gone)(tmp_path / "two")
    (tmp_path / "two" / "sha256.json").unlink()
    with pytest.raises(ValueError, match=r"all 2 encoders .*in this order: '/gone/a', '/gone/b'"):
        IntentClassifier.load(tmp_path / "two")


def test_a_function_is_given_again(tmp_path):
    classifier = IntentClassifier(WordEncoder(), **QUICK).fit(TEXTS, [ord(x[0]) for x in LABELS])
    classifier.save(tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"no path \(WordEncoder\). Pass the encoder as encoder= in Python"
    ):
        IntentClassifier.load(tmp_path / "model")
    with pytest.raises(ValueError, match=r"encodes .* differently"):
        IntentClassifier.load(tmp_path / "model", encoder=WordEncoder(seed=1))
    again = IntentClassifier.load(tmp_path / "model", encoder=WordEncoder())
    assert again.predict(TEXTS).tolist() == classifier.predict(TEXTS).tolist()
    assert again.get_params()["hidden_dim"] == 8


def test_bytes_are_not_saved_as_lists(tmp_path):
    classifier = IntentClassifier(WordEncoder(), out_of_scope_label=b"oos", **QUICK)
    with pytest.raises(ValueError, match=r"Bytes cannot be saved\. Received: b'oos'"):
        classifier.fit(TEXTS, LABELS).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_complete_files_that_cannot_be_moved_are_kept_and_named(tmp_path, monkeypatch):
    classifier = IntentClassifier(WordEncoder(), **QUICK).fit(TEXTS, LABELS)

    def fails(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(OSError, match=r"The new files are complete, in '.*written'\.") as caught:
        classifier.save(tmp_path / "model")
    # Running the command again would delete them.
    assert "run the same command again" not in str(caught.value)
    assert (tmp_path / ".model.new" / "written" / MODEL_FILE).is_file()


def test_options_may_be_numbers_of_numpy(tmp_path):
    options = {**QUICK, "hidden_dim": np.int64(8), "threshold": np.float32(0.25)}
    classifier = IntentClassifier(WordEncoder(), out_of_scope="confidence", **options)
    classifier.fit(TEXTS, LABELS).save(tmp_path / "model")
    again = IntentClassifier.load(tmp_path / "model", encoder=WordEncoder())
    assert (again.get_params()["hidden_dim"], again.threshold_) == (8, 0.25)


@pytest.mark.parametrize("form", ["module_a", "checkpoint_a", "tiny.onnx"])
def test_an_encoder_that_has_a_path_is_saved_by_it(folders, tmp_path, capsys, form):
    """Commands, which accept paths only, can load the classifier."""
    path = folders / form
    if form == "tiny.onnx" and not path.exists():
        pytest.importorskip("onnxruntime")
        call_command("export", "--encoder", folders / "checkpoint_a", "--output", path)
    encoder = SentenceEncoder(path, batch_size=3)
    classifier = IntentClassifier(encoder, **QUICK).fit(TEXTS, LABELS)
    classifier.save(tmp_path / "one")
    both = IntentClassifier([encoder, str(folders / "module_b")], **QUICK).fit(TEXTS, LABELS)
    both.save(tmp_path / "both")
    sets = [[label] for label in LABELS]
    MultiIntentClassifier(SentenceEncoder(encoder._model)).fit(TEXTS, sets).save(tmp_path / "multi")
    (tmp_path / "texts").write_text("\n".join(TEXTS))
    capsys.readouterr()
    for name, fitted in (("one", classifier), ("both", both), ("multi", None)):
        call_command("intent", "predict", "--model", tmp_path / name, "--input", tmp_path / "texts")
        said = [json.loads(line)["intent"] for line in capsys.readouterr().out.splitlines()]
        assert fitted is None or said == fitted.predict(TEXTS).tolist()
    own = IntentClassifier.load(tmp_path / "one")
    assert own.encoder == str(path)
    np.testing.assert_allclose(own.predict_proba(TEXTS), classifier.predict_proba(TEXTS), atol=1e-3)


def test_a_folder_is_written_once_and_read_whole(folders, tmp_path):
    classifier = IntentClassifier.load(folders / "model")
    with pytest.raises(ValueError, match=r"already exists.*--overwrite"):
        classifier.save(folders / "model")
    copy = copied(folders / "model", tmp_path)
    classifier.set_params(epochs=31).save(copy, overwrite=True)
    assert IntentClassifier.load(copy).epochs == 31
    with pytest.raises(ValueError, match="No such file"):
        IntentClassifier.load(tmp_path)
    (copy / "labels.csv").write_text("mine")
    with pytest.raises(ValueError, match=r"did not write, such as labels\.csv"):
        classifier.save(copy, overwrite=True)
    assert (copy / "labels.csv").read_text() == "mine"
    with pytest.raises(ValueError, match=r"did not write, such as config\.json"):
        classifier.save(folders / "checkpoint_a", overwrite=True)


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """Two folders that stand for modules, and a classifier with a copy of the first one."""
    monkeypatch.setattr("convert_tf.intents.encodings._loaded", lambda _: WordEncoder())
    for name in ("module_a", "module_b"):
        (tmp_path / name / "variables").mkdir(parents=True)
        (tmp_path / name / "variables" / "variables.index").write_text(name)
    write_csv(tmp_path / "train.csv")
    classifier = IntentClassifier(str(tmp_path / "module_a"), names=None).fit(TEXTS, LABELS)
    classifier.save(tmp_path / "first", module=tmp_path / "module_a")
    return tmp_path


def train(folder, *arguments, output):
    call_command("intent", "train", f"--data={folder / 'train.csv'}", "--names=none", *arguments,
                 f"--output={folder / output}")  # fmt: skip


def test_an_encoder_in_a_replaced_folder_is_copied(stand_ins):
    """The folder may be given as a link, and the encoder may be used by another model."""
    first, second, link = (stand_ins / name for name in ("first", "second", "latest"))
    link.symlink_to(first)
    IntentClassifier.load(first).save(link, overwrite=True)
    assert IntentClassifier.load(first).encoder == str(first / "module")
    train(stand_ins, f"--encoder={first / 'module'}", output="second")
    assert IntentClassifier.load(second).encoder == str(first / "module")
    train(stand_ins, f"--model={second}", "--overwrite", output="first")
    for folder in (first, second, link):
        IntentClassifier.load(folder)
    shutil.move(first, stand_ins / "moved")
    moved = IntentClassifier.load(stand_ins / "moved")
    assert moved.encoder == str(stand_ins / "moved" / "module")


def test_an_encoder_that_would_be_deleted_is_kept(stand_ins, monkeypatch):
    """Only one encoder can be copied to `module`, so the folder with the other one is kept."""
    first, second = stand_ins / "first", stand_ins / "second"
    modules = [str(first / "module"), str(stand_ins / "module_b")]
    classifier = IntentClassifier(modules, names=None).fit(TEXTS, LABELS)
    classifier.save(second, module=stand_ins / "module_b")
    message = r"first/module' is an encoder of this classifier, .* would be deleted"
    with pytest.raises(ValueError, match=message):
        classifier.save(first, overwrite=True, module=second / "../module_b")
    monkeypatch.setattr(IntentClassifier, "fit", None)  # the command refuses before training
    with pytest.raises(SystemExit, match=message):
        train(stand_ins, f"--model={second}", "--overwrite", output="first")
    assert IntentClassifier.load(first).encoder == str(first / "module")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A classifier with words and thresholds, whose encoder must be passed when it is loaded."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    scoped().save(folder)
    return folder


def scoped():
    classifier = IntentClassifier(WordEncoder(), out_of_scope="confidence", **QUICK)
    classifier.fit([*TEXTS, *OUTSIDE], [*LABELS, *["oos"] * 3])
    classifier.thresholds_[:] = [0.1, 0.2, 0.3]
    give_words(classifier, 0.4)
    return classifier


def copied(folder, tmp_path):
    """Return a copy without checksums, as written by earlier versions."""
    copy = Path(shutil.copytree(folder, tmp_path / "model"))
    (copy / "sha256.json").unlink()
    return copy


def changed_description(**changes):
    def change(folder):
        described = json.loads((folder / MODEL_FILE).read_text())
        described |= {name: make(described[name]) for name, make in changes.items()}
        (folder / MODEL_FILE).write_text(json.dumps(described))

    return change


def without_option(name):
    return changed_description(params=lambda x: {k: v for k, v in x.items() if k != name})


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def changed_arrays(**changes):
    def change(folder):
        with np.load(folder / HEAD_FILE) as file:
            arrays = dict(file)
        arrays |= {name: make(arrays[name]) for name, make in changes.items()}
        np.savez(folder / HEAD_FILE, **{k: v for k, v in arrays.items() if v is not None})

    return change


DAMAGES = {
    "nothing": (written(MODEL_FILE, b"{}"), "it has no 'encoders'.*train again"),
    "nested": (written(MODEL_FILE, b"[" * 100_000), "nested too deeply"),
    "version 1": (changed_description(version=lambda x: 1), "version 1 .*train again"),
    "reversed labels": (changed_description(labels=lambda x: x[::-1]), "not sorted"),
    "fewer labels": (changed_description(labels=lambda x: x[:-1]), "do not have 2 intents"),
    "a huge threshold": (changed_description(threshold=lambda x: 10**400), "too large"),
    "a weight above 1": (changed_description(mixture=lambda x: {**x, "weight": 2}), "weight=2"),
    "a cosine below 0": (changed_description(mixture=lambda x: {**x, "cosine": -1}), "cosine=-1"),
    "the former rule both": (
        changed_description(
            params=lambda x: {**x, "out_of_scope": "both"},
            mixture=lambda x: {name: x[name] for name in ("weight", "temperature")},
        ),
        "it has no 'cosine'.*train again",
    ),
    "a kind": (changed_description(params=lambda x: {**x, "kind": ["sentence"]}), "kind"),
    "no names": (without_option("names"), "it has no names.*train again"),
    "no margin": (without_option("min_margin"), "it has no min_margin.*train again"),
    "an unknown option": (changed_description(params=lambda x: {**x, "colour": "red"}), "colour"),
    "a grid of another type": (
        changed_description(params=lambda x: {**x, "grid": [1]}),
        "model' is not a IntentClassifier of this version",
    ),
    "an option out of range": (
        changed_description(params=lambda x: {**x, "rejected_share": 7}),
        "model' is not a IntentClassifier of this version .*rejected_share",
    ),
    "fewer examples": (changed_description(examples=lambda x: {**x, "labels": []}), "different"),
    "encoders": (changed_description(encoders=lambda x: [{}]), "it has no paths of encoders"),
    "a flat kernel": (changed_arrays(kernel_0=lambda x: x[0]), "do not match"),
    "a missing bias": (changed_arrays(bias_1=lambda x: None), "it has no 'bias_1'"),
    "no kernels": (changed_arrays(kernel_0=lambda x: None, kernel_1=lambda x: None), "kernel_0"),
    "a wider kernel": (changed_arrays(kernel_1=lambda x: np.ones((9, 3), "f4")), "mismatch"),
    "no numbers": (changed_arrays(kernel_0=lambda x: x * np.nan), "finite"),
    "missing words": (changed_arrays(words=lambda x: None), "it has no 'words'"),
    "a narrower rarity": (changed_arrays(rarity=lambda x: x[1:]), "weights differ"),
    "fewer thresholds": (changed_arrays(thresholds=lambda x: x[:2]), "shape"),
    "an empty head": (written(HEAD_FILE, b""), "No data left"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_does_not_fit_together_is_refused(saved, tmp_path, damage):
    folder = copied(saved, tmp_path)
    IntentClassifier.load(folder, encoder=WordEncoder())
    change, message = DAMAGES[damage]
    change(folder)
    with pytest.raises(ValueError, match=message) as caught:
        IntentClassifier.load(folder, encoder=WordEncoder())
    assert "\n" not in str(caught.value)


def test_words_and_thresholds_come_back(saved):
    classifier, again = scoped(), IntentClassifier.load(saved, encoder=WordEncoder())
    assert again.mixture_ == classifier.mixture_
    assert again.thresholds_.tolist() == [0.1, 0.2, 0.3]
    texts = [*TEXTS, *OUTSIDE, "where is the password"]
    np.testing.assert_array_equal(again.predict_proba(texts), classifier.predict_proba(texts))
    assert again.predict(texts).tolist() == classifier.predict(texts).tolist()


def test_a_threshold_of_another_value_is_found(saved, tmp_path):
    folder = Path(shutil.copytree(saved, tmp_path / "model"))
    changed_description(threshold=lambda x: 0.9)(folder)
    with pytest.raises(ValueError, match=r"intent\.json' was damaged or changed"):
        IntentClassifier.load(folder, encoder=WordEncoder())


@pytest.mark.slow
def test_one_saved_model_serves_without_the_package(folders, monkeypatch, tmp_path):
    data = write_csv(tmp_path / "train.csv", [*TEXTS, *OUTSIDE], [*LABELS, *["oos"] * 3])
    texts = [*TEXTS, *OUTSIDE]
    modules = [str(folders / name) for name in ("module_a", "module_b")]
    # Distances do not depend on how the head is trained. The client may use bfloat16, so the
    # threshold lies in the middle of the widest gap, where rounding changes no answer.
    known = IntentClassifier(modules, out_of_scope="distance", threshold=0)
    scores = np.sort(known.fit(TEXTS, LABELS).scope_scores(texts))
    widest = np.argmax(np.diff(scores))
    call_command(
        "intent", "train", *(f"--encoder={module}" for module in modules), f"--data={data}",
        f"--output={tmp_path / 'model'}", "--head=network", "--epochs=30", "--hidden_dim=8",
        "--out_of_scope=distance", f"--threshold={scores[widest : widest + 2].mean()}",
        f"--serving_module={tmp_path / 'serving'}",
    )  # fmt: skip
    script = (
        # -P and an unset PYTHONPATH would not hide an editable install.
        "import json, sys\nsys.modules['convert_tf'] = None\n"
        "import tensorflow as tf, tensorflow_text\n"
        "served = tf.saved_model.load(sys.argv[1]).signatures['serving_default']\n"
        "out = served(texts=tf.constant(sys.argv[2:]))\n"
        "print(json.dumps({k: v.numpy().astype(str).tolist() if v.dtype == tf.string\n"
        "                  else v.numpy().tolist() for k, v in out.items()}))"
    )
    monkeypatch.chdir(tmp_path)
    printed = printed_by(script, tmp_path / "serving", *texts, PYTHONPATH=str(tmp_path))
    served = json.loads(printed.splitlines()[-1])
    classifier = IntentClassifier.load(tmp_path / "model")
    is_in = known.scope_scores(texts) > scores[widest]
    for intents in (served["intent"], classifier.predict(texts)):
        assert [intent != "oos" for intent in intents] == is_in.tolist()
    best = classifier.classes_[np.argmax(served["probabilities"], axis=1)]
    assert all(one in ("oos", other) for one, other in zip(served["intent"], best, strict=True))
    np.testing.assert_allclose(served["probabilities"], classifier.predict_proba(texts), atol=0.02)
    assert served["labels"] == [classifier.classes_.tolist()] * len(texts)
    best = np.max(served["probabilities"], axis=1)
    is_rejected = np.array(served["intent"]) == "oos"
    np.testing.assert_allclose(
        served["confidence"], np.where(is_rejected, 1 - best, best), atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("bits", [16, 8])
def test_a_served_model_is_as_large_as_what_it_is_made_of(tmp_path, bits):
    def size(folder):
        return sum(file.stat().st_size for file in (folder / "variables").iterdir())

    # In narrow layers, 8 bits would make no difference, and names would be larger than the weights.
    wide = {"feed_forward_dim": 1024, "side_hidden_dim": 512}
    write_checkpoint(tmp_path / "checkpoint", **wide)
    export_module(tmp_path / "checkpoint", tmp_path / "module", network_bits=bits)
    classifier = IntentClassifier(str(tmp_path / "module"), lexical=None, **QUICK)
    classifier.fit(TEXTS, LABELS)
    export_serving(classifier, tmp_path / "serving")
    head = sum(4 * array.size for layer in classifier.parts_.head.layers for array in layer)
    head += 4 * classifier.parts_.centroids.size
    assert size(tmp_path / "serving") < 1.05 * (size(tmp_path / "module") + head)


def loaded_serving(folder):
    import tensorflow as tf

    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    return lambda texts: {
        name: value.numpy() for name, value in serve(texts=tf.constant(texts, tf.string)).items()
    }


@pytest.mark.slow
def test_several_intents_are_served(folders, tmp_path):
    sets = [["greet", label] if label != "greet" else [] for label in LABELS]
    classifier = MultiIntentClassifier(SentenceEncoder(folders / "module_a")).fit(TEXTS, sets)
    export_serving(classifier, tmp_path / "serving")
    served = loaded_serving(tmp_path / "serving")(TEXTS)
    expected = classifier.predict_proba(TEXTS)
    np.testing.assert_allclose(served["probabilities"], expected, atol=0.02)
    for row, intent in enumerate(served["intent"]):
        own = served["labels"][row][served["probabilities"][row] >= classifier.threshold_]
        assert intent == b"+".join(own)
    said = [answer.confidence for answer in answer_texts(classifier, TEXTS)]
    is_clear = (np.abs(expected - classifier.threshold_) > 0.02).all(axis=1)
    np.testing.assert_allclose(served["confidence"][is_clear], np.array(said)[is_clear], atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scope",
    [
        {},
        {"out_of_scope": "confidence", "threshold": 0.5, "min_margin": 0.15},
        {"out_of_scope": "both", "threshold": 4.0},
    ],
)
def test_words_are_served(folders, tmp_path, scope):
    classifier = IntentClassifier(str(folders / "module_a"), **scope, **QUICK)
    classifier.fit(TEXTS, LABELS)
    more = train_lexical(
        [*TEXTS, "Größe ändern ÉTÉ", "日本語 の 本"],
        np.append(np.unique(LABELS, return_inverse=True)[1], [0, 1]),
    )
    classifier.parts_ = classifier.parts_._replace(lexical=more)
    classifier.mixture_ = Mixture(0.6, 1.3)
    if scope:
        classifier.thresholds_ = np.array([0.0, 99.0, 0.0])
    if scope.get("out_of_scope") == "both":  # in the widest gap, where rounding does not matter
        scores = np.sort(classifier.scope_scores(TEXTS))
        widest = np.argmax(np.diff(scores))
        classifier.thresholds_ = np.full(3, scores[widest : widest + 2].mean())
    export_serving(classifier, tmp_path / "serving")
    serve = loaded_serving(tmp_path / "serving")
    texts = ["WHERE'S my... order?! order", "été: größe", "a  b_c 12", "...", "本 の", "İ", *TEXTS]
    for some in (texts, texts[:1]):
        served, expected = serve(some), classifier.predict_proba(some)
        np.testing.assert_allclose(served["probabilities"], expected, atol=0.02)
        intents = [each.decode() for each in served["intent"]]
        assert intents == classifier.predict(some).tolist()
        assert ("oos" in intents) == bool(scope)
    assert serve([])["probabilities"].shape == (0, 3)


def test_a_damaged_module_is_not_served(folders, tmp_path):
    module = Path(shutil.copytree(folders / "module_a", tmp_path / "module"))
    classifier = IntentClassifier(str(module), **QUICK).fit(TEXTS, LABELS)
    variables = module / "variables" / "variables.data-00001-of-00002"
    content = bytearray(variables.read_bytes())
    content[len(content) // 2] ^= 1
    variables.write_bytes(content)
    with pytest.raises(ValueError, match="damaged or changed"):
        export_serving(classifier, tmp_path / "serving")
