"""Identities of encoders: released versions never change, and vectors belong to one encoder."""

import json
import pickle
import shutil

import numpy as np
import pytest
from support.commands import ROOT, call_command
from support.intent_examples import LABELS, TEXTS, write_csv

from convert_tf import SentenceEncoder, __version__
from convert_tf.checkpoints import identity, released
from convert_tf.checkpoints.identity import EncoderIdentity, identity_from_json, identity_of
from convert_tf.checkpoints.kinds import model_checksum
from convert_tf.checkpoints.released import (
    ALL_RELEASES,
    EXPORTER,
    RELEASED,
    RELEASES,
    ModuleNameError,
    Release,
    module_path,
)
from convert_tf.cli.intent.monitor import check_same_encoders
from convert_tf.export.hub.writing import export_module
from convert_tf.export.onnx.writing import export_onnx
from convert_tf.search.cache import CandidateCache
from convert_tf.search.encoders import load_encoder
from convert_tf.search.index import CandidateIndex
from convert_tf.storage.checksums import checksum, file_checksum

MODULES = ROOT / "hub_modules"


def test_released_versions_have_not_changed():
    """Changed weights or graphs need a new version: a new folder and a new line in this list."""
    shipped = {
        (p.parent.parent.name, int(p.parent.name)) for p in MODULES.glob("*/*/saved_model.pb")
    }
    listed = {(name, version) for name, versions in ALL_RELEASES.items() for version in versions}
    assert shipped <= listed
    for name, version in listed:
        release, folder = ALL_RELEASES[name][version], MODULES / name / str(version)
        assert ((name, version) in shipped) == (not release.commit)
        if not release.commit:
            assert identity_of(folder) == EncoderIdentity(release.weights, "")
            assert identity_of(folder).name == f"{name}/{version}"
            assert file_checksum(folder / "saved_model.pb") == release.graph


def test_another_byte_is_another_encoder(tiny_modules, tmp_path):
    copy = shutil.copytree(tiny_modules["single"][1], tmp_path / "copy")
    before = identity_of(copy)
    (copy / "MODEL_CARD.md").write_text("another card")
    assert identity_of(copy) == before
    with open(copy / "variables" / "variables.data-00000-of-00002", "r+b") as file:
        file.write(bytes([file.read(1)[0] ^ 1]))
    assert identity_of(copy) != before


def test_a_version_that_is_gone_says_where_it_is(monkeypatch, tmp_path):
    monkeypatch.setitem(RELEASES, "convert", {1: Release("", "", "abc1234"), 2: Release("", "")})
    monkeypatch.setattr(released, "_local_folders", list)
    monkeypatch.delenv("CONVERT_TF_MODULES_URL", raising=False)
    with pytest.raises(ModuleNameError, match=r"git checkout abc1234 -- hub_modules/convert/1, or"):
        module_path("convert/1")
    with pytest.raises(ModuleNameError, match=r"no version 7 of convert\. Pass convert/1, conv"):
        module_path("convert/7")


@pytest.fixture(scope="module")
def files(tiny_modules, tmp_path_factory):
    """`.onnx` files: two equal encoders, the same with other bits, and another encoder."""
    folder = tmp_path_factory.mktemp("files")
    single, multi = tiny_modules["single"][1], tiny_modules["multi"][1]
    made = {
        "own": (single, {"network_bits": 8}),
        "same": (single, {"network_bits": 8, "notes": "\n## Data\n\nOther notes.\n"}),
        "wide": (single, {"network_bits": 32}),
        "other": (multi, {"network_bits": 8}),
    }
    for name, (module, options) in made.items():
        export_onnx(module, folder / f"{name}.onnx", **options)
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    return folder


def test_a_file_is_the_encoder_that_it_was_exported_from(files, tiny_modules, monkeypatch):
    own, same, wide, other = (
        identity_of(files / f"{name}.onnx") for name in ("own", "same", "wide", "other")
    )
    assert (files / "own.onnx").read_bytes() != (files / "same.onnx").read_bytes()
    assert own == same == identity_from_json(json.loads(json.dumps(own.to_json())))
    assert (
        len({own, wide, other}) == len({own.fingerprint, wide.fingerprint, other.fingerprint}) == 3
    )
    weights = identity_of(tiny_modules["single"][1]).checksum
    assert own == EncoderIdentity(weights, f"onnx-8-20-{EXPORTER}")
    monkeypatch.setitem(RELEASES, "convert", {3: Release(weights, "")})
    assert str(own) == f"convert/3 as 8-bit ONNX (20 tokens, exporter {EXPORTER})"
    assert str(identity_of(tiny_modules["single"][1])) == "convert/3 as a module (20 tokens)"
    assert str(EncoderIdentity(weights, "")) == "convert/3 as a module"
    assert identity_from_json({"checksum": 1, "form": ""}) is None
    earlier = identity_from_json({"checksum": weights, "form": "onnx-8-20"})
    assert str(earlier) == "convert/3 (onnx-8-20)" and earlier != own


