"""Exported modules: stored weights, the card and errors; and how `export_model` picks the format.

`test_module_contract.py` tests the signatures and values.
"""

import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub

from convert_tf import export_model
from convert_tf.checkpoints.folder import CheckpointError, load_checkpoint
from convert_tf.cli.main import main
from convert_tf.export.hub import writing
from convert_tf.export.hub.encoder_module import EncoderModule
from convert_tf.export.hub.portable import save_portable
from convert_tf.export.hub.weights import StoredWeights
from convert_tf.export.hub.writing import export_module
from convert_tf.export.onnx import writing as onnx_writing
from convert_tf.models.encoder import count_parameters
from convert_tf.numerics.byte_codes import pack_kernel
from convert_tf.text.tokenizer import load_tokenizer


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
    """The encoder of the checkpoint."""
    return load_checkpoint(checkpoint)[0]


def stored_types(folder):
    """Return how many numbers of each type the file stores."""
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
        "float32": total - table + 2,  # filled by the first call, and zero until then
        "bfloat16": kernels,
        "bool": 2,
    }
    assert {v.dtype.name for v in module.trainable_variables} == {"float32"}
    assert sum(int(np.prod(v.shape)) for v in module.trainable_variables) == total - table
    assert {id(v) for v in module.trainable_variables} <= {id(v) for v in module.variables}


def test_rows_are_those_of_the_checkpoint(checkpoint, reference):
    # Compares the rows themselves, because the layer norm after them hides a constant error.
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
        "2,000 triplets and 300 texts, some with vectors of `larger`; before that, 50 triplets",
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
    assert "\n\n## Data\n\nLetters of *nobody*.\n\n<!-- end of notes -->\n\n## Limits\n\n- " in card
    assert "someone" not in card  # cards are published, so they do not name the folder of the data


def test_a_damaged_checkpoint_leaves_nothing(checkpoint, tmp_path):
    copied = Path(shutil.copytree(checkpoint, tmp_path / "copied"))
    (copied / "sha256.json").unlink()  # as in checkpoints of earlier versions
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
    with pytest.raises(ValueError, match=table.path):
        EncoderModule(encoder, load_tokenizer(vocabulary, num_oov_buckets=7))


def save_little(module, folder, **kwargs):
    """Write a dummy in place of `save_portable`, which takes seconds."""
    Path(folder).mkdir(exist_ok=True)
    (Path(folder) / "saved_model.pb").write_bytes(b"little")


def test_overwriting_replaces_nothing_but_modules(checkpoint, tmp_path, monkeypatch):
    """`--encoder run --output run --overwrite` does not delete the run."""
    monkeypatch.setattr(writing, "save_portable", save_little)
    run = shutil.copytree(checkpoint, tmp_path / "run")
    files = sorted(run.rglob("*"))
    with pytest.raises(ValueError, match=r"did not write, such as config.json"):
        export_module(run, run, overwrite=True)
    assert sorted(run.rglob("*")) == files
    output = tmp_path / "1"
    (output / "variables").mkdir(parents=True)
    for name in ("saved_model.pb", "variables/variables.index"):
        (output / name).write_text("old")
    with pytest.raises(ValueError, match="already exists"):
        export_module(run, output)
    export_module(run, output, overwrite=True)
    assert (output / "saved_model.pb").read_text() == "little"
    assert not (output / "variables").exists()


@pytest.fixture
def calls(monkeypatch):
    found = []
    for module, name in ((writing, "export_module"), (onnx_writing, "export_onnx")):

        def export(checkpoint, output, _name=name, **options):
            found.append((_name, checkpoint, output, options))
            return Path(output)

        monkeypatch.setattr(module, name, export)
    return found


def test_the_name_of_the_output_chooses_the_form(calls):
    assert export_model("runs/x", "x.onnx") == Path("x.onnx")
    with pytest.raises(ValueError, match=r"'x\.onnx/' does not fit the format onnx"):
        export_model("runs/x", "x.onnx/")
    export_model("runs/x", Path("modules/x.onnx/1"), network_bits=8, notes="n", overwrite=True)
    options = {"max_tokens": None, "notes": "", "overwrite": False}
    assert calls == [
        ("export_onnx", "runs/x", "x.onnx", options),  # with its own default for bits
        (
            "export_module",
            "runs/x",
            Path("modules/x.onnx/1"),
            {"network_bits": 8, "max_tokens": None, "notes": "n", "overwrite": True},
        ),
    ]


@pytest.mark.parametrize(("share", "is_said"), [(0.98, True), (0.02, False), (None, False)])
def test_texts_of_unknown_tokens_are_said(calls, tmp_path, recwarn, share, is_said):
    facts = {} if share is None else {"unknown_tokens": share}
    (tmp_path / "training.json").write_text(json.dumps(facts))
    export_model(tmp_path, "x.onnx")
    said = [str(each.message) for each in recwarn]
    assert bool(said) is is_said
    assert not said or said[0].startswith("98% of the tokens of the texts that it was trained on")


INPUTS = np.random.default_rng(1).standard_normal((4, 80)).astype(np.float32)


def make_model() -> keras.Model:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((80,))
    hidden = keras.layers.LayerNormalization()(keras.layers.Dense(96, "relu")(inputs))
    return keras.Model(inputs, keras.layers.Dense(70)(hidden))


class Module(tf.Module):
    variables = None
    trainable_variables = None

    def __init__(self, model, bits):
        super().__init__()
        self._model = lambda: model
        self.weights = StoredWeights(model.trainable_variables, bits=bits)
        self.variables = self.weights.variables
        self.trainable_variables = self.weights.trainable_variables
        self.regularization_losses = []

    @tf.function(input_signature=[tf.TensorSpec([None, 80])])
    def __call__(self, inputs):
        self.weights.unpack()
        with self.weights.scope():
            return self._model()(inputs)


