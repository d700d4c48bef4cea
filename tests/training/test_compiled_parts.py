"""On TensorFlow's CPU parts of a step in 16 bits are compiled, for few shapes of its batches."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from support.encoder_runs import CONFIG as RUN_CONFIG
from support.encoder_runs import MODEL, run

from convert_tf.checkpoints.folder import load_checkpoint
from convert_tf.data.packing import partly_compiled_row_multiple
from convert_tf.numerics import tensorflow_cpu
from convert_tf.training.encoder.data import RunData
from convert_tf.training.state import saved_checkpoints

NUM_TRAIN = 60

pytestmark = pytest.mark.traced

CONFIG = {"steps": 2, "batch_size": 8, "eval_every": 2, "checkpoint_every": 1}


def final_weights(corpus, output, **fields):
    folder = run(corpus.arrays, output, **CONFIG, **fields)
    encoder, _ = load_checkpoint(saved_checkpoints(folder)[0])
    return [np.array(v, "float32") for v in encoder.trainable_variables]


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch", [0, 4])
def test_a_run_in_16_bits_compiles_parts_and_ends_where_others_do(
    corpus, tmp_path, monkeypatch, micro_batch
):
    traced, compute = [], tensorflow_cpu._compiled_feed_forward
    monkeypatch.setattr(
        tensorflow_cpu, "_compiled_feed_forward", lambda *own: traced.append(1) or compute(*own)
    )
    exact = final_weights(corpus, tmp_path / "exact", precision="float32")
    assert not traced
    own = final_weights(
        corpus, tmp_path / "own", precision="mixed_bfloat16", micro_batch=micro_batch
    )
    assert traced
    for one, other in zip(exact, own, strict=True):
        # Adam's first steps have the size of the rate, in whichever direction.
        assert np.abs(one - other).mean() <= 0.5 * RUN_CONFIG.learning_rate


def batches_of(corpus, tmp_path, model=MODEL, data="arrays", precision="float32", **fields):
    config = dataclasses.replace(
        RUN_CONFIG, **{**CONFIG, **fields}, data=getattr(corpus, data), eval_splits=()
    )
    opened = RunData(model, config, tmp_path, vocabulary=corpus.vocabulary, init_from=None)
    batches, _ = opened.batches(precision=precision)
    return [batch["token_ids"].shape for batch in itertools.islice(batches, 6)]


@pytest.mark.parametrize(("max_tokens", "expected"), [(60, 64), (70, 70)])
def test_a_row_holds_the_longest_text(corpus, tmp_path, max_tokens, expected):
    model = dataclasses.replace(MODEL, max_tokens=max_tokens)
    assert batches_of(corpus, tmp_path, model, "records")[0][1] == expected


def test_batches_in_16_bits_have_few_numbers_of_rows(corpus, tmp_path):
    exact, own = (
        [rows for rows, _ in batches_of(corpus, tmp_path, precision=precision, batch_size=48)]
        for precision in ("float32", "mixed_bfloat16")
    )
    assert [math.ceil(rows / 3) * 3 for rows in exact] == own
    assert len({*own}) < len({*exact})


def test_small_batches_are_not_padded(corpus, tmp_path):
    exact = batches_of(corpus, tmp_path)
    assert batches_of(corpus, tmp_path, precision="mixed_bfloat16") == exact
    assert [partly_compiled_row_multiple(pairs) for pairs in (8, 64, 256, 8192)] == [1, 4, 16, 16]
