"""Exported modules: files and their sizes, the card, round trips, refusals.

Signatures and values are in `test_module_contract.py`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
from support.commands import call_command
from support.tiny_checkpoint import write_checkpoint

from convert_tf.checkpoints.folder import CheckpointError, load_checkpoint
from convert_tf.export.hub import writing
from convert_tf.export.hub.encoder_module import EncoderModule
from convert_tf.export.hub.weights import WeightsError
from convert_tf.export.hub.writing import ExportError, export_module
from convert_tf.models.encoder import count_parameters
from convert_tf.text.loading import load_tokenizer

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["how do i reset my password?", "", "the cat sat on the mat, today.", "Zebra \u4f60 42!"]


@pytest.fixture(scope="module")
def checkpoint(tiny_modules):
    return tiny_modules["single"][0]


@pytest.fixture(scope="module")
def folder(tiny_modules):
    return tiny_modules["single"][1]


@pytest.fixture(scope="module")
def module(folder):
    return hub.load(str(folder))


@pytest.fixture(scope="module")
def reference(checkpoint):
    """The checkpoint's own encoder."""
    return load_checkpoint(checkpoint)[0]


def call(module, signature, texts):
    return module.signatures[signature](tf.constant(texts, tf.string))["default"].numpy()


def stored_types(folder):
    """Numbers in the file, by type."""
    reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    types, stored = reader.get_variable_to_dtype_map(), {}
    for name, shape in reader.get_variable_to_shape_map().items():
        if types[name] != tf.string:
            stored[types[name].name] = stored.get(types[name].name, 0) + int(np.prod(shape))
    return stored


def test_only_packed_variables_are_stored(folder, module, reference):
    encoder = reference
    sizes = count_parameters(encoder)
    table = int(np.prod(encoder.trunk.embedding.table.shape))
    total = sum(sizes.values())
    kernels = sum(v.shape.num_elements() for v in module.copies._values if v.dtype == tf.bfloat16)
    assert stored_types(folder) == {
        "uint8": table,
        "float16": total - table,
        "float32": total - table + 2,  # unpacked by the first call, and zeros until then
        "bfloat16": kernels,
        "bool": 2,
    }
    assert {v.dtype.name for v in module.trainable_variables} == {"float32"}
    assert sum(int(np.prod(v.shape)) for v in module.trainable_variables) == total - table
    assert {id(v) for v in module.trainable_variables} <= {id(v) for v in module.variables}


def test_size_on_disk(folder, reference):
    encoder = reference
    table = int(np.prod(encoder.trunk.embedding.table.shape))
    network = sum(count_parameters(encoder).values()) - table
    data = sum(p.stat().st_size for p in (folder / "variables").glob("variables.data*"))
    object_graph = 100_000  # names of variables and functions, stored among the variables
    assert table + 2 * network <= data <= table + 2 * network + object_graph
    graph = 2_000_000
    total = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    assert total <= data + (folder / "assets" / "vocab.txt").stat().st_size + graph


def test_rows_are_those_of_the_checkpoint(checkpoint, reference):
    # Not only through the encodings: the layer norm behind the rows hides a constant error.
    encoder, vocabulary = load_checkpoint(checkpoint)
    EncoderModule(encoder, load_tokenizer(vocabulary, num_oov_buckets=7))
    ids = tf.range(encoder.config.num_ids)[None]
    rows = encoder.trunk.embedding.gather_rows(ids)
    expected = reference.trunk.embedding.gather_rows(ids)
    np.testing.assert_allclose(rows, expected, atol=1e-6)
    table = reference.trunk.embedding.table.numpy()
    weights = reference.trunk.embedding.quantizer_weights
    step = float(weights["range_max"] - weights["range_min"]) / 255
    assert 0 < np.abs(rows[0] - table).max() <= step / 2 * (1 + 1e-4)


def test_a_table_that_was_not_trained_in_8_bits_is_stored_in_16(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "checkpoint", embedding_bits=32)
    encoder, vocabulary = load_checkpoint(checkpoint)
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=7)
    ids = tokenizer.token_ids(tf.constant(TEXTS)).to_tensor(tokenizer.padding_id)
    expected = encoder.encode_context(ids).numpy()
    module = EncoderModule(encoder, tokenizer)
    assert {v.dtype.name for v in module.table.variables} == {"float16"}
    got = module.encode_context(tf.constant(TEXTS))["default"]
    np.testing.assert_allclose(got, expected, atol=2e-3)