@pytest.fixture(scope="module", params=[16, 8])
def saved(request, tmp_path_factory):
    """A saved module as `(folder, model, bits)`."""
    folder = tmp_path_factory.mktemp("stored") / "module"
    model = make_model()
    module = Module(model, request.param)
    save_portable(module, folder, signatures={"serving_default": module.__call__})
    return folder, model, request.param


def test_unpacked_weights_are_the_rounded_ones(saved):
    folder, model, bits = saved
    loaded = tf.saved_model.load(str(folder))
    assert not any(variable.numpy().any() for variable in loaded.trainable_variables)
    loaded(INPUTS)
    assert len(loaded.trainable_variables) == len(model.trainable_variables)
    for variable, got in zip(model.trainable_variables, loaded.trainable_variables, strict=True):
        value = variable.numpy()
        assert (got.shape.as_list(), got.dtype) == (list(value.shape), tf.float32)
        if bits == 8 and value.ndim == 2:
            half_a_step = np.abs(value).max(axis=0) / 254
            assert (np.abs(got.numpy() - value) <= half_a_step * 1.001).all()
        else:
            np.testing.assert_array_equal(got.numpy(), value.astype(np.float16))
    atol = {16: 5e-3, 8: 5e-2}[bits]
    np.testing.assert_allclose(loaded(INPUTS), model(INPUTS), atol=atol)
    assert np.abs(loaded(INPUTS) - model(INPUTS)).max() > 0


def test_the_loader_of_tensorflow_1_fills_them(saved):
    folder, _, _ = saved
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        graph = tf.compat.v1.saved_model.load(session, ["serve"], str(folder))
        signature = graph.signature_def["serving_default"]
        (given,), (wanted,) = signature.inputs.values(), signature.outputs.values()
        got = session.run(wanted.name, {given.name: INPUTS})
    np.testing.assert_allclose(got, tf.saved_model.load(str(folder))(INPUTS), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "sgd", "legacy"])
def test_trained_weights_are_kept_when_saved_again(saved, tmp_path, optimizer):
    import tf_keras

    folder, _, _ = saved
    layer = hub.KerasLayer(str(folder), trainable=True, input_shape=[80], dtype=tf.float32)
    model = tf_keras.Sequential([layer, tf_keras.layers.Dense(3)])
    model.summary(print_fn=lambda line: None)
    legacy = tf_keras.optimizers.legacy.Adam()
    model.compile(legacy if optimizer == "legacy" else optimizer, "mse")
    layer(INPUTS)  # fills the weights
    before = [v.numpy() for v in layer.trainable_weights]
    model.fit(INPUTS, np.ones((4, 3), np.float32), verbose=0)
    assert len(before) == 6
    for old, variable in zip(before, layer.trainable_weights, strict=True):
        assert np.abs(variable.numpy() - old).max() > 0
    again = tmp_path / "again"
    tuned = layer.resolved_object
    tf.saved_model.save(tuned, str(again), signatures=tuned.signatures)
    np.testing.assert_array_equal(tf.saved_model.load(str(again))(INPUTS), tuned(INPUTS))
    model.save(tmp_path / "keras")
    np.testing.assert_allclose(
        tf_keras.models.load_model(tmp_path / "keras")(INPUTS), model(INPUTS), atol=1e-6
    )


def test_pack_kernel():
    rng = np.random.default_rng(0)
    kernel = rng.standard_normal((40, 5)).astype(np.float32) * [1, 10, 0.01, 0, 1e-6]
    codes, scales = pack_kernel(kernel)
    assert (codes.dtype, scales.dtype) == (np.int8, np.float32)
    assert (np.abs(codes).max(axis=0) == [127, 127, 127, 0, 127]).all()  # -128 is never used
    assert (np.abs(codes * scales - kernel) <= scales / 2 * 1.001).all()
    assert scales[1] > 5 * scales[0]  # each column has a scale


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e6])
def test_weights_that_16_bits_cannot_hold_are_refused(value):
    model = make_model()
    broken = model.trainable_variables[0].numpy()
    broken[0, 0] = value
    model.trainable_variables[0].assign(broken)
    for bits in (16, 8, 32):
        with pytest.raises(ValueError, match=f"{model.trainable_variables[0].path} contain NaN"):
            StoredWeights(model.trainable_variables, bits=bits)
    with pytest.raises(ValueError, match="bits=4"):
        StoredWeights(make_model().trainable_variables, bits=4)


def test_a_module_exported_again_keeps_its_variables(checkpoint, tmp_path):
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    export_module(checkpoint, first, network_bits=8)
    export_module(first, again, network_bits=8)
    export_module(first, other, network_bits=16)
    texts = tf.constant(["how do i reset my password?", "", "the cat sat"])
    vectors = [
        tf.saved_model.load(str(each)).signatures["reduced"](texts)["default"].numpy()
        for each in (first, again)
    ]
    np.testing.assert_array_equal(*vectors)
    files = sorted(path.name for path in (first / "variables").iterdir())
    assert files == sorted(path.name for path in (again / "variables").iterdir())
    for name in files:
        content = (first / "variables" / name).read_bytes()
        assert (again / "variables" / name).read_bytes() == content
    assert stored_types(other) != stored_types(first)


def test_notes_in_another_encoding_are_named(checkpoint, tmp_path, capsys):
    path = tmp_path / "notes.md"
    path.write_bytes("Où?".encode("latin-1"))
    flags = [f"--encoder={checkpoint}", f"--notes={path}", f"--output={tmp_path / 'out.onnx'}"]
    assert main(["export", *flags]) == 1
    assert f"{str(path)!r} is not UTF-8" in capsys.readouterr().err
