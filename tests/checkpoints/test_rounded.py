"""Models whose weights are stored in 8 bits."""

import json
import shutil

import keras
import numpy as np
import pytest
from support.tiny_checkpoint import write_checkpoint

from convert_tf import SentenceEncoder, export_model
from convert_tf.checkpoints import folder as runs
from convert_tf.checkpoints.facts import training_facts
from convert_tf.checkpoints.kinds import Kind, kind_of
from convert_tf.checkpoints.loading import load_ranker
from convert_tf.checkpoints.rounded import rounded_archive, rounded_arrays
from convert_tf.config.ranker import HeadConfig, RankerConfig
from convert_tf.models.ranker import make_ranker

TEXTS = ["where is my card?", "a fish", ""]


def test_matrices_have_8_bits_and_all_else_stays(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "kernel": rng.standard_normal((70, 80)).astype("float32"),
        "a.narrow": rng.standard_normal((70, 3)).astype("float32"),
        "count": np.arange(5),
    }
    table = np.array([[0, 255], [3, 7]], np.uint8), -1.5, 0.25
    content = rounded_archive(arrays, {"table": table})
    (tmp_path / "a.npz").write_bytes(content)
    found = rounded_arrays(tmp_path / "a.npz")
    assert found.keys() == {*arrays, "table"}
    steps = np.abs(arrays["kernel"]).max(axis=0) / 127
    assert (np.abs(found["kernel"] - arrays["kernel"]) <= 0.501 * steps).all()
    assert (found["kernel"] != arrays["kernel"]).any()
    np.testing.assert_array_equal(found["a.narrow"], arrays["a.narrow"])
    np.testing.assert_array_equal(found["count"], arrays["count"])
    np.testing.assert_array_equal(found["table"], [[-1.5, 62.25], [-0.75, 0.25]])
    with pytest.raises(ValueError, match="kernel cannot be rounded"):
        rounded_archive({"kernel": np.full((64, 64), np.nan)})


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    return write_checkpoint(
        tmp_path_factory.mktemp("exact") / "run", similarity_dim=16, embedding_dim=64,
        feed_forward_dim=128,
    )  # fmt: skip


@pytest.fixture(scope="module")
def rounded(exact, tmp_path_factory):
    model, vocabulary = runs.load_checkpoint(exact)
    folder = tmp_path_factory.mktemp("rounded") / "run"
    runs.save_checkpoint(
        folder, model, vocabulary=vocabulary, training=training_facts(exact),
        similarity_map=runs.load_similarity_map(exact), is_rounded=True,
    )  # fmt: skip
    return folder


def test_a_rounded_run_is_a_run_of_a_third_of_the_bytes(exact, rounded):
    assert kind_of(rounded) is Kind.DUAL_ENCODER
    assert not (rounded / runs.WEIGHTS_FILE).exists()
    sizes = [(exact / runs.WEIGHTS_FILE), rounded / runs.ROUNDED_WEIGHTS_FILE]
    assert sizes[1].stat().st_size < sizes[0].stat().st_size / 2.5
    one, other = (SentenceEncoder(folder, compute_dtype="float32") for folder in (exact, rounded))
    for encode in ("encode_contexts", "encode_responses"):
        vectors = [getattr(encoder, encode)(TEXTS) for encoder in (one, other)]
        assert np.sum(vectors[0] * vectors[1], axis=1).min() > 0.999
        assert (vectors[0] != vectors[1]).any()


def test_a_module_of_a_rounded_run_is_that_of_the_run(exact, rounded, tmp_path):
    """Weights are rounded once: subword tables and network matrices are equal."""
    modules = [
        export_model(folder, tmp_path / str(i) / "1", network_bits=8)
        for i, folder in enumerate((exact, rounded))
    ]
    one, other = (SentenceEncoder(module).encode_contexts(TEXTS) for module in modules)
    np.testing.assert_allclose(one, other, atol=2e-4)


