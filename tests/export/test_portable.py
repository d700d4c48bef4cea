"""Saved modules use only operations of TensorFlow 2.6 and no custom gradients.

Their variables are in two files, and zeros take no space.
"""

import errno

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from convert_tf.export.hub import portable
from convert_tf.export.hub.portable import (
    PortabilityError,
    _known_ops,
    rewrite_variables,
    save_portable,
)

FLOATS = tf.TensorSpec([None, 3], tf.float32)


def graphs_of(folder):
    return SavedModel.FromString((folder / "saved_model.pb").read_bytes()).meta_graphs


def save(function, folder):
    module = tf.Module()
    module.weight = tf.Variable(tf.ones([3, 3]))
    module.run = tf.function(lambda x: function(x @ module.weight), input_signature=[FLOATS])
    save_portable(module, folder, signatures={"serving_default": module.run})
    return tf.saved_model.load(str(folder))


def test_a_full_disk_is_pythons_error_without_tensorflows_words(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise tf.errors.ResourceExhaustedError(None, None, "x; No space left [Op:SaveV2] name: ")

    monkeypatch.setattr(tf.saved_model, "save", full)
    with pytest.raises(OSError, match="No space left on device: '") as raised:
        save_portable(tf.Module(), tmp_path / "module", signatures={})
    assert raised.value.errno == errno.ENOSPC


def test_a_failure_after_tensorflows_saving_is_pythons_error(tmp_path, monkeypatch):
    def refused(*arguments):
        raise tf.errors.PermissionDeniedError(None, None, "x; Permission denied")

    monkeypatch.setattr(portable, "rewrite_variables", refused)
    with pytest.raises(OSError, match="Permission denied"):
        save(tf.nn.softmax, tmp_path / "module")


def test_what_old_versions_know_is_written(tmp_path):
    loaded = save(tf.nn.softmax, tmp_path / "module")
    np.testing.assert_allclose(loaded.run(tf.zeros([1, 3])), np.full((1, 3), 1 / 3), atol=1e-6)


def growing_array(x):
    results = tf.TensorArray(tf.float32, 0, dynamic_size=True)
    return tf.while_loop(
        lambda i, _: i < tf.shape(x)[0],
        lambda i, results: (i + 1, results.write(i, x[i])),
        (tf.constant(0), results),
    )[1].stack()


def batch_norm_in_bfloat16(x):
    normal = tf.raw_ops.FusedBatchNormV3(
        x=tf.cast(x, tf.bfloat16)[None, :, :, None], scale=tf.ones(tf.shape(x)[:1]),
        offset=tf.zeros(tf.shape(x)[:1]), mean=[], variance=[], data_format="NCHW",
    )  # fmt: skip
    return tf.cast(normal.y, tf.float32)


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        (lambda x: tf.raw_ops.ApproxTopK(input=x, k=1, reduction_dimension=1)[0], "op ApproxTopK"),
        (growing_array, "attribute resize_if_index_out_of_bounds of TensorListSetItem"),
        (lambda x: tf.cast(tf.cast(x, tf.dtypes.experimental.float8_e5m2), tf.float32),
         "Cast of DT_FLOAT8_E5M2"),
        (lambda x: tf.cast(tf.math.erf(tf.cast(x, tf.bfloat16)), tf.float32),
         "Erf of DT_BFLOAT16 on a CPU"),
        (batch_norm_in_bfloat16, "FusedBatchNormV3 of DT_BFLOAT16 on a CPU"),
        (tf.nn.silu, "has custom gradients"),
    ],
)  # fmt: skip
def test_what_they_do_not_know_is_refused(tmp_path, planted, message):
    with pytest.raises(PortabilityError, match=message):
        save(planted, tmp_path / "module")


