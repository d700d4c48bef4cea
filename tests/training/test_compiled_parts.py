"""On TensorFlow's CPU parts of a step in 16 bits are compiled, for few shapes of its batches."""

import dataclasses
import math

import numpy as np
import pytest
from support.encoder_runs import CONFIG as RUN_CONFIG
from support.encoder_runs import run

from convert_tf.checkpoints.folder import load_checkpoint
from convert_tf.data.packing import partly_compiled_row_multiple
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.numerics import tensorflow_cpu
from convert_tf.training.encoder.sources import make_batches
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


def rows_of_batches(corpus, *, precision, number=6, **fields):
    examples = {
        split: ArrayFolder(corpus.arrays).open(split, max_tokens=60) for split in ("train", "dev")
    }
    config = dataclasses.replace(RUN_CONFIG, **{**CONFIG, **fields}, data=corpus.arrays)
    batches, _ = make_batches(
        examples, examples["train"], config, max_tokens=60, precision=precision
    )
    return [batch["token_ids"].shape[-2] for batch, _ in zip(batches, range(number), strict=False)]


@pytest.mark.parametrize(("max_tokens", "expected"), [(60, 64), (70, 70)])
def test_a_row_holds_the_longest_text(corpus, max_tokens, expected):
    examples = {"train": ArrayFolder(corpus.arrays).open("train", max_tokens=60)}
    config = dataclasses.replace(RUN_CONFIG, **CONFIG, data=corpus.arrays, eval_splits=())
    batches, _ = make_batches(examples, examples["train"], config, max_tokens=max_tokens)
    assert next(iter(batches))["token_ids"].shape[1] == expected


def test_batches_in_16_bits_have_few_numbers_of_rows(corpus):
    exact = rows_of_batches(corpus, precision="float32", batch_size=48)
    own = rows_of_batches(corpus, precision="mixed_bfloat16", batch_size=48)
    assert [math.ceil(rows / 3) * 3 for rows in exact] == own
    assert len({*own}) < len({*exact})


def test_small_batches_are_not_padded(corpus):
    exact = rows_of_batches(corpus, precision="float32")
    assert rows_of_batches(corpus, precision="mixed_bfloat16") == exact
    assert [partly_compiled_row_multiple(pairs) for pairs in (8, 64, 256, 8192)] == [1, 4, 16, 16]