def test_damaged_or_other_weights_are_refused(rounded, tmp_path):
    model, vocabulary = runs.load_checkpoint(rounded)
    folder = tmp_path / "run"
    runs.save_checkpoint(folder, model, vocabulary=vocabulary, training={}, is_rounded=True)
    content = (folder / runs.ROUNDED_WEIGHTS_FILE).read_bytes()
    (folder / runs.ROUNDED_WEIGHTS_FILE).write_bytes(content[:-100])
    with pytest.raises(ValueError, match=runs.ROUNDED_WEIGHTS_FILE):
        runs.load_checkpoint(folder)
    sums = json.loads((folder / "sha256.json").read_text())
    del sums[runs.ROUNDED_WEIGHTS_FILE]
    (folder / "sha256.json").write_text(json.dumps(sums))
    with pytest.raises(runs.CheckpointError, match="are damaged or do not match"):
        runs.load_checkpoint(folder)
    arrays = rounded_arrays(rounded / runs.ROUNDED_WEIGHTS_FILE)
    arrays.pop(max(arrays))
    (folder / runs.ROUNDED_WEIGHTS_FILE).write_bytes(rounded_archive(arrays))
    with pytest.raises(runs.CheckpointError, match="is in only one of the model and the file"):
        runs.load_checkpoint(folder)


def _check_equal_weights(one, other):
    for left, right in zip(one.weights, other.weights, strict=True):
        left, right = (keras.ops.convert_to_numpy(v) for v in (left, right))
        np.testing.assert_array_equal(left, right)


def test_saved_weights_replace_those_of_the_other_kind(exact, rounded, tmp_path):
    models = [runs.load_checkpoint(folder)[0] for folder in (exact, rounded)]
    vocabulary = runs.load_checkpoint(exact)[1]
    folder = tmp_path / "run"
    for is_rounded in (False, True, False):
        model = models[is_rounded]
        runs.save_checkpoint(
            folder, model, vocabulary=vocabulary, training={}, is_rounded=is_rounded
        )
        names = {runs.WEIGHTS_FILE, runs.ROUNDED_WEIGHTS_FILE}
        name = runs.ROUNDED_WEIGHTS_FILE if is_rounded else runs.WEIGHTS_FILE
        assert names & {path.name for path in folder.iterdir()} == {name}
        assert names & json.loads((folder / "sha256.json").read_text()).keys() == {name}
        loaded, _ = runs.load_checkpoint(folder)
        if is_rounded:
            table = loaded.trunk.embedding.table
            np.testing.assert_allclose(table, model.trunk.embedding.table, atol=1e-6)
        else:
            _check_equal_weights(loaded, model)


def test_exact_weights_take_precedence(exact, rounded, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(exact, folder)
    shutil.copy(rounded / runs.ROUNDED_WEIGHTS_FILE, folder)
    _check_equal_weights(runs.load_checkpoint(folder)[0], runs.load_checkpoint(exact)[0])


def test_both_trunks_of_a_ranker_are_rounded(exact, tmp_path):
    encoder, vocabulary = runs.load_checkpoint(exact)
    config = RankerConfig(encoder.config, HeadConfig(separate_trunks=True, scale=1.0))
    rng = np.random.default_rng(0)
    ranker = make_ranker(config)
    for variable in ranker.trainable_variables:
        variable.assign(variable + 0.1 * rng.standard_normal(variable.shape))
    ids = np.array([[3, 5, 1], [2, 8, 9]], "int32")
    folder = tmp_path / "run"
    runs.save_checkpoint(folder, ranker, vocabulary=vocabulary, training={}, is_rounded=True)
    # Earlier versions wrote the paths of the first ranker in a process.
    names = rounded_arrays(folder / runs.ROUNDED_WEIGHTS_FILE).keys()
    assert {"ranker_model/output_factor", "trunk/embedding/table"} < names
    assert {v.path for v in make_ranker(config).weights} < names
    assert len(names) == len(ranker.weights)
    for _ in range(2):
        loaded, _ = load_ranker(folder)
        for saved_trunk, trunk in (
            (ranker.trunk, loaded.trunk),
            (ranker.candidate_trunk, loaded.candidate_trunk),
        ):
            saved_kernel, kernel = (
                keras.ops.convert_to_numpy(t.blocks[0].feed_forward.hidden_kernel)
                for t in (saved_trunk, trunk)
            )
            steps = np.abs(saved_kernel).max(axis=0) / 127
            assert (np.abs(kernel - saved_kernel) <= 0.501 * steps).all()
        encoded = [keras.ops.convert_to_numpy(r.score(ids, ids)) for r in (ranker, loaded)]
        np.testing.assert_allclose(*encoded, atol=0.05)


def test_tables_with_nan_are_refused(exact, tmp_path):
    model, vocabulary = runs.load_checkpoint(exact)
    table = np.array(model.trunk.embedding.table)
    table[5, 0] = np.nan
    model.trunk.embedding.table.assign(table)
    with pytest.raises(ValueError, match="has non-finite values"):
        runs.save_checkpoint(
            tmp_path / "run", model, vocabulary=vocabulary, training={}, is_rounded=True
        )
    assert not (tmp_path / "run").exists()
