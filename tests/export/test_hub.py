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

from convert_tf.checkpoints.folder import CheckpointError, load_checkpoint
from convert_tf.export.hub import writing
from convert_tf.export.hub.encoder_module import EncoderModule
from convert_tf.export.hub.weights import WeightsError
from convert_tf.export.hub.writing import export_module
from convert_tf.models.encoder import count_parameters
from convert_tf.text.tokenizer import load_tokenizer

ROOT = Path(__file__).resolve().parents[2]


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


def run_python(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )


def test_a_damaged_checkpoint_leaves_nothing(checkpoint, tmp_path):
    copied = Path(shutil.copytree(checkpoint, tmp_path / "copied"))
    (copied / "sha256.json").unlink()  # as checkpoints of earlier versions are
    (copied / "model.weights.h5").write_bytes(b"x" * 100)
    with pytest.raises(CheckpointError, match="are damaged or do not match"):
        export_module(copied, tmp_path / "out" / "1")
    assert not any(tmp_path.glob("out/*"))


@pytest.mark.parametrize("value", [np.nan, 1e6])
def test_a_table_that_16_bits_cannot_hold_is_refused(checkpoint, value):
    encoder, vocabulary = load_checkpoint(checkpoint)
    table = encoder.trunk.embedding.table
    broken = table.numpy()
    broken.flat[3] = value
    table.assign(broken)
    with pytest.raises(WeightsError, match=table.path):
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
    with pytest.raises(ValueError, match="already exists"):
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
    with pytest.raises(ValueError, match=r"did not write, such as config.json"):
        export_module(run, run, overwrite=True)
    assert sorted(run.rglob("*")) == files


@pytest.mark.slow
def test_script(checkpoint, tmp_path):
    output = tmp_path / "hub_modules" / "convert" / "1"
    done = run_python(ROOT / "export.py", f"--encoder={checkpoint}", f"--output={output}", cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"wrote {output}" in done.stdout
    assert hub.load(str(output))(["how are you"]).shape == (1, 128)


def test_script_errors_are_one_line(checkpoint, tmp_path):
    def error_line(checkpoint, output):
        with pytest.raises(SystemExit) as caught:
            arguments = (f"--encoder={checkpoint}", f"--output={output}")
            call_command("export", *arguments)
        assert "\n" not in caught.value.code
        return caught.value.code

    nowhere = tmp_path / "nowhere"
    assert f"{str(nowhere)!r} does not exist" in error_line(nowhere, tmp_path / "1")
    (tmp_path / "file").touch()
    message = error_line(checkpoint, tmp_path / "file" / "1")
    assert f"Cannot write {str(tmp_path / 'file' / '1')!r}: Not a directory" in message


TEXTS = ["how do i reset my password?", "", "the cat sat on the mat, today.", "Zebra \u4f60 42!"]
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


@pytest.mark.slow
def test_fresh_process_without_this_package(folder, module, tmp_path):
    moved = shutil.copytree(folder, tmp_path / "elsewhere")  # it reads no file but its own
    (tmp_path / "texts").write_text("|".join(TEXTS), encoding="utf-8")
    (tmp_path / "fresh.py").write_text(FRESH_PROCESS)
    done = run_python("fresh.py", moved, "texts", "out.npz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    out = np.load(tmp_path / "out.npz")
    np.testing.assert_allclose(out["called"], module(TEXTS), atol=1e-5)
    contexts = module.signatures["encode_context"](tf.constant(TEXTS))["default"]
    np.testing.assert_allclose(out["context"], contexts, atol=1e-6)
    expected = module.signatures["encode_sequence"](tf.constant(TEXTS))["sequence_encoding"]
    np.testing.assert_allclose(out["sequence"], expected, atol=1e-5)


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
