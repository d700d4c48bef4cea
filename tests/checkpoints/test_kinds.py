"""Recognising kinds of folders and files, and opening models of any kind."""

import json
from pathlib import Path

import pytest
from support.huggingface_folder import write_folder
from support.tiny_checkpoint import write_checkpoint

import convert_tf
from convert_tf.checkpoints.folder import save_checkpoint, weights_files
from convert_tf.checkpoints.kinds import CheckpointError, Kind, kind_of, model_checksum
from convert_tf.checkpoints.loading import initial_ranker
from convert_tf.checkpoints.released import RANKER_RELEASES
from convert_tf.config.bert import BertConfig
from convert_tf.config.model import ModelConfig
from convert_tf.config.ranker import HeadConfig, RankerConfig
from convert_tf.data import negatives, teacher_vectors, token_arrays
from convert_tf.data.shards import shard_name
from convert_tf.encoding.sentence_encoder import open_backend
from convert_tf.intents.folder import MODEL_FILE
from convert_tf.models.bert import BertTrunk
from convert_tf.models.encoder import DualEncoder
from convert_tf.models.ranker import RankerModel
from convert_tf.search import cache
from convert_tf.storage.checksums import fingerprint

MODULES = sorted(Path(__file__).resolve().parents[2].glob("hub_modules/*/[0-9]*"))
FILES = [
    ("config.json", ModelConfig().to_json(), Kind.DUAL_ENCODER),
    ("config.json", "{", Kind.DUAL_ENCODER),
    ("config.json", "7", Kind.DUAL_ENCODER),
    ("config.json", '[["model_type", 1]]', Kind.DUAL_ENCODER),
    ("config.json", RankerConfig(ModelConfig(), HeadConfig()).to_json(), Kind.RANKER),
    ("config.json", BertConfig().to_json(), Kind.BERT),
    ("config.json", json.dumps({"model_type": "bert"}), Kind.HUGGING_FACE),
    ("config.json", json.dumps({"model_type": "convert_tf"}), Kind.HUGGING_FACE_ENCODER),
    ("config.json", json.dumps({"model_type": "model2vec"}), Kind.STATIC),
    ("saved_model.pb", "", Kind.ENCODER_MODULE),
    (MODEL_FILE, "{}", Kind.INTENT),
    (token_arrays.FORMAT.facts_file, "{}", Kind.TOKEN_IDS),
    (negatives.FORMAT.facts_file, "{}", Kind.NEGATIVES),
    (teacher_vectors.FORMAT.facts_file, "{}", Kind.TEACHER_VECTORS),
    (cache.FORMAT.facts_file, "{}", Kind.CANDIDATE_CACHE),
    (shard_name("dev", 0, 1), "", Kind.RECORDS),
    ("notes.txt", "", Kind.UNKNOWN),
]


@pytest.mark.parametrize(("name", "content", "kind"), FILES)
def test_each_kind_is_told_by_one_file(tmp_path, name, content, kind):
    (tmp_path / name).write_text(content)
    assert kind_of(tmp_path) is kind
    assert kind_of(str(tmp_path), kind) is kind


def test_every_kind_is_told(tmp_path):
    told = {kind for _, _, kind in FILES} | {Kind.RANKER_MODULE}  # covered by tests/export
    assert kind_of(tmp_path / "small.onnx") is Kind.ONNX
    assert told | {Kind.ONNX} == set(Kind)
    assert kind_of(tmp_path / "nothing") is kind_of(tmp_path) is Kind.UNKNOWN


def test_a_module_is_one_whatever_lies_beside_its_graph():
    assert MODULES
    for folder in MODULES:
        is_ranker = folder.parent.name in RANKER_RELEASES
        assert kind_of(folder) is (Kind.RANKER_MODULE if is_ranker else Kind.ENCODER_MODULE)


def test_hidden_files_do_not_change_what_a_module_is(tmp_path):
    """macOS writes .DS_Store and ._NAME, and NFS writes .nfs0123."""
    (tmp_path / "saved_model.pb").write_bytes(b"")
    for name in ("variables/variables.index", "assets/vocab.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    before = model_checksum(tmp_path)
    parts = [("vocab.txt", tmp_path / "assets/vocab.txt")]
    parts += [("variables.index", tmp_path / "variables/variables.index")]
    assert before == fingerprint(parts)
    for name in ("variables/.DS_Store", "variables/.nfs01", "assets/._vocab.txt"):
        (tmp_path / name).write_text("hidden")
    assert model_checksum(tmp_path) == before
    assert weights_files(tmp_path) == [tmp_path / "variables/variables.index"]


def test_a_module_without_its_graph_is_no_run(tmp_path):
    (tmp_path / "variables").mkdir()
    (tmp_path / "config.json").write_text(ModelConfig().to_json())
    assert kind_of(tmp_path) is Kind.ENCODER_MODULE


def test_another_kind_is_named_in_one_line(tmp_path):
    (tmp_path / "arrays.json").write_text("{}")
    expected = (
        r"^'.*' is a folder of token ids \(from convert-tf tokenize\)\. Pass the run of a ranker .*"
        r" or an \.onnx file \(from convert-tf export\)\.$"
    )
    with pytest.raises(CheckpointError, match=expected):
        kind_of(tmp_path, Kind.RANKER, Kind.ONNX)
    with pytest.raises(CheckpointError, match=r"nowhere' does not exist\. Pass "):
        convert_tf.load_model(tmp_path / "nowhere")


def test_models_of_every_kind_are_loaded(tmp_path):
    encoder = write_checkpoint(tmp_path / "encoder")
    ranker, vocabulary = initial_ranker(encoder, HeadConfig())
    save_checkpoint(tmp_path / "ranker", ranker, vocabulary=vocabulary, training={})
    bert, words = convert_tf.load_model(write_folder(tmp_path / "published"))
    save_checkpoint(tmp_path / "bert", bert, vocabulary=words, training={})
    expected = {
        "encoder": DualEncoder,
        "ranker": RankerModel,
        "published": BertTrunk,
        "bert": BertTrunk,
    }
    for name, model_class in expected.items():
        model, vocabulary = convert_tf.load_model(tmp_path / name)
        assert isinstance(model, model_class), name
        assert vocabulary == tmp_path / name / "vocab.txt"
    model, vocabulary = convert_tf.load_model(MODULES[0])
    assert isinstance(model, DualEncoder)
    assert vocabulary == MODULES[0] / "assets" / "vocab.txt"
    for name in ("encoder", "ranker", "bert"):
        (tmp_path / name / "vocab.txt").write_text("other\n")
        with pytest.raises(CheckpointError, match="not the vocabulary that the model was trained"):
            convert_tf.load_model(tmp_path / name)
        (tmp_path / name / "vocab.txt").unlink()
        with pytest.raises(CheckpointError, match="is missing"):
            convert_tf.load_model(tmp_path / name)


def test_what_a_killed_run_put_aside_is_named(tmp_path):
    (tmp_path / ".run.new").mkdir()
    (tmp_path / ".run.new" / "moves.json").write_text("[]")
    with pytest.raises(
        CheckpointError,
        match=r"run' does not exist\. A killed run left .* in '.*\.run\.new/replaced'\. Run the "
        r"command that wrote '.*run' again, with the same --output: it first restores them\.$",
    ):
        kind_of(tmp_path / "run", Kind.DUAL_ENCODER)
    with pytest.raises(ValueError, match=r"one of [\w, ]+\. A killed run left"):
        open_backend(str(tmp_path / "run"))
