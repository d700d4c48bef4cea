"""Hugging Face folders that other programs trained further: they can be opened and exported again.

Such programs write `model.safetensors`, a `config.json` with their own entries and the tokenizer,
but no ONNX files. `tests/clients/real/huggingface_probe.py` does so with sentence-transformers.
"""

import itertools
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
from support.huggingface_export import MAX_TOKENS, exported_folder
from support.tiny_checkpoint import write_checkpoint

from convert_tf import SentenceEncoder, export_model
from convert_tf.checkpoints.identity import identity_of
from convert_tf.checkpoints.kinds import CheckpointError
from convert_tf.checkpoints.limits import folder_max_tokens

TEXTS = ["how are you?", "", "hello,world!yes.", "AB" * 7, "what is ☃ this"]
METHODS = ["encode", "encode_reduced", "encode_contexts", "encode_responses", "encode_similarity"]


@pytest.fixture(scope="module")
def exported():
    return exported_folder()


def saved_again(source, folder, change=lambda name, array: array, dtype=np.float32):
    """Write a folder as `save_pretrained` does, with changed weights."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("onnx", "README.md", "*.py"))
    weights = safetensors.numpy.load_file(source / "model.safetensors")
    changed = {name: change(name, array).astype(dtype) for name, array in weights.items()}
    safetensors.numpy.save_file(changed, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    more = {"dtype": "float32", "transformers_version": "5.24.0"}
    (folder / "config.json").write_text(json.dumps({**config, **more}))
    return folder


def assert_same_vectors(found, wanted, share=1e-4):
    for method in METHODS:
        one, other = (getattr(encoder, method)(TEXTS) for encoder in (found, wanted))
        np.testing.assert_allclose(one, other, atol=share * np.abs(other).max(), err_msg=method)
        assert np.abs(other).max() > 0.1


def test_unchanged_weights_give_the_folder_of_before(exported, tmp_path):
    """A folder saved without training gives equal exports in all three formats."""
    saved = saved_again(exported / "hf", tmp_path / "saved")
    before = (exported / "hf" / "model.safetensors").read_bytes()
    export_model(saved, tmp_path / "again", format="huggingface")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == before
    for name in ("config.json", "tokenizer.json"):
        again, first = (json.loads((each / name).read_text()) for each in
                        (tmp_path / "again", exported / "hf"))  # fmt: skip
        if name == "config.json":
            assert (again.pop("num_oov_buckets"), first.pop("num_oov_buckets")) == (1, 7)
        assert again == first
    export_model(saved, tmp_path / "saved.onnx", network_bits=32)
    # The saved folder has one hash bucket instead of seven, so unknown characters differ.
    texts = [text for text in TEXTS if "☃" not in text]
    found, wanted = (SentenceEncoder(path) for path in
                     (tmp_path / "saved.onnx", exported / "encoder.onnx"))  # fmt: skip
    for method in METHODS:
        np.testing.assert_allclose(
            getattr(found, method)(texts), getattr(wanted, method)(texts), atol=1e-5
        )


@pytest.fixture(scope="module")
def tuned(exported, tmp_path_factory):
    """A folder in which every weight was trained."""
    rng = np.random.default_rng(0)

    def change(name, array):
        return array + 0.05 * np.std(array) * rng.standard_normal(array.shape)

    return saved_again(exported / "hf", tmp_path_factory.mktemp("tuned") / "hf", change)


def test_files_have_the_trained_weights(exported, tuned, tmp_path):
    export_model(tuned, tmp_path / "tuned.onnx", network_bits=32)
    expected = SentenceEncoder(tmp_path / "tuned.onnx")
    before = SentenceEncoder(exported / "encoder.onnx")
    assert np.abs(expected.encode(TEXTS) - before.encode(TEXTS)).max() > 0.1
    export_model(tuned, tmp_path / "again", format="huggingface")
    (tmp_path / "again" / "onnx" / "model_quantized.onnx").unlink()
    assert_same_vectors(SentenceEncoder(tmp_path / "again"), expected)


def test_other_weights_beside_old_onnx_files_are_another_encoder(exported, tuned, tmp_path):
    shutil.copytree(exported / "hf", tmp_path / "hf")
    identities = []
    for weights in (exported / "hf" / "model.safetensors", tuned / "model.safetensors"):
        shutil.copy(weights, tmp_path / "hf" / "model.safetensors")
        export_model(tmp_path / "hf", tmp_path / "exported.onnx", network_bits=32)
        identities.append(identity_of(tmp_path / "exported.onnx"))
        (tmp_path / "exported.onnx").unlink()
    assert identities[0].checksum != identities[1].checksum
    assert identities[0].form == identities[1].form


@pytest.mark.slow
def test_the_module_has_the_trained_weights(tuned, tmp_path):
    export_model(tuned, tmp_path / "tuned.onnx", network_bits=32)
    export_model(tuned, tmp_path / "module", network_bits=32)
    found = SentenceEncoder(tmp_path / "module", compute_dtype="float32")
    assert_same_vectors(found, SentenceEncoder(tmp_path / "tuned.onnx"))


def test_a_saved_folder_opens(tuned, exported, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CONVERT_TF_CACHE", str(tmp_path / "cache"))
    found = SentenceEncoder(tuned)
    assert found.path == str(tuned) and "to ONNX in" in capsys.readouterr().err
    export_model(tuned, tmp_path / "tuned.onnx")
    assert_same_vectors(found, SentenceEncoder(tmp_path / "tuned.onnx"), share=1e-2)
    SentenceEncoder(tuned)
    assert not capsys.readouterr().err and len([*tmp_path.glob("cache/onnx/*/*.onnx")]) == 1


def test_weights_in_16_bits_are_read(exported, tmp_path):
    half = saved_again(exported / "hf", tmp_path / "half", dtype=np.float16)
    export_model(half, tmp_path / "half.onnx", network_bits=32)
    saved = saved_again(exported / "hf", tmp_path / "bfloat16")
    _as_bfloat16(saved / "model.safetensors")
    export_model(saved, tmp_path / "bfloat16.onnx", network_bits=32)
    for name, share in (("half", 3e-3), ("bfloat16", 3e-2)):
        found, wanted = (SentenceEncoder(path).encode(TEXTS[:-1]) for path in
                         (tmp_path / f"{name}.onnx", exported / "encoder.onnx"))  # fmt: skip
        np.testing.assert_allclose(found, wanted, atol=share * np.abs(wanted).max())


def _as_bfloat16(path):
    """Write the same tensors with only their upper 16 bits."""
    header, data = {}, b""
    for name, array in safetensors.numpy.load_file(path).items():
        upper = (array.view(np.uint32) >> 16).astype("<u2").tobytes()
        place = [len(data), len(data) + len(upper)]
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": place}
        data += upper
    said = json.dumps(header).encode()
    path.write_bytes(len(said).to_bytes(8, "little") + said + data)


LIMITS = {"sentence_bert_config.json": "max_seq_length",
          "tokenizer_config.json": "model_max_length"}  # fmt: skip


def set_limit(folder, most, files=tuple(LIMITS)):
    """Set `max_seq_length` as sentence-transformers does."""
    for file in files:
        settings = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**settings, LIMITS[file]: most}))


@pytest.mark.parametrize("files", [*itertools.combinations(LIMITS, 1), tuple(LIMITS)])
def test_a_limit_from_sentence_transformers_is_kept(exported, tmp_path, files):
    saved = saved_again(exported / "hf", tmp_path / "saved")
    set_limit(saved, 7, files)  # five subwords, and two tokens that select the kind
    export_model(saved, tmp_path / "again", format="huggingface")
    for file, entry in LIMITS.items():
        assert json.loads((tmp_path / "again" / file).read_text())[entry] == 7
    export_model(saved, tmp_path / "saved.onnx", network_bits=32)
    shutil.copytree(exported / "hf" / "onnx", saved / "onnx")
    for path in (saved, tmp_path / "again", tmp_path / "saved.onnx"):
        five, six, four = SentenceEncoder(path).encode(["y" * 5, "y" * 6, "y" * 4])
        np.testing.assert_allclose(five, six, atol=1e-3 * np.abs(five).max())
        assert np.abs(five - four).max() > 0.01 * np.abs(five).max()


def test_a_higher_limit_or_none_does_not_count(exported, tmp_path):
    saved = saved_again(exported / "hf", tmp_path / "saved")
    for most in (None, 10**30, 1e30):
        set_limit(saved, most)
        export_model(saved, tmp_path / "again", format="huggingface", overwrite=True)
        settings = json.loads((tmp_path / "again" / "sentence_bert_config.json").read_text())
        assert settings["max_seq_length"] == MAX_TOKENS + 2


def test_a_lowered_limit_is_another_encoder(exported, tmp_path, monkeypatch):
    monkeypatch.setenv("CONVERT_TF_CACHE", str(tmp_path / "cache"))
    saved = saved_again(exported / "hf", tmp_path / "saved")
    before, long_text = identity_of(saved), "y" * MAX_TOKENS
    assert before.form == ""
    set_limit(saved, 7)
    assert identity_of(saved) == before._replace(form="folder-5")
    lowered = SentenceEncoder(saved).encode([long_text, "y" * 5])
    np.testing.assert_allclose(*lowered, atol=1e-3 * np.abs(lowered).max())
    set_limit(saved, MAX_TOKENS + 2)
    assert identity_of(saved) == before
    vectors, expected = (
        SentenceEncoder(path).encode([long_text]) for path in (saved, exported / "hf")
    )
    np.testing.assert_allclose(vectors, expected, atol=1e-2 * np.abs(expected).max())
    assert np.abs(vectors - lowered[:1]).max() > 0.05 * np.abs(vectors).max()


def test_limits_without_the_tokens_that_select_a_kind_are_read(exported, tmp_path):
    """Earlier versions wrote such limits, without `prefix_tokens`. Only JSON files are changed."""
    saved = shutil.copytree(exported / "hf", tmp_path / "saved")
    set_facts(saved, max_position_embeddings=MAX_TOKENS, prefix_tokens=None)
    config = json.loads((saved / "config.json").read_text())
    del config["prefix_tokens"]
    (saved / "config.json").write_text(json.dumps(config))
    set_limit(saved, MAX_TOKENS)
    export_model(saved, tmp_path / "again", format="huggingface")
    again = json.loads((tmp_path / "again" / "config.json").read_text())
    assert (again["max_position_embeddings"], again["prefix_tokens"]) == (MAX_TOKENS + 2, 2)
    texts = ["y" * MAX_TOKENS, "y" * (MAX_TOKENS + 1)]
    found, wanted = (SentenceEncoder(path).encode(texts) for path in (saved, exported / "hf"))
    np.testing.assert_array_equal(found, wanted)

    set_limit(saved, MAX_TOKENS - 1)  # a program that counts the two tokens as well
    assert folder_max_tokens(saved, config) == MAX_TOKENS - 3


def test_trained_position_biases_are_kept(tmp_path):
    """Folders of encoders without position biases have biases of zero, which can be trained."""
    run = write_checkpoint(tmp_path / "run", use_relative_bias=False)
    export_model(run, tmp_path / "hf", format="huggingface")
    before = SentenceEncoder(tmp_path / "hf").encode(TEXTS[:1])

    def change(name, array):
        return array + np.arange(array.size).reshape(array.shape) * name.endswith("relative_bias")

    saved = saved_again(tmp_path / "hf", tmp_path / "saved", change)
    export_model(saved, tmp_path / "again", format="huggingface")
    again, trained = (
        safetensors.numpy.load_file(folder / "model.safetensors")["blocks.0.relative_bias"]
        for folder in (tmp_path / "again", saved)
    )
    np.testing.assert_array_equal(again, trained)
    after = SentenceEncoder(tmp_path / "again").encode(TEXTS[:1])
    assert np.abs(after - before).max() > 0.01 * np.abs(before).max()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda f: (f / "model.safetensors").write_bytes(b"x" * 30), "cannot be exported"),
        (lambda f: (f / "pytorch_model.bin").write_bytes(b"x"), "two sets of weights"),
        (lambda f: without(f, "norm.bias"), "model.safetensors has no norm.bias"),
        (lambda f: without(f, "similarity.weight"), "has no similarity.weight"),
        (lambda f: without(f, "tokens.weight", 3), r"table has the shape \(3,"),
        (lambda f: without(f, "norm.bias", np.nan), "has NaN or infinite"),
        (lambda f: set_facts(f, table_range=[{}, 1]), "cannot be exported: float"),
        (lambda f: set_facts(f, table_range=[None, 1]), "table_range must be two finite numbers"),
        (lambda f: set_facts(f, multi_context=True), "cannot be exported: list index"),
        (lambda f: set_facts(f, max_position_embeddings=2), "has max_position_embeddings: 2"),
        (lambda f: set_limit(f, 2), r"config\.json must be a whole number above 2\. Received: 2"),
        (lambda f: set_limit(f, 7.5), r"config\.json must be a whole number .* Received: 7\.5"),
        (
            lambda f: set_facts(f, feed_forward_dim="x" * 10_000),
            r"feed_forward_dim .{,280}…\. Save",
        ),
    ],
)
def test_folders_that_do_not_fit_are_one_sentence(exported, tmp_path, damage, message):
    saved = saved_again(exported / "hf", tmp_path / "saved")
    damage(saved)
    with pytest.raises(CheckpointError, match=message) as caught:
        export_model(saved, tmp_path / "x.onnx")
    assert "\n" not in str(caught.value) and str(saved) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def set_facts(folder, **facts):
    """Change entries of the folder's `config.json`."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def without(folder, name, replaced=None):
    """Remove a tensor, truncate it to its first rows, or fill it with a number."""
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    array = weights.pop(name)
    if isinstance(replaced, int):
        weights[name] = array[:replaced]
    elif replaced is not None:
        weights[name] = np.full_like(array, replaced)
    safetensors.numpy.save_file(weights, folder / "model.safetensors", {"format": "pt"})
