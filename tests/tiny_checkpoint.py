"""A small checkpoint with random weights, and records, for tests of what comes after training."""

import string
from pathlib import Path

import numpy as np

from convert_tf.checkpoint import save_checkpoint
from convert_tf.config import model_preset
from convert_tf.data.records import write_shards
from convert_tf.data.threads import Example
from convert_tf.encoders import DualEncoder
from convert_tf.text.vocabulary import write_vocabulary

SENTENCE = (
    "how are you do i reset my password please what time is it the cat sat on mat where can find "
    "help with order bank card lost today tomorrow train late thanks for your answer yes no maybe"
)
WORDS = SENTENCE.split()
FACTS = {
    "data": {
        "data": "/home/someone/corpus/",
        "train_examples": 500,
        "first_train_example": 1000,
        "source_shares": ["chat=0.5", "forum=0.1"],
    },
    "initial_weights": "/home/someone/smaller",
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


def write_checkpoint(folder: Path, *, seed: int = 0, **config: object) -> Path:
    """Writes a model directory whose weights, biases included, are random and differ by side."""
    characters = [*string.ascii_lowercase, *string.digits]
    subwords = [f"\ufe4f{w}" for w in dict.fromkeys([*WORDS, *characters, "?", ".", ",", "!"])]
    vocabulary = folder.parent / f"{folder.name}.txt"
    write_vocabulary(vocabulary, [*subwords, *characters])
    encoder = DualEncoder(
        model_preset(
            "tiny", vocab_size=len(subwords) + len(characters), num_oov_buckets=7, **config
        )
    )
    rng = np.random.default_rng(seed)
    for variable in encoder.trainable_variables:
        scale = 0.1 * float(np.std(variable)) + 0.02
        variable.assign(np.asarray(variable) + scale * rng.standard_normal(variable.shape))
    embedding = encoder.trunk.embedding
    if embedding.quantizer is not None:
        low, high = embedding.quantizer.range_of(embedding.table)
        embedding.quantizer_weights["range_min"].assign(low)
        embedding.quantizer_weights["range_max"].assign(high)
    save_checkpoint(folder, encoder, vocabulary=vocabulary, training=FACTS)
    return folder


def random_texts(number: int, *, seed: int = 0) -> list[str]:
    """Sentences of 1 to 12 of the words."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 13))) for _ in range(number)]


def write_records(folder: Path, number: int) -> Path:
    """Writes a `test` split whose responses share words with their contexts."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    examples = []
    for index, context in enumerate(random_texts(number, seed=2)):
        kept = [word for word in context.split() if rng.random() < 0.7]
        response = " ".join([*kept, *rng.choice(WORDS, 3)])
        examples.append(
            Example(
                context=context,
                response=response,
                extra_contexts=(),
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
