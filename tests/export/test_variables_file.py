"""Variables of a SavedModel written anew: equal values, two files, no space for zeros."""

import numpy as np
import pytest
import tensorflow as tf

from convert_tf.export.hub.variables_file import rewrite_variables

ZEROS = {  # rows that fill slices exactly, that do not, one row, more than 127 rows a slice
    "even": np.zeros((4096, 64), np.float32),
    "uneven": np.zeros((1000, 333), np.float32),
    "three": np.zeros((7, 300, 100), np.float32),
    "flat": np.zeros(700_001, np.float32),
    "integers": np.zeros((3000, 100), np.int32),
    "bfloat16": np.zeros((3000, 100), tf.bfloat16.as_numpy_dtype),
}
REST = {
    "numbers": np.arange(600_000, dtype=np.float32).reshape(600, 1000),
    "half": np.zeros((3000, 100), np.float16),  # of which there are no slices
    "codes": np.arange(-100, 100, dtype=np.int8),
    "few_zeros": np.zeros((3, 5), np.float32),
    "one_row": np.zeros((1, 100_000), np.float32),
    "scalar": np.float32(3),
    "flag": np.bool_(True),
    "last": np.r_[np.zeros(100_000, np.float32), np.float32(1)],
    **{f"many{i}": np.full((i % 3 + 1, 2), i, np.int32) for i in range(150)},
}


class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.values = {name: tf.Variable(value) for name, value in {**ZEROS, **REST}.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("variables") / "model"
    tf.saved_model.save(Module(), str(folder))
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
    # An array in slices has no bytes of its own: what a second run finds are its slices.
    rewrite_variables(folder)
    test_values_are_the_same(folder)
    assert [len(path.read_bytes()) for path in files] == [len(content) for content in before]