def test_modules_that_read_more_or_less_of_a_text_are_two_encoders(
    tiny_modules, tmp_path, monkeypatch
):
    checkpoint, short = tiny_modules["single"]
    long = export_module(checkpoint, tmp_path / "module" / "1")
    assert identity_of(long) == EncoderIdentity(model_checksum(long), "")  # 512 tokens
    assert identity_of(short) == EncoderIdentity(model_checksum(long), "module-20")
    assert identity_of(long).fingerprint != identity_of(short).fingerprint
    replaced = shutil.copytree(short, tmp_path / "replaced")
    pickled = pickle.dumps(SentenceEncoder(replaced))
    shutil.rmtree(replaced)
    shutil.copytree(long, replaced)
    with pytest.raises(ValueError, match=r"maximum length of texts .* differ"):
        pickle.loads(pickled)
    # The keys of modules that read 512 tokens are those of earlier versions.
    monkeypatch.setattr(released, "made_once", lambda target, *_, **__: target)
    key = checksum([f"{__version__}:{EXPORTER}:{model_checksum(long)}".encode()])[:16]
    assert released.as_onnx(long).parent.name == key != released.as_onnx(short).parent.name


def test_files_of_two_exporters_are_two_encoders(files, tiny_modules, tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "EXPORTER", EXPORTER + 1)
    export_onnx(tiny_modules["single"][1], tmp_path / "later.onnx", network_bits=8)
    own, later = identity_of(files / "own.onnx"), identity_of(tmp_path / "later.onnx")
    assert own.checksum == later.checksum
    assert own != later and own.fingerprint != later.fingerprint
    monkeypatch.setitem(RELEASES, "convert", {3: Release(own.checksum, "")})
    assert str(own) != str(later)


def test_an_array_says_which_encoder_made_it(files, tmp_path):
    arguments = ["embed", f"--encoder={files}/own.onnx", f"--input={files}/texts.txt"]
    call_command(*arguments, f"--output={tmp_path}/v.npy", "--kind=context")
    described = json.loads((tmp_path / "v.npy.json").read_text())
    assert identity_from_json(described["encoder"]) == identity_of(files / "own.onnx")
    assert (described["kind"], described["dtype"]) == ("context", "float32")


def test_an_index_is_encoded_again_for_another_encoder(files, tmp_path):
    build = ["index", "build", "--dtype=float16", f"--encoder={files}/own.onnx"]
    call_command(*build, f"--input={files}/texts.txt", f"--output={tmp_path}/old")
    search = ["index", "search", "--queries=hello", "--top_k=3"]
    call_command(*search, f"--encoder={files}/same.onnx", f"--cache={tmp_path}/old")
    with pytest.raises(SystemExit, match=r"index build --from .*/old --encoder NEW --output"):
        call_command(*search, f"--encoder={files}/other.onnx", f"--cache={tmp_path}/old")
    other = f"--encoder={files}/other.onnx"
    call_command("index", "build", f"--from={tmp_path}/old", other, f"--output={tmp_path}/new")
    call_command(
        "index", "build", f"--input={files}/texts.txt", other, f"--output={tmp_path}/direct",
        "--dtype=float16",
    )  # fmt: skip
    for name in ("vectors.npy", "texts.npy"):
        found, expected = (np.load(tmp_path / each / name) for each in ("new", "direct"))
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(SystemExit, match="Pass one of --input and --from"):
        call_command("index", "build", other, f"--output={tmp_path}/x")
    of_texts = load_encoder(files / "own.onnx", kind="similarity")
    message = r"by (an .*), kind response, not by \1, kind similarity\."
    with pytest.raises(ValueError, match=message):
        CandidateIndex(CandidateCache(tmp_path / "old"), of_texts)


@pytest.fixture(scope="module")
def model(files):
    write_csv(files / "train.csv", TEXTS, LABELS)
    call_command(
        "intent", "train", f"--encoder={files}/own.onnx", f"--data={files}/train.csv",
        f"--output={files}/model", "--head=network", "--epochs=5",
    )  # fmt: skip
    return files / "model"


def test_a_classifier_is_trained_again_on_the_texts_that_it_keeps(files, model, tmp_path):
    from convert_tf import IntentClassifier

    message = r"onnx-8-20-\d+\), not .*intent train --model .*model --enc"
    with pytest.raises(ValueError, match=message):
        IntentClassifier.load(model, encoder=str(files / "other.onnx"))
    again = IntentClassifier.load(model, encoder=str(files / "same.onnx"))
    assert again.predict(TEXTS).tolist() == IntentClassifier.load(model).predict(TEXTS).tolist()
    call_command(
        "intent", "train", f"--model={model}", f"--encoder={files}/other.onnx",
        f"--output={tmp_path}/new",
    )  # fmt: skip
    new = IntentClassifier.load(tmp_path / "new")
    assert [*new.examples_.texts] == [*again.examples_.texts]
    assert new.epochs == 5  # copied from the old model
    assert new.encoder == str(files / "other.onnx")


