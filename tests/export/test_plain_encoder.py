"""Exporting modules to .onnx without TensorFlow: the same bytes as with it, and bad modules."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from support.commands import own_environment

pytest.importorskip("onnx")

from convert_tf.checkpoints.kinds import CheckpointError
from convert_tf.checkpoints.tensor_bundle import _OBJECTS_KEY, ModuleVariables
from convert_tf.export.onnx.graph import GraphBuilder
from convert_tf.export.onnx.plain_encoder import load_plain_source
from convert_tf.export.onnx.writing import calibrated
from convert_tf.export.source import load_source

# A program in which TensorFlow and Keras cannot be imported.
WITHOUT_TENSORFLOW = (
    "import sys\n"
    "for name in ('tensorflow', 'tensorflow_text', 'tensorflow_hub', 'keras', 'tf_keras',\n"
    "             'tensorflow_model_optimization'):\n"
    "    sys.modules[name] = None\n"
)


@pytest.mark.parametrize("kind", ["single", "multi"])
def test_the_graph_is_that_of_the_layers(kind, tiny_modules):
    module = tiny_modules[kind][1]
    sources = [load(module, None) for load in (load_source, load_plain_source)]
    calibrations = calibrated(sources[0])
    for form in (None, calibrations):
        expected, received = (
            GraphBuilder(source, form).build().SerializeToString(deterministic=True)
            for source in sources
        )
        assert received == expected


def test_all_variables_are_those_that_tensorflow_reads(tiny_modules):
    import tensorflow as tf

    module = tiny_modules["multi"][1]
    reader = tf.train.load_checkpoint(str(module / "variables" / "variables"))
    values, compared = ModuleVariables(module), 0
    for key in reader.get_variable_to_shape_map():
        path, is_variable, _ = key.partition("/.ATTRIBUTES/VARIABLE_VALUE")
        # Copies in bfloat16 only save time; no weight is read from them.
        if not is_variable or path not in values or path.startswith("copies/"):
            continue
        np.testing.assert_array_equal(values[path], reader.get_tensor(key))
        compared += 1
    assert compared > 60


def test_writing_needs_no_tensorflow(tiny_modules, tmp_path):
    program = (
        "from convert_tf.cli.main import main\n"
        "assert main(['export', '--encoder', {module!r}, '--output', 'x.onnx']) == 0\n"
        "from convert_tf import SentenceEncoder\n"
        "print(SentenceEncoder('x.onnx').encode('hi').shape)\n"
    ).format(module=str(tiny_modules["single"][1]))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TENSORFLOW + program],
        env=own_environment(), cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "(128,)"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("shape", r"weight \d+ has the shape"),
        ("bits", "embedding_bits"),
        ("index", "variables cannot be read"),
        ("data", "too short"),
    ],
)
def test_a_module_that_does_not_fit_is_refused(damage, said, tiny_modules, tmp_path):
    module = shutil.copytree(tiny_modules["single"][1], tmp_path / "module")
    (module / "sha256.json").unlink()
    variables = module / "variables"
    if damage == "index":
        (variables / "variables.index").write_bytes(b"not a table")
    elif damage == "data":
        for path in variables.glob("variables.data-*"):
            path.write_bytes(path.read_bytes()[:100])
    else:
        config = json.loads((module / "config.json").read_text())
        other = {"feed_forward_dim": 64} if damage == "shape" else {"embedding_bits": 32}
        (module / "config.json").write_text(json.dumps({**config, **other}))
    with pytest.raises(CheckpointError, match=said):
        load_plain_source(module, None)


@pytest.mark.parametrize(
    ("is_first", "message"),
    [
        (True, r"variables cannot be read: TypeError"),
        (False, r"weights/.* cannot be found: KeyError"),
    ],
)
def test_a_damaged_graph_of_objects_raises_value_error(is_first, message, tiny_modules, tmp_path):
    module = shutil.copytree(tiny_modules["single"][1], tmp_path / "module")
    values = ModuleVariables(module)
    graph = values._content(values._entries[_OBJECTS_KEY])
    # A number in place of the first object, or in place of the name of an object:
    damaged = graph.replace(b"\x12\x07weights", b"\x10\x07weights", 1)
    if is_first:
        damaged = b"\x08\x05" + graph[:-2]
    for path in (module / "variables").glob("variables.data-*"):
        path.write_bytes(path.read_bytes().replace(graph, damaged))
    with pytest.raises(ValueError, match=message):
        ModuleVariables(module).weight(0)
