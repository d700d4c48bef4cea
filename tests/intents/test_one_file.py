"""A classifier exported to one `.onnx` file gives the answers of the classifier."""

import json

import numpy as np
import pytest
from support.commands import call_command
from support.intent_examples import LABELS, OUTSIDE, TEXTS, WordEncoder, give_words, write_csv
from support.processes import printed_by
from support.tiny_checkpoint import write_checkpoint

from convert_tf import MultiIntentClassifier, SentenceEncoder
from convert_tf.export.hub.writing import export_module
from convert_tf.export.onnx.writing import export_onnx
from convert_tf.intents import monitor
from convert_tf.intents.classifier import IntentClassifier
from convert_tf.intents.one_file import IntentFile, export_one_file
from convert_tf.intents.predictor import answer_texts
from convert_tf.numerics.vectors import unit_rows
from convert_tf.storage.files import only_writer

pytest.importorskip("onnxruntime")
QUERIES = [*TEXTS, *OUTSIDE, "WHERE'S my order?", "..."]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A classifier with words, thresholds and a temperature, and its exported files."""
    folder = tmp_path_factory.mktemp("one_file")
    write_checkpoint(folder / "checkpoint")
    export_module(folder / "checkpoint", folder / "module")
    classifier = IntentClassifier(
        str(folder / "module"), out_of_scope="confidence", head="network", epochs=40, hidden_dim=8
    )
    classifier.fit([*TEXTS, *OUTSIDE], [*LABELS, *["oos"] * 3])
    give_words(classifier, 0.4)
    best = np.sort(classifier.predict_proba(QUERIES).max(axis=1))
    widest = np.argmax(np.diff(best))
    classifier.thresholds_[:] = best[widest : widest + 2].mean()
    classifier.save(folder / "model")
    for bits in (8, 32):
        export_one_file(classifier, folder / f"{bits}.onnx", network_bits=bits)
    return folder, classifier


def test_it_answers_as_the_classifier(made):
    folder, classifier = made
    for bits, tolerance in ((32, 0.01), (8, 0.1)):
        file = IntentFile(folder / f"{bits}.onnx")
        expected = classifier.predict_proba(QUERIES)
        np.testing.assert_allclose(file.predict_proba(QUERIES), expected, atol=tolerance)
    exact = IntentFile(folder / "32.onnx")
    assert exact.predict(QUERIES).tolist() == classifier.predict(QUERIES).tolist()
    assert set(exact.predict(QUERIES)) > {"oos"}
    assert exact.classes_.tolist() == classifier.classes_.tolist()
    assert monitor._checksum_of(exact) == monitor._checksum_of(classifier)
    with pytest.raises(ValueError, match="Text 0 is empty"):
        exact.predict([" "])


def test_several_intents_in_a_text(made, tmp_path):
    folder, _ = made
    sets = [["greet", label] if label != "greet" else [label] for label in LABELS]
    classifier = MultiIntentClassifier(SentenceEncoder(folder / "module")).fit(TEXTS, sets)
    output = export_one_file(classifier, tmp_path / "several.onnx", network_bits=32)
    file = IntentFile(output)
    expected = classifier.predict_proba(TEXTS)
    np.testing.assert_allclose(file.predict_proba(TEXTS), expected, atol=0.01)
    is_clear = (np.abs(expected - classifier.threshold_) > 0.01).all(axis=1)
    found, wanted = file.predict(TEXTS)[is_clear], classifier.predict(TEXTS)[is_clear]
    assert found.tolist() == wanted.tolist()
    (answer,) = answer_texts(file, TEXTS[:1])
    assert answer.intent == "+".join(file.predict(TEXTS[:1])[0])
    with pytest.raises(ValueError, match="cannot explain"):
        answer_texts(file, TEXTS[:1], explains=True)


def test_a_service_reads_it_with_onnxruntime_and_numpy_alone(made):
    folder, _ = made
    script = (
        "import json, sys\n"
        "for name in ('sklearn', 'scipy', 'tensorflow', 'keras', 'onnx'):\n"
        "    sys.modules[name] = None\n"
        "from convert_tf.service.application import served_classifier\n"
        "file = served_classifier(sys.argv[1], module='', encoder=None, max_texts=9)\n"
        "print(json.dumps(file.predict(sys.argv[2:]).tolist()))"
    )
    printed = printed_by(script, folder / "32.onnx", *TEXTS)
    assert json.loads(printed) == IntentFile(folder / "32.onnx").predict(TEXTS).tolist()


def test_the_commands_write_and_read_it(made, tmp_path, capsys):
    folder, classifier = made
    output = tmp_path / "intents.onnx"
    arguments = ["export", f"--model={folder / 'model'}", f"--output={output}"]
    call_command("intent", *arguments)
    assert "MB" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="already exists"):
        call_command("intent", *arguments)
    with only_writer(output), pytest.raises(SystemExit, match="Another process is"):
        call_command("intent", *arguments, "--overwrite")
    call_command("intent", *arguments, "--overwrite")
    (tmp_path / "texts.txt").write_text("where is my order\n")
    capsys.readouterr()
    call_command("intent", "predict", f"--model={output}", f"--input={tmp_path / 'texts.txt'}")
    assert json.loads(capsys.readouterr().out)["intent"] in {*classifier.classes_, "oos"}
    data = write_csv(tmp_path / "test.csv")
    with pytest.raises(SystemExit, match="contains its encoder"):
        call_command("intent", "evaluate", f"--model={output}", f"--data={data}", "--encoder=x")


def test_its_encoder_is_read_as_one(made):
    folder, classifier = made
    encodings = unit_rows(SentenceEncoder(folder / "32.onnx").encode(TEXTS))
    np.testing.assert_allclose(encodings, classifier.encode(TEXTS), atol=0.02)


def test_of_a_long_text_as_many_tokens_are_read_as_by_its_run(tmp_path):
    run = write_checkpoint(tmp_path / "run", max_tokens=6)
    classifier = IntentClassifier(str(run), "logistic", lexical=None, names=None)
    classifier.fit(TEXTS, LABELS)
    export_one_file(classifier, tmp_path / "intents.onnx", network_bits=32)
    long = [f"{first} {' '.join(TEXTS)}" for first in TEXTS]
    answers = IntentFile(tmp_path / "intents.onnx").predict_proba(long)
    np.testing.assert_allclose(answers, classifier.predict_proba(long), atol=0.01)


def test_other_files_are_refused(made, tmp_path):
    folder, classifier = made
    export_onnx(folder / "checkpoint", tmp_path / "encoder.onnx")
    with pytest.raises(ValueError, match="it contains only an encoder"):
        IntentFile(tmp_path / "encoder.onnx")
    content = bytearray((folder / "8.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "damaged.onnx").write_bytes(content)
    with pytest.raises(ValueError, match="damaged or changed"):
        IntentFile(tmp_path / "damaged.onnx")
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "train.csv").write_text("mine")
    for name in ("train.csv", "x.onnx/", "folder.onnx"):
        with pytest.raises(ValueError, match=r"Choose another --output"):
            export_one_file(classifier, f"{tmp_path}/{name}", overwrite=True)
    assert (tmp_path / "train.csv").read_text() == "mine"
    other = IntentClassifier(WordEncoder()).fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match="one file"):
        export_one_file(other, tmp_path / "x.onnx")
