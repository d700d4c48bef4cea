import dataclasses
import sys

import keras
import numpy as np
import pytest
from keras import ops
from support import naive
from support.model_cases import (
    fill_weights,
    gradients_of,
    one_per_row,
    outputs_of,
    packed_batch,
    ragged,
    random_texts,
)
from support.processes import printed_by, results_on_jax
from support.tiny_checkpoint import write_checkpoint

from convert_tf.checkpoints.loading import load_model
from convert_tf.config.model import ModelConfig
from convert_tf.data.packing import pack_batch
from convert_tf.models.encoder import DualEncoder, segments_of
from convert_tf.models.losses import softmax_losses

LENGTHS = [1, 7, 12, 3, 2]


def _encode(encoder, texts, *, width: int | None = None) -> np.ndarray:
    return np.asarray(
        encoder.encode_context(one_per_row(texts, encoder.config.num_ids, width=width))
    )


VARIANTS = {
    "paper": {},
    "two heads": {"num_heads": 2},
    "no bias": {"use_relative_bias": False},
    "no skips": {"use_side_skip": False},
    "no quantization": {"embedding_bits": 32},
    "one reduction head, one block": {"reduction_heads": 1, "max_relative_attention": (3,)},
    "linear sides": {"side_layers": 0},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_forward_pass_parity_with_loop(small_config, make_encoder, changes):
    """Texts of all lengths in a padded batch are compared with a loop over single texts."""
    encoder = make_encoder(ModelConfig(**{**small_config.to_dict(), **changes}))
    weights = naive.arrays(encoder)
    texts = random_texts(encoder.config, LENGTHS)
    ids = one_per_row(texts, encoder.config.num_ids)
    for side, encode in (
        ("context_side", encoder.encode_context),
        ("response_side", encoder.encode_response),
    ):
        expected = [naive.encode(t, weights, encoder.config, side=side) for t in texts]
        np.testing.assert_allclose(np.asarray(encode(ids)), expected, atol=1e-5)


def test_sequence_and_reduced_encodings_parity_with_loop(small_encoder):
    weights, config = naive.arrays(small_encoder), small_encoder.config
    texts = random_texts(config, LENGTHS)
    ids = one_per_row(texts, config.num_ids)
    sequence = np.asarray(small_encoder.encode_sequence(ids))
    reduced = np.asarray(small_encoder.reduce(ids))
    for row, text in enumerate(texts):
        np.testing.assert_allclose(
            sequence[row, : len(text)], naive.sequence(text, weights, config), atol=1e-5
        )
        np.testing.assert_allclose(reduced[row], naive.reduce(text, weights, config), atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_packed_rows_equal_one_text_per_row(small_encoder, seed):
    """Lengths are random, and some texts are empty."""
    random = np.random.RandomState(seed)
    config = small_encoder.config
    texts = random_texts(config, random.randint(0, 13, size=random.randint(1, 25)), seed=seed)
    batch = pack_batch(ragged(texts), ["text"], row_tokens=12, padding_id=config.num_ids)
    reduced = np.asarray(small_encoder.reduce(batch["token_ids"], batch["segment_lengths"]))
    reduced = reduced[batch["text_slots"]]
    apart = np.asarray(small_encoder.reduce(one_per_row(texts, config.num_ids)))
    np.testing.assert_allclose(reduced, apart, atol=3e-6)


def test_an_empty_text_is_finite_and_always_the_same(small_encoder):
    config = small_encoder.config
    empty = np.zeros(0, "int32")
    alone = _encode(small_encoder, [empty])
    assert np.isfinite(alone).all()
    among = _encode(small_encoder, [*random_texts(config, [4, 9]), empty])
    np.testing.assert_allclose(among[2], alone[0], atol=1e-6)
    expected = naive.encode(empty, naive.arrays(small_encoder), config, side="context_side")
    np.testing.assert_allclose(alone[0], expected, atol=1e-5)


def _loss_gradients(encoder, batch) -> dict[str, np.ndarray]:
    def loss():
        outputs = encoder(batch)
        scores = ops.matmul(
            outputs["context_encoding"], ops.transpose(outputs["response_encoding"])
        )
        return ops.mean(softmax_losses(10.0 * scores))

    return gradients_of(loss, encoder.trainable_variables)


def test_gradients_are_finite_and_ignore_padding(small_encoder):
    """Wider rows, a row of padding and unused segments do not change any gradient."""
    config = small_encoder.config
    contexts = random_texts(config, [3, 0, 5], seed=1)
    responses = random_texts(config, [4, 2, 0], seed=2)
    batch = packed_batch(contexts, responses, config.num_ids, row_tokens=12)
    plain = _loss_gradients(small_encoder, batch)
    batch["token_ids"] = np.pad(
        batch["token_ids"], ((0, 1), (0, 6)), constant_values=config.num_ids
    )
    batch["segment_lengths"] = np.pad(batch["segment_lengths"], ((0, 1), (0, 0)))
    padded = _loss_gradients(small_encoder, batch)
    assert len(plain) == len(small_encoder.trainable_variables)
    for path, gradient in padded.items():
        assert np.isfinite(gradient).all(), path
        np.testing.assert_allclose(gradient, plain[path], atol=3e-6, err_msg=path)


def test_padding_trains_no_row_of_the_table(small_encoder):
    """Padded positions are read as id 0, which gets no gradient if no text contains it."""
    config = small_encoder.config
    texts = [text % 10 + 5 for text in random_texts(config, [3, 5, 2, 4])]  # ids 5 to 14
    batch = packed_batch(texts[:2], texts[2:], config.num_ids, row_tokens=12)
    gradient = _loss_gradients(small_encoder, batch)["trunk/embedding/table"]
    used = np.unique(np.concatenate(texts))
    unused = np.setdiff1d(np.arange(config.num_ids), used)
    np.testing.assert_array_equal(gradient[unused], 0.0)
    assert (np.abs(gradient[used]).max(axis=1) > 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_segments_parity_with_loop(seed):
    random = np.random.RandomState(seed)
    lengths = random.randint(0, 5, size=(4, 3)).astype("int32")
    tokens = 13
    segment_ids, positions, mask = (np.asarray(x) for x in segments_of(lengths, tokens))
    for row in range(4):
        expected = [
            (segment + 1, place) for segment in range(3) for place in range(lengths[row, segment])
        ]
        expected += [(0, 0)] * (tokens - len(expected))
        ids = [segment for segment, _ in expected]
        assert segment_ids[row].tolist() == ids
        assert positions[row].tolist() == [place for _, place in expected]
        assert mask[row].tolist() == [[a == b for b in ids] for a in ids]


def test_sides_share_the_trunk_and_start_alike(small_config):
    """Initially, contexts and responses share a space, but not the weights of their sides."""
    encoder = DualEncoder(small_config)
    ids = one_per_row(random_texts(small_config, LENGTHS), small_config.num_ids)
    np.testing.assert_array_equal(
        np.asarray(encoder.encode_context(ids)), np.asarray(encoder.encode_response(ids))
    )
    encoder.response_side.linear.bias.assign(np.ones(small_config.encoding_dim))
    difference = np.asarray(encoder.encode_context(ids)) - np.asarray(encoder.encode_response(ids))
    assert np.abs(difference).max() > 0.1


# Rounding to 8 significant bits (bfloat16) or 11 (float16) has a relative error of 2⁻⁹ or 2⁻¹² per
# operation. Input and output are about ten roundings apart, values are up to about 3, and
# encodings have length 1: 10 · 3 · 2⁻⁹ = 0.06 and 10 · 3 · 2⁻¹² = 0.007.
PRECISIONS = {"mixed_bfloat16": 0.06, "mixed_float16": 0.007}


@pytest.mark.parametrize("policy", PRECISIONS)
def test_mixed_precision_is_close_to_float32(small_config, small_encoder, make_encoder, policy):
    encoder = make_encoder(small_config, dtype=policy)
    texts = [*random_texts(small_config, LENGTHS), np.zeros(0, "int32")]
    batch = packed_batch(texts, texts[::-1], small_config.num_ids, row_tokens=12)
    mixed = encoder(batch)
    exact = outputs_of(small_encoder, batch)
    assert keras.backend.standardize_dtype(mixed["reduced_context"].dtype) == encoder.compute_dtype
    for name in ("context_encoding", "response_encoding"):
        value = mixed[name]
        assert keras.backend.standardize_dtype(value.dtype) == "float32"
        np.testing.assert_allclose(np.asarray(value), exact[name], atol=PRECISIONS[policy])
        np.testing.assert_allclose(np.linalg.norm(value, axis=1), 1.0, atol=1e-6)
        assert np.abs(np.asarray(value) - exact[name]).max() > 1e-6  # rounding takes place
    assert {v.dtype for v in encoder.trainable_variables} == {"float32"}
    sequence = encoder.encode_sequence(batch["token_ids"])
    assert keras.backend.standardize_dtype(sequence.dtype) == encoder.compute_dtype


_FIT = """
import sys
import keras
import numpy as np
from convert_tf import load_model

folder = sys.argv[1]
encoder, _ = load_model(folder)
before = encoder.trunk.get_weights()
ids = np.load(folder + "/ids.npy")
dense = keras.layers.Dense(2, "softmax", kernel_initializer="ones")
model = keras.Sequential([keras.Input([None], dtype="int32"), encoder, dense])
reduced = keras.ops.convert_to_numpy(encoder(ids))
model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
losses = model.fit(ids, np.arange(len(ids)) % 2, epochs=5, shuffle=False, verbose=0).history["loss"]
is_trained = any(np.any(x != y) for x, y in zip(before, encoder.trunk.get_weights(), strict=True))
np.savez(folder + "/jax.npz", losses=losses, reduced=reduced, is_trained=is_trained)
"""


@pytest.mark.slow
def test_plain_fit_trains_a_loaded_encoder_on_both_backends(tmp_path, monkeypatch):
    write_checkpoint(tmp_path)
    config = ModelConfig.from_json((tmp_path / "config.json").read_text())
    np.save(tmp_path / "ids.npy", one_per_row(random_texts(config, LENGTHS), config.num_ids))
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path)])
    exec(compile(_FIT, "fit", "exec"), {})
    results = dict(np.load(tmp_path / "jax.npz"))
    on_jax = results_on_jax(_FIT, tmp_path)
    np.testing.assert_allclose(on_jax["losses"], results["losses"], rtol=1e-2)
    np.testing.assert_allclose(on_jax["reduced"], results["reduced"], atol=1e-5)
    assert results["losses"][-1] < results["losses"][0]
    assert results["is_trained"] and on_jax["is_trained"]
    np.testing.assert_array_equal(
        results["reduced"], load_model(tmp_path)[0].reduce(np.load(tmp_path / "ids.npy"))
    )


