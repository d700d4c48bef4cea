"""Short training runs of a tiny encoder, for tests of their inputs, results and files."""

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from support.token_corpus import NUM_OOV_BUCKETS

from convert_tf.checkpoints.folder import load_checkpoint
from convert_tf.config.model import model_preset
from convert_tf.training.encoder.options import EncoderTraining
from convert_tf.training.encoder.task import train
from convert_tf.training.loop import METRICS_FILE
from convert_tf.training.state import saved_checkpoints

MODEL_FIELDS = {
    "embedding_dim": 16, "feed_forward_dim": 32, "side_hidden_dim": 32, "encoding_dim": 16,
    "max_relative_attention": (3,), "num_oov_buckets": NUM_OOV_BUCKETS,
}  # fmt: skip
MODEL = model_preset("tiny", **MODEL_FIELDS)
CONFIG = EncoderTraining(
    steps=4, batch_size=16, optimizer="adam", learning_rate=0.01, scale_start=20.0, l2=0.0,
    precision="float32", eval_every=4, eval_examples=100, checkpoint_every=2, shuffle_buffer=64,
)  # fmt: skip
# Learning rates so small that a run leaves its initial weights unchanged.
STANDING_STILL = {"learning_rate": 1e-30, "final_learning_rate": 0.0}


def run(data, output, *, model=MODEL, vocabulary=None, init_from=None, **changes) -> Path:
    """Train on `data`; `changes` override fields of `CONFIG`."""
    return train(
        model,
        dataclasses.replace(CONFIG, data=str(data), **changes),
        output=str(output),
        vocabulary=None if vocabulary is None else str(vocabulary),
        init_from=None if init_from is None else str(init_from),
    )


def stopped_copy(run_folder: Path, target: Path) -> Path:
    """Copy a run without its last checkpoint, as if it had been killed before writing it."""
    shutil.copytree(run_folder, target)
    shutil.rmtree(saved_checkpoints(target)[0])
    return target


def weights(folder: Path) -> list[np.ndarray]:
    """Return all variables of the model in a folder."""
    return [np.array(v) for v in load_checkpoint(folder)[0].variables]


def final_weights(run_folder: Path) -> list[np.ndarray]:
    """Return all variables of a run after its last step."""
    return weights(saved_checkpoints(run_folder)[0])


def differ(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> bool:
    return any(not np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def rows_of(run_folder: Path) -> list[dict]:
    """Return the logged measurements of a run."""
    return [json.loads(line) for line in (run_folder / METRICS_FILE).read_text().splitlines()]


def flags_of(config: EncoderTraining, **options) -> list[str]:
    """Return the flags of `train` for `MODEL` and `config`; `options` are additional flags."""
    defaults = EncoderTraining.defaults()
    given = {name: x for name, x in config.to_dict().items() if x != defaults[name]}
    # The default for this flag is a thousandth of the peak rate.
    given["final_learning_rate"] = config.final_learning_rate
    given |= {"model": "tiny", **MODEL_FIELDS, **options}
    return [
        f"--{name}={','.join(map(str, x)) if isinstance(x, tuple) else x}"
        for name, x in given.items()
    ]
