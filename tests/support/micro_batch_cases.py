"""Training steps with and without micro-batches, on either backend; also run as a script.

The gradients are derived from one SGD step with a learning rate of 1.
"""

import dataclasses
import sys

import keras
import numpy as np
from keras import ops
from support.model_cases import SMALL, fill_weights, random_texts

from convert_tf.data.packing import TokenIds, pack_batch, pack_micro_batches
from convert_tf.models.encoder import DualEncoder
from convert_tf.training.encoder import objective as trainer
from convert_tf.training.encoder.options import EncoderTraining

CONFIG = dataclasses.replace(SMALL, side_layers=1)
NUM_PAIRS = 12
MICRO_BATCHES = 2
DROPOUT = {"embedding_dropout": 0.3, "attention_dropout": 0.2}


def make_texts(names, *, are_equal: bool = False) -> TokenIds:
    """Return `NUM_PAIRS` texts per name, optionally all equal; every other history is empty."""
    texts = []
    for number, name in enumerate(names):
        random = np.random.RandomState(number)
        lengths = random.randint(1, CONFIG.max_tokens + 1, size=NUM_PAIRS)
        own = random_texts(CONFIG, lengths, seed=number)
        if are_equal:
            own = own[:1] * NUM_PAIRS
        if name == "extra_context":
            own[::2] = [text[:0] for text in own[::2]]
        texts += own
    return TokenIds(np.concatenate(texts), np.cumsum([0, *map(len, texts)]))


def make_batch(*, is_multi_context: bool = False, micro_batches: int = 0, **options):
    names = ["context", "response", *["extra_context"] * is_multi_context]
    texts = make_texts(names, **options)
    packing = {"row_tokens": CONFIG.max_tokens, "padding_id": CONFIG.num_ids}
    if micro_batches:
        return pack_micro_batches(texts, names, micro_batches=micro_batches, **packing)
    return pack_batch(texts, names, **packing)


def make_model(*, is_multi_context: bool = False, eager: bool = False, **options):
    """Return a model whose weights and seeds are always the same."""
    config = dataclasses.replace(CONFIG, multi_context=is_multi_context)
    encoder = DualEncoder(config, **options)
    fill_weights(encoder.variables)
    for number, variable in enumerate(seeds_of(encoder)):
        variable.assign(np.array([7 + number, 0]))
    model = trainer.EncoderObjective(encoder, EncoderTraining(scale_start=8.0, l2=1e-3))
    model.compile(
        optimizer=keras.optimizers.SGD(1.0),
        auto_scale_loss=False,
        jit_compile=keras.backend.backend() == "jax",
        run_eagerly=eager and keras.backend.backend() == "tensorflow",
    )
    return model


def seeds_of(encoder):
    return [v for v in encoder.variables if "seed" in v.path]


def values_of(variables):
    return {v.path: np.asarray(ops.convert_to_tensor(v)) for v in variables}


def step(model, batch):
    """Return the loss, the gradients and all variables after a training step."""
    before = values_of(model.encoder.trainable_variables)
    loss = float(np.asarray(model.train_on_batch(batch)[0]))
    after = values_of(model.encoder.variables)
    return loss, {path: before[path] - after[path] for path in before}, after


def encode_one_by_one(encoder, inputs, *, training=False):
    """Reference for `encode_micro_batches`: encode the parts in turn and keep everything."""
    parts = inputs["token_ids"].shape[1]
    outputs = [
        encoder({name: value[:, i] for name, value in inputs.items()}, training=training)
        for i in range(parts)
    ]
    return {
        name: ops.stack([own[name][e] for e in range(len(outputs[0][name])) for own in outputs])
        for name in outputs[0]
    }


def naive_step(model, batch):
    replaced = trainer.encode_micro_batches
    trainer.encode_micro_batches = encode_one_by_one
    try:
        return step(model, batch)
    finally:
        trainer.encode_micro_batches = replaced


def check_close(found, expected):
    """Check that loss and gradients are equal, and that every variable has a gradient."""
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    for path, gradient in expected[1].items():
        largest = np.abs(gradient).max()
        assert largest > 1e-4, path
        atol = 1e-5 * max(largest, 1.0)
        np.testing.assert_allclose(found[1][path], gradient, rtol=0, atol=atol, err_msg=path)


def check_parity_with_the_whole_batch(is_multi_context: bool):
    """Check a step against the whole batch: the quantizer is updated once."""
    options = {"is_multi_context": is_multi_context}
    whole = step(make_model(eager=True, **options), make_batch(**options))
    batch = make_batch(micro_batches=MICRO_BATCHES, **options)
    parts = step(make_model(**options), batch)
    check_close(parts, whole)
    state = {path: value for path, value in whole[2].items() if path not in whole[1]}
    names = {path.rpartition("/")[2]: value for path, value in state.items()}
    assert names["table_calls"] == 1
    assert names["table_range_max"] > 0.5
    for path, value in state.items():
        np.testing.assert_array_equal(parts[2][path], value, err_msg=path)


def check_parity_with_dropout(is_multi_context: bool):
    """Check that a micro-batch repeats its dropout when re-encoded, unlike other micro-batches."""
    options = {"is_multi_context": is_multi_context}
    batch = make_batch(micro_batches=MICRO_BATCHES, **options)
    naive = naive_step(make_model(eager=True, **options, **DROPOUT), batch)
    parts = step(make_model(**options, **DROPOUT), batch)
    check_close(parts, naive)
    # Keras names the seed generators differently in each model.
    seeds = [[v for path, v in after.items() if "seed" in path] for *_, after in (parts, naive)]
    np.testing.assert_array_equal(*seeds)
    assert [drawn for _, drawn in seeds[0]] == [MICRO_BATCHES] * len(seeds[0])
    assert len(seeds[0]) == 3
    (calls,) = (value for path, value in parts[2].items() if path.endswith("table_calls"))
    assert calls == 1


def gradient_memory(micro_batches: int) -> int:
    """Return the bytes JAX needs for the encodings' gradient, besides inputs and outputs."""
    import jax

    encoder = make_model(**DROPOUT).encoder
    batch = make_batch(micro_batches=micro_batches)

    def total(values):
        pairs = zip(encoder.trainable_variables, values, strict=True)
        with keras.StatelessScope(list(pairs)):
            outputs = trainer.encode_micro_batches(encoder, batch, training=True)
        return ops.sum(outputs["context_encoding"] * outputs["response_encoding"])

    values = [v.value for v in encoder.trainable_variables]
    compiled = jax.jit(jax.grad(total)).lower(values).compile()
    return compiled.memory_analysis().temp_size_in_bytes


if __name__ == "__main__":
    assert keras.backend.backend() == "jax"
    check_parity_with_the_whole_batch(is_multi_context=False)
    check_parity_with_dropout(is_multi_context=True)
    memory = [gradient_memory(parts) for parts in (1, NUM_PAIRS)]
    assert memory[1] < memory[0] / 2, memory
    assert "tensorflow" not in sys.modules
