"""A small checkpoint with random weights, and records, for tests of the steps after training."""

import string
from pathlib import Path

import keras
import numpy as np
from support.texts import WORDS, random_texts

from convert_tf.checkpoints.folder import save_checkpoint
from convert_tf.config.model import model_preset
from convert_tf.data.records import write_shards
from convert_tf.data.schema import Example
from convert_tf.models.encoder import DualEncoder
from convert_tf.text.vocabulary import write_vocabulary

FACTS = {
    "data": {
        "data": "/home/someone/corpus/",
        "train_examples": 500,
        "first_train_example": 1000,
        "source_shares": ["chat=0.5", "forum=0.1"],
    },
    "initial_weights": "/home/someone/smaller",
    "ranking_teacher": "1 larger + 0.5 letters",
    "ranking_joined_sources": ["chat", "forum"],
    "opposites": {
        "triplets": 2_000,
        "texts": 300,
        "teacher": "larger",
        "earlier": {"triplets": 50, "texts": 40},
    },
    "precision": "float32",
    "parameters": {"embedding": 12, "network": 34},
    "train": {"batch_size": 512, "optimizer": "adam", "steps": 900},
    "evaluation": {
        "step": 800,
        "pairs": 409_600,
        "cpu_seconds": 5430.0,
        "loss": 1.5,
        "dev": {"R100@1": 0.4321, "MRR": 0.5, "examples": 1000},
    },
}


def write_checkpoint(
    folder: Path, *, seed: int = 0, similarity_dim: int = 0, **config: object
) -> Path:
    """Write a model folder with random weights and biases that differ between the two sides.

    With `similarity_dim`, it also has a random similarity map.
    """
    characters = [*string.ascii_lowercase, *string.digits]
    subwords = [f"\ufe4f{w}" for w in dict.fromkeys([*WORDS, *characters, "?", ".", ",", "!"])]
    vocabulary = folder.parent / f"{folder.name}.txt"
    write_vocabulary(vocabulary, [*subwords, *characters])
    options = {"vocab_size": len(subwords) + len(characters), "num_oov_buckets": 7, **config}
    keras.utils.set_random_seed(seed)  # otherwise the weights would depend on earlier models
    encoder = DualEncoder(model_preset("tiny", **options))
    rng = np.random.default_rng(seed)
    for variable in encoder.trainable_variables:
        scale = 0.1 * float(np.std(variable)) + 0.02
        variable.assign(np.asarray(variable) + scale * rng.standard_normal(variable.shape))
    embedding = encoder.trunk.embedding
    if embedding.quantizer is not None:
        low, high = embedding.quantizer.range_of(embedding.table)
        embedding.quantizer_weights["range_min"].assign(low)
        embedding.quantizer_weights["range_max"].assign(high)
    similarity_map = None
    if similarity_dim:
        shape = (encoder.config.reduced_dim, similarity_dim)
        # So large that it adds about one and a half times r, as after training.
        similarity_map = (0.25 * rng.standard_normal(shape)).astype(np.float32)
    save_checkpoint(
        folder, encoder, vocabulary=vocabulary, training=FACTS, similarity_map=similarity_map
    )
    return folder


def write_records(folder: Path, number: int, *, has_history: bool = False) -> Path:
    """Write a `test` split whose responses share words with their contexts.

    With `has_history`, there is a turn before each context.
    """
    folder.mkdir()
    rng = np.random.default_rng(1)
    examples = []
    history = random_texts(number, seed=3)
    for index, context in enumerate(random_texts(number, seed=2)):
        kept = [word for word in context.split() if rng.random() < 0.7]
        response = " ".join([*kept, *rng.choice(WORDS, 3)])
        examples.append(
            Example(
                context=context,
                response=response,
                extra_contexts=(history[index],) if has_history else (),
                response_id=f"r{index}",
                subreddit="s",
                thread_id=str(index),
                context_author="a",
                response_author="b",
            )
        )
    write_shards(
        str(folder), (("test", 0, example) for example in examples), num_shards={"test": 1}
    )
    return folder
