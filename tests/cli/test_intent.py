"""`convert-tf intent`: training, evaluation, prediction and error messages."""

import io
import json
import re
import shutil
import warnings

import numpy as np
import pytest
from support.commands import call_command, status_without_reader
from support.intent_examples import LABELS, OUTSIDE, TEXTS, WordEncoder, write_csv

import convert_tf.encoding.sentence_encoder
from convert_tf.intents.classifier import IntentClassifier
from convert_tf.intents.data import LabelledTexts
from convert_tf.intents.decision import SingleIntent
from convert_tf.intents.head import GRIDS
from convert_tf.intents.report import (
    confusion_chart,
    coverage_rows,
    evaluate_classifier,
    report_text,
    threshold_for_precision,
)
from convert_tf.storage.files import only_writer

DATA = LabelledTexts(TEXTS, LABELS)
PNG = b"\x89PNG"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Data files, and a folder and a file that replace modules; WordEncoder encodes for them."""

    class StandIn:
        def __init__(self, path):
            self.encode = WordEncoder(seed=len(str(path)) % 2)

    monkeypatch.setattr(convert_tf.encoding.sentence_encoder, "SentenceEncoder", StandIn)
    for name in ("module", "other_"):
        (tmp_path / name / "variables").mkdir(parents=True)
        (tmp_path / name / "variables" / "v").write_text(name)
    write_csv(tmp_path / "train.csv")
    write_csv(tmp_path / "test.csv", [*TEXTS, *OUTSIDE], [*LABELS, "oos", "oos", "oos"])
    return tmp_path


def call(*arguments):
    call_command("intent", *arguments)


def train(files, *arguments, output="model"):
    quick = ("--epochs=40", "--hidden_dim=16") if "--head=network" in arguments else ()
    call("train", f"--data={files / 'train.csv'}", f"--encoder={files / 'module'}",
         f"--output={files / output}", *quick, *arguments)  # fmt: skip


def test_a_model_is_trained_evaluated_and_used(files, capsys):
    test, model = files / "test.csv", f"--model={files / 'model'}"
    train(files, "--out_of_scope=distance", f"--validation={test}")
    assert re.search(
        r"3 intents, 12 examples, sentence encodings, (words count \d+%, )?threshold",
        capsys.readouterr().out,
    )
    call("evaluate", model, f"--data={test}", "--precision=0.9", f"--output={files / 'results'}")
    printed = capsys.readouterr().out
    assert "out-of-scope recall 100.00%, 3 examples" in printed
    assert "for a precision of 90%:" in printed
    path = files / "results" / "evaluation.json"
    before = path.read_text()
    report = json.loads(before)
    assert report["examples"] == 12
    assert (files / "results" / "confusions.png").read_bytes().startswith(PNG)
    again = ("evaluate", model, f"--data={files / 'train.csv'}", f"--output={files / 'results'}")
    with pytest.raises(SystemExit, match="already exists"):
        call(*again)
    assert path.read_text() == before
    call(*again, "--overwrite")
    assert path.read_text() != before
    picture = files / "mine" / "confusions.png"
    picture.parent.mkdir()
    picture.write_bytes(b"mine")
    with pytest.raises(SystemExit, match=r"confusions\.png' already exists"):
        call("evaluate", model, f"--data={test}", f"--output={picture.parent}")
    assert [*picture.parent.iterdir()] == [picture] and picture.read_bytes() == b"mine"
    capsys.readouterr()
    (files / "queries.txt").write_text(f"forgot the password\n\n{OUTSIDE[0]}\n", "utf-8")
    call("predict", model, f"--input={files / 'queries.txt'}", "--top_k=2")
    first, empty, outside = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["text"] == "forgot the password"
    assert first["intent"] == "reset" == next(iter(first["intents"]))
    assert len(first["intents"]) == 2
    assert first["confidence"] == first["intents"]["reset"]
    assert empty == {"text": "", "intent": None, "confidence": 0.0}
    assert outside["intent"] == "oos"


def test_reports_are_written_if_nobody_reads_them(files):
    train(files, "--head=logistic")
    (files / "log.txt").write_text("\n".join([*TEXTS, *OUTSIDE]), encoding="utf-8")
    data, model = f"--data={files / 'train.csv'}", f"--model={files / 'model'}"
    log, encoder = f"--input={files / 'log.txt'}", f"--encoder={files / 'module'}"
    for command, arguments, name in (
        ("evaluate", (model, data), "evaluation.json"),
        ("inspect", (encoder, data), "inspection.json"),
        ("discover", (encoder, log), "groups.csv.json"),
        ("monitor", (model, log), ""),
    ):
        output = files / f"of_{command}"
        status = status_without_reader("intent", command, *arguments, f"--output={output}")
        assert (status, (output / name).is_file()) == (141, True), command


def test_inspect_replaces_only_reports_and_only_on_request(files):
    path = files / "of_inspect" / "inspection.json"
    command = ("inspect", f"--encoder={files / 'module'}", f"--data={files / 'train.csv'}")
    again = (*command, f"--output={path.parent}")
    call(*again)
    report = path.read_text()
    edited = report.replace('"examples": 12', '"examples": 13', 1)
    path.write_text(edited)
    with pytest.raises(SystemExit, match=r"inspection\.json' already exists\. Pass --overwrite"):
        call(*again)
    assert path.read_text() == edited != report
    call(*again, "--overwrite")
    assert path.read_text() == report
    for other in ('{"examples": 12, "intents": {}}', "[]", "written by hand"):
        path.write_text(other)
        for more, message in (((), "already exists"), (("--overwrite",), "did not write")):
            with pytest.raises(SystemExit, match=message):
                call(*again, *more)
            assert path.read_text() == other
    with pytest.raises(SystemExit, match="--overwrite has no effect without --output"):
        call(*command, "--overwrite")


def test_examples_and_intents_are_added_removed_and_renamed(files, capsys):
    """The result equals that of training on all examples at once."""
    added = [("bye now", "bye"), ("see you later", "bye"), ("hello there", "greet")]
    write_csv(files / "new.csv", *zip(*added, strict=True))
    train(files, "--head=logistic", "--logistic_c=3")
    more = ("train", f"--model={files / 'model'}", f"--encoder={files / 'module'}")
    call(*more, f"--data={files / 'new.csv'}", "--remove=order", "--rename=reset=password",
         f"--output={files / 'more'}")  # fmt: skip
    assert "3 intents, 10 examples" in capsys.readouterr().out
    names = {"reset": "password", "greet": "greet"}
    rows = [(text, names[name]) for text, name in zip(*DATA, strict=True) if name in names]
    write_csv(files / "train.csv", *zip(*rows, *added[:2], strict=True))  # without the third
    train(files, "--head=logistic", "--logistic_c=3", output="at_once")
    first, second = (
        IntentClassifier.load(files / name, encoder=str(files / "module"))
        for name in ("more", "at_once")
    )
    assert first.classes_.tolist() == ["bye", "greet", "password"]
    np.testing.assert_allclose(first.predict_proba(TEXTS), second.predict_proba(TEXTS), atol=1e-6)
    capsys.readouterr()
    call(*more, "--rename=reset=greet", f"--output={files / 'merged'}")
    assert "--rename reset=greet merges two intents" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"model has no intent nothing\."):
        call(*more, "--remove=nothing", f"--output={files / 'other'}")


def test_rows_that_a_model_contains_do_not_undo_edits(files, capsys):
    """--data may contain all earlier rows: they are removed and renamed too, and this is said."""
    train(files, "--head=logistic")
    rows = [*zip(*DATA, strict=True), ("bye now", "bye")]
    write_csv(files / "all.csv", *zip(*rows, strict=True))
    call("train", f"--model={files / 'model'}", f"--encoder={files / 'module'}",
         f"--data={files / 'all.csv'}", "--remove=order", "--rename=reset=password",
         f"--output={files / 'more'}")  # fmt: skip
    changed = [text for text, name in rows if name in ("order", "reset")]
    message = f"{len(changed)} rows of --data that the model already contains: {changed[0]!r}, "
    assert f"--remove and --rename also apply to {message}" in capsys.readouterr().out
    edited = IntentClassifier.load(files / "more", encoder=str(files / "module"))
    names = {"reset": "password", "greet": "greet", "bye": "bye"}
    expected = [(text, names[name]) for text, name in rows if name in names]
    assert sorted(zip(*edited.examples_, strict=True)) == sorted(expected)


def test_a_new_out_of_scope_label_applies_to_the_examples_of_the_model(files, capsys):
    quick = ("--lexical=none", "--kind=sentence", "--names=none")
    rows = [*zip(*DATA, strict=True), *((text, "oos") for text in OUTSIDE)]
    write_csv(files / "train.csv", *zip(*rows, strict=True))
    train(files, *quick, "--out_of_scope=distance")

    def after(*arguments):
        call("train", f"--model={files / 'model'}", *quick, *arguments, f"--output={files / 'm'}",
             "--overwrite")  # fmt: skip
        return IntentClassifier.load(files / "m", encoder=str(files / "module"))

    capsys.readouterr()
    again = (f"--data={files / 'train.csv'}", "--out_of_scope_label=none")
    model = after(*again)
    printed = capsys.readouterr().out
    assert "--out_of_scope_label=none: the out-of-scope examples of the model, which" in printed
    assert "labelled oos, are now labelled none." in printed
    message = f"{len(OUTSIDE)} rows of --data that the model already contains"
    assert f"--remove, --rename and --out_of_scope_label also apply to {message}" in printed
    assert model.classes_.tolist() == sorted({*LABELS})
    rejected = {*model.predict(OUTSIDE).tolist()} - {*LABELS}  # which ones depends on the processor
    assert rejected == {"none"}
    assert dict(zip(*model.examples_, strict=True)) == {
        text: "none" if label == "oos" else label for text, label in rows
    }
    for arguments, label in (
        (["--out_of_scope_label=oos"], "oos"),
        (["--out_of_scope_label=none", "--rename=oos=chat"], "chat"),
        (["--out_of_scope_label=none", "--remove=oos"], None),
    ):
        labels = dict(zip(*after(*arguments).examples_, strict=True))
        assert labels.get(OUTSIDE[0]) == label, arguments
        assert "are now labelled" not in capsys.readouterr().out
    labels = {*after("--out_of_scope_label=none", f"--rename={LABELS[0]}=oos").examples_.labels}
    assert labels == {"none", *LABELS[1:]} - {LABELS[0]}
    with pytest.raises(SystemExit, match=f"label={LABELS[0]} is an intent of the model"):
        after(f"--out_of_scope_label={LABELS[0]}")
    write_csv(files / "train.csv", ["a new fish"], ["oos"])
    assert "oos" in after(*again).classes_
    assert "New rows of --data labelled oos are examples" in capsys.readouterr().out


def test_examples_of_a_tuned_encoder_fit_no_thresholds(files, monkeypatch):
    module, facts = files / "module", {"finetuning": {"is_finetuned": True, "accuracy": 0.5}}
    classifier = IntentClassifier(
        str(module), "logistic", kind="sentence", names="always", out_of_scope="confidence"
    )
    classifier.fit(*DATA).save(files / "tuned", module=module, notes=facts)
    more = ("train", f"--model={files / 'tuned'}", f"--output={files / 'more'}")
    with pytest.raises(SystemExit, match=r"fine-tuned on its examples.* --validation, or train"):
        call(*more)
    shutil.copytree(module, files / "copy")
    with pytest.raises(SystemExit, match=r"fine-tuned on its examples.* --validation, or train"):
        call(*more, f"--encoder={files / 'copy'}")
    assert not (files / "more").exists()
    fit, fitted = IntentClassifier.fit, []

    def observed(self, *arguments, **options):
        fitted.append((self.kind, self.names, options["folds"]))
        return fit(self, *arguments, **options)

    monkeypatch.setattr(IntentClassifier, "fit", observed)
    call(*more, f"--validation={files / 'test.csv'}")
    assert fitted == [("sentence", "always", ())]
    assert json.loads((files / "more" / "intent.json").read_text())["facts"] == facts
    assert (files / "more" / "module").is_dir()
    with pytest.raises(SystemExit, match=r"--kind=auto cannot be used: .*with --kind=sentence"):
        call(*more[:2], f"--output={files / 'kind'}", "--kind=auto",
             f"--validation={files / 'test.csv'}")  # fmt: skip
    with pytest.raises(SystemExit, match=r"--names=auto cannot be used: .*with --names=always"):
        call(*more[:2], f"--output={files / 'names'}", "--names=auto",
             f"--validation={files / 'test.csv'}")  # fmt: skip
    # The examples are unknown to another encoder.
    call(*more[:2], f"--output={files / 'other'}", f"--encoder={files / 'other_'}")
    assert fitted[1:] == [("auto", "auto", None)]
    assert json.loads((files / "other" / "intent.json").read_text())["facts"] == {}


def test_a_tuned_encoder_needs_no_validation_if_nothing_is_fitted_on_it(files):
    module, facts = files / "module", {"finetuning": {"is_finetuned": True, "accuracy": 0.5}}
    classifier = IntentClassifier(
        str(module), "logistic", kind="sentence", names=None, lexical=None
    )
    classifier.fit(*DATA).save(files / "tuned", module=module, notes=facts)
    more = ("train", f"--model={files / 'tuned'}")
    for fitted in (
        ["--lexical=auto"],
        ["--out_of_scope=distance"],
        ["--out_of_scope=confidence", "--threshold=0.5"],  # the temperature is fitted
        ["--min_margin=0.1"],
    ):
        with pytest.raises(SystemExit, match="fine-tuned on its examples"):
            call(*more, f"--output={files / 'more'}", *fitted)
    call(*more, f"--output={files / 'more'}")
    scoped = ("--out_of_scope=distance", "--threshold=0.5")
    call(*more, f"--output={files / 'scoped'}", *scoped)
    loaded = IntentClassifier.load(files / "scoped")
    assert loaded.threshold_ == 0.5 and loaded.parts_.lexical is None


def test_a_label_that_was_wrong_is_corrected(files, capsys):
    train(files, "--head=logistic")
    rows = [
        (text, "other" if i < 2 else label)
        for i, (text, label) in enumerate(zip(*DATA, strict=True))
    ]
    write_csv(files / "new.csv", *zip(*rows[:3], strict=True))
    capsys.readouterr()
    call("train", f"--model={files / 'model'}", f"--encoder={files / 'module'}",
         f"--data={files / 'new.csv'}", f"--output={files / 'more'}")  # fmt: skip
    printed = capsys.readouterr().out
    assert f"labels that --data replaces: {TEXTS[0]!r}: {LABELS[0]}, " in printed
    assert "4 intents, 12 examples" in printed
    corrected = IntentClassifier.load(files / "more", encoder=str(files / "module"))
    assert sorted(zip(*corrected.examples_, strict=True)) == sorted(rows)


def test_texts_in_another_language_are_told(files, capsys):
    pytest.importorskip("py3langid")
    train(files, "--lexical=none", "--kind=sentence")
    german = "Ich habe meine Karte verloren"
    (files / "queries.txt").write_text(f"forgot the password\n{german}\n", "utf-8")
    capsys.readouterr()
    query = ("predict", f"--model={files / 'model'}", f"--input={files / 'queries.txt'}")
    call(*query, "--english_only", "--top_k=2")
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["intent"] == "reset"
    assert second == {"text": german, "intent": None, "confidence": 0.0, "language": "de"}
    call(*query)
    assert '"language"' not in capsys.readouterr().out


LONG = "Money transfer, virtual currency, or money service"


@pytest.fixture
def four_intents(files):
    labels = [LONG, "or money service", "a=b", "hours"]
    texts = [f"{word} {i}" for word in ("sent", "cash", "both", "open") for i in range(3)]
    write_csv(files / "four, five.csv", texts, [f'"{label}"' for label in labels for _ in range(3)])
    write_csv(files / "more.csv", ["gifts here", "a voucher"], ["gift"] * 2)
    call("train", f"--encoder={files / 'module'}", "--lexical=none", "--kind=sentence",
         f"--data={files / 'four, five.csv'}", f"--data={files / 'more.csv'}",
         f"--output={files / 'four'}")  # fmt: skip
    return files


def intents_after(files, *arguments):
    call("train", f"--model={files / 'four'}", *arguments, "--overwrite", f"--output={files / 'm'}")
    model = IntentClassifier.load(files / "m", encoder=str(files / "module"))
    return set(model.classes_.tolist())


def test_repeated_flags_and_commas_inside_names(four_intents):
    files, rest = four_intents, {"or money service", "a=b", "gift"}
    assert intents_after(files) == {LONG, "hours", *rest}
    assert intents_after(files, f"--remove={LONG}") == {"hours", *rest}
    assert intents_after(files, f"--remove={LONG}", "--remove", "hours") == rest
    assert intents_after(files, f"--remove={LONG},hours") == rest
    assert intents_after(files, f"--remove=hours, {LONG}") == rest
    assert intents_after(files, f'--remove="{LONG}",hours') == rest
    renamed = {"opening", "Send, or ask for, money", *rest}
    several = (f"--rename={LONG}=Send, or ask for, money", "--rename=hours=opening")
    assert intents_after(files, *several) == renamed
    assert intents_after(files, "--rename=a=b=x", "--remove=gift,hours") == {
        LONG, "or money service", "x",
    }  # fmt: skip
    call(
        "evaluate",
        f"--model={files / 'four'}",
        f"--data={files / 'four, five.csv'},{files / 'more.csv'}",
    )


def test_names_of_intents_that_cannot_be_meant(four_intents):
    for argument, message in (
        ("--rename=hours=opening=times", "has no intent 'hours=opening'"),
        ("--rename==x", r"--rename =x lacks the old name\. Pass --rename OLD=x"),
        ("--rename=hours", "hours lacks a new name"),
        ("--rename=hours=", "hours lacks a new name"),
        ("--rename=a=b", r"--rename a=b lacks a new name\. Pass --rename a=b=NEW"),
        ("--rename=hours=a,gift", "gift lacks a new name"),
        ("--rename=hours=a,hours=b", "two new names for hours: a and b"),
        ("--remove=hours,nothing", r"no intent nothing\."),
        ('--remove="hours', "not a list of names"),
    ):
        with pytest.raises(SystemExit, match=message):
            intents_after(four_intents, argument)


def test_a_model_is_extended_with_its_own_encoder(files, monkeypatch):
    train(files, "--head=logistic")
    asked = []
    monkeypatch.setattr("convert_tf.checkpoints.released.model_path", asked.append)
    call("train", f"--model={files / 'model'}", "--remove=order", f"--output={files / 'more'}")
    assert asked == []


def test_examples_are_forgotten(files, capsys):
    train(files, "--head=logistic", "--tune", "--lexical=none", "--forget_examples")
    printed = capsys.readouterr().out
    assert "chosen {'logistic_c':" in printed and "words count" not in printed
    content = b"".join(path.read_bytes() for path in (files / "model").iterdir())
    assert b"forgot the password" not in content
    (files / "queries.txt").write_text("forgot the password\n\nhello\n", "utf-8")
    call("predict", f"--model={files / 'model'}", f"--input={files / 'queries.txt'}", "--explain")
    first, empty, hello = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["explanation"]["words"][0]["word"] == "password"
    assert first["explanation"]["examples"] == []
    assert "explanation" not in empty
    assert hello["explanation"]["words"] == [], "Without its only word, the text is empty."
    with pytest.raises(SystemExit, match="without its examples"):
        call("train", f"--model={files / 'model'}", f"--encoder={files / 'module'}",
             f"--data={files / 'train.csv'}", f"--output={files / 'more'}")  # fmt: skip


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("cp1252", ["hi \\ud83d\\ude0a", "café"]),
        ("ascii", ["hi \\ud83d\\ude0a", "caf\\u00e9"]),
        ("utf-8", ["hi 😊", "café"]),
    ],
)
def test_predictions_are_json_in_any_encoding(files, monkeypatch, encoding, shown):
    train(files, "--head=logistic")
    (files / "queries.txt").write_text("hi 😊\ncafé", "utf-8")
    output = io.TextIOWrapper(io.BytesIO(), encoding)
    monkeypatch.setattr("sys.stdout", output)
    call("predict", f"--model={files / 'model'}", f"--input={files / 'queries.txt'}")
    lines = output.buffer.getvalue().decode(encoding).splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["hi 😊", "café"]
    assert all(text in line for text, line in zip(shown, lines, strict=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--output=O"], "--data or --model is required"),
        (["train", "--data=D", "--output=O", "--remove=a"], "--remove has no effect"),
        (["train", "--model=N", "--output=O"], "is not an intent model"),
        (["train", "--data=D", "--output=O", "--head=network", "--logistic_c=1"], "--logistic_c"),
        (["train", "--data=D", "--output=O", "--head=logistic", "--epochs=3"], "--epochs"),
        (["train", "--data=D", "--output=O", "--encoder=M", "--encoder=D", "--finetune"],
         "--finetune needs a single encoder"),
        (["train", "--data=D", "--output=O", "--encoder=m.onnx", "--finetune"], "--encoder m.onnx"),
        (["train", "--data=D", "--output=O", "--encoder=M", "--precision=float32"], "--precision"),
        (["train", "--data=D", "--output=D", "--encoder=M"], "which --data reads"),
        (["train", "--data=D", "--output=M", "--encoder=M", "--overwrite"], "--encoder reads"),
        (["train", "--data=D", "--output=O", "--encoder=M", "--serving_module=M"],
         "--serving_module would replace"),
        (["train", "--data=D", "--output=Q", "--encoder=M"], "--output must be a folder"),
        (["train", "--data=D", "--output=R", "--encoder=M", "--overwrite"], "did not write"),
        (["train", "--data=D", "--output=O", "--encoder=M", "--serving_module=R"], "exists. Pass"),
        (["train", "--data=D", "--output=O", "--encoder=D", "--serving_module=N"], "the folder of"),
        (["evaluate", "--model=N", "--data=D"], "is not an intent model"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_wrong_commands_say_what_is_wrong(files, arguments, message):
    names = {"D": "train.csv", "O": "model", "M": "module", "N": "nothing", "Q": "others.csv",
             "R": "results"}  # fmt: skip
    (files / "others.csv").touch()
    (files / "results").mkdir(exist_ok=True)
    (files / "results" / "notes.txt").touch()
    parts = [argument.rpartition("=") for argument in arguments]
    called = [a + b + str(files / names[c]) if c in names else a + b + c for a, b, c in parts]
    with pytest.raises(SystemExit, match=message):
        call(*called)


def test_a_classifier_that_cannot_be_served_is_refused_before_training(files, monkeypatch):
    (files / "run").mkdir()
    (files / "run" / "config.json").write_text("{}")
    (files / "m.onnx").touch()
    quick = ("--lexical=none", "--kind=sentence", "--names=none")
    train(files, *quick, f"--encoder={files / 'run'}", output="of_run")
    train(files, *quick, "--out_of_scope=confidence", "--upper_levels", output="levels")
    monkeypatch.setattr(IntentClassifier, "fit", lambda *_, **__: pytest.fail("It was trained."))
    (files / "link").symlink_to("served")
    serving = f"--serving_module={files / 'serving'}"
    of_run, levels = (f"--model={files / name}" for name in ("of_run", "levels"))
    for arguments, message in (
        ([serving, f"--encoder={files / 'm.onnx'}"], r"m\.onnx' is an \.onnx file"),
        ([serving, f"--encoder={files / 'run'}"], "run' is the run of a dual encoder"),
        ([serving, "--out_of_scope=confidence", "--upper_levels"], "with upper levels"),
        ([f"--serving_module={files / 'served' / 'serving'}"], "one is inside the other"),
        ([f"--serving_module={files / 'link'}"], "are the same folder"),
        ([serving, f"--output={files / 'serving' / 'model'}"], "one is inside the other"),
    ):
        with pytest.raises(SystemExit, match=message):
            train(files, *arguments, output="served")
    for model, message in ((of_run, "run' is the run of a dual"), (levels, "with upper levels")):
        with pytest.raises(SystemExit, match=message):
            call("train", model, f"--output={files / 'served'}", serving)
    assert not (files / "served").exists() and not (files / "serving").exists()


def test_flags_replace_the_options_of_a_model_that_they_exclude(files):
    quick = ("--lexical=none", "--kind=sentence", "--names=none", "--overwrite")
    rejecting = ("--out_of_scope=confidence", "--threshold=0.4")
    train(files, *quick, "--tune", *rejecting)

    def options_after(*arguments, model="model"):
        call("train", f"--model={files / model}", *quick, *arguments, f"--output={files / 'm'}")
        return IntentClassifier.load(files / "m", encoder=str(files / "module"))

    tuned = options_after("--head=network", "--epochs=1")
    assert tuned.grid.keys() == GRIDS["network"].keys() == tuned.best_params_.keys()
    assert (tuned.threshold, tuned.out_of_scope) == (0.4, "confidence")
    assert options_after("--head=network", "--epochs=1", "--notune").grid is None
    fixed = options_after("--logistic_c=5")
    assert (fixed.grid, fixed.logistic_c, fixed.best_params_) == (None, 5, {})
    train(files, *quick, *rejecting)
    assert options_after("--head=network", "--epochs=1").grid is None
    for arguments, expected in (
        (["--out_of_scope=none"], (None, None, None)),
        (["--rejected_share=0.1"], ("confidence", None, 0.1)),
        (["--out_of_scope=distance"], ("distance", None, None)),
    ):
        model = options_after(*arguments)
        assert (model.out_of_scope, model.threshold, model.rejected_share) == expected
    train(files, *quick, "--out_of_scope=confidence", "--rejected_share=0.1")
    model = options_after("--threshold=0.3")
    assert (model.threshold, model.rejected_share) == (0.3, None)
    assert options_after("--out_of_scope=none").rejected_share is None
    with pytest.raises(SystemExit, match=r"threshold=0\.3 has no effect without out_of_scope"):
        options_after("--out_of_scope=none", "--threshold=0.3")
    with pytest.raises(SystemExit, match="--backend has no effect with the encoder of --model"):
        options_after("--backend=tensorflow")
    levels = ("--out_of_scope=confidence", "--upper_levels")
    train(files, *quick, *levels)
    for rule in ("none", "distance", "both"):
        assert options_after(f"--out_of_scope={rule}").upper_levels is False
    assert options_after("--out_of_scope=none", "--min_margin=0.1").upper_levels is True
    with pytest.raises(SystemExit, match="upper_levels needs a rule that rejects"):
        options_after("--out_of_scope=none", "--upper_levels")
    train(files, *quick, *levels, "--min_margin=0.1")
    assert options_after("--out_of_scope=distance").upper_levels is True


def test_values_that_are_given_are_not_tuned(files):
    quick = ("--lexical=none", "--kind=sentence", "--names=none")
    with pytest.raises(SystemExit, match=r"--tune has no effect with --logistic_c\. Remove it"):
        train(files, "--tune", "--logistic_c=3", *quick)
    (name, value), *others = {name: tried[0] for name, tried in GRIDS["network"].items()}.items()
    train(files, "--head=network", "--tune", f"--{name}={value}", *quick)
    model = IntentClassifier.load(files / "model", encoder=str(files / "module"))
    assert model.grid.keys() == model.best_params_.keys() == {other for other, _ in others}
    assert getattr(model, name) == value


def test_labels_that_are_numbers_are_extended_in_python(files):
    classifier = IntentClassifier(str(files / "module"), names=None, lexical=None, kind="sentence")
    classifier.fit(TEXTS, [LABELS.index(label) for label in LABELS]).save(files / "numbers")
    again = ("train", f"--model={files / 'numbers'}", f"--output={files / 'm'}")
    for flag in (f"--data={files / 'train.csv'}", "--rename=0=greet"):
        with pytest.raises(SystemExit, match=r"numbers are numbers, such as \d, .* in Python"):
            call(*again, flag)
    call(*again, "--remove=0")
    assert 0 not in IntentClassifier.load(files / "m").classes_
    classifier.set_params(out_of_scope="confidence")
    labels = [*(LABELS.index(label) for label in LABELS), "oos"]
    classifier.fit([*TEXTS, "a fish"], labels).save(files / "numbers", overwrite=True)
    for arguments in ((), ("--out_of_scope_label=none",)):
        call(*again, "--overwrite", *arguments)
        assert IntentClassifier.load(files / "m").classes_.tolist() == classifier.classes_.tolist()
    classifier.set_params(out_of_scope_label=-1)
    labels[-1] = -1
    classifier.fit([*TEXTS, "a fish"], labels).save(files / "numbers", overwrite=True)
    call(*again, "--overwrite", "--out_of_scope_label=-1")
    assert IntentClassifier.load(files / "m").classes_.tolist() == classifier.classes_.tolist()


def test_one_process_trains_a_model(files, tmp_path):
    """The second process is refused at its start, not after training."""
    with only_writer(tmp_path / "model"), pytest.raises(SystemExit, match="Another process is"):
        train(files)
    assert not (tmp_path / "model").exists()


def evaluate(files, model, *arguments):
    call("evaluate", f"--model={files / model}", f"--data={files / 'test.csv'}", *arguments)


@pytest.fixture
def two_models(files):
    """A classifier, one that lacks an intent, and an evaluation of the first one."""
    write_csv(files / "test.csv", TEXTS * 2, LABELS * 2)
    train(files, "--names=none", "--lexical=none", "--kind=sentence", output="good")
    write_csv(files / "train.csv", TEXTS[:8], LABELS[:8])
    train(files, "--names=none", "--lexical=none", "--kind=sentence", output="bad")
    evaluate(files, "good", f"--output={files / 'results'}")
    return files


def test_an_evaluation_is_a_check_for_ci(two_models, capsys):
    files, good = two_models, f"--against={two_models / 'good'}"
    evaluate(files, "good", good, "--at_least=accuracy=0.9,macro_f1=0.9", "--at_least=accuracy=0.8")
    assert "good: 0 correct answers gained, 0 lost, p = 1\n" in capsys.readouterr().out
    report = f"--against={files / 'results' / 'evaluation.json'}"
    for against in (good, report):
        with pytest.raises(
            SystemExit, match=r"worse than \S+: 8 correct answers are lost and 0 gained"
        ):
            evaluate(files, "bad", against, f"--output={files / 'new'}", "--overwrite")
    assert "8 lost" in report_text(json.loads((files / "new" / "evaluation.json").read_text()))
    evaluate(files, "good", f"--against={files / 'new' / 'evaluation.json'}")  # improvements pass
    with pytest.raises(SystemExit, match=r"accuracy is 0\.666667, below 0\.9\."):
        evaluate(files, "bad", "--at_least=accuracy=0.9")
    with pytest.raises(SystemExit, match=r"no measure 'recall'.*--help lists the flags"):
        evaluate(files, "bad", "--at_least=recall=0.9")


def test_the_encoder_of_an_earlier_classifier_may_be_moved(two_models, capsys):
    files = two_models
    (files / "module").rename(files / "new_module")
    encoder, against = f"--encoder={files / 'new_module'}", f"--against={files / 'good'}"
    evaluate(files, "good", encoder, against)
    assert "0 correct answers gained, 0 lost" in capsys.readouterr().out
    other = f"--encoder={files / 'other_'}"
    call("train", other, f"--data={files / 'train.csv'}", f"--output={files / 'other'}")
    message = r"encoder of '\S+good' is '\S+/module', which does not exist\. Move it back, or pass"
    for arguments in ([], [other]):
        with pytest.raises(SystemExit, match=rf"{message}.* evaluation\.json of '\S+good'"):
            evaluate(files, "other", against, *arguments)


def test_an_evaluation_of_other_texts_is_refused(two_models):
    files, path = two_models, two_models / "results" / "evaluation.json"
    write_csv(files / "test.csv", TEXTS, LABELS)
    with pytest.raises(SystemExit, match="evaluates different texts from --data"):
        evaluate(files, "good", f"--against={path}")
    path.write_text('{"accuracy": 0.9}')
    with pytest.raises(SystemExit, match="does not say which texts were answered incorrectly"):
        evaluate(files, "good", f"--against={path}")


def test_untrained_intents_count_as_wrong_or_as_out_of_scope():
    classifier = IntentClassifier(WordEncoder(), "logistic").fit(*DATA)
    alone = evaluate_classifier(classifier, LabelledTexts(TEXTS, LABELS))
    data = LabelledTexts([*TEXTS, "bye", "see you"], [*LABELS, "bye", "bye"])
    report = evaluate_classifier(classifier, data)
    assert report["untrained"] == {"bye": 2} and alone["untrained"] == {}
    number = len(TEXTS)
    assert report["accuracy"] == pytest.approx(alone["accuracy"] * number / (number + 2))
    assert report["intents"][0] == {
        "intent": "bye", "examples": 2, "precision": 0, "recall": 0, "f1": 0,
    }  # fmt: skip
    assert "not trained on: bye (2)" in report_text(report)
    outside = evaluate_classifier(classifier, data, untrained="out_of_scope")
    assert outside["accuracy"] == alone["accuracy"]
    assert outside["out_of_scope"] == {"examples": 2, "recall": 0}
    with pytest.raises(ValueError, match="untrained must be wrong or out_of_scope"):
        evaluate_classifier(classifier, data, untrained="skip")
    with pytest.raises(ValueError, match="no text to evaluate"):
        evaluate_classifier(classifier, LabelledTexts([], []))


class Fixed:
    """Returns prepared answers."""

    classes_ = np.array(["a", "b", "c"])
    decision = SingleIntent(classes_, 0.5, out_of_scope="confidence")
    threshold_ = 0.5

    def predict(self, texts):
        return np.array(["a", "b", "b", "b", "oos", "c", "oos", "a"])

    def predict_proba(self, texts):
        return np.tile([0.7, 0.2, 0.1], (len(texts), 1))


def test_scores_confusions_and_chart():
    labels = ["a", "a", "a", "b", "b", "c", "oos", "oos"]
    texts = [f"text {i}" for i in range(8)]
    report = evaluate_classifier(Fixed(), LabelledTexts(texts, labels))
    assert report["accuracy"] == 3 / 6
    assert report["calibration_error"] == pytest.approx(0.7 - 3 / 6), "Three of six are an a."
    assert report["macro_f1"] == pytest.approx((2 * 1 / 5 + 2 * 1 / 5 + 2 * 1 / 2) / 3)
    assert report["intents"][-1] == {
        "intent": "c", "examples": 1, "precision": 1.0, "recall": 1.0, "f1": 1.0,
    }  # fmt: skip
    assert report["out_of_scope"] == {"examples": 2, "recall": 0.5}
    assert report["confusions"][0] == {
        "intent": "a", "predicted": "b", "number": 2, "texts": ["text 1", "text 2"],
    }  # fmt: skip
    assert report["labels"] == ["a", "b", "c", "(out of scope)"]
    assert report["matrix"] == [[1, 2, 0, 0], [0, 1, 0, 1], [0, 0, 1, 0], [1, 0, 0, 1]]
    text = report_text(report)
    assert "2 × a → b" in text
    assert "b → (out of scope)" not in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert confusion_chart(report).startswith(PNG)


def test_upper_levels_that_are_labels_are_not_untrained():
    class WithLevels(Fixed):
        classes_ = np.array(["a/x", "a/y", "b"])
        decision = SingleIntent(classes_, 0.5, None, "confidence", upper_levels=True)

        def predict(self, texts):
            return np.array(["a/x", "a", "a", "oos", "b"])

    data = LabelledTexts([*"12345"], ["a/x", "a/y", "a", "bye", "b"])
    report = evaluate_classifier(WithLevels(), data, untrained="out_of_scope")
    assert report["untrained"] == {"bye": 1}
    assert report["accuracy"] == 3 / 4 and report["upper_accuracy"] == 1
    assert report["out_of_scope"] == {"examples": 1, "recall": 1.0}
    assert report["wrong"] == [1]
    WithLevels.decision = SingleIntent(WithLevels.classes_, 0.5, None, "confidence")
    assert evaluate_classifier(WithLevels(), data)["untrained"] == {"a": 1, "bye": 1}


def test_accuracy_rises_where_fewer_texts_are_answered():
    confidence = np.array([0.9, 0.8, 0.7, 0.7, 0.6, 0.2])
    is_right = np.array([True, True, True, False, True, False])
    rows = coverage_rows(confidence, is_right)
    assert rows[0] == {"threshold": 0.2, "answered": 1.0, "accuracy": 4 / 6}
    assert rows[-1] == {"threshold": 0.7, "answered": 4 / 6, "accuracy": 3 / 4}
    # At 0.6, 4 of 5 answers are correct. The two texts at 0.7 are answered together.
    assert threshold_for_precision(confidence, is_right, 0.8)["threshold"] == 0.6
    assert threshold_for_precision(confidence, is_right, 0.9)["threshold"] == 0.8
    assert threshold_for_precision(confidence, ~is_right, 0.9) is None


def test_the_label_of_texts_out_of_scope_is_no_answer():
    class WithOutside(Fixed):
        classes_ = np.array(["a", "oos"])
        shares = np.array([0.9, 0.6, 0.2, 0.3])

        def predict(self, texts):
            return self.classes_[self.predict_proba(texts).argmax(axis=1)]

        def predict_proba(self, texts):
            return np.stack([self.shares, 1 - self.shares], 1)

    texts = ["one", "two", "three", "four"]
    data = LabelledTexts(texts, ["a", "oos", "oos", "a"])
    report = evaluate_classifier(WithOutside(), data, precision=1.0)
    # The two others are not answered, because "oos" is their best label.
    assert report["coverage"][0] == {"threshold": 0.6, "answered": 0.5, "accuracy": 0.5}
    assert report["precision_threshold"]["threshold"] == 0.9
    WithOutside.shares = np.full(4, 0.1)
    report = evaluate_classifier(WithOutside(), LabelledTexts(texts, ["oos"] * 4))
    assert report["coverage"] == []