def test_a_classifier_of_a_released_encoder_is_opened_on_another_machine(
    files, model, tiny_modules, tmp_path, monkeypatch
):
    """A classifier can be opened although its recorded path is in another machine's cache."""
    from convert_tf import IntentClassifier

    expected = IntentClassifier.load(model).predict(TEXTS).tolist()
    moved = shutil.copytree(model, tmp_path / "model")
    described = json.loads((moved / "intent.json").read_text())
    described["encoders"][0]["path"] = "/another/machine/own.onnx"
    (moved / "intent.json").write_text(json.dumps(described))
    (moved / "sha256.json").unlink()
    with pytest.raises(ValueError, match=r"another/machine/own\.onnx', which does not exist"):
        IntentClassifier.load(moved)
    weights = identity_of(tiny_modules["single"][1]).checksum
    monkeypatch.setitem(RELEASES, "convert", {RELEASED["convert"]: Release(weights, "")})
    shutil.copy(files / "same.onnx", tmp_path / f"convert-{RELEASED['convert']}.onnx")
    monkeypatch.setattr(released, "_local_folders", lambda: [tmp_path])
    assert IntentClassifier.load(moved).predict(TEXTS).tolist() == expected


def test_reports_of_two_encoders_are_not_compared(files):
    own, other = (identity_of(files / f"{name}.onnx") for name in ("own", "other"))
    check_same_encoders({"encoders": [own.to_json()]}, [own], "week1.json")
    check_same_encoders({}, [own], "week1.json")  # written by an earlier version
    check_same_encoders({"encoders": 5}, [own], "week1.json")  # damaged
    with pytest.raises(ValueError, match=r"\Aweek1\.json was written with .*omit --since"):
        check_same_encoders({"encoders": [other.to_json()]}, [own], "week1.json")


def test_groups_name_their_encoder_and_uncorrected_ones_refuse_another(files, tmp_path):
    groups, table = tmp_path / "groups", tmp_path / "groups" / "groups.csv"
    discover = [
        "intent", "discover", f"--encoder={files}/own.onnx", f"--input={files}/texts.txt",
        f"--output={groups}", "--groups=2", "--min_size=1",
    ]  # fmt: skip
    call_command(*discover)
    described = json.loads((groups / "groups.csv.json").read_text())
    own, other = (identity_of(files / f"{name}.onnx") for name in ("own", "other"))
    assert [*map(identity_from_json, described["encoders"])] == [own]
    train = ["intent", "train", f"--data={table}", "--lexical=none", "--kind=sentence"]
    message = (
        r"groups\.csv contains groups made with an .* not been corrected.*or run intent discover"
    )
    with pytest.raises(SystemExit, match=message) as error:
        call_command(*train, f"--encoder={files}/other.onnx", f"--output={tmp_path}/new")
    assert str(own) in str(error.value) and str(other) in str(error.value)
    assert not (tmp_path / "new").exists()
    call_command(*train, f"--encoder={files}/same.onnx", f"--output={tmp_path}/new")
    # The same weights count as the same encoder, also as 32-bit ONNX or as a module.
    call_command(*train, f"--encoder={files}/wide.onnx", f"--output={tmp_path}/wide")
    first, *others = table.read_text().splitlines()
    table.write_text("\n".join([first, *(line + "_by_hand" for line in others)]))
    call_command(*train, f"--encoder={files}/other.onnx", f"--output={tmp_path}/other")
    call_command(*discover, "--overwrite")
    (groups / "groups.csv.json").write_text('{"notes": "of mine"}')
    with pytest.raises(SystemExit, match=r"did not write .*groups\.csv\.json"):
        call_command(*discover, "--overwrite")
    call_command(*train, f"--encoder={files}/other.onnx", f"--output={tmp_path}/mine")


def test_one_file_with_a_classifier_is_the_encoder_in_it(files, model, tmp_path):
    """The exported file is the encoder's with more metadata, so reports name the same encoder."""
    call_command(
        "intent", "export", f"--model={model}", f"--output={tmp_path}/intents.onnx",
    )  # fmt: skip
    assert identity_of(tmp_path / "intents.onnx") == identity_of(files / "own.onnx")
    monitor = [
        "intent", "monitor", f"--input={files}/texts.txt", "--min_confidence=0",
        f"--model={tmp_path}/intents.onnx", f"--output={tmp_path}/week1.json",
    ]  # fmt: skip
    call_command(*monitor)
    (described,) = json.loads((tmp_path / "week1.json").read_text())["encoders"]
    assert identity_from_json(described) == identity_of(files / "own.onnx")
