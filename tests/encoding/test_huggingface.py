"""SentenceEncoder on Hugging Face folders, from a path and from the hub."""

import json
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from support.huggingface_export import exported_folder
from support.processes import printed_by
from support.web_server import Quiet, serving

from convert_tf import SentenceEncoder
from convert_tf.checkpoints.released import ModuleNameError, model_path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
METHODS = ["encode", "encode_reduced", "encode_contexts", "encode_responses", "encode_similarity"]
TEXTS = ["how are you?", "", "a", "hello,world!yes.", "AB" * 90, "what is this", b"x y"]


@pytest.fixture(scope="module")
def exported():
    return exported_folder()


@pytest.fixture
def copy(exported, tmp_path):
    """A copy of the folder for tests that damage it, with 32-bit weights only."""
    folder = tmp_path / "hf"
    ignored = shutil.ignore_patterns("model_quantized.onnx", "model.safetensors")
    shutil.copytree(exported / "hf", folder, ignore=ignored)
    return folder


def assert_close(found, wanted):
    np.testing.assert_allclose(found, wanted, atol=1e-3 * np.abs(wanted).max())
    assert np.abs(wanted).max() > 0.1


@pytest.mark.parametrize("method", METHODS)
def test_vectors_are_those_of_the_onnx_file(exported, copy, method):
    for folder, file in ((exported / "hf", "encoder8.onnx"), (copy, "encoder.onnx")):
        encoders = SentenceEncoder(folder), SentenceEncoder(exported / file)
        assert encoders[0].kinds == encoders[1].kinds
        found, wanted = (getattr(encoder, method)(TEXTS) for encoder in encoders)
        assert_close(found, wanted)
        assert found.shape == wanted.shape
        assert_close(getattr(encoders[0], method)(TEXTS[0]), found[0])


def test_a_batch_is_read_in_pieces(copy, exported):
    texts = [" ".join(["how are you", "hello"][: i % 3] * (i % 7)) for i in range(400)]
    texts += ["ab" * 100]
    found, wanted = (
        SentenceEncoder(path).encode(texts) for path in (copy, exported / "encoder.onnx")
    )
    assert_close(found, wanted)
    assert SentenceEncoder(copy).encode([]).shape == (0, wanted.shape[1])


def test_unknown_characters_have_one_vector(copy):
    vectors = SentenceEncoder(copy).encode(["☃", "é", "hello"])
    np.testing.assert_allclose(vectors[0], vectors[1], rtol=1e-5)
    assert np.abs(vectors[0] - vectors[2]).max() > 0.01


def test_pickles_open_the_folder(copy):
    encoder = SentenceEncoder(copy)
    pickled = pickle.dumps(encoder)
    np.testing.assert_array_equal(pickle.loads(pickled).encode(TEXTS), encoder.encode(TEXTS))
    (copy / "tokenizer.json").write_text((copy / "tokenizer.json").read_text() + " ")
    with pytest.raises(ValueError, match="differ from those of the pickled encoder"):
        pickle.loads(pickled)


def changed(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda f: shutil.rmtree(f / "onnx"), "onnx/model.onnx and model.safetensors are missing"),
        (lambda f: (f / "tokenizer.json").write_text("{"), "tokenizer.json' is not valid JSON"),
        (lambda f: (f / "onnx" / "model.onnx").write_bytes(b"x"), "model.onnx failed"),
        (lambda f: changed(f / "config.json", hidden_size=200), "but config.json says 200"),
        (lambda f: changed(f / "config.json", similarity_dim=9**9), "similarity_dim: 387420489"),
        (lambda f: changed(f / "config.json", encoding_dim="5"), "encoding_dim: '5'"),
        (lambda f: changed(f / "config.json", unknown_id=7), "config.json has unknown_id: 7"),
        (lambda f: changed(f / "config.json", kind_ids={"word": 90}), "kind_ids: {'word'"),
        (lambda f: changed(f / "config.json", kind_ids={"sentence": 1}), "has sentence: 1"),
        (
            lambda f: changed(f / "tokenizer.json", model={"type": "BPE"}),
            "belongs to a tokenizer of another kind",
        ),
        (
            lambda f: changed(f / "config.json", model_type="bert"),
            "a Hugging Face BERT, which is only a trunk. Pass",
        ),
    ],
)
def test_a_folder_that_does_not_fit_is_one_sentence(copy, damage, message):
    damage(copy)
    with pytest.raises(ValueError, match=message) as caught:
        SentenceEncoder(copy)
    assert "\n" not in str(caught.value) and str(copy) in str(caught.value)


def test_weights_that_were_trained_further_are_not_ignored(exported, tmp_path):
    """New PyTorch weights with old ONNX graphs, as from sentence-transformers, are refused."""
    folder = tmp_path / "tuned"
    shutil.copytree(exported / "hf", folder)
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    # The same weights in another order and with other metadata are not a change.
    reordered = dict(sorted(weights.items(), reverse=True))
    safetensors.numpy.save_file(reordered, folder / "model.safetensors", {"format": "x"})
    SentenceEncoder(folder)
    first = next(iter(weights))
    tuned = {**weights, first: weights[first] + np.float32(1e-3)}
    safetensors.numpy.save_file(tuned, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"different sets of weights: model\.safetensors"):
        SentenceEncoder(folder)
    (folder / "model.safetensors").write_bytes(b"x" * 20)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        SentenceEncoder(folder)
    (folder / "model.safetensors").unlink()
    SentenceEncoder(folder)
    (folder / "pytorch_model.bin").write_bytes(b"new")
    with pytest.raises(ValueError, match=r"different sets of weights: pytorch_model\.bin"):
        SentenceEncoder(folder)