def test_module_card(folder, reference):
    card = (folder / "MODEL_CARD.md").read_text()
    for fact in (
        f"{reference.config.vocab_size} entries, 7 hash buckets",
        "20 subwords are read, 60 in training",
        "| data | `corpus` |",
        "| optimizer | adam |",
        "| training examples | the first 500 after the first 1,000 |",
        "| shares of sources | chat=0.5, forum=0.1 |",
        "| initial weights | those of `smaller` |",
        "| `1 larger + 0.5 letters`, joined in chat, forum, elsewhere the first alone |",
        "| pairs | 409,600 |",
        "| CPU hours | 1.51 |",
        "| dev R100@1 | 0.4321 |",
        "| steps | 900 |",
        "| network | 16 bits |",
        "| subword table | 8 bits |",
        f"| `saved_model.pb` | {(folder / 'saved_model.pb').stat().st_size:,} bytes |",
        "first 20 subwords are read. Positions after 60 were not trained",
        "no earlier turns",
    ):
        assert fact in card
    assert "\n\n## Data\n\nLetters of *nobody*.\n\n## Limits\n\n- " in card
    assert "someone" not in card  # a card is published; where its maker kept the data is not


FRESH_PROCESS = """
import sys

class Block:
    names = {"convert_tf"}

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names and name not in sys.modules:
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Block())
import tensorflow as tf
import tensorflow_text  # itself imports Keras

Block.names |= {"keras", "tf_keras", "sentencepiece", "tensorflow_hub"}
for name in [n for n in sys.modules if n.split(".")[0] in ("keras", "tf_keras")]:
    del sys.modules[name]
import numpy as np

module = tf.saved_model.load(sys.argv[1])
texts = tf.constant(open(sys.argv[2], encoding="utf-8").read().split("|"))
np.savez(
    sys.argv[3],
    called=module(texts),
    context=module.signatures["encode_context"](texts)["default"],
    sequence=module.signatures["encode_sequence"](texts)["sequence_encoding"],
)
"""


def run_python(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_fresh_process_without_this_package(folder, module, tmp_path):
    moved = shutil.copytree(folder, tmp_path / "elsewhere")  # it reads no file but its own
    (tmp_path / "texts").write_text("|".join(TEXTS), encoding="utf-8")
    (tmp_path / "fresh.py").write_text(FRESH_PROCESS)
    done = run_python("fresh.py", moved, "texts", "out.npz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    out = np.load(tmp_path / "out.npz")
    np.testing.assert_allclose(out["called"], module(TEXTS), atol=1e-5)
    np.testing.assert_allclose(out["context"], call(module, "encode_context", TEXTS), atol=1e-6)
    expected = module.signatures["encode_sequence"](tf.constant(TEXTS))["sequence_encoding"]
    np.testing.assert_allclose(out["sequence"], expected, atol=1e-5)


@pytest.mark.slow
def test_hub_keras_layer(folder, module):
    import tf_keras

    layer = hub.KerasLayer(str(folder), trainable=True, input_shape=[], dtype=tf.string)
    model = tf_keras.Sequential([layer, tf_keras.layers.Dense(3)])
    texts = tf.constant(TEXTS)
    np.testing.assert_allclose(layer(texts), module(texts), atol=1e-5)
    assert model(texts).shape == (4, 3)
    assert len(layer.trainable_weights) == len(module.trainable_variables)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(texts)))
    gradients = tape.gradient(loss, layer.trainable_weights)
    # r is made by the trunk and the reduction; the side networks get no gradient.
    received = [g for g in gradients if g is not None]
    assert len(received) > len(gradients) / 2
    assert all(np.isfinite(tf.convert_to_tensor(g).numpy()).all() for g in received)
    assert any(np.abs(tf.convert_to_tensor(g).numpy()).max() > 0 for g in received)


@pytest.mark.slow
def test_a_trained_module_is_saved_again_with_its_weights(folder, module, tmp_path):
    layer = hub.KerasLayer(str(folder), trainable=True, input_shape=[], dtype=tf.string)
    texts = tf.constant(TEXTS)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(layer(texts)))
    weights = layer.trainable_weights
    for variable, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
        if gradient is not None:
            gradient = tf.convert_to_tensor(gradient)
            step = tf.math.divide_no_nan(gradient, tf.reduce_max(tf.abs(gradient)))
            variable.assign_sub(0.05 * step)
    tuned = layer.resolved_object
    expected = tuned(texts).numpy()
    assert np.abs(expected - module(texts)).max() > 1e-3
    tf.saved_model.save(tuned, str(tmp_path / "tuned"), signatures=tuned.signatures)
    again = tf.saved_model.load(str(tmp_path / "tuned"))
    np.testing.assert_allclose(again(texts), expected, atol=1e-5)
    again.use_bfloat16(True)  # copies of the trained weights
    assert np.abs(again(texts) - expected).max() < 0.1 * np.abs(module(texts) - expected).max()


@pytest.fixture
def copied(checkpoint, tmp_path):
    return Path(shutil.copytree(checkpoint, tmp_path / "copied"))


def is_empty(folder):
    return not folder.exists() or not any(folder.iterdir())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "model.weights.h5").write_bytes(b"x" * 100), "are damaged or do not match"),
        (lambda f: (f / "model.weights.h5").unlink(), "are damaged or do not match"),
        (lambda f: (f / "vocab.txt").unlink(), "is missing"),
        (lambda f: (f / "config.json").unlink(), "Pass the run of a dual encoder"),
        (
            lambda f: (f / "vocab.txt").write_text("\ufe4fa\na\n", encoding="utf-8"),
            "not the vocabulary that the model was trained with",
        ),
    ],
)
def test_damaged_checkpoints_leave_nothing(copied, tmp_path, damage, message):
    (copied / "sha256.json").unlink()  # as checkpoints of earlier versions are
    damage(copied)
    with pytest.raises(CheckpointError, match=message):
        export_module(copied, tmp_path / "out" / "1")
    assert is_empty(tmp_path / "out")


