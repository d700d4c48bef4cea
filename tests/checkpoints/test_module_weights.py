"""Modules read as checkpoints: the encoder gives the module's encodings."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support.encoder_runs import STANDING_STILL, run
from support.made_once import made_once
from support.tiny_checkpoint import write_checkpoint
from support.token_corpus import write_corpus
from support.token_ids import encoder_and_ids

from convert_tf.checkpoints import folder as runs
from convert_tf.checkpoints.configs import load_config
from convert_tf.checkpoints.facts import shown_name
from convert_tf.export.hub.writing import export_module
from convert_tf.models.encoder import DualEncoder
from convert_tf.training.loop import only_run_in

TEXTS = ["where is my card?", "how do i reset my password please", "", "thanks", "zebra?!"]
EARLIER = ["the train is late", "", "what time is it", "", "yes"]


def context_encodings(folder, *, earlier=None) -> np.ndarray:
    encoder, ids = encoder_and_ids(folder)
    if earlier is None:
        return np.asarray(encoder.encode_context(ids(TEXTS)))
    return np.asarray(encoder.encode_both(ids(TEXTS), ids(earlier)))


def encoded_by(module, *, earlier=None) -> np.ndarray:
    encode = module.signatures["encode_context"]
    if earlier is None:
        return encode(tf.constant(TEXTS))["default"].numpy()
    return encode(context=tf.constant(TEXTS), extra_context=tf.constant(earlier))["default"].numpy()


@pytest.fixture(scope="module")
def folders(tiny_modules):
    """Modules of both kinds, one wide enough for 8-bit matrices, and one with 16 bits only."""

    def make(folder):
        for name, bits, config in (
            ("in bytes", 8, {"embedding_dim": 64, "feed_forward_dim": 128}),
            ("unrounded", 16, {"embedding_bits": 32}),
        ):
            run = write_checkpoint(folder / f"{name} run", **config)
            export_module(run, folder / name, network_bits=bits)

    others = made_once("module weights", make)
    kinds = {kind: module for kind, (_, module) in tiny_modules.items()}
    return {**kinds, **{name: others / name for name in ("in bytes", "unrounded")}}


@pytest.mark.parametrize("name", ["single", "multi", "in bytes", "unrounded"])
def test_the_encoder_of_a_module_encodes_as_it_does(folders, name):
    earlier = EARLIER if name == "multi" else None
    expected = encoded_by(tf.saved_model.load(str(folders[name])), earlier=earlier)
    found = context_encodings(folders[name], earlier=earlier)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_trained_weights_of_a_module_come_back(tiny_modules, tmp_path):
    _, folder = tiny_modules["single"]
    module = tf.saved_model.load(str(folder))
    encoded_by(module)  # the first call unpacks the weights
    for variable in module.trainable_variables:
        variable.assign_add(0.05 * tf.random.stateless_normal(variable.shape, seed=(1, 2)))
    again = tmp_path / "again"
    tf.saved_model.save(module, str(again), signatures=module.signatures)
    shutil.copy(folder / "config.json", again)
    expected = encoded_by(module)
    assert np.abs(expected - context_encodings(folder)).max() > 0.01
    np.testing.assert_allclose(context_encodings(again), expected, atol=1e-5)


def test_models_of_other_kinds_start_from_a_module(tiny_modules):
    single, multi = (runs.load_checkpoint(tiny_modules[kind][1])[0] for kind in ("single", "multi"))
    ids = np.array([[1, 2, 3, single.config.num_ids]], "int32")
    for source, target in ((single, multi), (multi, single)):
        folder = tiny_modules["single" if source is single else "multi"][1]
        fresh = DualEncoder(target.config)
        runs.load_initial_weights(fresh, folder)
        np.testing.assert_array_equal(fresh.encode_response(ids), source.encode_response(ids))
        np.testing.assert_array_equal(fresh.encode_context(ids), source.encode_context(ids))


def test_a_deeper_model_starts_from_a_module(tiny_modules):
    _, folder = tiny_modules["single"]
    source, _ = runs.load_checkpoint(folder)
    reaches = (*source.config.max_relative_attention, 5)
    deeper = DualEncoder(dataclasses.replace(source.config, max_relative_attention=reaches))
    runs.load_initial_weights(deeper, folder)
    for own, known in zip(deeper.trunk.blocks, source.trunk.blocks, strict=False):
        for value, expected in zip(own.get_weights(), known.get_weights(), strict=True):
            np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize(("own", "name"), [(32, "single"), (8, "unrounded")])
def test_a_table_of_other_bits_is_refused(folders, own, name):
    folder = folders[name]
    encoder = DualEncoder(dataclasses.replace(load_config(folder), embedding_bits=own))
    with pytest.raises(runs.CheckpointError, match="different embedding_bits"):
        runs.load_initial_weights(encoder, folder)


def test_nothing_is_written_into_a_module(tiny_modules, tmp_path):
    checkpoint, module = tiny_modules["single"]
    copy = Path(shutil.copytree(module, tmp_path / "module"))
    before = sorted(path.name for path in copy.rglob("*"))
    encoder, vocabulary = runs.load_checkpoint(checkpoint)
    with pytest.raises(runs.CheckpointError, match="is a module"):
        runs.save_checkpoint(copy, encoder, vocabulary=vocabulary, training={})
    with pytest.raises(ValueError, match="cannot hold a training run"), only_run_in(copy):
        raise AssertionError
    assert sorted(path.name for path in copy.rglob("*")) == before


def test_what_is_known_of_the_training_goes_with_a_module(tiny_modules):
    checkpoint, module = tiny_modules["single"]
    facts, own = runs.training_facts(checkpoint), runs.training_facts(module)
    assert load_config(module) == load_config(checkpoint)
    for name in ("train", "vocabulary_sha256", "ranking_joined_sources"):
        assert own[name] == facts[name]
    assert "someone" not in (module / "training.json").read_text()


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/somebody/runs/small", "small"),
        ("hub_modules/convert/1", "convert/1"),
        ("runs/small/checkpoints/step-00000800", "checkpoints/step-00000800"),
        ("", ""),
    ],
)
def test_names_of_folders_in_cards(path, shown):
    assert shown_name(path) == shown


@pytest.mark.slow
def test_training_starts_from_a_module(tmp_path):
    corpus = write_corpus(tmp_path, num_train=60)
    first = run(corpus.arrays, tmp_path / "first", **STANDING_STILL)
    module = export_module(first, tmp_path / "module")
    tuned = run(corpus.arrays, tmp_path / "tuned", model=None, init_from=module, **STANDING_STILL)
    assert (tuned / "vocab.txt").read_bytes() == Path(corpus.vocabulary).read_bytes()
    weights = [runs.load_checkpoint(folder)[0].get_weights() for folder in (tuned, module)]
    for own, known in zip(*weights, strict=True):
        np.testing.assert_allclose(own, known, atol=1e-6)


def test_what_is_no_whole_module_is_refused(tiny_modules, tmp_path):
    copy = Path(shutil.copytree(tiny_modules["single"][1], tmp_path / "module"))
    (copy / "sha256.json").unlink()  # as in modules of earlier versions
    (copy / "config.json").rename(copy / "other.json")
    with pytest.raises(runs.CheckpointError, match=r"has no config.json.*with this version"):
        runs.load_checkpoint(copy)
    own = json.loads((copy / "other.json").read_text())
    (copy / "config.json").write_text(json.dumps({**own, "feed_forward_dim": 3}))
    with pytest.raises(runs.CheckpointError, match=r"match config.json"):
        runs.load_checkpoint(copy)
    (copy / "other.json").rename(copy / "config.json")
    shards = sorted((copy / "variables").glob("*.data*"))
    content = shards[0].read_bytes()
    shards[0].write_bytes(content[: len(content) // 2])
    with pytest.raises(runs.CheckpointError, match="are damaged or do not match"):
        runs.load_checkpoint(copy)
    for file in (copy / "variables").iterdir():
        file.unlink()
    with pytest.raises(runs.CheckpointError, match="the variables cannot be read"):
        runs.load_checkpoint(copy)
