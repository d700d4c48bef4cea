"""Files that were damaged or changed after writing are rejected."""

import errno
import functools
import json
import shutil

import numpy as np
import pytest
from support.damage import flip_a_bit

from convert_tf.checkpoints import folder as checkpoint
from convert_tf.encoding.backends.module import ModuleBackend
from convert_tf.intents.finetuning import FewShotTuner
from convert_tf.storage import checksums
from convert_tf.storage.files import FileWriteError, write_file

FILES = ["model.weights.h5", "config.json", "vocab.txt", "training.json"]


@pytest.fixture(scope="module")
def written(tiny_modules, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    for name, path in zip(("run", "module"), tiny_modules["single"], strict=True):
        shutil.copytree(path, folder / name)
    return folder


@pytest.fixture
def run(written, tmp_path):
    return shutil.copytree(written / "run", tmp_path / "run")


@pytest.mark.parametrize("name", FILES)
def test_every_file_has_a_checksum(run, name):
    """A changed file is rejected even if it is still readable, for example with another option."""
    (run / name).write_bytes((run / name).read_bytes().replace(b"e", b"e "))
    with pytest.raises(ValueError, match=name):
        checkpoint.load_checkpoint(run)
        checkpoint.training_facts(run)


@pytest.mark.parametrize(
    "content",
    [
        '{"train": "x"}',
        '{"read_tokens": null}',
        '{"read_tokens": "many"}',
        '{"read_tokens": Infinity}',
        '{"read_tokens": {}}',
        '{"read_tokens": 0}',
        '{"read_tokens": true}',
        "[1]",
        "[" * 100_000,
    ],
)
def test_training_facts_of_another_kind_are_refused(run, content):
    """Facts of the wrong type are rejected even in a folder without checksums."""
    (run / checksums.CHECKSUMS_FILE).unlink()
    (run / "training.json").write_text(content)
    with pytest.raises(
        checkpoint.CheckpointError, match=r"training\.json does not describe"
    ) as caught:
        checkpoint.training_facts(run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [RuntimeError, TypeError])
def test_errors_of_libraries_name_the_weights(run, monkeypatch, kind):
    """h5py raises RuntimeError for some damaged files, and NumPy TypeError for another dtype."""
    encoder, _ = checkpoint.load_checkpoint(run)

    def fail(*_):
        raise kind("bad symbol\n  table node")

    monkeypatch.setattr(type(encoder), "load_weights", fail)
    with pytest.raises(
        checkpoint.CheckpointError,
        match=r"model\.weights\.h5 are damaged .*\(bad symbol table node\)",
    ):
        checkpoint.load_weights(encoder, run)


@pytest.mark.parametrize("name", [*FILES[1:], "similarity_map.npy"])
def test_a_missing_file_is_found(run, name):
    encoder, vocabulary = checkpoint.load_checkpoint(run)
    similarity_map = np.ones((encoder.config.reduced_dim, 4), np.float32)
    save = functools.partial(checkpoint.save_checkpoint, run, encoder, vocabulary=vocabulary)
    save(training={}, similarity_map=similarity_map)
    (run / name).unlink()
    with pytest.raises(ValueError, match=r"\w"):
        checkpoint.load_checkpoint(run)
        checkpoint.load_similarity_map(run)


def test_the_vocabulary_of_a_fine_tuned_encoder_is_checked(run):
    flip_a_bit(run / "vocab.txt")
    with pytest.raises(ValueError, match=r"vocab\.txt"):
        FewShotTuner(run, ["a text"], precision="float32", seed=0)


def test_a_process_killed_before_a_new_file_leaves_a_folder_that_is_read(run, monkeypatch):
    encoder, vocabulary = checkpoint.load_checkpoint(run)
    write = checksums.write_file

    def dies(path, content):
        if path.endswith("similarity_map.npy"):
            raise KeyboardInterrupt
        write(path, content)

    save = functools.partial(checkpoint.save_checkpoint, run, encoder, vocabulary=vocabulary)
    similarity_map = np.ones((encoder.config.reduced_dim, 4), np.float32)
    with monkeypatch.context() as patched:
        patched.setattr(checksums, "write_file", dies)
        with pytest.raises(KeyboardInterrupt):
            save(training={}, similarity_map=similarity_map)
    checkpoint.load_checkpoint(run)
    assert checkpoint.load_similarity_map(run) is None
    checksums.check_files(run)
    save(training={}, similarity_map=similarity_map)
    np.testing.assert_array_equal(checkpoint.load_similarity_map(run), similarity_map)
    (run / "similarity_map.npy").unlink()
    with pytest.raises(ValueError, match=r"similarity_map\.npy' is missing"):
        checksums.check_files(run)


@pytest.mark.parametrize("content", ["[", "{}}", "[1]", '{"config.json": 1}', "[" * 100_000])
def test_damaged_checksums_are_named(run, content):
    (run / checksums.CHECKSUMS_FILE).write_text(content)
    with pytest.raises(ValueError, match=r"sha256\.json"):
        checkpoint.load_checkpoint(run)


def test_folders_without_checksums_are_read(written, run, tmp_path):
    module = shutil.copytree(written / "module", tmp_path / "module")
    for folder in (run, module):
        expected, _ = checkpoint.load_checkpoint(folder)
        (folder / checksums.CHECKSUMS_FILE).unlink()
        found, _ = checkpoint.load_checkpoint(folder)
        for a, b in zip(found.variables, expected.variables, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("recorded", [True, False])
def test_a_process_killed_between_two_files_leaves_a_folder_that_is_read(
    run, tmp_path, monkeypatch, recorded
):
    """A folder with the weights of one save and the facts of another can be read."""
    encoder, vocabulary = checkpoint.load_checkpoint(run)
    if not recorded:
        (run / checksums.CHECKSUMS_FILE).unlink()
    for variable in encoder.trainable_variables:
        variable.assign(variable + 1)
    write, written = checksums.write_file, []

    def dies(path, content):
        if len(written) == 5:
            raise KeyboardInterrupt
        written.append(path)
        write(path, content)

    monkeypatch.setattr(checksums, "write_file", dies)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save_checkpoint(run, encoder, vocabulary=vocabulary, training={"a": 1})
    monkeypatch.undo()
    found, _ = checkpoint.load_checkpoint(run)
    is_new = np.allclose(*(np.array(e.trainable_variables[0]) for e in (found, encoder)))
    assert is_new == ("model.weights.h5" in [path.rpartition("/")[2] for path in written])
    checkpoint.save_checkpoint(run, encoder, vocabulary=vocabulary, training={"a": 1})
    sums = json.loads((run / checksums.CHECKSUMS_FILE).read_text())
    assert all(isinstance(value, str) for value in sums.values())
    checkpoint.load_checkpoint(run)


@pytest.mark.parametrize(
    "name", ["saved_model.pb", "variables/variables.data-00000-of-00002", "assets/vocab.txt"]
)
def test_a_flipped_bit_in_a_module_is_found(written, tmp_path, name):
    module = shutil.copytree(written / "module", tmp_path / "module")
    (module / "MODEL_CARD.md").write_text("notes of mine")
    flip_a_bit(module / name)
    with pytest.raises(ValueError, match=name):
        ModuleBackend(module)
    with pytest.raises(ValueError, match=name):
        checkpoint.load_checkpoint(module)


def test_a_new_folder_is_written_whole_or_not_at_all(run, tmp_path, monkeypatch):
    encoder, vocabulary = checkpoint.load_checkpoint(run)

    def full(path, content):
        if path.endswith("vocab.txt"):
            raise FileWriteError(errno.ENOSPC, "No space left on device", path)
        write_file(path, content)

    monkeypatch.setattr(checksums, "write_file", full)
    with pytest.raises(FileWriteError, match=r"/new'"):
        checkpoint.save_checkpoint(tmp_path / "new", encoder, vocabulary=vocabulary, training={})
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