@pytest.mark.parametrize("value", [np.nan, 1e6])
@pytest.mark.parametrize("where", ["table", "network"])
def test_weights_that_16_bits_cannot_hold_are_refused(checkpoint, value, where):
    encoder, vocabulary = load_checkpoint(checkpoint)
    embedding = encoder.trunk.embedding
    variable = embedding.table if where == "table" else encoder.context_side.linear.bias
    broken = variable.numpy()
    broken.flat[3] = value
    variable.assign(broken)
    with pytest.raises(WeightsError, match=variable.path):
        EncoderModule(encoder, load_tokenizer(vocabulary, num_oov_buckets=7))


def save_little(module, folder, **kwargs):
    """Instead of `save_portable`, which takes seconds."""
    Path(folder).mkdir(exist_ok=True)
    (Path(folder) / "saved_model.pb").write_bytes(b"little")


def test_an_existing_folder_is_kept_unless_told(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "save_portable", save_little)
    output = tmp_path / "out" / "1"
    (output / "variables").mkdir(parents=True)
    (output / "saved_model.pb").write_text("old")
    (output / "variables" / "variables.index").write_text("old")
    with pytest.raises(ExportError, match="already exists"):
        export_module(checkpoint, output)
    assert (output / "saved_model.pb").read_text() == "old"
    export_module(checkpoint, output, overwrite=True)
    assert (output / "saved_model.pb").read_text() == "little"
    assert not (output / "variables").exists()
    assert [p.name for p in output.parent.iterdir()] == ["1"]


def test_overwriting_replaces_nothing_but_modules(checkpoint, tmp_path, monkeypatch):
    """`--encoder run --output run --overwrite` would delete the run."""
    monkeypatch.setattr(writing, "save_portable", save_little)
    run = shutil.copytree(checkpoint, tmp_path / "run")
    files = sorted(run.rglob("*"))
    with pytest.raises(ExportError, match=r"did not write, such as config.json"):
        export_module(run, run, overwrite=True)
    assert sorted(run.rglob("*")) == files


@pytest.mark.parametrize("failing", ["save", "rename"])
def test_a_full_disk_leaves_what_was_there(checkpoint, tmp_path, monkeypatch, failing):
    output = tmp_path / "out" / "1"
    output.mkdir(parents=True)
    (output / "saved_model.pb").write_text("keep")

    def half_saved(module, folder, **kwargs):
        save_little(module, folder)
        if failing == "save":
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    rename = os.rename

    def half_renamed(source, target):
        if failing == "rename" and os.path.basename(source) == "written":
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(writing, "save_portable", half_saved)
    monkeypatch.setattr(writing.os, "rename", half_renamed)
    with pytest.raises(ExportError, match="No space left on device"):
        export_module(checkpoint, output, overwrite=True)
    assert [p.name for p in output.parent.iterdir()] == ["1"]
    assert (output / "saved_model.pb").read_text() == "keep"


def test_models_in_other_formats_are_refused(checkpoint):
    tokenizer = load_tokenizer(checkpoint / "vocab.txt", num_oov_buckets=7)
    encoder, _ = load_checkpoint(checkpoint, dtype="mixed_bfloat16")
    with pytest.raises(ValueError, match="Received: a model in bfloat16"):
        EncoderModule(encoder, tokenizer)


@pytest.mark.slow
def test_script(checkpoint, tmp_path):
    output = tmp_path / "hub_modules" / "convert" / "1"
    done = run_python(ROOT / "export.py", f"--encoder={checkpoint}", f"--output={output}", cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"wrote {output}" in done.stdout
    assert hub.load(str(output))(["how are you"]).shape == (1, 128)


def test_script_errors_are_one_line(checkpoint, tmp_path, monkeypatch):
    def error_line(checkpoint, output):
        with pytest.raises(SystemExit) as caught:
            arguments = (f"--encoder={checkpoint}", f"--output={output}")
            call_command("export", *arguments)
        assert "\n" not in caught.value.code
        return caught.value.code

    nowhere = tmp_path / "nowhere"
    assert f"{str(nowhere)!r} does not exist" in error_line(nowhere, tmp_path / "1")
    (tmp_path / "file").touch()
    monkeypatch.setattr(writing, "save_portable", save_little)
    message = error_line(checkpoint, tmp_path / "file" / "1")
    assert f"{str(tmp_path / 'file' / '1')!r}: Not a directory" in message

    def refuse(path, *_, **__):
        raise PermissionError(13, "Permission\ndenied", str(path))

    monkeypatch.setattr(writing, "load_checkpoint", refuse)
    assert str(checkpoint) in error_line(checkpoint, tmp_path / "1")
