"""What modules are made of: nothing that TensorFlow 2.6 does not know, and no own gradients."""

import errno

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from convert_tf.export.hub.portable import PortabilityError, save_portable

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
        (tf.nn.silu, "no gradients of its own"),
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
    # The function that saves in graphs lost an op.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.saved_model.load(session, ["serve"], str(tmp_path / "module"))
        saver = graph.saver_def
        prefix = str(tmp_path / "saved")
        session.run(saver.save_tensor_name, {saver.filename_tensor_name: prefix})
    names = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    assert any(name.startswith("weight") for name in names)


def test_encoders_have_no_gradients_of_their_own(tiny_modules):
    for _, folder in tiny_modules.values():
        (graph,) = graphs_of(folder)
        assert not graph.graph_def.library.registered_gradients


def test_sentencepiece_is_known():
    from convert_tf.export.hub.portable import _known_ops

    assert {"SentencepieceOp", "SentencepieceTokenizeOp"} <= set(_known_ops())