@pytest.mark.parametrize("changes", [{}, {"multi_context": True}, {"embedding_bits": 32}], ids=str)
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_a_model_comes_back_from_a_keras_file(tmp_path, small_config, changes, precision):
    """Weights, quantization ranges, outputs, dropout rates and precision are unchanged."""
    config = dataclasses.replace(small_config, **changes)
    encoder = DualEncoder(config, attention_dropout=0.25, dtype=precision)
    fill_weights(encoder.variables)
    for variable in encoder.trunk.embedding.non_trainable_variables:
        variable.assign(variable + 3)  # training moves the range too
    ids = one_per_row(random_texts(config, [4, 1, 3]), config.num_ids)
    dense = keras.layers.Dense(2, "softmax")
    model = keras.Sequential([keras.Input([None], dtype="int32"), encoder, dense])
    model.save(tmp_path / "x.keras")
    loaded = keras.models.load_model(tmp_path / "x.keras")
    for before, after in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(before), np.asarray(after), err_msg=before.path)
    np.testing.assert_array_equal(np.asarray(model(ids)), np.asarray(loaded(ids)))
    again = loaded.layers[0]
    assert again.config == config
    assert again.get_config() == encoder.get_config()
    assert again.trunk.blocks[0].drop.rate == 0.25
    assert again.compute_dtype == encoder.compute_dtype
    np.testing.assert_array_equal(
        np.asarray(encoder.encode_response(ids)), np.asarray(again.encode_response(ids))
    )


