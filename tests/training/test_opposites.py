"""The opposites loss, and training runs with it."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from support.commands import call_command
from support.model_cases import SMALL
from support.token_corpus import NUM_OOV_BUCKETS, write_corpus

from convert_tf import load_model
from convert_tf.text.tokenizer import load_tokenizer
from convert_tf.training.encoder.options import EncoderTraining
from convert_tf.training.encoder.task import train

MODEL = dataclasses.replace(
    SMALL,
    max_relative_attention=(3,),
    side_layers=1,
    max_tokens=60,
    num_oov_buckets=NUM_OOV_BUCKETS,
)


def test_weight_and_triplets_go_together():
    for options in ({"opposites": 1.0}, {"triplets": "ids/"}):
        with pytest.raises(ValueError, match="opposites"):
            EncoderTraining(data="x", **options)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    written = write_corpus(folder, num_train=32, num_dev=110)
    words = ["lamp", "door", "music", "heat", "fan", "radio", "window", "oven"]
    rows = [
        {"anchor": f"{w} on", "positive": f"please start {w}", "negative": f"{w} off"}
        for w in words
    ]
    path = folder / "triplets.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    call_command(
        "tokenize", "--triplets", str(path), "--vocab", written.vocabulary, "--output",
        str(folder / "triplets"), f"--num_oov_buckets={NUM_OOV_BUCKETS}",
    )  # fmt: skip
    return written, str(folder / "triplets"), rows


def trained(corpus, output, **options):
    written, triplets, _ = corpus
    config = EncoderTraining(
        data=str(written.arrays), triplets=triplets, opposites=1.0, batch_size=8,
        optimizer="adam", eval_examples=100, precision="float32", l2=0.0, scale_start=20.0,
        scale_end=20.0, scale_anneal_steps=0, **options,
    )  # fmt: skip
    return train(MODEL, config, output=str(output))


def test_a_run_learns_which_texts_are_opposite(corpus, tmp_path):
    run = trained(corpus, tmp_path / "run", steps=60, learning_rate=0.003,
                  final_learning_rate=0.003, eval_every=60, ranking=0.2)  # fmt: skip
    encoder, vocabulary = load_model(str(run))
    tokenizer = load_tokenizer(vocabulary, num_oov_buckets=NUM_OOV_BUCKETS)

    def unit(key):
        ids = tokenizer.token_ids([row[key] for row in corpus[2]]).to_tensor(tokenizer.padding_id)
        r = keras.ops.convert_to_numpy(encoder(ids.numpy()))
        return r / np.linalg.norm(r, axis=1, keepdims=True)

    anchor, positive, negative = map(unit, ("anchor", "positive", "negative"))
    assert ((anchor * positive).sum(1) > (anchor * negative).sum(1)).all()


def test_parts_of_a_batch_give_the_same_loss(corpus, tmp_path):
    rows = []
    for part in (0, 4):
        run = trained(corpus, tmp_path / f"run{part}", steps=2, learning_rate=0.01,
                      final_learning_rate=0.01, eval_every=2, micro_batch=part,
                      triplets_per_pair=2)  # fmt: skip
        encoder, _ = load_model(str(run))
        rows.append(encoder.get_weights())
    for one, other in zip(*rows, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