def test_saving_a_loaded_module_again(tmp_path):
    loaded = save(tf.nn.relu, tmp_path / "module")
    (graph,) = graphs_of(tmp_path / "module")
    assert 'op: "DisableCopyOnRead"' not in str(graph)
    loaded.weight.assign(2 * loaded.weight)
    tf.saved_model.save(loaded, str(tmp_path / "again"))
    again = tf.saved_model.load(str(tmp_path / "again"))
    np.testing.assert_allclose(again.run(tf.ones([1, 3])), np.full((1, 3), 6.0))
    # The save function of the graph lost an operation, but still works.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path / "module"))
        saver = graph.saver_def
        prefix = str(tmp_path / "saved")
        session.run(saver.save_tensor_name, {saver.filename_tensor_name: prefix})
    names = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    assert any(name.startswith("weight") for name in names)


def test_sentencepiece_is_known():
    assert {"SentencepieceOp", "SentencepieceTokenizeOp"} <= set(_known_ops())


ZEROS = {  # full slices, a partial slice, a single row, over 127 rows per slice
    "even": np.zeros((4096, 64), np.float32),
    "uneven": np.zeros((1000, 333), np.float32),
    "three": np.zeros((7, 300, 100), np.float32),
    "flat": np.zeros(700_001, np.float32),
    "integers": np.zeros((3000, 100), np.int32),
    "bfloat16": np.zeros((3000, 100), tf.bfloat16.as_numpy_dtype),
}
REST = {
    "numbers": np.arange(600_000, dtype=np.float32).reshape(600, 1000),
    "half": np.zeros((3000, 100), np.float16),  # this type is not sliced
    "codes": np.arange(-100, 100, dtype=np.int8),
    "few_zeros": np.zeros((3, 5), np.float32),
    "one_row": np.zeros((1, 100_000), np.float32),
    "scalar": np.float32(3),
    "flag": np.bool_(True),
    "last": np.r_[np.zeros(100_000, np.float32), np.float32(1)],
    **{f"many{i}": np.full((i % 3 + 1, 2), i, np.int32) for i in range(150)},
}


class Variables(tf.Module):
    def __init__(self):
        super().__init__()
        self.values = {name: tf.Variable(value) for name, value in {**ZEROS, **REST}.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("variables") / "model"
    tf.saved_model.save(Variables(), str(folder))
    rewrite_variables(folder)
    return folder


def test_values_are_the_same(folder):
    loaded = tf.saved_model.load(str(folder))
    assert set(loaded.values) == {*ZEROS, *REST}
    for name, expected in {**ZEROS, **REST}.items():
        np.testing.assert_array_equal(loaded.values[name].numpy(), expected)
        assert loaded.values[name].dtype == expected.dtype


def test_parts_of_zeros_can_be_read(folder):
    prefix = str(folder / "variables" / "variables")
    names = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    (key,) = (name for name in names if "values" in name and name.split("/")[-3] == "uneven")
    (rows,) = tf.raw_ops.RestoreV2(
        prefix=prefix, tensor_names=[key], shape_and_slices=["1000 333 190,20:0,333"],
        dtypes=[tf.float32],
    )  # fmt: skip
    assert rows.shape == (20, 333)
    assert not rows.numpy().any()


def test_there_are_two_files_of_about_equal_size_without_the_zeros(folder):
    sizes = {p.name: p.stat().st_size for p in (folder / "variables").iterdir()}
    assert set(sizes) == {
        "variables.index", "variables.data-00000-of-00002", "variables.data-00001-of-00002"
    }  # fmt: skip
    rest = sum(value.nbytes for value in REST.values())
    assert rest < sum(sizes.values()) < rest + 400_000
    assert sum(value.nbytes for value in ZEROS.values()) > 5_000_000


def test_written_again_it_stays_the_same(folder):
    files = sorted((folder / "variables").iterdir())
    before = [path.read_bytes() for path in files]
    # A sliced array has no bytes of its own, so a second run finds the slices.
    rewrite_variables(folder)
    test_values_are_the_same(folder)
    assert [len(path.read_bytes()) for path in files] == [len(content) for content in before]
