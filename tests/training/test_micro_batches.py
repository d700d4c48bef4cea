"""Encoding in micro-batches gives the whole batch's loss and gradients, also with dropout."""

from pathlib import Path

import keras
import numpy as np
import pytest
from support import micro_batch_cases as cases
from support.processes import ON_JAX, printed_by

from convert_tf.training.encoder.micro_batches import encode_micro_batches

pytestmark = pytest.mark.traced


@pytest.mark.parametrize("is_multi_context", [pytest.param(False, marks=pytest.mark.slow), True])
def test_loss_and_gradients_are_those_of_the_whole_batch(is_multi_context):
    cases.check_parity_with_the_whole_batch(is_multi_context)


@pytest.mark.slow
@pytest.mark.parametrize("is_multi_context", [False, True])
def test_what_is_encoded_again_drops_the_same(is_multi_context):
    cases.check_parity_with_dropout(is_multi_context)


@pytest.mark.slow
def test_jax_does_so_too():
    printed_by(Path(cases.__file__).read_text(), **ON_JAX)


def test_outputs_are_in_the_order_of_the_batch():
    """Outputs keep the batch's order, also with k texts per example and without gradients."""
    encoder = cases.make_model(is_multi_context=True).encoder
    whole = encoder(cases.make_batch(is_multi_context=True))
    batch = cases.make_batch(is_multi_context=True, micro_batches=cases.MICRO_BATCHES)
    in_parts = encode_micro_batches(encoder, {**batch, "response_groups": np.zeros(12)})
    assert set(in_parts) == set(whole)
    for name, value in whole.items():
        assert keras.backend.standardize_dtype(in_parts[name].dtype) == value.dtype.name
        np.testing.assert_allclose(in_parts[name], value, rtol=1e-5, atol=1e-5)


def test_equal_texts_of_different_micro_batches_are_dropped_from_differently():
    batch = cases.make_batch(micro_batches=cases.MICRO_BATCHES, are_equal=True)
    for dropout, are_alike in (({}, True), (cases.DROPOUT, False)):
        encoder = cases.make_model(**dropout).encoder
        encodings = encode_micro_batches(encoder, batch, training=True)["context_encoding"]
        first = np.asarray(encodings)[: cases.MICRO_BATCHES]  # the first text of each micro-batch
        distances = np.linalg.norm(first[:, None] - first[None], axis=-1)
        assert (distances[~np.eye(len(first), dtype=bool)].min() > 0.01) == (not are_alike)


def test_mixed_precision_keeps_its_gradients():
    """Gradients differ from float32 by at most 10 % of their norm."""
    exact = cases.step(cases.make_model(eager=True), cases.make_batch())[1]
    model = cases.make_model(eager=True, dtype="mixed_bfloat16")
    assert model.encoder.compute_dtype == "bfloat16"
    found = cases.step(model, cases.make_batch(micro_batches=cases.MICRO_BATCHES))[1]
    for path, gradient in exact.items():
        assert np.linalg.norm(found[path] - gradient) <= 0.1 * np.linalg.norm(gradient), path