def test_vectors_are_not_cut(copy):
    changed(copy / "config.json", encoding_dim=7)
    encoder = SentenceEncoder(copy)
    encoder.encode(["a sentence"])
    with pytest.raises(ValueError, match="of encode_context have more than 7 dimensions"):
        encoder.encode_contexts(["a sentence"])


def test_the_network_of_a_folder_names_the_folder(copy):
    with pytest.raises(ValueError, match=f"Pass the folder, {str(copy)!r}"):
        SentenceEncoder(copy / "onnx" / "model.onnx")


def test_a_kind_that_is_no_kind_names_the_kinds(copy):
    with pytest.raises(ValueError, match="'query', only context, reduced, response, sentence, sim"):
        SentenceEncoder(copy).encode(["a"], kind="query")


@pytest.fixture
def cache(copy, tmp_path, monkeypatch):
    """A `huggingface_hub` cache that contains the folder as `me/encoder`."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    model = tmp_path / "cache" / "models--me--encoder"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    shutil.copytree(copy, model / "snapshots" / COMMIT)
    return model / "snapshots" / COMMIT


def test_offline_names_are_read_from_the_cache(cache, copy):
    assert model_path("hf://me/encoder") == str(cache)
    vectors, expected = (SentenceEncoder(each).encode(TEXTS) for each in ("hf://me/encoder", copy))
    np.testing.assert_array_equal(vectors, expected)


def test_a_name_may_have_weights_for_pytorch_alone(cache, exported):
    shutil.rmtree(cache / "onnx")
    with pytest.raises(ModuleNameError, match=r"model\.safetensors is missing there"):
        model_path("hf://me/encoder")
    shutil.copy(exported / "hf" / "model.safetensors", cache)
    assert model_path("hf://me/encoder") == str(cache)


def test_a_name_that_is_not_found_is_one_sentence(cache, monkeypatch):
    for name in ("hf://me/other", "hf://", "hf://../x", "hf://a/b/c"):
        with pytest.raises(ModuleNameError, match=f"'{name}' could not be read from the Hugging"):
            SentenceEncoder(name)
    with pytest.raises(ModuleNameError) as raised:
        SentenceEncoder("hf://me/other")
    assert "is missing there" not in str(raised.value)  # offline, this is not known
    changed(cache / "config.json", model_type="bert")
    with pytest.raises(ModuleNameError, match=r"it is the folder of a Hugging Face BERT.*, not an"):
        SentenceEncoder("hf://me/encoder")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNameError, match=r"pip install '.*\[huggingface\]'\.$"):
        SentenceEncoder("hf://me/encoder")


def test_a_mistyped_path_asks_no_hub(cache):
    assert model_path("me/encoder") == "me/encoder"
    with pytest.raises(ValueError, match="hf://owner/name for an encoder of the Hugging Face hub"):
        SentenceEncoder("me/encoder")


class Hub(Quiet):
    """Answers like the hub for the files of one model."""

    def translate_path(self, path):
        model, _, file = path.strip("/").partition("/resolve/")
        file = file.partition("/")[2]
        return super().translate_path(file if model == "me/encoder" else "none")

    def end_headers(self):
        is_model = self.path.startswith("/me/encoder/")
        self.send_header("X-Error-Code", "EntryNotFound" if is_model else "RepoNotFound")
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{Path(self.path).name}"')
        super().end_headers()


PROGRAM = """\
import sys
sys.modules["tensorflow"] = None
import numpy as np
from convert_tf import SentenceEncoder
np.save(sys.argv[1], SentenceEncoder("hf://me/encoder").encode(["hello", "y" * 20]))
try:
    SentenceEncoder("hf://me/other")
except ValueError as error:
    print(error)
"""


def test_names_are_downloaded_once_without_tensorflow(copy, tmp_path):
    pytest.importorskip("huggingface_hub")
    changed(copy / "sentence_bert_config.json", max_seq_length=9)  # lowered to seven subwords
    home = {"HF_HOME": str(tmp_path / "home")}
    with serving(copy, handler=Hub) as served:
        said = printed_by(PROGRAM, tmp_path / "0.npy", HF_ENDPOINT=served.url, **home)
    said += printed_by(PROGRAM, tmp_path / "1.npy", HF_HUB_OFFLINE="1", **home)
    assert said.count("'hf://me/other' could not be read") == len(said.splitlines()) == 2
    for name in ("0.npy", "1.npy"):
        assert_close(np.load(tmp_path / name), SentenceEncoder(copy).encode(["hello", "y" * 7]))
    names = {path.name for path in tmp_path.glob("home/hub/models--me--encoder/snapshots/*/**/*")}
    limits = {"sentence_bert_config.json", "tokenizer_config.json"}
    assert names == {"config.json", "tokenizer.json", "onnx", "model.onnx", "README.md", *limits}
    # A cache of an earlier version lacks the files with limits.
    next(tmp_path.glob("home/hub/*encoder/snapshots/*/sentence_bert_config.json")).unlink()
    warned = PROGRAM.replace("import sys", "import sys; sys.stderr = sys.stdout", 1)
    said = printed_by(warned, tmp_path / "2.npy", HF_HUB_OFFLINE="1", **home)
    assert "does not say whether hf://me/encoder has a sentence_bert_config.json" in said
