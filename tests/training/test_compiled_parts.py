"""On TensorFlow's CPU parts of a step in 16 bits are compiled, for few shapes of its batches."""

import numpy as np
import pytest
from support.token_corpus import NUM_OOV_BUCKETS, write_corpus

from convert_tf.checkpoints.folder import load_checkpoint
from convert_tf.config.model import model_preset
from convert_tf.config.train import DataConfig, TrainConfig
from convert_tf.data.token_arrays import ArrayFolder
from convert_tf.numerics import tensorflow_cpu
from convert_tf.training.encoder.run import train
from convert_tf.training.encoder.sources import make_batches
from convert_tf.training.state import saved_checkpoints

MODEL = model_preset(
    "tiny", embedding_dim=16, feed_forward_dim=32, side_hidden_dim=32, encoding_dim=16,
    num_oov_buckets=NUM_OOV_BUCKETS,
)  # fmt: skip
CONFIG = {
    "steps": 2, "batch_size": 8, "optimizer": "adam", "learning_rate": 0.01, "scale_start": 20.0,
    "l2": 0.0, "eval_every": 2, "eval_examples": 100, "checkpoint_every": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_train=60)


def final_weights(corpus, output, **fields):
    config, data = TrainConfig(**CONFIG, **fields), DataConfig(data=corpus.arrays)
    run = train(MODEL, config, data, output=str(output))
    encoder, _ = load_checkpoint(saved_checkpoints(run)[0])
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
        assert np.abs(one - other).max() <= 4.1 * CONFIG["learning_rate"]
        assert np.abs(one - other).mean() <= 0.5 * CONFIG["learning_rate"]


@pytest.mark.parametrize(("precision", "multiple"), [("float32", 1), ("mixed_bfloat16", 16)])
def test_batches_in_16_bits_have_few_numbers_of_rows(corpus, precision, multiple):
    examples = {
        split: ArrayFolder(corpus.arrays).open(split, max_tokens=60) for split in ("train", "dev")
    }
    batches, evaluated = make_batches(
        examples, examples["train"], TrainConfig(**CONFIG), DataConfig(data=corpus.arrays),
        precision=precision,
    )  # fmt: skip
    rows = len(next(iter(batches))["token_ids"])
    assert rows % multiple == 0
    assert (rows % 16 == 0) == (multiple == 16)
    assert len(next(iter(evaluated["dev"]))["token_ids"]) % 16
