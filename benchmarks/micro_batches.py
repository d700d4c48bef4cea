"""Measure memory and time of a training step with and without micro-batches.

```
python benchmarks/micro_batches.py --batch_size 2048 --micro_batch 0,512,128
```

Each row is measured in a separate process, which takes a few steps on random token ids. It reports
by how much the steps raise the peak resident memory, and the mean time of the steps after the first
one. `--model` and `--dim` choose the model. `KERAS_BACKEND=jax` measures JAX.
"""

import json
import resource
import subprocess
import sys
import time

import keras
import numpy as np
from absl import app, flags

from convert_tf.config.model import MODEL_PRESETS, ModelConfig, model_preset
from convert_tf.data.packing import TokenIds, pack_batch, pack_micro_batches
from convert_tf.models.encoder import DualEncoder
from convert_tf.numerics.devices import choose_precision
from convert_tf.training.encoder.objective import make_objective
from convert_tf.training.encoder.options import EncoderTraining

_MODEL = flags.DEFINE_enum("model", "convert", sorted(MODEL_PRESETS), "Preset of the model.")
_DIM = flags.DEFINE_integer("dim", 0, "Width of all layers; 0 for the preset's.")
_BATCH = flags.DEFINE_integer("batch_size", 2048, "Pairs per step.")
_MICRO = flags.DEFINE_list(
    "micro_batch", ["0", "512", "128"], "Pairs to encode at a time; 0 for all."
)
_TOKENS = flags.DEFINE_integer("tokens", 13, "Mean tokens per text; exponentially distributed.")
_DROPOUT = flags.DEFINE_float("dropout", 0.1, "Rate after embedding and self-attention.")
_PRECISION = flags.DEFINE_string("precision", "auto", "As in train.py.")
_STEPS = flags.DEFINE_integer("steps", 2, "Steps to time after the first one.")
_ONE = flags.DEFINE_integer("one", None, "Measure this micro-batch in this process.")

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes on macOS, else KiB


def peak_mib() -> float:
    """Return the peak resident memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT / 2**20


def random_batch(config: ModelConfig, train: EncoderTraining) -> dict[str, np.ndarray]:
    """Return a packed batch of random token ids."""
    random = np.random.default_rng(0)
    lengths = random.exponential(_TOKENS.value, size=2 * train.batch_size).astype(int)
    splits = np.cumsum([0, *np.clip(lengths, 1, config.max_tokens)])
    texts = TokenIds(random.integers(0, config.num_ids, size=splits[-1]), splits)
    names, packing = ("context", "response"), {"row_tokens": 64, "padding_id": config.num_ids}
    if train.num_micro_batches == 1:
        return pack_batch(texts, names, **packing)
    return pack_micro_batches(texts, names, micro_batches=train.num_micro_batches, **packing)


def measure(micro_batch: int) -> dict[str, float]:
    """Return the memory and time of a step with a micro-batch size."""
    dim = _DIM.value
    shape = {
        "embedding_dim": dim,
        "encoding_dim": dim,
        "feed_forward_dim": 4 * dim,
        "side_hidden_dim": 2 * dim,
    }
    config = model_preset(_MODEL.value, **(shape if dim else {}))
    train = EncoderTraining(batch_size=_BATCH.value, micro_batch=micro_batch)
    precision = choose_precision(_PRECISION.value)
    encoder = DualEncoder(
        config, embedding_dropout=_DROPOUT.value, attention_dropout=_DROPOUT.value, dtype=precision
    )
    model = make_objective(encoder, train, precision=precision)
    batch = random_batch(config, train)
    real = batch["segment_lengths"].sum()
    before, start = peak_mib(), time.perf_counter()
    model.train_on_batch(batch)
    first = time.perf_counter() - start
    start, cpu_start = time.perf_counter(), time.process_time()
    for _ in range(_STEPS.value):
        model.train_on_batch(batch)
    seconds = (time.perf_counter() - start) / _STEPS.value
    return {
        "micro_batch": micro_batch,
        "mib": peak_mib() - before,
        "cpu_seconds": (time.process_time() - cpu_start) / _STEPS.value,
        "seconds": seconds,
        "seconds_more_in_first": first - seconds,
        "padding": 100 * (1 - real / batch["token_ids"].size),
    }


def main(argv: list[str]) -> None:
    if _ONE.value is not None:
        print(json.dumps(measure(_ONE.value)))
        return
    print(f"batch of {_BATCH.value}, {_MODEL.value}, backend {keras.backend.backend()}")
    print("| micro-batch | MiB | CPU s a step | s a step | s to trace | padding, % |")
    print("|---|---|---|---|---|---|")
    for micro_batch in _MICRO.value:
        done = subprocess.run(
            [sys.executable, *argv, *sys.argv[1:], f"--one={micro_batch}"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        row = json.loads(done.stdout.splitlines()[-1])
        print(
            f"| {row['micro_batch'] or 'none'} | {row['mib']:.0f} | {row['cpu_seconds']:.2f} | "
            f"{row['seconds']:.2f} | {row['seconds_more_in_first']:.1f} | {row['padding']:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    app.run(main)