_LOAD = """
import sys
import keras
import numpy as np
import convert_tf.models

folder = sys.argv[1]
model = keras.models.load_model(folder + "/x.keras")
ids = np.load(folder + "/ids.npy")
np.savez(folder + "/jax.npz", outputs=keras.ops.convert_to_numpy(model(ids)))
"""


@pytest.mark.slow
def test_a_keras_file_is_read_in_another_process_and_on_jax(tmp_path, small_config):
    encoder = DualEncoder(small_config)
    ids = one_per_row(random_texts(small_config, LENGTHS), small_config.num_ids)
    np.save(tmp_path / "ids.npy", ids)
    model = keras.Sequential([keras.Input([None], dtype="int32"), encoder])
    model.save(tmp_path / "x.keras")
    on_jax = results_on_jax(_LOAD, tmp_path)
    np.testing.assert_allclose(on_jax["outputs"], np.asarray(model(ids)), atol=1e-5)
    printed_by(_LOAD, tmp_path)
    on_tensorflow = np.load(tmp_path / "jax.npz")["outputs"]
    np.testing.assert_array_equal(on_tensorflow, np.asarray(model(ids)))


def test_a_deeper_model_starts_from_a_shallower_one(small_config, make_encoder):
    """Additional blocks keep their initial weights, and all other weights are copied."""
    shallow = make_encoder(small_config)
    deep_config = dataclasses.replace(small_config, max_relative_attention=(2, 5, 5, 5))
    deep = DualEncoder(deep_config)
    fresh = [block.get_weights() for block in deep.trunk.blocks]
    deep.start_from(shallow)
    expected = [*(block.get_weights() for block in shallow.trunk.blocks), *fresh[2:]]
    for block, values in zip(deep.trunk.blocks, expected, strict=True):
        for own, known in zip(block.get_weights(), values, strict=True):
            np.testing.assert_array_equal(own, known)
    for name in ("reduction", "context_side", "response_side"):
        pairs = zip(getattr(deep, name).get_weights(), getattr(shallow, name).get_weights(),
                    strict=True)  # fmt: skip
        assert all(np.array_equal(own, known) for own, known in pairs)
    for own, known in zip(
        deep.trunk.embedding.get_weights(), shallow.trunk.embedding.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(own, known)
    same = DualEncoder(small_config)
    same.start_from(shallow)
    ids = np.array([[1, 2, 3, small_config.num_ids]], "int32")
    np.testing.assert_array_equal(same.encode_context(ids), shallow.encode_context(ids))


def test_a_model_does_not_start_from_a_deeper_one_or_another_shape(small_config, make_encoder):
    encoder = make_encoder(small_config)
    shallow = DualEncoder(dataclasses.replace(small_config, max_relative_attention=(2,)))
    with pytest.raises(ValueError, match="Cannot copy 2 blocks into a model with 1"):
        shallow.start_from(encoder)
    with pytest.raises(ValueError, match="shape"):
        DualEncoder(dataclasses.replace(small_config, max_relative_attention=(3, 5))).start_from(
            encoder
        )
